"""qkv train: what it says of recipes and corpora that it cannot use, and that it leaves everything as it was."""

import json
import shutil
from pathlib import Path

import pytest

from qkv.folder.language_profiles import PROFILES, read_language_profiles
from workbench import Commands, write_corpus, write_recipe


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    write_corpus(tmp_path / "corpus", pairs=80)
    return tmp_path / "corpus"


def complaint(commands: Commands, corpus: Path, *options: object, **changes: object) -> str:
    """What training on a corpus says, when it can't."""
    recipe = write_recipe(corpus, **changes)  # type: ignore[arg-type]
    before = {path: path.read_bytes() for path in corpus.rglob("*") if path.is_file()}
    said = commands.run("train", recipe, "--out", corpus.parent / "run", *options).complaint()
    assert {path: path.read_bytes() for path in corpus.rglob("*") if path.is_file()} == before
    assert not (corpus.parent / "run" / "model.safetensors").exists()
    return said


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ("training.step=5", "unknown key 'training.step'; did you mean 'steps'?"),
        ("trainin.steps=5", "unknown key 'trainin'; did you mean 'training'?"),
        ("model.widht=5", "unknown key 'model.widht'; did you mean 'width'?"),
        ("model.attention=windw", "model.attention: expected a kind, one of full, window, bigbird, linformer, got 'windw'"),
        ("model.attention.radius=3", "bigbird, linformer; add it, as in --set model.attention.kind=window"),
        (
            "model.attention={kind: window, projected_length: 3}",
            "key 'model.attention.projected_length' belongs to another kind; leave it out",
        ),
        (
            "model.attention={kind: window, radius: 0}",
            "model.attention.radius: input should be greater than or equal to 1, got 0",
        ),
        ("training.steps=many", "training.steps: input should be a valid integer"),
        ("training.steps=-3", "training.steps: input should be greater than 0, got -3"),
        ("training.steps=2.5", "training.steps: input should be a valid integer"),
        ("training.precision=half", "training.precision: input should be 'auto', 'bf16' or 'float32', got 'half'"),
        ("model.dropout=1.5", "model.dropout: input should be less than 1, got 1.5"),
        ("model.heads=3", "model.width 16 does not split into 3 heads; choose heads that divide it"),
        ("model=big", "model"),
        ("training.device=cuda", "torch sees no GPU here; use device=cpu or auto"),
        ("training.device=tpu", "device 'tpu' is not known; use auto, cpu, cuda, cuda:N or mps"),
        ("tokenizer={source: {kind: words}, target: {kind: words}}", "model.tied=all needs one vocabulary for both sides"),
        ("data.source_eos=yes please", "data.source_eos: input should be a valid boolean"),
        ("training.row_width=3", "training.row_width 3 is less than the longest text"),
        ("tokenizer.shared.kind=bbpe", "tokenizer.shared.kind"),
        ("data.max_tokens=2", "all are longer than data.max_tokens=2; raise it"),
        ("training.steps", "--set training.steps: expected key=value, such as training.steps=1000"),
        ("data.train=missing.tsv", "missing.tsv: no such file; check the path"),
        ("data.dev=[]", "data.dev: at least one corpus is needed"),
    ],
)
def test_a_setting_that_cannot_be_used(commands: Commands, corpus: Path, setting: str, says: str) -> None:
    assert says in complaint(commands, corpus, "--set", setting)


@pytest.mark.parametrize(("metrics", "says"), [("[blue]", "did you mean 'bleu'?"), ("[]", "at least one")])
def test_unknown_metrics_show_before_training(commands: Commands, corpus: Path, metrics: str, says: str) -> None:
    assert says in complaint(commands, corpus, "--set", f"metrics={metrics}")
    assert not (corpus.parent / "run").exists()


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("training: [", "not valid YAML"),
        ("", "a recipe is keys and values, got NoneType"),
        ("- 1", "a recipe is keys and values, got list"),
        ("\x00\x01", "recipe.yaml"),
        ("seed: 1", "missing key 'data'"),
    ],
    ids=["half", "empty", "list", "binary", "keys"],
)
def test_a_recipe_that_is_none(commands: Commands, tmp_path: Path, content: str, says: str) -> None:
    path = tmp_path / "recipe.yaml"
    path.write_text(content)
    assert says in commands.run("train", path, "--out", tmp_path / "run").complaint()
    assert not (tmp_path / "run").exists()


