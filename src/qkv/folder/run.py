"""A run's folder: the names of its files, its lock, and the checks that its parts belong together."""

import json
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from qkv.base.config import describe_differences, differences, dump_yaml, parse, read_yaml
from qkv.base.errors import CheckpointError, ConfigError, QkvWarning
from qkv.base.files import PARTIAL, atomic_file, delete_partial, write_error
from qkv.base.locks import lock_file
from qkv.base.snapshots import snapshot_files
from qkv.data.corpora import SourceStatistics, Tokenizers
from qkv.folder.language_profiles import PROFILES
from qkv.recipes import RECIPE, Recipe, parse_recipe
from qkv.text.tokenizer import Tokenizer
from qkv.training import checkpoints

LAYOUT = 2  # the version of a run folder; raised when older ones cannot be read
CONFIG, WEIGHTS, RESULT = "config.json", "model.safetensors", "result.json"
LOCK = ".lock"
MANIFEST = "export.json"  # of an exported folder, see interop/exported.py
# A run may train longer, stop sooner, keep more, or divide its weights.
FREE = "steps", "minutes", "epochs", "patience", "keep_checkpoints", "snapshots", "shard", "trackers", "project"
FREE_TO_CHANGE = tuple(f"training.{key}:" for key in FREE)


def is_run(folder: Path) -> bool:
    """Return whether a folder is a run's; a recipe without the other files may be the user's own."""
    return (folder / RECIPE).exists() and ((folder / CONFIG).exists() or (folder / LOCK).exists())


def is_exported(folder: Path) -> bool:
    """Return whether `qkv export` wrote a folder, for CTranslate2 or ONNX."""
    return (folder / MANIFEST).exists()


def read_recipe(run: Path) -> Recipe:
    """Return the recipe that a run was made with."""
    if not run.is_dir():
        raise CheckpointError(f"{run}: no such run folder; give the folder that qkv train or qkv import wrote")
    if not is_run(run):
        hint = "; for a checkpoint of transformers run qkv import first" if (run / CONFIG).exists() else ""
        raise CheckpointError(f"{run}: not a run folder, it has no {RECIPE}{hint}")
    if (run / CONFIG).exists() and config_value(run, "layout") != LAYOUT:
        raise CheckpointError(
            f"{run}: made by another version of qkv, with other names of recipe keys and weights; train "
            "it again with this version"
        )
    return parse_recipe(read_yaml(run / RECIPE), str(run / RECIPE))


def read_run(run: Path) -> tuple[Recipe, Tokenizers]:
    """Return the recipe and the tokenizers of a run, after checking that they belong together."""
    recipe = read_recipe(run)
    tokenizers = load_tokenizers(run)
    if tokenizers is None:
        raise CheckpointError(f"{run}: no tokenizer there: training stopped before it was made; run qkv train again")
    check_tokenizers(run, tokenizers)
    check_model(run, recipe)
    return recipe, tokenizers


class WeightsFile(NamedTuple):
    """The file of the weights that a run is used with."""

    run: Path
    path: Path
    step: str = ""  # of a run that is still in training, such as "step 300 of 1,000"

    @property
    def warning(self) -> str:
        """One line about a run that is still in training; "" for any other."""
        return f"{self.run}: training is not finished; using the weights of {self.step}" if self.step else ""

    def warn_if_unfinished(self) -> None:
        """Warn that the run is still in training."""
        if self.warning:
            warnings.warn(self.warning, QkvWarning, stacklevel=4)


def find_weights(run: Path, recipe: Recipe, step: int | None = None) -> WeightsFile:
    """Return the weights of a finished or imported run, or those of the newest checkpoint of one that is still in training.

    With a step, return those of its snapshot.
    """
    if step is not None:
        return WeightsFile(run, _find_snapshot(run, step))
    final = run / WEIGHTS
    if final.exists() and ((run / RESULT).exists() or not checkpoints.folders(run)):
        return WeightsFile(run, final)
    newest, state, _ = checkpoints.newest(run)
    if newest is None:
        return WeightsFile(run, final)  # whoever reads it says that it is not there
    training = recipe.training
    # A run that is trained further has the number of steps of the new recipe.
    steps = training.steps if training.steps and not training.minutes else state.get("steps")
    reached = f"step {checkpoints.step_of(newest):,}" + (f" of {steps:,}" if steps else "")
    return WeightsFile(run, checkpoints.scored_weights(newest), reached)


def _find_snapshot(run: Path, step: int) -> Path:
    found = snapshot_files(run)
    if step in found:
        return found[step]
    if not found:
        raise ConfigError(f"{run} has no snapshots of its training; set training.snapshots=8 when a run is trained")
    raise ConfigError(f"{run} has no snapshot of step {step}; it has those of {', '.join(map(str, found))}")


@contextmanager
def lock_run(run: Path) -> Iterator[None]:
    """Hold the lock of a run folder, and create the folder; refuse a folder that holds other files or a model made elsewhere."""
    if run.exists() and not run.is_dir():
        raise ConfigError(f"{run} is a file; choose another --out")
    _refuse_other_model(run)
    if run.is_dir() and not is_run(run) and any(f.name != LOCK and f.suffix != PARTIAL for f in run.iterdir()):
        raise ConfigError(f"{run} is not empty and not a run folder; choose another --out")
    try:
        run.mkdir(parents=True, exist_ok=True)
        lock = (run / LOCK).open("w")
    except OSError as error:
        raise write_error(run, error) from None
    with lock:
        try:
            lock_file(lock, wait=False)
        except OSError:
            raise ConfigError(f"{run} is being trained by another process; wait, or choose another --out") from None
        delete_partial(run)
        yield


