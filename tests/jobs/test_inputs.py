"""Whatever a recipe names is looked at before any work: nothing is tokenised or written before a mistake is told."""

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

import qkv
from encoder_recipes import SHAPE, TOKENIZER, TRAINING, finetuning_values, pretraining_values, write_examples, write_text
from encoder_runs import write_run
from qkv.base.errors import QkvError
from qkv.folder.run import WEIGHTS
from qkv.jobs import finetuning, prepared_pairs, pretraining
from workbench import recipe_values, write_corpus

WORK = {
    prepared_pairs: ["check_corpus", "train_tokenizer"],
    pretraining: ["tokenise_documents", "train_tokenizer", "cached_digests"],
    finetuning: ["read_examples", "train_tokenizer"],
}


def recipes(folder: Path) -> dict[str, dict[str, Any]]:
    """Return a recipe of each job, with its files."""
    write_corpus(folder / "pairs")
    text, dev = write_text(folder / "text.txt"), write_text(folder / "dev.txt", documents=9)
    pretrained = pretraining_values("masked", text)
    return {
        "translation": recipe_values(folder / "pairs"),
        "pretraining": {**pretrained, "data": {**pretrained["data"], "dev": str(dev)}},
        "finetuning": finetuning_values("classification", write_examples(folder, "classification")),
    }


