"""A run's folder: what lies where, whose it is, and that its parts belong together."""

import fcntl
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from qkv.base.config import differences, dump_yaml, parse, read_yaml
from qkv.base.errors import CheckpointError, ConfigError
from qkv.base.files import PARTIAL, atomic_file, delete_partial, write_error
from qkv.data.corpora import Tokenizers
from qkv.recipes import Recipe, parse_recipe
from qkv.text.tokenizer import Tokenizer
from qkv.training import checkpoints
from qkv.training.progress import Progress

LAYOUT = 2  # of a run's folder; raised where older ones cannot be read
RECIPE, CONFIG, WEIGHTS, RESULT = "recipe.yaml", "config.json", "model.safetensors", "result.json"
LOCK = ".lock"
MANIFEST = "export.json"  # of an exported folder, see interop/exported.py
FREE_TO_CHANGE = ("training.steps:", "training.epochs:", "training.patience:")  # a run may go on for longer, or stop sooner


def is_run(folder: Path) -> bool:
    """Whether a folder is a run's: a recipe alone may be a user's own file."""
    return (folder / RECIPE).exists() and ((folder / CONFIG).exists() or (folder / LOCK).exists())


def is_exported(folder: Path) -> bool:
    """Return whether `qkv export` wrote a folder, for CTranslate2 or ONNX."""
    return (folder / MANIFEST).exists()


def read_recipe(run: Path) -> Recipe:
    """The recipe a run was made with."""
    if not run.is_dir():
        raise CheckpointError(f"{run}: no such run folder")
    if not is_run(run):
        hint = "; a checkpoint of transformers becomes one with qkv import" if (run / CONFIG).exists() else ""
        raise CheckpointError(f"{run}: not a run folder, it has no {RECIPE}{hint}")
    if known(run, "model") is not None and known(run, "layout") != LAYOUT:
        raise CheckpointError(
            f"{run}: made by another version of qkv, whose recipe keys and weights have other names; train it anew with this one"
        )
    return parse_recipe(read_yaml(run / RECIPE), str(run / RECIPE))


def read_run(run: Path) -> tuple[Recipe, Tokenizers]:
    """What a run's weights are used with, after a look whether it all belongs together."""
    recipe = read_recipe(run)
    tokenizers = load_tokenizers(run)
    if tokenizers is None:
        raise CheckpointError(f"{run}: no tokenizer there; its training has not come far enough to be used")
    check_tokenizers(run, tokenizers)
    check_model(run, recipe)
    return recipe, tokenizers


def warn_if_unfinished(start: str, progress: Progress) -> None:
    """Say that the run which another starts from may yet learn more."""
    if not (Path(start) / WEIGHTS).exists():
        progress.warn(f"{start} is not finished; its newest checkpoint is taken")


def newest_weights(run: Path) -> Path:
    """The weights a finished run chose, or those of the newest checkpoint."""
    path = run / WEIGHTS
    if not path.exists():
        newest, _, _ = checkpoints.newest(run)
        path = checkpoints.scored_weights(newest) if newest else path
    return path


@contextmanager
def alone_in(run: Path) -> Iterator[None]:
    """Hold the run folder for this process alone; refuse a folder that holds something else."""
    if run.exists() and not run.is_dir():
        raise ConfigError(f"{run} is a file; choose another --out")
    if run.is_dir() and not is_run(run) and any(f.name != LOCK and f.suffix != PARTIAL for f in run.iterdir()):
        raise ConfigError(f"{run} is not empty and not a run folder; choose another --out")
    try:
        run.mkdir(parents=True, exist_ok=True)
        lock = (run / LOCK).open("w")
    except OSError as error:
        raise write_error(run, error) from None
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise ConfigError(f"{run} is being trained by another process; wait, or choose another --out") from None
        delete_partial(run)
        yield


def claim(run: Path, recipe: Recipe, accept_changes: bool) -> list[str]:
    """Make the folder this recipe's run, or see that it already is. -> what differs from the recipe it was made with."""
    changes = differences(read_recipe(run), recipe) if is_run(run) else []
    if changes and checkpoints.folders(run):
        _refuse(run, changes, accept_changes)
        (run / RESULT).unlink(missing_ok=True)
    elif changes and (run / RESULT).exists():
        raise ConfigError(
            f"{run} is finished, and its checkpoints, to go on from with {'; '.join(changes)}, are gone; choose another --out"
        )
    elif changes:
        _forget(run)
    with atomic_file(run / RECIPE) as path:
        path.write_text(dump_yaml(recipe), encoding="utf-8")
    return changes


