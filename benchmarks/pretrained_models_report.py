"""The report of pretrained_models.py: a table of scores, and a plot of the losses of pretraining."""

import json
import statistics
from pathlib import Path

import matplotlib

from qkv.folder.run import read_recipe
from qkv.training.log import read_metrics

# Titles of the plots, with the names of their losses in the log.
PLOTS = {
    "masked words, nats each": ("masked_loss", "generator_loss", "word_loss"),
    "next tokens and spans, nats each": ("loss",),
    "ELECTRA: replaced or not, nats a token": ("discriminator_loss",),
}
TOKEN_LOSS_ONLY = ("causal", "bidirectional", "spans")  # objectives whose loss is the loss of tokens and nothing else


def report(
    out: Path, runs: dict[str, Path], tasks: dict[str, Path], metrics: dict[str, str], seeds: int, speeds: dict[str, float]
) -> None:
    """Write table.md and curves.svg of the runs that exist, and of their tasks.

    `metrics` are the metric of each task, `speeds` the updates per second.
    """
    runs = {variant: run for variant, run in runs.items() if run.exists() or tasks[variant].exists()}
    lines = ["| model | updates | tokens | " + " | ".join(f"{task} ({name})" for task, name in metrics.items()) + " | mean |"]
    lines.append("|---" * (len(metrics) + 4) + "|")
    for variant, run in runs.items():
        found = {task: scores(tasks[variant], task, metric, seeds) for task, metric in metrics.items()}
        means = [statistics.mean(values) if values else float("nan") for values in found.values()]
        cells = " | ".join(f"{statistics.mean(s):.1f} ({min(s):.1f} to {max(s):.1f})" if s else "" for s in found.values())
        lines.append(f"| {variant} | {pretrained(run)} | {cells} | {statistics.mean(means):.1f} |")
    (out / "table.md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))
    plot(runs, speeds, out / "curves.svg")


def scores(tasks: Path, task: str, metric: str, seeds: int) -> list[float]:
    """Return the scores of all seeds that exist, times 100."""
    results = [tasks / f"{task}-{seed}" / "result.json" for seed in range(1, seeds + 1)]
    return [100 * json.loads(path.read_text())["scores"][metric] for path in results if path.exists()]


def pretrained(run: Path) -> str:
    """Return the updates and tokens of a pretraining run, from its log and recipe, as table cells."""
    steps = max((line["step"] for line in read_metrics(run)), default=0)
    tokens = steps * read_recipe(run).training.batch_tokens if steps else 0
    return f"{steps:,} | {tokens / 1e6:.0f} M"


def plot(runs: dict[str, Path], speeds: dict[str, float], path: Path) -> None:
    """Plot losses over the seconds that their updates take with nothing else on the device, one plot per kind of loss."""
    matplotlib.use("svg")
    from matplotlib import pyplot

    found = {title: {v: curves(runs[v], speeds[v], names) for v in runs if v in speeds} for title, names in PLOTS.items()}
    plotted = {title: by_variant for title, by_variant in found.items() if any(by_variant.values())}
    figure, axes = pyplot.subplots(1, max(1, len(plotted)), figsize=(5.5 * max(1, len(plotted)), 4.2), squeeze=False)
    for axis, (title, by_variant) in zip(axes[0], plotted.items(), strict=False):
        for variant, lines in by_variant.items():
            for name, points in lines.items():
                shown = points[:: 1 + len(points) // 300]  # more would only make the file large
                axis.plot(*zip(*shown, strict=True), label=variant + (", its generator" if name == "generator_loss" else ""))
        axis.set_title(title)
        axis.set_xlabel("seconds of training")
        axis.grid(alpha=0.3)
        axis.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path)
    pyplot.close(figure)


def curves(run: Path, speed: float, names: tuple[str, ...]) -> dict[str, list[tuple[float, float]]]:
    """Return seconds and values of the named losses that a run logged; `loss` only where it is the loss of tokens alone."""
    metrics = read_metrics(run)
    if not metrics or (names == ("loss",) and read_recipe(run).objective.kind not in TOKEN_LOSS_ONLY):
        return {}
    found = {
        name: [(line["step"] / speed, line[name]) for line in metrics if name in line and "seconds" in line] for name in names
    }
    return {name: points for name, points in found.items() if points}
