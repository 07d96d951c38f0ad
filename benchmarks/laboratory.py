"""The time that views of the laboratory take to compute anew, as the service's page asks for them after each change.

PYTHONPATH=src python benchmarks/laboratory.py RUN TEXT OTHER --out FOLDER

OTHER differs from TEXT in a word and has as many tokens. Each view is computed once to warm up and then several times; the
table has the median, the longest, the CPU time, and the bytes of its JSON.
"""

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import qkv
from qkv.lens.changes import SoftmaxTemperature, WithoutHead, WithoutLayer
from qkv.lens.word_edits import DeleteWord

TIMES = 9


def main() -> None:
    """Measure each view, print a table and write it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("text")
    parser.add_argument("other")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    loaded: Any = qkv.load(options.run, "cpu")
    text = options.text
    attention = loaded.inspect(text).maps()[-1].name
    layer = attention.rsplit(".", 1)[0] if attention.count(".") > 1 else attention
    views: dict[str, Callable[[], Any]] = {
        "change: without a head": lambda: qkv.change(loaded, text, [WithoutHead(attention, 0)], maps=[attention]),
        "change: without a layer": lambda: qkv.change(loaded, text, [WithoutLayer(layer)], maps=[attention]),
        "change: a temperature": lambda: qkv.change(loaded, text, [SoftmaxTemperature(0.5)], maps=[attention]),
        "change: a word less": lambda: qkv.change(loaded, text, [DeleteWord(1)], maps=[attention]),
        "look": lambda: qkv.look(loaded, text),
        "arithmetic": lambda: qkv.arithmetic(loaded, text),
        "layers": lambda: qkv.layers(loaded, text),
        "steps": lambda: qkv.steps(loaded, text),
        "attribute, integrated gradients": lambda: qkv.attribute(loaded, text, method="integrated", word=0),
        "patch, both grids": lambda: qkv.patch(loaded, text, options.other),
    }
    rows = ["| view | median ms | longest ms | CPU ms | kB of JSON |", "|---|---:|---:|---:|---:|"]
    for name, view in views.items():
        size = len(json.dumps(view().json(), separators=(",", ":")))
        times, cpu = [], time.process_time()
        for _ in range(TIMES):
            begin = time.perf_counter()
            json.dumps(view().json())
            times.append(1000 * (time.perf_counter() - begin))
        cpu = 1000 * (time.process_time() - cpu) / TIMES
        rows.append(f"| {name} | {statistics.median(times):.0f} | {max(times):.0f} | {cpu:.0f} | {size / 1000:.0f} |")
        print(rows[-1], flush=True)
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "laboratory.md").write_text("\n".join(rows) + "\n", encoding="utf-8")
    print(platform.processor() or platform.machine(), f"{torch.get_num_threads()} threads")


if __name__ == "__main__":
    main()
