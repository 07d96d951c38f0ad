"""Adapt a general translator to a domain: what is gained there and forgotten elsewhere, by method and number of pairs.

    python benchmarks/adaptation.py all --start runs/general --train ha/train.tsv --dev ha/dev.tsv --test ha/test.tsv \\
        --old-train tatoeba/train.tsv --old-test tatoeba/test.tsv --steps 2000 --out FOLDER

writes FOLDER/table.md, FOLDER/table.json and FOLDER/adaptation.svg: scores on the domain's test set and on the old one. Methods:
training all weights, the same with old pairs mixed in (--rehearsal of them for each pair of the domain), the same with a penalty
towards the old weights, and low-rank adapters where this version of qkv has them. Each cell is a run folder: finished ones are
skipped, interrupted ones resumed, and those of other settings refused. `--jobs` cells train in parallel; `--variant`, repeatable,
selects cells such as "all weights, 1000".
"""

import argparse
import json
from pathlib import Path
from typing import Any

import matplotlib
from comparison import folder_name, refuse_other_runs, run_parallel, subcommand

from qkv.base.files import atomic_file
from qkv.base.seeds import rng_at
from qkv.folder.run import RESULT
from qkv.models.transformer import TransformerConfig
from qkv.recipes import load_recipe
from qkv.text.corpus import ParallelCorpusConfig, read_pairs

PLAIN, REHEARSAL, PENALTY = "all weights", "with old pairs", "with penalty"
ADAPTERS = "adapter" in TransformerConfig.model_fields


def methods(options: argparse.Namespace) -> list[str]:
    """Return the names of all methods."""
    return [PLAIN, REHEARSAL, PENALTY, *(f"LoRA rank {rank}" for rank in options.ranks if ADAPTERS)]


def cells(options: argparse.Namespace) -> dict[str, tuple[str, int]]:
    """Return the method and the number of pairs of each cell, by the cell's name."""
    return {f"{method}, {size}": (method, size) for method in methods(options) for size in options.sizes}


def count_pairs(file: str) -> int:
    return sum(not pair.problem for pair in read_pairs(ParallelCorpusConfig(pairs=file)))


def write_samples(options: argparse.Namespace) -> None:
    """Write the domain's pairs of each size, drawn at random: a smaller sample is part of every larger one."""
    options.out.mkdir(parents=True, exist_ok=True)
    pairs = [pair for pair in read_pairs(ParallelCorpusConfig(pairs=options.train)) if not pair.problem]
    order = rng_at(options.seed, "adaptation").permutation(len(pairs)).tolist()
    for size in options.sizes:
        if size > len(pairs):
            raise SystemExit(f"{options.train} has {len(pairs):,} pairs, fewer than {size:,}; choose other --sizes")
        chosen = [pairs[i] for i in order[:size]]
        with atomic_file(sample_of(options, size)) as path:
            path.write_text("source\ttarget\n" + "".join(f"{pair.source}\t{pair.target}\n" for pair in chosen), encoding="utf-8")


def sample_of(options: argparse.Namespace, size: int) -> Path:
    return options.out / f"domain-{size}.tsv"


def recipe_of(options: argparse.Namespace, cell: str) -> Any:
    """Return the recipe of a cell: qkv's recipe `adapt`, and what the method adds."""
    method, size = cells(options)[cell]
    train: list[Any] = [str(sample_of(options, size))]
    settings = {"start": options.start, "training.steps": options.steps, "training.learning_rate": options.rate,
                "seed": options.seed, "data.dev": options.dev, "data.test": options.test,
                "data.also_test": options.old_test, "metrics": "bleu,chrf"}  # fmt: skip
    if method == REHEARSAL:
        weight = min(1.0, options.rehearsal * size / count_pairs(options.old_train))
        train.append({"pairs": options.old_train, "weight": weight})
    elif method == PENALTY:
        settings["training.start_penalty"] = options.penalty
    elif method != PLAIN:
        settings |= {"model.adapter.rank": int(method.split()[-1]), "training.learning_rate": options.adapter_rate}
    given = [f"{key}={value}" for key, value in settings.items()]
    return load_recipe("adapt", [*given, f"data.train={json.dumps(train)}"])


def folder_of(options: argparse.Namespace, cell: str) -> Path:
    found: Path = options.out / folder_name(cell)
    return found


# The report


