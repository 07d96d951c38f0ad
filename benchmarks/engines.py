"""Compare inference engines with our own: how many translations are identical, how far scores differ, and how fast each is.

python benchmarks/engines.py RUN FILE [LINES]     FILE: one text per line, or pairs whose first column is used
"""

import statistics
import sys
import time
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from qkv.base.hardware import cpu_cores
from qkv.decoding.hypothesis import Hypothesis
from qkv.inference.load import load_translator
from qkv.inference.translator import Translator
from qkv.text.files import read_lines

ENGINES = [("own", None), ("ctranslate2", "float32"), ("ctranslate2", "int8"), ("ctranslate2", "bf16"), ("onnx", None)]
ROUNDS = 3


def decode(translator: Translator, sources: list[list[int]], beam: int) -> tuple[list[Hypothesis], float]:
    """Return the best hypothesis of each source, and texts per second."""
    config = translator.decoding(beam=beam, n_best=1)
    torch.set_num_threads(cpu_cores())  # CTranslate2 sets the threads of the whole process to those of one worker
    start = time.perf_counter()
    found = translator.engine.decode(sources, config)
    return [best for best, *_ in found], len(sources) / (time.perf_counter() - start)


def main(run: str, file: str, lines: str = "1000") -> None:
    """Compare all engines, with greedy and beam search; rounds are interleaved."""
    texts = [line.split("\t")[0] for line in read_lines(Path(file)) if line][: int(lines)]
    loaded = {(name, precision): load_translator(run, "cpu", name, precision) for name, precision in ENGINES}
    own = loaded["own", None]
    sources = [ids for text in texts for ids in own.parts(text)]
    table = Table("engine", "beam", "identical", "largest score difference among these", "texts/s, median of 3 (range)")
    for beam in (1, 5):
        rounds = [{key: decode(translator, sources, beam) for key, translator in loaded.items()} for _ in range(ROUNDS)]
        reference = rounds[0]["own", None][0]
        for (name, precision), (found, _) in rounds[0].items():
            same = [(one, other) for one, other in zip(reference, found, strict=True) if one.ids == other.ids]
            difference = max((abs(one.score - other.score) for one, other in same), default=0.0)
            speeds = sorted(times[name, precision][1] for times in rounds)
            speed = f"{statistics.median(speeds):,.0f} ({speeds[0]:,.0f} to {speeds[-1]:,.0f})"
            table.add_row(
                f"{name} {precision or ''}", str(beam), f"{len(same):,} of {len(reference):,}", f"{difference:.4f}", speed
            )
    Console(width=140).print(table)


if __name__ == "__main__":
    main(*sys.argv[1:])