def refused(values: dict[str, Any], folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the error of a training in which any work is an error of its own; nothing may be left behind."""

    def work(*_: Any, **__: Any) -> None:
        raise AssertionError("work was done before the mistake was found")

    for job, names in WORK.items():
        for name in names:
            monkeypatch.setattr(job, name, work)
    with pytest.raises(QkvError) as error:
        qkv.train(values, folder / "run")
    assert not (folder / "run").exists() and not (folder / "cache").exists()
    assert "\n" not in str(error.value)
    return str(error.value)


JOBS = ["translation", "pretraining", "finetuning"]
every_job = pytest.mark.parametrize("job", JOBS)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
@every_job
def test_a_device_that_is_not_there(job: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values = recipes(tmp_path)[job]
    values["training"]["device"] = "cuda"
    assert "torch sees no GPU here; use device=cpu or auto" in refused(values, tmp_path, monkeypatch)


FILES = [
    *(("translation", key) for key in ("train", "dev", "test")),
    *(("pretraining", key) for key in ("text", "dev")),
    *(("finetuning", key) for key in ("train", "dev", "test")),
]


@pytest.mark.parametrize(("job", "key"), FILES)
def test_a_file_that_is_missing(job: str, key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values = recipes(tmp_path)[job]
    Path(values["data"][key]).unlink()
    assert refused(values, tmp_path, monkeypatch).startswith(f"{values['data'][key]}: no such file; check the path")


@pytest.mark.parametrize("content", ["", "\n\n"])
@pytest.mark.parametrize(("job", "key"), FILES[:5])
def test_a_text_that_is_empty(job: str, key: str, content: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values = recipes(tmp_path)[job]
    Path(values["data"][key]).write_text(content)
    says = {
        "translation": f"no {key} pairs are usable; data.{key} must name a file with at least one pair",
        "pretraining": f"{values['data'][key]}: no text was found; give lines of UTF-8 text",
    }
    assert says[job] in refused(values, tmp_path, monkeypatch)


def test_one_text_of_several_that_is_empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values, empty = recipes(tmp_path)["pretraining"], tmp_path / "empty.txt"
    empty.write_text("")
    values["data"]["text"] = [values["data"]["text"], str(empty)]
    assert f"{empty}: no text was found" in refused(values, tmp_path, monkeypatch)


@pytest.mark.parametrize("key", ["train", "dev", "test"])
def test_examples_that_are_empty(key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Examples are read as a whole, before the tokenizer is trained."""
    values = recipes(tmp_path)["finetuning"]
    Path(values["data"][key]).write_text("text\tlabel\n")
    monkeypatch.setitem(WORK, finetuning, ["train_tokenizer"])
    assert f"{values['data'][key]}: no examples there; at least one is wanted" in refused(values, tmp_path, monkeypatch)


@every_job
def test_a_tokenizer_that_is_missing_or_damaged(job: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values, file = recipes(tmp_path)[job], tmp_path / "tokenizer.json"
    values["tokenizer"] = {"shared": {"file": str(file)}} if job == "translation" else {"file": str(file)}
    assert f"{file}: no such file; a tokenizer.json is wanted" in refused(values, tmp_path, monkeypatch)
    file.write_text("{")
    assert f"{file}: damaged, or not a tokenizer.json" in refused(values, tmp_path, monkeypatch)


def test_one_tokenizer_of_two_that_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values = recipes(tmp_path)["translation"]
    values["tokenizer"] = {"source": {"kind": "words"}, "target": {"file": str(tmp_path / "none.json")}}
    values["model"]["tied"] = "target"
    assert f"{tmp_path / 'none.json'}: no such file" in refused(values, tmp_path, monkeypatch)


def test_a_tokenizer_without_the_tokens_that_the_objective_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from qkv.text.tokenizer import TokenizerConfig, train_tokenizer

    train_tokenizer(TokenizerConfig(kind="bpe", vocab=60), ["The tree grows."] * 9).save(tmp_path / "plain.json")
    values = {**recipes(tmp_path)["pretraining"], "tokenizer": {"file": str(tmp_path / "plain.json")}}
    assert "plain.json: this tokenizer has no [MASK], which masking needs" in refused(values, tmp_path, monkeypatch)


@every_job
def test_word_vectors_that_are_missing(job: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values, file = recipes(tmp_path)[job], tmp_path / "words.vec"
    values["embeddings"] = {"target" if job == "translation" else "file": str(file)}
    assert f"{file}: no such file" in refused(values, tmp_path, monkeypatch)


@pytest.mark.parametrize("job", ["pretraining", "finetuning"])
def test_a_start_that_is_missing_or_has_no_weights(job: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values = {key: value for key, value in recipes(tmp_path)[job].items() if key not in ("model", "tokenizer")}
    values["start"] = str(tmp_path / "start")
    assert "no such run folder" in refused(values, tmp_path, monkeypatch)
    (write_run(tmp_path / "start") / WEIGHTS).unlink()
    assert "is this a run folder whose training has saved something" in refused(values, tmp_path, monkeypatch)


def test_a_start_of_a_translator_without_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from encoder_runs import LINES
    from qkv.text.tokenizer import TokenizerConfig, train_tokenizer
    from translator_runs import T5, write_pairs_run

    own = train_tokenizer(TokenizerConfig(kind="unigram", vocab=200, sentinels=20), LINES * 9)
    pretrained = {"tokenizer": {"file": "x"}, "data": {"text": "x", "length": 64}, "objective": {"kind": "spans"}}
    (write_pairs_run(tmp_path / "t5", T5, own, own, **pretrained) / WEIGHTS).unlink()
    values = {key: value for key, value in recipes(tmp_path)["translation"].items() if key != "tokenizer"}
    values |= {"start": str(tmp_path / "t5"), "model": {"kind": "t5"}}
    assert "is this a run folder whose training has saved something" in refused(values, tmp_path, monkeypatch)


def test_several_files_of_which_some_are_empty(tmp_path: Path) -> None:
    """One file with text is enough for each part."""
    values = recipes(tmp_path)["translation"]
    for name in ("train", "dev", "test"):
        (tmp_path / f"empty-{name}.tsv").write_text("")
        values["data"][name] = [str(tmp_path / f"empty-{name}.tsv"), values["data"][name]]
    values["training"]["steps"] = 2
    assert (qkv.train(values, tmp_path / "run") / WEIGHTS).exists()


def test_a_finished_run_needs_none_of_its_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    values = {**recipes(tmp_path)["finetuning"], "model": {"kind": "bert", **SHAPE}, "tokenizer": TOKENIZER}
    values["training"] = {**TRAINING, "steps": 2}
    qkv.train(values, tmp_path / "run")
    for path in values["data"].values():
        if isinstance(path, str):
            Path(path).unlink()
    capsys.readouterr()
    qkv.train(values, tmp_path / "run")
    assert "is finished" in capsys.readouterr().err


def test_a_run_that_goes_on_is_not_touched_by_a_mistake(tmp_path: Path) -> None:
    """A changed recipe with a mistake in it leaves the run as it was."""
    values = recipes(tmp_path)["translation"]
    values["training"]["steps"] = 2
    run = qkv.train(values, tmp_path / "run")
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    values["training"] |= {"steps": 4, "device": "cuda:9"}
    with pytest.raises(QkvError, match=re.escape("device 'cuda:9' was asked for")):
        qkv.train(values, run, accept_changes=True)
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before
    shutil.rmtree(run)


@pytest.mark.parametrize("split", ["train", "dev", "test"])
def test_tables_whose_columns_must_be_named(split: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values = recipes(tmp_path)["translation"]
    more = tmp_path / "more.csv"
    more.write_text("1;sun;sol\n2;rain;pluvia\n")
    values["data"][split] = [values["data"][split], str(more)]  # the second of two
    assert refused(values, tmp_path, monkeypatch).startswith(f"{more}: which of its 3 columns are source and target?")