def test_a_recipe_that_is_missing(commands: Commands, tmp_path: Path) -> None:
    assert "no-such.yaml: no such file" in commands.run("train", tmp_path / "no-such.yaml").complaint()
    assert "no recipe 'speling'; choose one of" in commands.run("train", "speling", "--out", tmp_path / "run").complaint()
    assert "--steps" in commands.run("train", "spelling", "--steps", 5, "--out", tmp_path / "run").complaint()
    assert not (tmp_path / "run").exists()


def test_misaligned_files(commands: Commands, corpus: Path) -> None:
    (corpus / "a.en").write_text("one\ntwo\nthree\n")
    (corpus / "a.de").write_text("eins\nzwei\n")
    two = {"source": str(corpus / "a.en"), "target": str(corpus / "a.de")}
    said = complaint(commands, corpus, data={"train": two})
    assert "has 3 lines" in said and "has 2" in said


BINARY = [b"\x00\x01\x02\t\x00\n" * 99, b"PK\x03\x04rest", b"\x1f\x8brest", bytes(range(128, 256)) * 9]


@pytest.mark.parametrize("content", BINARY, ids=["zeros", "zip", "gzip", "latin"])
def test_a_binary_file_as_text(commands: Commands, corpus: Path, content: bytes) -> None:
    (corpus / "train.tsv").write_bytes(content)
    assert f"{corpus / 'train.tsv'}: is " in complaint(commands, corpus)


def test_no_pairs_left(commands: Commands, corpus: Path) -> None:
    (corpus / "train.tsv").write_text("same\tsame\n\tempty\n" * 5)
    assert "no training pairs are left after checking; the table above says why each was dropped" in complaint(commands, corpus)


@pytest.mark.parametrize("content", ["", "\n\n", "only one column\n"])
def test_no_dev_pairs(commands: Commands, corpus: Path, content: str) -> None:
    (corpus / "dev.tsv").write_text(content)
    assert "no dev pairs are usable; data.dev must name a file with at least one pair" in complaint(commands, corpus)


def test_a_line_of_a_million_characters_is_dropped_and_counted(commands: Commands, corpus: Path) -> None:
    with (corpus / "train.tsv").open("a") as file:
        file.write("x" * 1_000_000 + "\t" + "y" * 1_000_000 + "\n")
    recipe = write_recipe(corpus, training={"steps": 3})
    done = commands.run("train", recipe, "--out", corpus.parent / "run", COLUMNS="150")
    assert done.code == 0, done.err
    assert "too long (characters)" in done.err and "train.tsv: 81" in done.err


def test_a_mistake_in_a_path_is_mended_in_the_same_folder(commands: Commands, corpus: Path) -> None:
    assert "no such file" in complaint(commands, corpus, data={"train": "typo.tsv"})
    recipe = write_recipe(corpus, training={"steps": 3})
    done = commands.run("train", recipe, "--out", corpus.parent / "run")
    assert done.code == 0, done.err


def test_what_a_run_holds_in_the_end(commands: Commands, run: Path) -> None:
    names = {path.name for path in run.iterdir()} - {".lock"}
    assert names == {
        "recipe.yaml", "config.json", "tokenizer.json", "model.safetensors", "metrics.jsonl", "tensorboard",
        "report.html", "result.json", "languages.safetensors", "snapshots",
    }  # fmt: skip
    assert json.loads((run / "result.json").read_text())["scores"][0]["name"] == "chrf"


