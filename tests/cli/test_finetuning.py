"""qkv train on labelled examples of each kind, what evaluate and predict make of it, what is said of examples it cannot use."""

import json
import re
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import qkv
from encoder_recipes import WRITERS, finetuning_values, pretraining_values, save_recipe, write_examples, write_text
from qkv.recipes import load_recipe
from qkv.training.checkpoints import load_weights
from unfinished_runs import unfinish
from workbench import Commands, metrics_without_times, step_reached, wait_until, weights, write_recipe

METRICS = {
    "classification": {"accuracy", "f1", "matthews"},
    "pair": {"accuracy", "f1", "matthews"},
    "regression": {"spearman", "pearson"},
    "tagging": {"entity_f1", "tag_accuracy"},
    "answering": {"answer_f1", "exact_match"},
}
FIRST = {
    "classification": "accuracy",
    "pair": "accuracy",
    "regression": "spearman",
    "tagging": "entity_f1",
    "answering": "answer_f1",
}
Runs = Callable[[str], Path]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("finetuning")


@pytest.fixture(scope="module")
def pretrained(commands: Commands, folder: Path) -> Path:
    """The run of an encoder, for fine-tuning to begin with."""
    values = pretraining_values("masked", write_text(folder / "text.txt"))
    done = commands.run("train", save_recipe(folder / "pretraining.yaml", values), "--out", folder / "pretrained")
    assert done.code == 0, done.err
    return folder / "pretrained"


@pytest.fixture(scope="module")
def runs(commands: Commands, folder: Path, pretrained: Path) -> Runs:
    """A finished run of each kind, trained when first asked for; tests must not change it."""

    def finished(kind: str) -> Path:
        run = folder / kind
        if not run.exists():
            values = finetuning_values(kind, write_examples(folder, kind), pretrained)
            done = commands.run("train", save_recipe(folder / f"{kind}.yaml", values), "--out", run)
            assert done.code == 0, done.err
        return run

    return finished


@pytest.mark.parametrize("kind", WRITERS)
def test_from_examples_to_a_finished_run(runs: Runs, kind: str) -> None:
    run = runs(kind)
    assert {path.name for path in run.iterdir()} - {".lock"} == {
        "recipe.yaml", "config.json", "tokenizer.json", "model.safetensors", "metrics.jsonl", "tensorboard",
        "report.html", "result.json",
    }  # fmt: skip
    validated = [row for row in metrics_without_times(run) if "dev_loss" in row]
    assert len(validated) == 6 and validated[-1]["step"] == 6 * validated[0]["step"]  # one at the end of each epoch
    assert all(row.keys() == {"step", "dev_loss"} | {f"dev_{name}" for name in METRICS[kind]} for row in validated)
    result = json.loads((run / "result.json").read_text())
    assert result["scores"].keys() == METRICS[kind] and result["scored on"] == "test, 24 examples"
    best = max(validated, key=lambda row: row[f"dev_{FIRST[kind]}"])
    assert result["weights"] == f"checkpoint at step {best['step']}"
    report = (run / "report.html").read_text()
    assert all(f">{name.replace('_', ' ')}<" in report for name in METRICS[kind]) and "Dev scores" in report


@pytest.mark.parametrize("kind", WRITERS)
def test_evaluate_repeats_the_scores_of_training(commands: Commands, runs: Runs, folder: Path, kind: str) -> None:
    scores = json.loads((runs(kind) / "result.json").read_text())["scores"]
    done = commands.run("evaluate", runs(kind), "--json", "--device", "cpu")
    assert done.code == 0, done.err
    assert json.loads(done.out) == {"scores": pytest.approx(scores), "examples": 24}
    dev = folder / f"{kind}-dev.{WRITERS[kind][0]}"
    done = commands.run("evaluate", runs(kind), "--data", dev, "--metrics", FIRST[kind])
    assert done.code == 0 and "24 examples scored" in done.out, done.err
    best = max(row.get(f"dev_{FIRST[kind]}", -1) for row in metrics_without_times(runs(kind)))
    assert f"{best:.4f}" in done.out