def abandon(run: Path) -> None:
    """Remove the folder of a run if nothing was made in it yet."""
    if {path.name for path in run.iterdir()} <= {RECIPE, LOCK}:
        for path in run.iterdir():
            path.unlink()
        run.rmdir()


def _refuse(run: Path, changes: list[str], accept_changes: bool) -> None:
    """Refuse changes that were not asked for, and those that the weights would not survive."""
    refused = [] if accept_changes else [c for c in changes if not c.startswith(FREE_TO_CHANGE)]
    if refused:
        raise ConfigError(
            f"{run} was made with another recipe: {'; '.join(refused)}. "
            "Choose another --out, or say --accept-changes to go on with the new values"
        )
    fixed = [c for c in changes if c.startswith(("model.", "tokenizer.")) and not c.startswith("model.dropout:")]
    if fixed:
        raise ConfigError(f"{run} cannot go on with {'; '.join(fixed)}: its weights would mean nothing; choose another --out")


def save_tokenizers(run: Path, tokenizers: Tokenizers) -> None:
    if tokenizers.shared:
        tokenizers.source.save(run / "tokenizer.json")
    else:
        tokenizers.source.save(run / "tokenizer-source.json")
        tokenizers.target.save(run / "tokenizer-target.json")


def load_tokenizers(run: Path) -> Tokenizers | None:
    """The run's tokenizers, or None before they are made."""
    shared, source, target = (run / f"tokenizer{side}.json" for side in ("", "-source", "-target"))
    if shared.exists():
        tokenizer = Tokenizer.load(shared)
        return Tokenizers(tokenizer, tokenizer)
    if source.exists() and target.exists():
        return Tokenizers(Tokenizer.load(source), Tokenizer.load(target))
    return None


def save_config(run: Path, recipe: Recipe, tokenizers: Tokenizers, texts: list[str], **more: Any) -> None:
    """What the weights must be used with, the keys of the texts they were learned from, and what else is to be known."""
    values = {
        "layout": LAYOUT,
        "model": recipe.model.model_dump(mode="json"),
        "vocabularies": [len(t) for t in tokenizers],
        "tokenizers": [t.fingerprint() for t in tokenizers],
        "texts": texts,
        **more,
    }
    with atomic_file(run / CONFIG) as path:
        path.write_text(json.dumps(values, indent=1))


def check_tokenizers(run: Path, tokenizers: Tokenizers) -> None:
    """Refuse a tokenizer put there from another run: numbers would mean other words."""
    if known(run, "tokenizers") not in (None, [t.fingerprint() for t in tokenizers]):
        raise CheckpointError(f"{run}: the tokenizer is not the one this model was trained with; put the right one back")


def check_texts(run: Path, texts: list[str], accept_changes: bool) -> None:
    """Refuse to go on with other training text than the run began with, unless told to."""
    if known(run, "texts") in (None, texts):
        return
    if not checkpoints.folders(run):
        _forget(run)
    elif not accept_changes:
        raise ConfigError(
            f"the training text is not what {run} began with; put it back, choose another --out, or say --accept-changes"
        )


def _forget(run: Path) -> None:
    """Delete what was made of another recipe or text before anything was learned: it is made anew."""
    for made in [*run.glob("tokenizer*.json"), run / CONFIG]:
        made.unlink(missing_ok=True)


def check_model(run: Path, recipe: Recipe) -> None:
    """Refuse a recipe put there from another run."""
    kept = known(run, "model")
    # Parsed, so that a key that this version has and an older one had not stands at its default.
    if kept is not None and parse(type(recipe.model), kept, str(run / CONFIG)) != recipe.model:
        raise CheckpointError(f"{run}: {RECIPE} describes another model than {CONFIG}; put the right one back")


def known(run: Path, key: str) -> Any:
    """What config.json says of one thing; None before it is written."""
    try:
        return json.loads((run / CONFIG).read_text()).get(key)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, AttributeError) as error:
        raise CheckpointError(f"{run / CONFIG}: not readable ({error})") from None
