"""Translate a test set without and with a glossary that is mined from training pairs: terms satisfied, BLEU, chrF and time.

python benchmarks/glossary.py RUN TRAIN TEST [--lines N] [--taught RUN]     TRAIN, TEST: source and target, separated by a tab

--taught adds rows for a run that was trained with data.glossary: without a glossary, enforced, and soft. Train it with the file
of benchmarks/mine_glossary.py, which leaves out the terms of TEST, so that they are new to it.

A term is a source word and the target word it goes with most reliably: by Dice's coefficient over sentences, among words that
occur in some but not in many sentences. The glossary has the terms that occur on both sides of a test pair: an oracle, as a
translator's own glossary would be. A term is satisfied if its target is in the translation, as a whole word.
"""

import argparse
import re
import time
from collections import Counter
from itertools import islice
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from qkv.inference.load import load_translator
from qkv.text.files import read_lines
from qkv.text.glossary import Glossary
from qkv.text.translation_metrics import score_corpus

WORD = re.compile(r"[^\W\d_]{4,}")
TRAIN_PAIRS = 200_000
FEWEST, MOST = 5, 0.002  # occurrences of a term in training: at least so many, and at most this share of the pairs
RELIABLE = 0.4  # Dice


def read_pairs(file: str, most: int) -> list[tuple[str, str]]:
    """Return the first pairs of a file."""
    lines = (line.split("\t") for line in read_lines(Path(file)) if line and "\t" in line)
    return [(source, target) for source, target, *_ in islice(lines, most)]


def mine(train: list[tuple[str, str]], test: list[tuple[str, str]]) -> dict[str, str]:
    """Return the reliable word pairs of the training pairs that occur on both sides of a test pair."""
    words = [(set(WORD.findall(source)), set(WORD.findall(target))) for source, target in train]
    counts = [Counter(word for pair in words for word in pair[side]) for side in (0, 1)]
    known = [{word for word, n in each.items() if FEWEST <= n <= MOST * len(train)} for each in counts]
    together: Counter[tuple[str, str]] = Counter()
    for source, target in words:
        together.update((s, t) for s in source & known[0] for t in target & known[1])
    best: dict[str, tuple[float, str]] = {}
    for (source, target), n in together.items():
        dice = 2 * n / (counts[0][source] + counts[1][target])
        if dice >= RELIABLE and dice > best.get(source, (0.0, ""))[0]:
            best[source] = (dice, target)
    found = {}
    for source, target in test:
        there = set(WORD.findall(target))
        found.update({word: best[word][1] for word in WORD.findall(source) if word in best and best[word][1] in there})
    return found


def satisfied(translations: list[str], wanted: list[list[str]]) -> int:
    """Return how many target terms are whole words of the translations."""
    return sum((Counter(WORD.findall(text)) & Counter(terms)).total() for text, terms in zip(translations, wanted, strict=True))


def main() -> None:
    """Print the comparison."""
    parser = argparse.ArgumentParser()
    for name in ("run", "train", "test"):
        parser.add_argument(name)
    parser.add_argument("--lines", type=int, default=1000)
    parser.add_argument("--taught")
    given = parser.parse_args()
    pairs = read_pairs(given.test, given.lines)
    glossary = Glossary(mine(read_pairs(given.train, TRAIN_PAIRS), pairs))
    sources, references = [source for source, _ in pairs], [target for _, target in pairs]
    wanted = [[match.targets[0] for match in glossary.find(source)] for source in sources]
    total = sum(map(len, wanted))
    print(f"{len(glossary):,} terms, {total:,} times in {sum(map(bool, wanted)):,} of {len(sources):,} sentences")
    table = Table("run", "glossary", "terms satisfied", "BLEU", "chrF", "seconds", "ratio")
    ways: dict[str, dict[str, Any]] = {
        "none": {},
        "enforced": {"glossary": glossary},
        "soft": {"glossary": glossary, "soft": True},
    }
    for run in filter(None, (given.run, given.taught)):
        translator, first = load_translator(run, "cpu"), 0.0
        for way, options in ways.items():
            if way == "soft" and run != given.taught:
                continue
            start = time.perf_counter()
            texts = translator.translate(sources, beam=5, **options)
            seconds = time.perf_counter() - start
            first = first or seconds
            language = translator.recipe.data.languages[1] if translator.recipe.data.languages else None
            scores = score_corpus(texts, [[one] for one in references], target_language=language)
            share = f"{satisfied(texts, wanted) / max(1, total):.1%}"
            values = [f"{score.value:.2f}" for score in scores]
            table.add_row(Path(run).name, way, share, *values, f"{seconds:.1f}", f"{seconds / first:.2f}")
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