def test_numbers_far_from_zero(commands: Commands, pretrained: Path, tmp_path: Path) -> None:
    files = write_examples(tmp_path, "regression")
    for file in map(Path, files.values()):
        records = [json.loads(line) for line in file.read_text().splitlines()]
        file.write_text("".join(f"{json.dumps({**record, 'label': record['label'] + 1000})}\n" for record in records))
    values = finetuning_values("regression", files, pretrained)
    done = commands.run("train", save_recipe(tmp_path / "recipe.yaml", values), "--out", tmp_path / "run")
    assert done.code == 0, done.err
    said = [float(line) for line in commands.run("predict", tmp_path / "run", files["dev"]).out.split()]
    assert len(said) == 24 and all(abs(number - 1000) < 10 for number in said)


@pytest.mark.parametrize("kind", WRITERS)
def test_predict_says_something_of_every_example(commands: Commands, runs: Runs, folder: Path, kind: str) -> None:
    file = folder / f"{kind}-test.{WRITERS[kind][0]}"
    done = commands.run("predict", runs(kind), file)
    assert done.code == 0 and done.err == "", done.err
    if kind == "answering":
        asked = json.loads(file.read_text())["data"][0]["paragraphs"]
        said = json.loads(done.out)
        assert said.keys() == {f"q{number}" for number in range(24)}
        assert all(said[p["qas"][0]["id"]] in p["context"] for p in asked)
    elif kind == "tagging":
        words = [line.partition("\t")[0] for line in file.read_text().splitlines()]
        assert [line.partition("\t")[0] for line in done.out.splitlines()] == [*words, ""]
    else:
        assert len(done.out.splitlines()) == 24
        columns = [line.split("\t") for line in done.out.splitlines()]
        labels = {"classification": {"garden", "harbour", "kitchen"}, "pair": {"0", "1"}}
        assert all(said[0] in labels.get(kind, said) and 0 <= float(said[-1]) <= 3 for said in columns)


def test_topics_are_learned(commands: Commands, tmp_path: Path) -> None:
    values = finetuning_values("classification", write_examples(tmp_path, "classification", count=240))
    values["training"] |= {"epochs": 20, "batch_tokens": 512, "learning_rate": 0.005, "betas": [0.9, 0.999]}
    values["model"] |= {"width": 32, "feedforward": 64, "heads": 4, "dropout": 0.0}
    done = commands.run("train", save_recipe(tmp_path / "recipe.yaml", values), "--out", tmp_path / "run")
    assert done.code == 0, done.err
    assert json.loads((tmp_path / "run" / "result.json").read_text())["scores"]["accuracy"] > 0.9
    (tmp_path / "new.tsv").write_text("text\nThe old ship floats.\nThe small spoon burns.\n")
    said = commands.run("predict", tmp_path / "run", tmp_path / "new.tsv").out
    assert [line.split("\t")[0] for line in said.splitlines()] == ["harbour", "kitchen"]


