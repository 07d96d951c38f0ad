"""Score pretrained models on minimal pairs (BLiMP, Warstadt et al. 2020) and on held-out text.

    python benchmarks/blimp.py --pairs blimp.jsonl.gz --out FOLDER RUN ...

writes FOLDER/table.md and FOLDER/phenomena.svg: accuracy by phenomenon, and bits per byte of the text that each run held out.
Every run is scored in each way that its model supports (`how` of `qkv evaluate --pairs`): left to right, and each token given
all others. Bits per byte need a left-to-right model (GPT, UniLM, XLNet) with an open vocabulary, so ELMo has none. ELMo reads
copies of the pairs with split punctuation, like its training text (split_punctuation.py). Finished scores are kept, and refused
if pairs or weights have changed.
"""

import argparse
import gzip
import json
import time
from pathlib import Path
from typing import Any

import matplotlib
import split_punctuation
from comparison import device_names, refuse_other_settings

from qkv.base.files import atomic_file
from qkv.folder.run import WEIGHTS

WAYS = {"left": "from the left", "each": "each from all others"}
CHANCE = 0.5
KEYS = ("sentence_good", "sentence_bad")


def ways_of(kind: str) -> list[str]:
    """Return the ways in which a kind of model can score a text."""
    return {"gpt": ["left"], "unilm": [*WAYS], "xlnet": [*WAYS], "elmo": [*WAYS]}.get(kind, ["each"])


def score(options: argparse.Namespace, run: Path) -> list[dict[str, Any]]:
    """Return a run's results, one for each way, computed unless they exist."""
    from qkv.data.cache import cached_digest
    from qkv.folder.run import read_recipe

    inputs = {"file": cached_digest(Path(options.pairs)), "weights": cached_digest(run / WEIGHTS)}
    found = []
    for how in ways_of(read_recipe(run).model.kind):
        path = options.out / f"{run.name}-{how}.json"
        if path.exists():
            refuse_other_settings(path, inputs)
        else:
            with atomic_file(path) as temporary:
                temporary.write_text(json.dumps({**inputs, **measure(options, run, how)}, indent=1))
        found.append(json.loads(path.read_text()))
    return found


def measure(options: argparse.Namespace, run: Path, how: str) -> dict[str, Any]:
    """Return accuracies, and bits per byte where they are defined."""
    from qkv.base.hardware import describe_device
    from qkv.inference.load import load
    from qkv.inference.text_scores import PairsConfig, score_pairs
    from qkv.jobs.perplexity import measure_perplexity

    model: Any = load(run)
    kind = model.recipe.model.kind
    pairs = split_pairs(options) if kind == "elmo" else Path(options.pairs)
    before = time.perf_counter()
    found = score_pairs(model, str(pairs), PairsConfig.model_validate({"how": how}))
    seconds = time.perf_counter() - before
    result = {"model": run.name, "how": how, "device": describe_device(model.device), "seconds": seconds, **found._asdict()}
    if how == "left" and kind != "elmo":
        result["bits_per_byte"] = measure_perplexity(model.run, device=str(model.device)).scores["bits_per_byte"]
    print(f"{run.name}, {WAYS[how]}: {found.accuracy:.3f} of {found.pairs:,} pairs, in {seconds:.1f} s", flush=True)
    return result


def split_pairs(options: argparse.Namespace) -> Path:
    """Write the pairs with split punctuation, for ELMo."""
    path = options.out / "split-pairs.jsonl"
    with gzip.open(options.pairs, "rt", encoding="utf-8") as lines, atomic_file(path) as temporary:
        records = (json.loads(line) for line in lines)
        changed = ({**record, **{key: split_punctuation.split_punctuation(record[key]) for key in KEYS}} for record in records)
        temporary.write_text("".join(json.dumps(record) + "\n" for record in changed), encoding="utf-8")
    return path


# The report


def report(found: list[dict[str, Any]], out: Path) -> None:
    """Write table.md, with a column per model and way, and phenomena.svg."""
    names = [f"{one['model']}, {WAYS[one['how']]}" for one in found]
    lines = [f"{found[0]['pairs']:,} pairs; {device_names(found)}", "", "| phenomenon | pairs | " + " | ".join(names) + " |"]
    lines.append("|---" * (len(found) + 2) + "|")
    for group, (_, pairs) in found[0]["groups"].items():
        cells = " | ".join(f"{100 * one['groups'][group][0]:.1f}" for one in found)
        lines.append(f"| {group.replace('_', ' ')} | {pairs:,} | {cells} |")
    lines.append("| all | | " + " | ".join(f"{100 * one['accuracy']:.1f}" for one in found) + " |")
    bits = (f"{one['bits_per_byte']:.3f}" if "bits_per_byte" in one else "" for one in found)
    lines.append("| bits per byte of held-out text | | " + " | ".join(bits) + " |")
    lines.append("| seconds for all pairs | | " + " | ".join(f"{one['seconds']:.1f}" for one in found) + " |")
    (out / "table.md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))
    plot(dict(zip(names, found, strict=True)), out / "phenomena.svg")


def plot(found: dict[str, dict[str, Any]], path: Path) -> None:
    """Plot one bar per phenomenon and model, measured from chance."""
    matplotlib.use("svg")
    from matplotlib import pyplot

    groups = list(next(iter(found.values()))["groups"])
    figure, axis = pyplot.subplots(figsize=(13, 5))
    width = 0.85 / len(found)
    for number, (name, one) in enumerate(found.items()):
        positions = [position + (number - (len(found) - 1) / 2) * width for position in range(len(groups) + 1)]
        heights = [100 * (value - CHANCE) for value in [*(one["groups"][group][0] for group in groups), one["accuracy"]]]
        axis.bar(positions, heights, width, bottom=100 * CHANCE, label=name)
    axis.axhline(100 * CHANCE, color="black", linewidth=0.8)
    labels = [group.replace("_", " ") for group in groups] + ["all"]
    axis.set_xticks(range(len(labels)), labels, rotation=30, ha="right")
    axis.set_ylabel("accuracy, %")
    axis.grid(axis="y", alpha=0.3)
    axis.legend(fontsize=8, ncols=3, loc="lower center", bbox_to_anchor=(0.5, 1))
    figure.tight_layout()
    figure.savefig(path)
    pyplot.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN")
    parser.add_argument("--pairs", required=True, help="minimal pairs, gzipped JSON Lines")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    report([one for run in options.runs for one in score(options, run)], options.out)


if __name__ == "__main__":
    main()
