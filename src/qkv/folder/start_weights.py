"""The weights of the run that another run starts from, towards which its penalty draws."""

import json
from pathlib import Path

from torch import Tensor, nn

from qkv.base.errors import ConfigError
from qkv.base.files import atomic_file
from qkv.folder.networks import named_weights
from qkv.folder.run import find_weights, read_recipe
from qkv.folder.start import read_start
from qkv.recipes import Recipe
from qkv.training import checkpoints

START = "start.json"  # in the folder of a run with a penalty: a digest of the weights that it began with


def weights_to_hold(recipe: Recipe, run: Path, model: nn.Module) -> dict[str, Tensor]:
    """Return the weights of `start` towards which training.start_penalty draws a model that was just built from them.

    They are named by the model's parameters. New parameters have none, and the new rows of a larger vocabulary come after them.
    """
    start = Path(recipe.start or "")
    file = find_weights(start, read_recipe(start)).path
    _refuse_other_weights(run, start, checkpoints.digest_weights(file))
    # A fine-tuned network has another name than in the pretraining of an ELECTRA or a T5.
    saved = named_weights(read_start(start).network) if recipe.job == "finetuning" else checkpoints.load_weights(file)
    found = {}
    for name, parameter in model.named_parameters():
        old, now = saved.get(name), parameter.detach().cpu()
        if old is None or not parameter.requires_grad or old.shape[1:] != now.shape[1:]:
            continue
        # A new head may have the name and the shape of an old one, but not its values.
        rows = _equal_rows(old.to(now.dtype), now)
        if rows:
            found[name] = old[:rows] if old.dim() else old
    if not found:
        raise ConfigError(f"training.start_penalty: no weight that is trained comes from {start}; leave it out")
    return found


def _equal_rows(one: Tensor, other: Tensor) -> int:
    """Return the number of rows that two tensors have in common, from the first one on."""
    rows = min(len(t) if t.dim() else 1 for t in (one, other))
    one, other = (t.reshape(len(t) if t.dim() else 1, -1)[:rows] for t in (one, other))
    return int((one == other).all(1).cumprod(0).sum())


def _refuse_other_weights(run: Path, start: Path, now: str) -> None:
    """Refuse to resume a run whose start has other weights than when it began: the penalty would draw elsewhere."""
    note = run / START
    if note.exists() and checkpoints.folders(run) and json.loads(note.read_text()) != {"weights": now}:
        raise ConfigError(
            f"{start}: its weights are not those that {run} began with, and training.start_penalty holds on to them; "
            "put them back, or choose another --out"
        )
    with atomic_file(note) as path:
        path.write_text(json.dumps({"weights": now}))
