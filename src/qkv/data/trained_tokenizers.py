"""Trained tokenizers in the cache, so that all machines that prepare a corpus, and the run that trains on it, have the same."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from qkv.base.errors import CheckpointError, StorageError
from qkv.data.cache import cache_folder, cache_key, lock_folder
from qkv.data.corpora import Tokenizers
from qkv.data.store import Part
from qkv.text.tokenizer import Tokenizer

KIND, SOURCE, TARGET = "trained-tokenizers", "source.json", "target.json"


def cached_pair(content: list[Any], make: Callable[[], Tokenizers]) -> Tokenizers:
    """Return the tokenizers that are made from `content`, from the cache or newly made."""
    part = Part(KIND, cache_key(content))
    with lock_folder(cache_folder() / KIND / part.key):
        found = _load(part)
        if found is not None:
            return found
        made = make()
        if part.meta() is None or not part.remote:  # another machine may have been faster
            part.make(lambda folder: _save(folder, made))
    return _load(part) or made


def _load(part: Part) -> Tokenizers | None:
    """Return the tokenizers of a part; None where they are not there, or damaged."""
    meta = part.meta()
    if meta is None:
        return None
    try:
        source, target = (
            part.open(name, Tokenizer.load, meta["files"][name]) if name in meta["files"] else None for name in (SOURCE, TARGET)
        )
    except (CheckpointError, StorageError):
        return None
    return None if source is None else Tokenizers(source, target or source)


def _save(folder: Path, made: Tokenizers) -> dict[str, Any]:
    made.source.save(folder / SOURCE)
    if not made.shared:
        made.target.save(folder / TARGET)
    return {}