def _refuse_other_model(run: Path) -> None:
    """Refuse to train into a folder with a model that no training in it made: its weights would be replaced."""
    if is_exported(run):
        made = "exported"
    elif (run / WEIGHTS).exists() and not (run / RESULT).exists() and not checkpoints.folders(run):
        made = "imported" if is_run(run) else "exported"
    else:
        return
    raise ConfigError(f"{run} holds an {made} model, whose weights training would replace; choose another --out")


def open_run(run: Path, recipe: Recipe, accept_changes: bool) -> list[str]:
    """Write the recipe of a new run, or check it against that of an existing one. -> the differences."""
    changes = differences(read_recipe(run), recipe) if is_run(run) else []
    if changes and checkpoints.folders(run):
        _refuse_changes(run, changes, accept_changes)
        (run / RESULT).unlink(missing_ok=True)
    elif changes and (run / RESULT).exists():
        raise ConfigError(
            f"{run} is finished and has no checkpoints, so that it cannot continue with {describe_differences(changes)}; "
            "choose another --out, and training.keep_checkpoints=true for a run that is to be trained further"
        )
    elif changes:
        _delete_prepared(run)
    with atomic_file(run / RECIPE) as path:
        path.write_text(dump_yaml(recipe), encoding="utf-8")
    return changes


def discard_run(run: Path) -> None:
    """Remove a run folder in which nothing was made yet."""
    if {path.name for path in run.iterdir()} <= {RECIPE, LOCK}:
        for path in run.iterdir():
            path.unlink()
        run.rmdir()


def _refuse_changes(run: Path, changes: list[str], accept_changes: bool) -> None:
    """Refuse changes that the user did not accept, and those that do not fit the weights."""
    refused = [] if accept_changes else [c for c in changes if not c.startswith(FREE_TO_CHANGE)]
    if refused:
        raise ConfigError(
            f"{run} was made with another recipe: {describe_differences(refused)}. "
            "Choose another --out, or give --accept-changes to continue with the new values"
        )
    fixed = [c for c in changes if c.startswith(("model.", "tokenizer.", "tokenizer:")) and not c.startswith("model.dropout:")]
    if fixed:
        raise ConfigError(
            f"{run} cannot continue with {describe_differences(fixed)}: its weights would not fit; choose another --out"
        )


def save_tokenizers(run: Path, tokenizers: Tokenizers) -> None:
    if tokenizers.shared:
        tokenizers.source.save(run / "tokenizer.json")
    else:
        tokenizers.source.save(run / "tokenizer-source.json")
        tokenizers.target.save(run / "tokenizer-target.json")


def load_tokenizers(run: Path) -> Tokenizers | None:
    """Return the run's tokenizers; None before they are made."""
    shared, source, target = (run / f"tokenizer{side}.json" for side in ("", "-source", "-target"))
    if shared.exists():
        tokenizer = Tokenizer.load(shared)
        return Tokenizers(tokenizer, tokenizer)
    if source.exists() and target.exists():
        return Tokenizers(Tokenizer.load(source), Tokenizer.load(target))
    return None


def save_config(run: Path, recipe: Recipe, tokenizers: Tokenizers, texts: list[str], **more: Any) -> None:
    """Write config.json: the model's config, the fingerprints of tokenizers and training texts, and `more`."""
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
    """Refuse the tokenizer of another run: token ids would mean other tokens."""
    if config_value(run, "tokenizers") not in (None, [t.fingerprint() for t in tokenizers]):
        raise CheckpointError(f"{run}: the tokenizer is not the one this model was trained with; put the right one back")


def check_texts(run: Path, texts: list[str], accept_changes: bool) -> None:
    """Refuse to continue with other training text than before, unless the user accepts changes."""
    if config_value(run, "texts") in (None, texts):
        return
    if not checkpoints.folders(run):
        _delete_prepared(run)
    elif not accept_changes:
        raise ConfigError(
            f"the training text is not what {run} began with; put it back, choose another --out, or give --accept-changes"
        )


def _delete_prepared(run: Path) -> None:
    """Delete what was made of another recipe or text: tokenizers, config.json, scores of the start, profiles, tracked runs."""
    made = [path for pattern in ("tokenizer*.json", "before*.json", "tracker-*.json") for path in run.glob(pattern)]
    for path in [*made, run / PROFILES, run / CONFIG]:
        path.unlink(missing_ok=True)


def check_model(run: Path, recipe: Recipe) -> None:
    """Refuse the recipe of another run."""
    saved = config_value(run, "model")
    # Parsed, so that a key that is missing there takes its default.
    if saved is not None and parse(type(recipe.model), saved, str(run / CONFIG)) != recipe.model:
        raise CheckpointError(f"{run}: {RECIPE} describes another model than {CONFIG}; put the right one back")


def read_source_statistics(run: Path) -> SourceStatistics:
    """Return the statistics of a run's training sources; those that its training did not count are None."""
    return SourceStatistics(*(config_value(run, key) for key in SourceStatistics._fields))


def config_value(run: Path, key: str) -> Any:
    """Return a value of config.json; None before it is written."""
    try:
        return json.loads((run / CONFIG).read_text()).get(key)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, AttributeError) as error:
        raise CheckpointError(f"{run / CONFIG}: not readable ({error})") from None
