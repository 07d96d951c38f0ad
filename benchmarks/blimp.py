"""How well pretrained models tell right sentences from wrong ones (BLiMP, Warstadt et al. 2020), and measure_perplexity held-out text.

    python benchmarks/blimp.py --pairs blimp.jsonl.gz --out FOLDER RUN ...

makes FOLDER/table.md and FOLDER/phenomena.svg: accuracy by phenomenon, and bits per byte of the text that each run held out.
Every run is asked in each way that its model has (`qkv.objectives.likelihood`): from left to right, and each token from all
others. Bits per byte are told from left to right, so of a GPT, a UniLM and an XLNet; an ELMo has none, as to it rare words are
one. It reads copies of the pairs in which signs stand by themselves, as in its text (apart.py). What was scored is not scored
again, and refused where pairs or weights have changed since.
"""

import argparse
import gzip
import json
import time
from pathlib import Path
from typing import Any

import apart
import matplotlib
from side_by_side import devices, refuse_other_settings

from qkv.base.files import atomic_file
from qkv.folder.run import WEIGHTS

WAYS = {"left": "from the left", "each": "each from all others"}
CHANCE = 0.5
KEYS = ("sentence_good", "sentence_bad")


def ways_of(kind: str) -> list[str]:
    """How a kind of model can be asked."""
    return {"gpt": ["left"], "unilm": [*WAYS], "xlnet": [*WAYS], "elmo": [*WAYS]}.get(kind, ["each"])


def score(options: argparse.Namespace, run: Path) -> list[dict[str, Any]]:
    """A run's results, made or read: one for each way."""
    from qkv.data.cache import cached_digest
    from qkv.folder.run import read_recipe

    asked = {"file": cached_digest(Path(options.pairs)), "weights": cached_digest(run / WEIGHTS)}
    found = []
    for how in ways_of(read_recipe(run).model.kind):
        path = options.out / f"{run.name}-{how}.json"
        if path.exists():
            refuse_other_settings(path, asked)
        else:
            with atomic_file(path) as aside:
                aside.write_text(json.dumps({**asked, **judged(options, run, how)}, indent=1))
        found.append(json.loads(path.read_text()))
    return found


def judged(options: argparse.Namespace, run: Path, how: str) -> dict[str, Any]:
    """Accuracies, and bits per byte where they can be told."""
    from qkv.base.hardware import describe_device
    from qkv.inference.load import load
    from qkv.inference.text_scores import PairsConfig, score_pairs

    model: Any = load(run)
    kind = model.recipe.model.kind
    pairs = pairs_apart(options) if kind == "elmo" else Path(options.pairs)
    before = time.perf_counter()
    found = score_pairs(model, str(pairs), PairsConfig.model_validate({"how": how}))
    seconds = time.perf_counter() - before
    told = {"model": run.name, "how": how, "device": describe_device(model.device), "seconds": seconds, **found._asdict()}
    if how == "left" and kind != "elmo":
        told["bits_per_byte"] = foreseen(model)
    print(f"{run.name}, {WAYS[how]}: {found.accuracy:.3f} of {found.pairs:,} pairs, in {seconds:.1f} s", flush=True)
    return told


def foreseen(model: Any) -> float:
    from qkv.jobs.perplexity import measure_perplexity

    return measure_perplexity(model.run, device=str(model.device)).scores["bits_per_byte"]


def pairs_apart(options: argparse.Namespace) -> Path:
    """The pairs as an ELMo reads them."""
    path = options.out / "apart.jsonl"
    with gzip.open(options.pairs, "rt", encoding="utf-8") as lines, atomic_file(path) as aside:
        records = (json.loads(line) for line in lines)
        changed = ({**record, **{key: apart.apart(record[key]) for key in KEYS}} for record in records)
        aside.write_text("".join(json.dumps(record) + "\n" for record in changed), encoding="utf-8")
    return path


# The report


def report(found: list[dict[str, Any]], out: Path) -> None:
    """table.md, a column for each model and way, and phenomena.svg."""
    names = [f"{one['model']}, {WAYS[one['how']]}" for one in found]
    lines = [f"{found[0]['pairs']:,} pairs; {devices(found)}", "", "| phenomenon | pairs | " + " | ".join(names) + " |"]
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
    draw(dict(zip(names, found, strict=True)), out / "phenomena.svg")


def draw(found: dict[str, dict[str, Any]], path: Path) -> None:
    """Bars by phenomenon, one for each model, from chance up and down."""
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
    axis.set_ylabel("right sentence likelier, %")
    axis.grid(axis="y", alpha=0.3)
    axis.legend(fontsize=8, ncols=3, loc="lower center", bbox_to_anchor=(0.5, 1))
    figure.tight_layout()
    figure.savefig(path)
    pyplot.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN")
    parser.add_argument("--pairs", required=True)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    report([one for run in options.runs for one in score(options, run)], options.out)


if __name__ == "__main__":
    main()
