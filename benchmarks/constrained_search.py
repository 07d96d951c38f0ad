"""Time beam search for outputs that must contain phrases beside free search: same run, same texts, rounds interleaved.

python benchmarks/constrained_search.py RUN PAIRS [LINES] [BEAM]     PAIRS: source and reference, separated by a tab

Phrases are words of the references, as terms of a glossary are. A row's time is the median of rounds, and its ratio the median
of each round's ratio to free search. With 0 phrases no source has any, so this is the same search again: the noise.
"""

import random
import statistics
import sys
import time
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from qkv.base.hardware import cpu_cores
from qkv.decoding.hypothesis import Hypothesis
from qkv.decoding.phrases import Phrase
from qkv.inference.translator import Translator, load_translator
from qkv.text.files import read_lines

COUNTS = (0, 1, 2, 4)  # phrases of a sentence
ROUNDS = 5


def choose_phrases(references: list[str], translator: Translator, count: int) -> list[tuple[Phrase, ...]]:
    """Return `count` different words of each reference as phrases; fewer if it has fewer words of four letters."""
    rng, chosen = random.Random(1), []
    for reference in references:
        words = sorted({word.strip(".,;:!?\"'()") for word in reference.split()[1:]})
        words = [word for word in words if len(word) >= 4 and word.isalpha()]
        picked = rng.sample(words, min(count, len(words)))
        chosen.append(tuple(Phrase((tuple(ids),)) for ids in translator.tokenizers.target.encode_words(picked)) if picked else ())
    return chosen


def decode(
    translator: Translator, sources: list[list[int]], beam: int, phrases: list[tuple[Phrase, ...]] | None
) -> tuple[list[Hypothesis], float]:
    """Return the best hypothesis of each source, and the seconds it took."""
    config = translator.decoding(beam=beam, n_best=1)
    start = time.perf_counter()
    found = translator.engine.decode(sources, config, phrases=phrases)
    return [best for best, *_ in found], time.perf_counter() - start


def main(run: str, file: str, lines: str = "500", beam: str = "5") -> None:
    """Print the time of free search and of searches with phrases."""
    torch.set_num_threads(cpu_cores())
    translator = load_translator(run, "cpu")
    pairs = [line.split("\t")[:2] for line in read_lines(Path(file)) if line and "\t" in line][: int(lines)]
    parts = [(translator.segmenter.cut(source), target) for source, target in pairs]
    alone = [(cut[0].ids, target) for cut, target in parts if len(cut) == 1 and cut[0].ids]
    sources, references = [ids for ids, _ in alone], [target for _, target in alone]
    wanted: dict[str, list[tuple[Phrase, ...]] | None] = {"free": None}
    wanted |= {f"{count} phrases": choose_phrases(references, translator, count) for count in COUNTS}
    decode(translator, sources[:50], int(beam), None)
    rounds = [{name: decode(translator, sources, int(beam), each) for name, each in wanted.items()} for _ in range(ROUNDS)]
    table = Table("search", "phrases", "met", "tokens out", "seconds, median", "ratio to free, median (range)")
    for name, each in wanted.items():
        found = rounds[0][name][0]
        total = sum(map(len, each or ()))
        ratios = sorted(times[name][1] / times["free"][1] for times in rounds)
        table.add_row(
            name,
            f"{total:,}",
            f"{total - sum(len(one.missing) for one in found):,}",
            f"{sum(len(one.ids) for one in found):,}",
            f"{statistics.median(times[name][1] for times in rounds):.2f}",
            f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})",
        )
    print(f"{len(sources):,} sources, beam {beam}, {torch.get_num_threads()} threads")
    Console(width=140).print(table)


if __name__ == "__main__":
    main(*sys.argv[1:])
