"""Corpora prepared by several machines, inputs, cache and run at URLs: the run is the one that a single machine makes."""

from pathlib import Path
from typing import Any

import pytest

import qkv
from object_store import BUCKET, ObjectStore
from qkv.base import urls
from qkv.base.errors import ConfigError, StorageError
from qkv.jobs.prepare import prepare_corpora
from qkv.recipes import load_recipe
from qkv.text import pieces
from workbench import recipe_values, write_corpus


@pytest.fixture
def values(tmp_path: Path) -> dict[str, Any]:
    write_corpus(tmp_path, pairs=80)
    made = recipe_values(tmp_path)
    made["training"] |= {"steps": 4}
    return made


def test_machines_that_share_a_store_prepare_a_run(
    values: dict[str, Any], tmp_path: Path, store: ObjectStore, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    alone = qkv.train(values, tmp_path / "alone")
    folder = f"s3://{BUCKET}/{tmp_path.name}"
    monkeypatch.setattr(pieces, "PIECE", 1500)
    monkeypatch.setenv("QKV_CACHE", f"{folder}/cache")
    for name in ("train", "dev"):
        urls.write_object(f"{folder}/{name}.tsv", tmp_path / f"{name}.tsv")
        values["data"][name] = f"{folder}/{name}.tsv"
    recipe = load_recipe(values, [])
    done = []
    for machine in ("1", "2", "1", "2"):
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / f"machine-{machine}"))
        done.append(prepare_corpora(recipe, (int(machine), 2), 1))
    assert done[0] is False and done[-1] is True
    assert "pieces not checked yet: " in capsys.readouterr().err
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "trainer"))
    store.requests.clear()
    run = qkv.train(values, tmp_path / "run")
    assert not [path for method, path in store.requests if method == "PUT"]
    assert (run / "model.safetensors").read_bytes() == (alone / "model.safetensors").read_bytes()
    for file in filter(Path.is_file, run.iterdir()):
        urls.write_object(f"{folder}/run/{file.name}", file)
    remote: Any = qkv.load(f"{folder}/run")
    texts = ["sun rain", "old bird"]
    assert remote.translate(texts) == qkv.load(run).translate(texts)  # type: ignore[union-attr]
    with pytest.raises(StorageError, match="no such folder"):
        qkv.load(f"{folder}/nothing")
    with pytest.raises(ConfigError, match="a run is trained in a folder of this machine"):
        qkv.train(values, f"{folder}/trained")
