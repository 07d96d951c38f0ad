"""Training never replaces a model that no training in its folder made: an imported or an exported one."""

from pathlib import Path

import pytest

import qkv
from marian_folders import write_checkpoint
from qkv.base.errors import ConfigError
from qkv.interop.export import export
from qkv.interop.huggingface.runs import import_huggingface
from qkv.text.tokenizer import TokenizerConfig, train_tokenizer
from translator_runs import TRANSFORMER, write_pairs_run
from workbench import WORDS, recipe_values, write_corpus


def contents(folder: Path) -> dict[Path, tuple[bytes, int]]:
    return {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in folder.rglob("*") if path.is_file()}


def refused(folder: Path, tmp_path: Path) -> str:
    """Return the error of a training into a folder, in which nothing may change."""
    write_corpus(tmp_path / "corpus")
    before = contents(folder)
    assert before
    with pytest.raises(ConfigError) as error:
        qkv.train(recipe_values(tmp_path / "corpus"), folder)
    assert contents(folder) == before
    return str(error.value)


@pytest.fixture
def imported(tmp_path: Path) -> Path:
    import_huggingface(write_checkpoint(tmp_path / "hf"), tmp_path / "imported")
    return tmp_path / "imported"


def test_an_imported_model_is_not_trained_over(imported: Path, tmp_path: Path) -> None:
    wanted = f"{imported} holds an imported model, whose weights training would replace; choose another --out"
    assert refused(imported, tmp_path) == wanted


@pytest.mark.parametrize("recipe", [False, True], ids=["as exported", "with a recipe of the user's beside it"])
def test_an_export_for_transformers_is_not_trained_over(imported: Path, tmp_path: Path, recipe: bool) -> None:
    export(imported, "hf", tmp_path / "out")
    if recipe:
        (tmp_path / "out" / "recipe.yaml").write_text("seed: 1\n")
    assert "ported model, whose weights training would replace; choose another --out" in refused(tmp_path / "out", tmp_path)


@pytest.mark.parametrize("recipe", [False, True], ids=["as exported", "with a recipe of the user's beside it"])
def test_an_export_for_ctranslate2_is_not_trained_over(tmp_path: Path, recipe: bool) -> None:
    tokenizer = train_tokenizer(TokenizerConfig(vocab=60), iter(WORDS))
    export(write_pairs_run(tmp_path / "run", TRANSFORMER, tokenizer, tokenizer), "ctranslate2", tmp_path / "out")
    if recipe:
        (tmp_path / "out" / "recipe.yaml").write_text("seed: 1\n")
    assert "holds an exported model, whose weights training would replace" in refused(tmp_path / "out", tmp_path)