def read_cell(run: Path) -> dict[str, dict[str, float]]:
    """Return the first metric before and after on the domain's test set and on the old one."""
    rows: dict[str, dict[str, float]] = {}
    for row in json.loads((run / RESULT).read_text())["held-out sets"]:
        name = "domain" if row["held-out set"] == "test" else "old"
        rows.setdefault(name, {"before": row["before"], "after": row["value"], "p": row["p"]})  # the first metric
    return rows


def report(options: argparse.Namespace) -> None:
    """Write table.md, table.json and adaptation.svg for all finished cells."""
    known = {name: cell for name, cell in cells(options).items() if (folder_of(options, name) / RESULT).exists()}
    if not known:
        raise SystemExit(f"{options.out}: no cell is finished yet")
    found = [{"method": method, "pairs": size, **read_cell(folder_of(options, name))} for name, (method, size) in known.items()]
    lines = ["| method | pairs | domain: before | after | p | old test set: before | after | p |", "|---" * 8 + "|"]
    for row in found:
        scores = " | ".join(f"{row[on]['before']:.1f} | {row[on]['after']:.1f} | {row[on]['p']:.3f}" for on in ("domain", "old"))
        lines.append(f"| {row['method']} | {row['pairs']:,} | {scores} |")
    with atomic_file(options.out / "table.json") as path:
        path.write_text(json.dumps(found, indent=1))
    (options.out / "table.md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))
    plot(found, options.out / "adaptation.svg")


def plot(found: list[dict[str, Any]], path: Path) -> None:
    """Plot BLEU on the domain and on the old test set over the number of pairs, a line for each method."""
    matplotlib.use("agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 2, figsize=(10, 4.2), sharex=True)
    sizes = sorted({row["pairs"] for row in found})
    for axis, on, title in zip(axes, ("domain", "old"), ("the new domain: gain", "the old test set: forgetting"), strict=True):
        axis.axhline(found[0][on]["before"], color="black", linestyle=":", label="before")
        for method in dict.fromkeys(row["method"] for row in found):
            rows = [row for row in found if row["method"] == method]
            dashes = "--" if method.startswith("LoRA") else "-"
            axis.plot([row["pairs"] for row in rows], [row[on]["after"] for row in rows], dashes, marker="o", label=method)
        axis.set_xscale("log")
        axis.set_xticks(sizes, [f"{size:,}" for size in sizes])
        axis.minorticks_off()
        axis.set_title(title)
        axis.set_xlabel("pairs of the domain")
        axis.set_ylabel("BLEU")
        axis.grid(alpha=0.3)
    axes[1].legend(loc="center left", bbox_to_anchor=(1.02, 0.5), frameon=False)
    figure.tight_layout()
    figure.savefig(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=["all", "train", "report"])
    parser.add_argument("--variant", action="append", metavar="CELL", help="a cell, such as 'all weights, 1000'")
    for part in ("start", "train", "dev", "test", "old-train", "old-test"):
        parser.add_argument(f"--{part}", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--sizes", type=int, nargs="+", default=[100, 1000, 5000, 20000], help="pairs of the domain")
    parser.add_argument("--ranks", type=int, nargs="+", default=[4, 16, 64], help="of low-rank adapters")
    parser.add_argument("--steps", type=int, default=2000, help="updates of a cell, at most; it stops when dev gets no better")
    parser.add_argument("--rate", type=float, default=2e-4, help="learning rate")
    parser.add_argument("--adapter-rate", type=float, default=1e-3, help="learning rate of adapters")
    parser.add_argument("--rehearsal", type=float, default=1.0, help="old pairs for each pair of the domain")
    parser.add_argument("--penalty", type=float, default=0.1, help="training.start_penalty")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    wanted = options.variant or list(cells(options))
    if unknown := [cell for cell in wanted if cell not in cells(options)]:
        parser.error(f"no cell {unknown[0]!r}; choose one of: {'; '.join(cells(options))}")
    if options.action == "report":
        report(options)
        return
    if not ADAPTERS:
        print("this version of qkv has no adapters (model.adapter): their rows are left out", flush=True)
    if options.action == "all":
        write_samples(options)
        refuse_other_runs((folder_of(options, cell), recipe_of(options, cell)) for cell in wanted)
        left = [cell for cell in wanted if not (folder_of(options, cell) / RESULT).exists()]
        run_parallel([subcommand(__file__, options, "train", [cell]) for cell in left], options.jobs)
        report(options)
        return
    from qkv.jobs.train import train

    for cell in wanted:
        train(recipe_of(options, cell), folder_of(options, cell))


if __name__ == "__main__":
    main()
