"""A run in a few lines: its model, its training, and the snapshots that it keeps."""

from pathlib import Path

from qkv.base.snapshots import snapshot_files
from qkv.folder.run import find_weights, read_recipe
from qkv.recipes.abilities import NAMES, loads_as, verbs
from qkv.training.checkpoints import weight_files
from qkv.training.log import read_metrics


def describe_run(run: Path) -> list[str]:
    """Return lines on a run for people; no weights are read."""
    recipe = read_recipe(run)
    weights = find_weights(run, recipe)
    files = weight_files(weights.path)
    size = f"{sum(file.stat().st_size for file in files) / 1e6:,.1f} MB of weights" if files else "no weights yet"
    lines = [f"{run}: {NAMES[loads_as(recipe)]}, {recipe.model.kind}, {size}" + (f" ({weights.step})" if weights.step else "")]
    metrics = read_metrics(run)
    if metrics:
        scores = [line for line in metrics if "dev_loss" in line]
        dev = (
            "; dev: " + ", ".join(f"{k.removeprefix('dev_')} {v:.3g}" for k, v in scores[-1].items() if k != "step")
            if scores
            else ""
        )
        lines.append(f"trained for {metrics[-1]['step']:,} steps{dev}")
    snapshots = snapshot_files(run)
    if snapshots:
        megabytes = sum(path.stat().st_size for path in snapshots.values()) / 1e6
        steps = ", ".join(f"{step:,}" for step in snapshots)
        lines.append(f"snapshots of steps {steps} ({megabytes:,.1f} MB): qkv look {run} TEXT --through-training")
    else:
        lines.append("no snapshots through training (training.snapshots=8 keeps some)")
    lines.append(f"verbs: {', '.join(verbs(recipe))}")
    return lines