def test_profiles_of_languages_are_made_for_a_run_without(commands: Commands, run: Path, corpus: Path, tmp_path: Path) -> None:
    shutil.copytree(run, tmp_path / "old")
    (tmp_path / "old" / PROFILES).unlink()
    assert commands.run("languages", tmp_path / "old", corpus / "train.tsv").code == 0
    assert None not in read_language_profiles(tmp_path / "old")
    assert "no such file" in commands.run("languages", tmp_path / "old", "missing.tsv").complaint()
    (tmp_path / "signs.tsv").write_text("1\t2\n3\t4\n")
    assert "have no letters" in commands.run("languages", tmp_path / "old", tmp_path / "signs.tsv").complaint()
    assert None not in read_language_profiles(tmp_path / "old")


def test_the_recipe_in_a_run_makes_the_same_run_again(commands: Commands, run: Path, tmp_path: Path) -> None:
    done = commands.run("train", run / "recipe.yaml", "--out", tmp_path / "again")
    assert done.code == 0, done.err
    for name in ("model.safetensors", "tokenizer.json", "recipe.yaml"):
        assert (tmp_path / "again" / name).read_bytes() == (run / name).read_bytes()


def test_a_mistake_before_the_first_checkpoint_is_mended_in_the_same_folder(commands: Commands, corpus: Path) -> None:
    assert "row_width" in complaint(commands, corpus, "--set", "training.row_width=3")
    done = commands.run("train", corpus / "recipe.yaml", "--out", corpus.parent / "run", "--set", "tokenizer.shared.vocab=50")
    assert done.code == 0, done.err
    assert "changed: training.row_width: 3 -> 64" in done.err


def test_a_users_own_recipe_is_never_overwritten(commands: Commands, corpus: Path) -> None:
    recipe = write_recipe(corpus)
    before = recipe.read_bytes()
    assert "not empty and not a run folder" in commands.run("train", recipe, "--out", corpus).complaint()
    assert recipe.read_bytes() == before


def test_penalties_of_beam_search_do_not_disturb_validation(commands: Commands, corpus: Path) -> None:
    recipe = write_recipe(corpus, decoding={"coverage_penalty": 0.2}, training={"steps": 20})
    done = commands.run("train", recipe, "--out", corpus.parent / "run")
    assert done.code == 0, done.err


def test_a_table_with_a_header_and_semicolons_says_which_columns_are_read(commands: Commands, corpus: Path) -> None:
    recipe = write_recipe(corpus, training={"steps": 2})
    pairs = [line.split("\t") for line in (corpus / "train.tsv").read_text().splitlines()]
    rows = [f"{number};{source};{target}\n" for number, (source, target) in enumerate(pairs)]
    (corpus / "big.csv").write_text("id;English;Latin\n" + "".join(rows))
    done = commands.run("train", recipe, "--out", corpus / "run", "--set", f"data.train={corpus / 'big.csv'}")
    said = " ".join((done.out + done.err).split())
    assert done.code == 0, done.err
    assert said.count("big.csv: columns 2 (English) and 3 (Latin) between semicolons, header skipped") == 1
    assert said.count("dev.tsv, test.tsv: columns 1 and 2 between tabs, no header") == 1
    (corpus / "bare.csv").write_text("".join(rows))
    columns = ("--set", f"data.train.pairs={corpus / 'bare.csv'}", "--set", "data.train.columns=[2,3]")
    small = ("--set", "training.steps=1", "--set", "model={width: 16, feedforward: 16, heads: 2}")
    dev = ("--set", f"data.dev={corpus / 'dev.tsv'}")
    done = commands.run("train", "transformer-small", "--out", corpus / "bare", *columns, *dev, *small)
    said = " ".join((done.out + done.err).split())
    assert done.code == 0, done.err
    assert "bare.csv: columns 2 and 3 between semicolons, no header" in said and f"{len(pairs)} pairs an epoch" in said