def test_in_python(runs: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QKV_CACHE", str(tmp_path / "cache"))
    run = qkv.train(load_recipe(str(runs("classification") / "recipe.yaml"), []), tmp_path / "run")
    assert weights(run) == weights(runs("classification"))  # from a recipe.yaml, the same run again
    ((label, probability),) = qkv.load(run, "cpu").predict(["The old ship floats."])
    assert label in ("garden", "harbour", "kitchen") and 1 / 3 < probability <= 1
    assert qkv.load(runs("pair"), "cpu").predict([("The ship floats.", "The tree grows.")])[0].label in ("0", "1")
    assert isinstance(qkv.load(runs("regression"), "cpu").predict(["The tree grows."])[0], float)
    assert len(qkv.load(runs("tagging"), "cpu").predict([["The", "old", "tree"]])[0]) == 3
    answer = qkv.load(runs("answering"), "cpu").predict([("What grows?", "The old tree grows.")])[0]
    assert answer.text and answer.text in "The old tree grows."


# How long, and which weights


def test_epochs_are_steps(commands: Commands, runs: Runs, folder: Path, tmp_path: Path) -> None:
    each = metrics_without_times(runs("pair"))[-1]["step"] // 6
    wanted = {"epochs": "null", "steps": 6 * each, "validate_every": each, "save_every": each}
    settings = [word for key, value in wanted.items() for word in ("--set", f"training.{key}={value}")]
    done = commands.run("train", folder / "pair.yaml", "--out", tmp_path / "run", *settings)
    assert done.code == 0, done.err
    assert weights(tmp_path / "run") == weights(runs("pair"))
    assert metrics_without_times(tmp_path / "run") == metrics_without_times(runs("pair"))


def test_the_best_epoch_is_kept(commands: Commands, folder: Path, pretrained: Path, tmp_path: Path) -> None:
    """On dev every topic has another's name: the more is learned, the worse it gets."""
    files = write_examples(tmp_path, "classification")
    dev = Path(files["dev"])
    others = {"garden": "harbour", "harbour": "kitchen", "kitchen": "garden"}
    rows = [line.split("\t") for line in dev.read_text().splitlines()]
    dev.write_text("".join(f"{text}\t{others.get(topic, topic)}\n" for text, topic in rows))
    values = finetuning_values("classification", files, pretrained)
    values["training"] |= {"keep_checkpoints": True, "epochs": 12}
    recipe = save_recipe(tmp_path / "recipe.yaml", values)
    done = commands.run("train", recipe, "--out", tmp_path / "run")
    assert done.code == 0, done.err
    accuracy = {row["step"]: row["dev_accuracy"] for row in metrics_without_times(tmp_path / "run") if "dev_accuracy" in row}
    best = max(accuracy, key=lambda step: accuracy[step])
    assert best < max(accuracy) and accuracy[best] > accuracy[max(accuracy)] == 0
    kept = load_weights(tmp_path / "run" / "model.safetensors")
    epoch = load_weights(tmp_path / "run" / "checkpoints" / f"step-{best:08d}" / "model.safetensors")
    assert f"weights kept: checkpoint at step {best}" in done.err
    assert kept.keys() == epoch.keys() and all((kept[name] == epoch[name]).all() for name in kept)


def test_labels_are_printed_and_a_header_among_them_is_suspected(commands: Commands, pretrained: Path, tmp_path: Path) -> None:
    values = finetuning_values("classification", write_examples(tmp_path, "classification", count=30), pretrained)
    values["training"] |= {"epochs": 1}
    recipe = save_recipe(tmp_path / "recipe.yaml", values)
    done = commands.run("train", recipe, "--out", tmp_path / "run")
    assert "labels: garden (" in done.err and "warning" not in done.err
    columns = ("--set", "data.text=1", "--set", "data.label=2")
    done = commands.run("train", recipe, "--out", tmp_path / "other", *columns)
    assert done.code == 0 and ", label (1)" in done.err, done.err
    assert f"{values['data']['train']}, line 1: the label 'label' is on no other line; if this is a header" in done.err


def test_texts_longer_than_in_pretraining_are_reported(commands: Commands, pretrained: Path, tmp_path: Path) -> None:
    """It was pretrained with 32 tokens at most; here texts have 48."""
    files = write_examples(tmp_path, "regression")
    train = Path(files["train"])
    train.write_text(train.read_text() + json.dumps({"text": "The old tree grows. " * 20, "label": 3}) + "\n")
    values = finetuning_values("regression", files, pretrained)
    values["training"] |= {"epochs": 1}
    done = commands.run("train", save_recipe(tmp_path / "recipe.yaml", values), "--out", tmp_path / "run")
    assert done.code == 0, done.err
    assert f"1 of 169 texts have more than 32 tokens, the most that {pretrained} was trained on" in done.err
    assert json.loads((tmp_path / "run" / "config.json").read_text())["trained_length"] == 48


def test_minutes_alone(commands: Commands, folder: Path, runs: Runs, tmp_path: Path) -> None:
    runs("tagging")
    settings = ("--set", "training.epochs=null", "--set", "training.minutes=0.02")
    done = commands.run("train", folder / "tagging.yaml", "--out", tmp_path / "run", *settings)
    assert done.code == 0 and "0.02 minutes on" in done.err, done.err
    last = metrics_without_times(tmp_path / "run")[-1]
    assert last["step"] >= 3 and "dev_loss" in last  # planned to the end, which is validated


def test_examples_decide_batches_and_epochs(commands: Commands, pretrained: Path, tmp_path: Path) -> None:
    values = finetuning_values("tagging", write_examples(tmp_path, "tagging"), pretrained)
    values["training"] |= {"epochs": "auto", "batch_tokens": "auto"}
    recipe = save_recipe(tmp_path / "recipe.yaml", values)
    done = commands.run("train", recipe, "--out", tmp_path / "whole")
    assert done.code == 0, done.err
    batches = int(re.search(r"training.batch_tokens=256, training.epochs=10: (\d+) updates an epoch", done.err)[1])  # type: ignore[index]
    validated = [row["step"] for row in metrics_without_times(tmp_path / "whole") if "dev_loss" in row]
    assert validated == [batches * epoch for epoch in range(1, 11)]
    training = load_recipe(tmp_path / "whole" / "recipe.yaml", []).training
    assert training.epochs == training.batch_tokens == "auto"
    # A resumed run makes the same choice.
    started = commands.start("train", recipe, "--out", tmp_path / "parts")
    wait_until(lambda: step_reached(tmp_path / "parts") >= 3)
    started.signal(signal.SIGTERM)
    assert started.result().code == 143
    done = commands.run("train", recipe, "--out", tmp_path / "parts")
    assert done.code == 0 and "resuming from step" in done.err, done.err
    assert metrics_without_times(tmp_path / "parts") == metrics_without_times(tmp_path / "whole")
    whole, parts = (load_weights(tmp_path / run / "model.safetensors") for run in ("whole", "parts"))
    assert all(torch.equal(whole[name], parts[name]) for name in whole)


def test_steps_win_over_epochs_that_examples_decide(commands: Commands, pretrained: Path, tmp_path: Path) -> None:
    values = finetuning_values("classification", write_examples(tmp_path, "classification"), pretrained)
    values["training"] |= {"epochs": "auto", "batch_tokens": "auto", "steps": 5}
    done = commands.run("train", save_recipe(tmp_path / "recipe.yaml", values), "--out", tmp_path / "run")
    assert done.code == 0 and "5 steps on" in done.err, done.err
    assert "training.batch_tokens=256: " in done.err
    assert metrics_without_times(tmp_path / "run")[-1]["step"] == 5


def test_going_on_with_other_examples_or_for_longer(commands: Commands, pretrained: Path, tmp_path: Path) -> None:
    files, run = write_examples(tmp_path, "regression"), tmp_path / "run"
    values = finetuning_values("regression", files, pretrained)
    values["training"] |= {"epochs": None, "steps": 6, "validate_every": 3, "keep_checkpoints": True}
    recipe = save_recipe(tmp_path / "recipe.yaml", values)
    assert commands.run("train", recipe, "--out", run).code == 0
    done = commands.run("train", recipe, "--out", run, "--set", "training.steps=9")
    assert done.code == 0 and "resuming from step 6 of 9" in done.err, done.err
    train = Path(files["train"])
    train.write_text(train.read_text() + '{"text": "The new tree grows.", "label": 0.5}\n')
    longer = ("--set", "training.steps=12")
    said = commands.run("train", recipe, "--out", run, *longer).complaint()
    assert f"the training text is not what {run} began with" in said and "--accept-changes" in said
    done = commands.run("train", recipe, "--out", run, *longer, "--accept-changes")
    assert done.code == 0 and "resuming from step 9 of 12" in done.err, done.err


# Mistakes


def finetuned(commands: Commands, values: dict[str, Any], folder: Path) -> str:
    """What fine-tuning says when it cannot; it leaves no weights and nothing half-written."""
    run = folder / "run"
    said = commands.run("train", save_recipe(folder / "recipe.yaml", values), "--out", run).complaint()
    assert not list(run.rglob("*.partial")) and not (run / "model.safetensors").exists() and not (run / "checkpoints").exists()
    return said


@pytest.mark.parametrize(
    ("kind", "changes", "says"),
    [
        ("classification", {"training": {"epochs": None}}, "give training.steps or training.minutes"),
        ("classification", {"training": {"steps": 5}}, "training.epochs and training.steps are both given"),
        ("classification", {"training": {"epochs": "many"}}, "training.epochs: expected a whole number or auto, got 'many'"),
        ("classification", {"training": {"batch_tokens": 0}}, "training.batch_tokens: input should be greater than 0, got 0"),
        ("classification", {"objective": {"smothing": 0.1}}, "unknown key 'objective.smothing'; did you mean 'smoothing'?"),
        ("regression", {"data": {"lable": "x"}}, "unknown key 'data.lable'; did you mean 'label'?"),
        ("tagging", {"data": {"colunm": 2}}, "unknown key 'data.colunm'; did you mean 'column'?"),
        (
            "answering",
            {"objective": {"all_answerabel": True}},
            "unknown key 'objective.all_answerabel'; did you mean 'all_answerable'?",
        ),
        ("answering", {"strat": "runs/mine"}, "unknown key 'strat'; did you mean 'start'?"),
        ("pair", {"model": {"widht": 8}}, "unknown key 'model.widht'; did you mean 'width'?"),
        ("pair", {"model": {"segments": 1}}, "model.segments 1 is too few to tell 2 texts apart"),
        ("pair", {"model": {"kind": "bart"}}, "model.kind 'bart' is not one of t5, bert, albert, electra, ernie"),
        ("pair", {"model": {"size": "huge"}}, "no model.size 'huge'; sizes of bert are"),
        ("pair", {"data": {"length": 128}}, "model.max_positions 64 is below data.length 128"),
        (
            "answering",
            {"model": {"positions": "structural"}},
            "needs texts with dependency heads, and SQuAD's questions have none",
        ),
        ("pair", {"model": None}, "model: input should be a valid dictionary"),
        ("pair", {"metrics": ["accurcy"]}, "no metric 'accurcy' of classification; did you mean 'accuracy'?"),
        ("pair", {"metrics": "f1,accurcy"}, "no metric 'accurcy' of classification; did you mean 'accuracy'?"),
        ("pair", {"metrics": ["spearman"]}, "no metric 'spearman' of classification; choose from accuracy, f1, matthews"),
    ],
)
def test_recipes_that_cannot_be(commands: Commands, tmp_path: Path, kind: str, changes: dict[str, Any], says: str) -> None:
    values = finetuning_values(kind, write_examples(tmp_path, kind, count=10))
    merged = {name: {**values.get(name, {}), **new} if isinstance(new, dict) else new for name, new in changes.items()}
    assert says in finetuned(commands, {**values, **merged}, tmp_path)
    assert not (tmp_path / "run").exists()


def test_a_key_of_one_kind_beside_a_start(commands: Commands, tmp_path: Path) -> None:
    values = finetuning_values("classification", write_examples(tmp_path, "classification", count=4), tmp_path / "some")
    values["model"] = {"frozen": True}
    assert "model.frozen is a key of elmo only; set model.kind too" in finetuned(commands, values, tmp_path)


def test_neither_start_nor_model(commands: Commands, tmp_path: Path) -> None:
    values = finetuning_values("pair", write_examples(tmp_path, "pair", count=10))
    del values["model"]
    assert "give start, the run of a pretrained encoder; or model and tokenizer" in finetuned(commands, values, tmp_path)


HEAD = "text\tlabel\n"
OUTSIDE = {"answer_start": 40, "text": "tree"}


def squad(*answers: dict[str, Any]) -> str:
    asked = {"id": "one", "question": "What grows?", "answers": list(answers)}
    return json.dumps({"data": [{"paragraphs": [{"context": "The old tree grows.", "qas": [asked]}]}]})


@pytest.mark.parametrize(
    ("kind", "part", "content", "says"),
    [
        ("classification", "dev", f"{HEAD}A\tgarden\nB\tharbor\n", "{file}, line 3: the label 'harbor' is not in the training"),
        ("classification", "test", f"{HEAD}A\tgarden\nB\tsea\n", "{file}, line 3: the label 'sea' is not in the training"),
        ("tagging", "dev", "The\tO\nold\tB-sea\n", "{file}, line 2: the label 'B-sea' is not in the training examples"),
        ("classification", "train", "sentence\tlabel\nA\tx\n", "{file}, line 1: no column 'text' for the text; there are:"),
        ("pair", "dev", "first,other,same\na,b,1\n", "{file}, line 1: no column 'second' for the pair"),
        ("regression", "train", '{"text": "a", "label": 1}\n{"text": "b"}\n', "{file}, line 2: no column 'label'"),
        ("classification", "train", f"{HEAD}A\tx\nB\tx\n", "{file}: only one label (x) in all 2 training examples"),
        ("tagging", "train", "The\tO\nold\tO\n", "{file}: only one label (O) in all 1 training examples"),
        ("classification", "train", f"{HEAD}A\tx\n\ty\n", "{file}, line 3: the text is empty; fill it in"),
        ("classification", "train", f"{HEAD}A\tx\nB\n", "{file}, line 3: 1 columns, at least 2 are wanted"),
        ("classification", "train", HEAD, "{file}: no examples there"),
        ("classification", "dev", "", "{file}: no examples there"),
        ("classification", "train", b"text\tlabel\nfine\tx\nA \xff\ty\n", "{file}, line 3: not UTF-8"),
        ("tagging", "dev", b"The\tO\nold \xff\tO\n", "{file}, line 2: not UTF-8"),
        ("regression", "dev", '{"text": "a", "label": "two"}\n', "{file}, line 1: the label 'two' is not a number"),
        ("tagging", "train", "The\tO\nold\n", "{file}, line 2: 1 columns, 2 are wanted"),
        (
            "answering",
            "train",
            squad(OUTSIDE),
            "{file}, article 1, paragraph 1, question one: the answer 'tree' from character 40",
        ),
        (
            "answering",
            "dev",
            squad(),
            "{file}, article 1, paragraph 1, question one: it has no answer; set objective.all_answerable=false",
        ),
        ("answering", "train", '{\n"data": ]', "{file}, line 2: not valid JSON"),
    ],
)
def test_examples_that_cannot_be_used(
    commands: Commands, tmp_path: Path, kind: str, part: str, content: str | bytes, says: str
) -> None:
    files = write_examples(tmp_path, kind, count=30)
    Path(files[part]).write_bytes(content if isinstance(content, bytes) else content.encode())
    assert says.format(file=files[part]) in finetuned(commands, finetuning_values(kind, files), tmp_path)
    assert not (tmp_path / "run").exists()


def test_examples_that_changed_before_anything_was_learned(commands: Commands, tmp_path: Path) -> None:
    """A run that was killed before its first checkpoint, then begun with other examples, is as if begun with these."""
    files = write_examples(tmp_path, "tagging", count=30)
    recipe = save_recipe(tmp_path / "recipe.yaml", finetuning_values("tagging", files))
    die = "import os, qkv.training.checkpoint_writer as c; c.CheckpointWriter.write = lambda *_: os._exit(9)"
    assert commands.run("train", recipe, "--out", tmp_path / "run", first=die).code == 9
    assert (tmp_path / "run" / "tokenizer.json").exists()
    Path(files["train"]).write_text("Another\tO\nLanguage\tB-garden\nhere\tB-harbour\nagain\tB-kitchen\n")
    for name in ("run", "other"):
        done = commands.run("train", recipe, "--out", tmp_path / name)
        assert done.code == 0, done.err
    assert weights(tmp_path / "run") == weights(tmp_path / "other")


@pytest.mark.parametrize("part", ["train", "dev", "test"])
def test_files_that_are_not_there(commands: Commands, tmp_path: Path, part: str) -> None:
    files = write_examples(tmp_path, "tagging", count=10) | {part: str(tmp_path / "none.conll")}
    assert f"{tmp_path / 'none.conll'}: no such file" in finetuned(commands, finetuning_values("tagging", files), tmp_path)


def test_a_start_that_cannot_be(commands: Commands, folder: Path, pretrained: Path, tmp_path: Path) -> None:
    files = write_examples(tmp_path, "classification", count=10)
    translator = tmp_path / "translator"
    assert commands.run("train", write_recipe(tmp_path / "pairs", training={"steps": 1}), "--out", translator).code == 0
    unfinished = tmp_path / "unfinished"
    shutil.copytree(pretrained, unfinished)
    (unfinished / "model.safetensors").unlink()
    (tmp_path / "empty").mkdir()
    mixed = tmp_path / "mixed"
    shutil.copytree(pretrained, mixed)
    shutil.copy(translator / "tokenizer.json", mixed)
    found = {
        tmp_path / "none": "none: no such run folder",
        tmp_path / "empty": "empty: not a run folder, it has no recipe.yaml",
        translator: "is a translator (transformer, trained for translation), not an encoder",
        unfinished: "is this a run folder whose training has saved something?",
        mixed: "the tokenizer is not the one this model was trained with",
    }
    for start, says in found.items():
        assert says in finetuned(commands, finetuning_values("classification", files, start), tmp_path)
    values = finetuning_values("classification", files, pretrained)
    changes: dict[str, dict[str, Any]] = {
        f"{translator / 'tokenizer.json'}: not the tokenizer of {pretrained}": {
            "tokenizer": {"file": str(translator / "tokenizer.json")}
        },
        f"a new tokenizer is not the tokenizer of {pretrained}": {"tokenizer": {"kind": "bpe", "vocab": 60}},
        f"model.width 32: not what {pretrained} has; leave model out": {"model": {"kind": "bert", "width": 32}},
        "model.max_positions 64 is below data.length 100": {"data": {**values["data"], "length": 100}},
    }
    for says, change in changes.items():
        assert says in finetuned(commands, {**values, **change}, tmp_path)
    assert not (tmp_path / "run").exists()


def test_a_start_that_is_not_finished_is_taken_as_it_is(commands: Commands, pretrained: Path, tmp_path: Path) -> None:
    """And of the model's shape the dropout may be another, and the tokenizer may be named."""
    unfinish(Path(shutil.copytree(pretrained, tmp_path / "unfinished")), 5, 10)
    files = write_examples(tmp_path, "classification", count=10)
    values = finetuning_values("classification", files, tmp_path / "unfinished")
    values |= {"model": {"kind": "bert", "dropout": 0.3}, "tokenizer": {"file": str(pretrained / "tokenizer.json")}}
    done = commands.run("train", save_recipe(tmp_path / "recipe.yaml", values), "--out", tmp_path / "run")
    assert done.code == 0 and "unfinished: training is not finished; using the weights of step 10 of 20" in done.err, done.err
    assert "dropout: 0.3" in (tmp_path / "run" / "recipe.yaml").read_text()


def test_evaluate_and_predict_with_other_examples(commands: Commands, runs: Runs, tmp_path: Path) -> None:
    run, file = runs("classification"), tmp_path / "a.tsv"
    file.write_text(f"{HEAD}The ship floats.\tsea\n")
    assert f"{file}, line 2: the label 'sea' is not in the training" in commands.run("evaluate", run, "--data", file).complaint()
    assert "no metric 'blue'" in commands.run("evaluate", run, "--metrics", "blue").complaint()
    assert "--against is for translators" in commands.run("evaluate", run, "--against", run).complaint()
    file.write_text("sentence\nThe ship floats.\n")
    assert f"{file}, line 1: no column 'text' for the text" in commands.run("predict", run, file).complaint()
    done = commands.run("predict", run, file, "--set", "text=sentence")
    assert done.code == 0 and len(done.out.splitlines()) == 1, done.err
    assert "no such file" in commands.run("predict", run, tmp_path / "none.tsv").complaint()
