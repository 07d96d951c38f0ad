"""Measure what the guard's probe costs: BERT of pretrained_models.py, alone on the device, laps with a probe beside laps without.

python benchmarks/guard_share.py --text wiki.txt --tokenizer tokenizer.json [--updates 3000]
"""

import argparse
import statistics
import tempfile
from itertools import pairwise
from pathlib import Path

from pretrained_models import pretraining_recipe

from qkv.jobs.train import train
from qkv.training.log import read_metrics

FIRST = 4  # laps that are left out: kernels are compiled, and a graph is recorded


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", required=True)
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("--updates", type=int, default=3000)
    parser.add_argument("--batch-tokens", type=int, default=16384)
    options = parser.parse_args()
    options.rate, options.warmup, options.validate_every = 1e-3, 0.1, 1000
    with tempfile.TemporaryDirectory() as folder:
        options.out = Path(folder)
        run = options.out / "run"
        train(pretraining_recipe(options, "BERT, masked words only", options.updates), run)
        reports = [line for line in read_metrics(run) if "seconds" in line]
    # A report takes its time before the probe, which therefore falls into the lap after it.
    laps = [(after["seconds"] - before["seconds"], "update_ratio" in before) for before, after in pairwise(reports)][FIRST:]
    plain, probed = ([seconds for seconds, with_probe in laps if with_probe == wanted] for wanted in (False, True))
    cost = statistics.median(probed) - statistics.median(plain)
    whole = reports[-1]["seconds"] - reports[FIRST]["seconds"]
    print(
        f"a probe takes {1000 * cost:.1f} ms; {len(probed)} of them are {100 * len(probed) * cost / whole:.2f} % of {whole:.0f} s"
    )


if __name__ == "__main__":
    main()
