"""manifest.json of a folder of outputs: what the folder is for, and what is in it."""

import json
from pathlib import Path
from typing import Any

from qkv.base.config import Config, describe_differences, differences, parse
from qkv.base.errors import ConfigError, DataError
from qkv.base.urls import exists, file_name, is_url, join, list_files, read_bytes, write_object

BATCH_MANIFEST = "manifest.json"
DONE = ".done"  # folder of marks, among the outputs


class ManifestHeader(Config):
    """The part of the manifest that says what the folder is for."""

    verb: str
    run_digest: str
    options: dict[str, Any]


def begin_outputs(out: str, wanted: ManifestHeader) -> None:
    """Write the manifest of a new folder; refuse a folder of other files, or of another command, unless that one made nothing."""
    place = join(out, BATCH_MANIFEST)
    found = read_manifest(out) if exists(place) else None
    if found is None:
        _refuse_other_files(out)
    if found is None or not (found["shards"] or list_files(join(out, DONE))):
        write_json(place, {**wanted.model_dump(mode="json"), "complete": False, "shards": {}})
        return
    known = parse(ManifestHeader, {name: found[name] for name in ManifestHeader.model_fields}, place)
    if known.verb != wanted.verb:
        raise ConfigError(f"{out} holds outputs of qkv {known.verb}; choose another --out")
    if known.run_digest != wanted.run_digest:
        raise ConfigError(f"{out} holds outputs of another run, or of a file of options that has changed; choose another --out")
    if known != wanted:
        changes = describe_differences(differences(known, wanted))
        raise ConfigError(f"{out} holds outputs of another command: {changes}; choose another --out")


def _refuse_other_files(out: str) -> None:
    """Refuse a folder that holds anything; folders of an object store are not seen."""
    if not is_url(out) and Path(out).is_file():
        raise ConfigError(f"{out}: is a file; choose a new folder for --out")
    there = list_files(out) if is_url(out) else sorted(map(str, Path(out).iterdir())) if Path(out).is_dir() else []
    if there:
        raise ConfigError(f"{out}: holds other files, such as {file_name(there[0])}; choose a new folder for --out")


def read_manifest(out: str) -> dict[str, Any]:
    """Return the manifest of a folder of outputs."""
    place = join(out, BATCH_MANIFEST)
    try:
        found = json.loads(read_bytes(place))
        if not {*ManifestHeader.model_fields, "shards"} <= found.keys():
            raise ValueError("keys are missing")
    except (ValueError, AttributeError) as error:
        raise DataError(f"{place}: not what batch work writes ({error}); choose another --out") from None
    return found


def write_json(place: str, values: dict[str, Any]) -> None:
    """Write a manifest or a mark, whole."""
    write_object(place, (json.dumps(values, indent=1, ensure_ascii=False, sort_keys=True) + "\n").encode())
