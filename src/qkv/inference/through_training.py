"""A run through its training: the same text at each snapshot of its weights."""

from pathlib import Path
from typing import Any

from qkv.base.errors import ConfigError
from qkv.base.snapshots import snapshot_files
from qkv.base.stepwise import Stepwise, complete
from qkv.inference.load import load, look
from qkv.lens.snapshots import TrainingView, choose_maps, look_at_snapshot, loss_around, training_curve
from qkv.training.log import read_metrics


def look_through_training(
    run: Any,
    text: str,
    target: str | None = None,
    part: str | None = None,
    layer: int | None = None,
    device: str = "auto",
) -> TrainingView:
    """Compute attention, output and probabilities on a text at each snapshot of a run's training (`training.snapshots`).

    `run` is the folder of a run, or a loaded one. All snapshots read the same target: the given one, or what the final model
    writes; for an encoder it is the second text of a pair. `part` (encoder, decoder or cross) and `layer`, from 0, choose the
    attention maps; by default all, or as many as fit a page.

    >>> qkv.look_through_training("runs/mine", "How are you?").save("page.html")
    """
    return complete(look_in_steps(run, text, target, part, layer, device))


def look_in_steps(
    run: Any,
    text: str,
    target: str | None = None,
    part: str | None = None,
    layer: int | None = None,
    device: str = "auto",
) -> Stepwise[TrainingView]:
    """Compute the same, one snapshot in each step."""
    folder = Path(run) if isinstance(run, str | Path) else getattr(run, "folder", None)
    steps = [] if folder is None else [*snapshot_files(folder)]
    if folder is None or not steps:
        raise ConfigError(
            f"{folder or type(run).__name__} has no snapshots of its training; train a run with training.snapshots=8"
        )
    final = look(run, text, target, device)
    fixed = target if final.kind == "encoder" else target or final.output
    names = choose_maps(final.maps, len(steps), part, layer)
    losses, scores = training_curve(read_metrics(folder))
    snapshots = []
    for step in steps:
        yield
        loaded: Any = load(folder, device, step=step)
        inspector = loaded.inspect(text, fixed)
        output = inspector.output if final.kind == "encoder" else loaded.inspect(text).output
        snapshots.append(look_at_snapshot(inspector, step, loss_around(losses, step), output, names))
    return TrainingView(final, snapshots, losses, scores)
