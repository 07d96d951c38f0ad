"""Time beam search for outputs that must contain phrases beside free search: same run, same texts, rounds interleaved.

python benchmarks/constrained_search.py RUN PAIRS [LINES] [BEAM]     PAIRS: source and reference, separated by a tab

Phrases are words of the references, as terms of a glossary are. Times are of the process on one thread, which a busy machine
stretches less than those of a clock; a row's time is the median of rounds, and its ratios are medians of each round's ratio to
free search. With 0 phrases no source has any, so this is the same search again: the noise. Rows are the hypotheses that the
model continued, in all steps together. The last column is for sources that are searched one by one.
"""

import random
import statistics
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from qkv.decoding.hypothesis import Hypothesis
from qkv.decoding.phrases import Phrase
from qkv.inference.load import load_translator
from qkv.inference.translator import Translator
from qkv.text.files import read_lines

COUNTS = (0, 1, 2, 4)  # phrases of a sentence
ROUNDS = 3
ALONE = 30  # sources that are also searched one by one

Phrases = list[tuple[Phrase, ...]] | None


class Measured(NamedTuple):
    """A search of all sources."""

    best: list[Hypothesis]
    seconds: float  # on the clock
    cpu: float  # seconds of the process
    steps: int
    rows: int


def choose_phrases(references: list[str], translator: Translator, count: int) -> list[tuple[Phrase, ...]]:
    """Return `count` different words of each reference as phrases; fewer if it has fewer words of four letters."""
    rng, chosen = random.Random(1), []
    for reference in references:
        words = sorted({word.strip(".,;:!?\"'()") for word in reference.split()[1:]})
        words = [word for word in words if len(word) >= 4 and word.isalpha()]
        picked = rng.sample(words, min(count, len(words)))
        chosen.append(tuple(Phrase((tuple(ids),)) for ids in translator.tokenizers.target.encode_words(picked)) if picked else ())
    return chosen


def count_met(ids: list[int], phrases: tuple[Phrase, ...]) -> int:
    """Return how many of the phrases an output contains."""
    found = [tuple(ids[start:end]) for end in range(1, len(ids) + 1) for start in range(end)]
    return sum(phrases[: k + 1].count(one) <= sum(map(found.count, one.forms)) for k, one in enumerate(phrases))


def measure(translator: Translator, sources: list[list[int]], beam: int, phrases: Phrases) -> Measured:
    """Search the best hypothesis of each source."""
    config, sizes, decoder = translator.decoding(beam=beam, n_best=1), [], translator.engine.decoder
    step = decoder.step

    def counted(last: Tensor, state: Any) -> Tensor:
        sizes.append(len(last))
        return step(last, state)

    with mock.patch.object(decoder, "step", counted):
        wall, cpu = time.perf_counter(), time.process_time()
        found = translator.engine.decode(sources, config, phrases=phrases)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    return Measured([best for best, *_ in found], wall, cpu, len(sizes), sum(sizes))


def measure_alone(translator: Translator, sources: list[list[int]], beam: int, phrases: Phrases) -> float:
    """Return the seconds of the process that the first sources take one by one."""
    each = [phrases[i : i + 1] if phrases else None for i in range(ALONE)]
    return sum(measure(translator, [source], beam, own).cpu for source, own in zip(sources, each, strict=False))


def ratio(values: list[float], free: list[float]) -> str:
    """Return the median and the range of each round's ratio to free search."""
    ratios = sorted(value / other for value, other in zip(values, free, strict=True))
    return f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"


def main(run: str, file: str, lines: str = "200", beam: str = "5") -> None:
    """Print the time of free search and of searches with phrases."""
    torch.set_num_threads(1)
    translator, width = load_translator(run, "cpu"), int(beam)
    pairs = [line.split("\t")[:2] for line in read_lines(Path(file)) if line and "\t" in line][: int(lines)]
    parts = [(translator.segmenter.cut(source), target) for source, target in pairs]
    alone = [(cut[0].ids, target) for cut, target in parts if len(cut) == 1 and cut[0].ids]
    sources, references = [ids for ids, _ in alone], [target for _, target in alone]
    wanted: dict[str, Phrases] = {"free": None}
    wanted |= {f"{count} phrases": choose_phrases(references, translator, count) for count in COUNTS}
    measure(translator, sources[:50], width, None)
    rounds = [{name: measure(translator, sources, width, each) for name, each in wanted.items()} for _ in range(ROUNDS)]
    singly = [{name: measure_alone(translator, sources, width, each) for name, each in wanted.items()} for _ in range(ROUNDS)]
    columns = ("search", "phrases", "met", "tokens out", "steps", "rows", "CPU s", "CPU ratio (range)", "clock ratio (range)")
    table = Table(*columns, "CPU ratio, one by one")
    for name, each in wanted.items():
        times, free = [done[name] for done in rounds], [done["free"] for done in rounds]
        total = sum(map(len, each or ()))
        table.add_row(
            name,
            f"{total:,}",
            f"{sum(count_met(*pair) for pair in zip((one.ids for one in times[0].best), each or (), strict=False)):,}",
            f"{sum(len(one.ids) for one in times[0].best):,}",
            f"{times[0].steps:,}",
            f"{times[0].rows:,}",
            f"{statistics.median(one.cpu for one in times):.2f}",
            ratio([one.cpu for one in times], [one.cpu for one in free]),
            ratio([one.seconds for one in times], [one.seconds for one in free]),
            ratio([done[name] for done in singly], [done["free"] for done in singly]),
        )
    print(f"{len(sources):,} sources, beam {beam}, 1 thread")
    Console(width=170).print(table)


if __name__ == "__main__":
    main(*sys.argv[1:])
