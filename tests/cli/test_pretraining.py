"""qkv train for each way of pretraining: from raw text to a finished run, what it says of text it cannot use, how it goes on."""

import gzip
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import qkv
from encoder_recipes import PRETRAINING, SIZES, pretraining_values, save_recipe, write_text
from qkv.base.errors import ConfigError
from qkv.recipes import load_recipe
from qkv.training.checkpoints import load_weights
from unfinished_runs import unfinish
from workbench import Commands, metrics_without_times, weights, write_recipe

FIGURES = {
    "masked": {"masked_loss", "masked_accuracy"},
    "next": {"masked_loss", "masked_accuracy", "sentence_task_loss", "sentence_task_accuracy"},
    "order": {"masked_loss", "masked_accuracy", "sentence_task_loss", "sentence_task_accuracy"},
    "replaced": {
        "generator_loss", "generator_accuracy", "discriminator_loss", "replaced", "recall_replaced", "recall_original",
    },
    "ernie": {"masked_loss", "masked_accuracy"}
    | {f"{task}_{what}" for task in ("capital", "document", "reorder", "distance") for what in ("loss", "accuracy")},
    "unilm": {"masked_loss", "masked_accuracy", "sentence_task_loss", "sentence_task_accuracy"},
    "causal": {"perplexity", "bits_per_byte"},
    "permutation": {"word_loss", "word_accuracy"},
    "bidirectional": {"forward_perplexity", "backward_perplexity"},
}  # fmt: skip
FIGURES["tied"] = FIGURES["replaced"]


def with_changes(values: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """A recipe with some values of its sections replaced."""
    return {**values, **{name: {**values[name], **new} if isinstance(new, dict) else new for name, new in changes.items()}}


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_text(tmp_path_factory.mktemp("text") / "text.txt")


@pytest.fixture(scope="module")
def runs(commands: Commands, text: Path) -> Callable[[str], Path]:
    """A finished run of each kind, trained when first asked for; tests must not change it."""

    def finished(kind: str) -> Path:
        run = text.parent / kind
        if not run.exists():
            recipe = save_recipe(text.parent / f"{kind}.yaml", pretraining_values(kind, text))
            done = commands.run("train", recipe, "--out", run)
            assert done.code == 0, done.err
        return run

    return finished


@pytest.mark.parametrize("kind", PRETRAINING)
def test_from_raw_text_to_a_finished_run(runs: Callable[[str], Path], kind: str) -> None:
    run = runs(kind)
    assert {path.name for path in run.iterdir()} - {".lock"} == {
        "recipe.yaml", "config.json", "tokenizer.json", "model.safetensors", "metrics.jsonl", "tensorboard",
        "report.html", "result.json",
    }  # fmt: skip
    metrics = metrics_without_times(run)
    trained, held_out = ({name for row in metrics if mark in row for name in row} for mark in ("learning_rate", "dev_loss"))
    assert trained >= FIGURES[kind] and held_out == {"step", "dev_loss"} | {f"dev_{name}" for name in FIGURES[kind]}
    validated = [row for row in metrics if "dev_loss" in row]
    assert [row["step"] for row in validated] == [10, 20]
    result = json.loads((run / "result.json").read_text())
    assert result["scores"] == {name: value for name, value in validated[-1].items() if name != "step"}
    assert result["weights"] == "checkpoint at step 20"  # the last, not the best on dev
    report = (run / "report.html").read_text()
    for name in FIGURES[kind]:
        assert f">{name.replace('_', ' ')}<" in report and name.replace("_", " ").capitalize() in report, name


@pytest.mark.parametrize("kind", PRETRAINING)
def test_the_recipe_in_a_run_makes_the_same_run_again(
    commands: Commands, runs: Callable[[str], Path], kind: str, tmp_path: Path
) -> None:
    done = commands.run("train", runs(kind) / "recipe.yaml", "--out", tmp_path / "again")
    assert done.code == 0, done.err
    for name in ("model.safetensors", "tokenizer.json", "recipe.yaml", "config.json"):
        assert (tmp_path / "again" / name).read_bytes() == (runs(kind) / name).read_bytes(), name


def test_in_python(text: Path, runs: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QKV_CACHE", str(tmp_path / "cache"))
    recipe = load_recipe(str(runs("replaced") / "recipe.yaml"), ["training.steps=5"])
    run = qkv.train(recipe, tmp_path / "run")
    encoder = qkv.load(run, "cpu")
    assert encoder.embed(["The old tree grows."]).shape == (1, 16)
    assert len(encoder.fill(["The old [MASK] grows."], top=3)[0][0]) == 3


def test_many_files_in_every_form(commands: Commands, text: Path, tmp_path: Path) -> None:
    """Patterns, compressed files, and documents with spans in JSON Lines beside plain text; dev in a file of its own."""
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(text.read_bytes()))
    record = {"text": "The old tree grows. The red Rose grows.", "spans": [[4, 12], [24, 32]]}
    (tmp_path / "b.jsonl").write_text(f"{json.dumps(record)}\n" * 9)
    values = pretraining_values("ernie", tmp_path / "*.gz")
    values["data"] |= {"text": [str(tmp_path / "*.gz"), str(tmp_path / "b.jsonl")], "dev": str(text)}
    done = commands.run("train", save_recipe(tmp_path / "recipe.yaml", values), "--out", tmp_path / "run")
    assert done.code == 0, done.err
    assert "text: 69 documents" in done.err and "tokens to train on, in 69 documents;" in done.err
    assert f"training the tokenizer on {tmp_path / 'a.txt.gz'}, {tmp_path / 'b.jsonl'} (on 200,000 documents" in done.err


def test_the_held_out_part_is_reported(commands: Commands, text: Path, tmp_path: Path) -> None:
    recipe = save_recipe(tmp_path / "recipe.yaml", pretraining_values("masked", text))
    done = commands.run("train", recipe, "--out", tmp_path / "run", "--set", "training.steps=1")
    assert "text: 60 documents" in done.err and "tokens to train on, in 45 documents, 15 held out;" in done.err


def test_lines_that_are_not_utf8_are_left_out_and_counted(commands: Commands, text: Path, tmp_path: Path) -> None:
    mixed = tmp_path / "mixed.txt"
    mixed.write_bytes(b"The old \xff tree.\n" + text.read_bytes())
    recipe = save_recipe(tmp_path / "recipe.yaml", pretraining_values("masked", mixed))
    done = commands.run("train", recipe, "--out", tmp_path / "run")
    assert done.code == 0, done.err
    assert f"1 lines are not UTF-8 and are left out, the first in {mixed}, line 1" in done.err


def test_a_text_without_blank_lines_is_one_document(commands: Commands, tmp_path: Path) -> None:
    """It can be masked; what tasks need of two documents it does not have."""
    one = tmp_path / "one.txt"
    one.write_text("The old tree grows.\nThe red Rose grows.\n" * 2500)
    recipe = save_recipe(tmp_path / "recipe.yaml", pretraining_values("masked", one))
    done = commands.run("train", recipe, "--out", tmp_path / "run", "--set", "training.steps=2")
    assert done.code == 0, done.err
    assert "tokens to train on, in 1 document, parts held out;" in done.err
    assert "warning: the text has no blank lines between documents: parts of documents are held out" in done.err
    recipe = save_recipe(tmp_path / "recipe.yaml", pretraining_values("next", one))
    said = commands.run("train", recipe, "--out", tmp_path / "next").complaint()
    assert "the task next needs two documents or more, got 1; put blank lines between documents" in said


# Using what is there


def test_a_run_that_is_not_finished_is_used_as_of_its_newest_checkpoint(
    commands: Commands, runs: Callable[[str], Path], tmp_path: Path
) -> None:
    run = tmp_path / "run"
    unfinish(Path(shutil.copytree(runs("masked"), run)), 5, 10)
    whole, newest = (commands.run("fill", folder, "The old [MASK] grows.") for folder in (runs("masked"), run))
    assert newest.code == 0 and newest.out == whole.out and "using the weights of step 10 of 20" in newest.err
    done = commands.run("embed", run, "-", stdin=b"The old tree grows.\n")
    assert done.code == 0 and len(done.out.split("\t")) == 16
    shutil.rmtree(run / "checkpoints")
    for verb in (("fill", run, "The [MASK]"), ("embed", run, "-")):
        assert "is this a run folder whose training has saved something?" in commands.run(*verb).complaint()


def test_a_pretrained_run_is_no_fine_tuned_one(commands: Commands, runs: Callable[[str], Path], text: Path) -> None:
    run = runs("masked")
    assert "and qkv predict is not for it; use qkv fill, " in commands.run("predict", run, text).complaint()
    complaint = commands.run("evaluate", run).complaint()
    assert "an encoder (bert, trained for masked) and has no perplexity; give --pairs FILE, or fine-tune it" in complaint
    assert "not a translator" in commands.run("translate", run, stdin=b"The tree.\n").complaint()


def test_what_was_learned(commands: Commands, text: Path, tmp_path: Path) -> None:
    """After some more updates the words between an article and a thing are known."""
    more = {"training": {"steps": 60, "validate_every": 60}, "model": {"dropout": 0.0}}
    values = with_changes(pretraining_values("masked", text), more)
    done = commands.run("train", save_recipe(tmp_path / "recipe.yaml", values), "--out", tmp_path / "run")
    assert done.code == 0, done.err
    guesses = commands.run("fill", tmp_path / "run", "The [MASK] tree grows.", "--top", 3)
    assert {line.split("\t")[2] for line in guesses.out.splitlines()} == set(SIZES), guesses.out


# Going on


@pytest.fixture
def begun(commands: Commands, text: Path, runs: Callable[[str], Path], tmp_path: Path) -> tuple[Path, Path]:
    """A finished run with a text of its own, and its recipe: (recipe, run)."""
    own = tmp_path / "own.txt"
    shutil.copy(text, own)
    values = with_changes(pretraining_values("next", own), {"training": {"keep_checkpoints": True}})
    recipe = save_recipe(tmp_path / "recipe.yaml", values)
    done = commands.run("train", recipe, "--out", tmp_path / "run")
    assert done.code == 0 and weights(tmp_path / "run") == weights(runs("next")), done.err
    return recipe, tmp_path / "run"


def test_another_text_is_refused_unless_accepted(commands: Commands, begun: tuple[Path, Path]) -> None:
    recipe, run = begun
    (recipe.parent / "own.txt").write_text((recipe.parent / "own.txt").read_text() + "\nThe new crane floats.\n")
    more = ("--set", "training.steps=25")
    said = commands.run("train", recipe, "--out", run, *more).complaint()
    assert f"the training text is not what {run} began with" in said and "--accept-changes" in said
    done = commands.run("train", recipe, "--out", run, *more, "--accept-changes")
    assert done.code == 0 and "resuming from step 20 of 25" in done.err, done.err


def test_more_steps_go_on_and_anything_else_is_refused(commands: Commands, begun: tuple[Path, Path]) -> None:
    recipe, run = begun
    assert "is finished; choose another --out" in commands.run("train", recipe, "--out", run).err
    before = metrics_without_times(run)
    done = commands.run("train", recipe, "--out", run, "--set", "training.steps=30")
    assert done.code == 0 and "resuming from step 20 of 30" in done.err, done.err
    after = metrics_without_times(run)
    assert after[: len(before)] == before and after[-1]["step"] == 30
    for setting in ("objective.rate=0.3", "data.length=16", "training.learning_rate=0.1"):
        said = commands.run("train", recipe, "--out", run, "--set", setting).complaint()
        assert setting.partition("=")[0] in said and "give --accept-changes" in said
    refused = commands.run("train", recipe, "--out", run, "--set", "model.width=32", "--accept-changes").complaint()
    assert "its weights would not fit" in refused


def test_few_updates_are_in_the_result_and_said_at_the_end(commands: Commands, text: Path, tmp_path: Path) -> None:
    values = with_changes(pretraining_values("masked", text), {"training": {"steps": None, "minutes": 0.02}})
    recipe, run = save_recipe(tmp_path / "recipe.yaml", values), tmp_path / "run"
    # Any machine makes fewer updates in a second than these.
    done = commands.run("train", recipe, "--out", run, first="import qkv.training.plan as plan; plan.FEW = 10**6")
    assert done.code == 0 and done.err.count("warning: training.minutes=0.02 allows about") == 2, done.err
    # A fast machine makes so many updates that the training itself may be warned of.
    said = json.loads((run / "result.json").read_text())["warnings"]
    (warning,) = [one for one in said if one.startswith("training.minutes=0.02 allows about")]
    assert done.err.splitlines()[-1].startswith("warning: ") and warning in done.err
    assert warning in (run / "report.html").read_text()


def test_minutes_alone(commands: Commands, text: Path, tmp_path: Path) -> None:
    values = with_changes(pretraining_values("replaced", text), {"training": {"steps": None, "minutes": 0.02}})
    done = commands.run("train", save_recipe(tmp_path / "recipe.yaml", values), "--out", tmp_path / "run")
    assert done.code == 0 and "0.02 minutes on" in done.err, done.err
    # A loaded machine makes fewer than ten updates: then the warning gives their number.
    assert "steps on this machine: about" in done.err or "updates on this machine" in done.err, done.err
    last = metrics_without_times(tmp_path / "run")[-1]
    assert last["step"] >= 1 and "dev_loss" in last  # planned to the end, which is validated


# Starting from another run


@pytest.mark.parametrize("kind", ["order", "replaced", "tied", "ernie"])
def test_longer_texts_in_a_second_phase(
    commands: Commands, text: Path, runs: Callable[[str], Path], tmp_path: Path, kind: str
) -> None:
    """Weights of the encoder and of all heads, of both networks of an ELECTRA, and the tokenizer are taken over."""
    first, run = runs(kind), tmp_path / "run"
    values = with_changes(pretraining_values(kind, text), {"training": {"keep_checkpoints": True}})
    recipe = save_recipe(tmp_path / "recipe.yaml", values)
    # A rate of nearly nothing: what comes out is what went in.
    settings = [f"start={first}", "data.length=36", "training.steps=6", "training.learning_rate=1.0e-9", "training.warmup=0"]
    done = commands.run("train", recipe, "--out", run, *(word for setting in settings for word in ("--set", setting)))
    assert done.code == 0 and "new, as" not in done.err, done.err
    assert (run / "tokenizer.json").read_bytes() == (first / "tokenizer.json").read_bytes()
    before, after = (load_weights(folder / "model.safetensors") for folder in (first, run))
    assert before.keys() == after.keys()
    assert all((before[name] - after[name]).abs().max() < 1e-7 for name in before)
    lengths = [json.loads((folder / "config.json").read_text())["trained_length"] for folder in (first, run)]
    assert lengths == [values["data"]["length"], 36]
    done = commands.run("train", run / "recipe.yaml", "--out", tmp_path / "again")
    assert done.code == 0 and weights(tmp_path / "again") == weights(run), done.err
    settings[2] = "training.steps=8"
    done = commands.run("train", recipe, "--out", run, *(word for setting in settings for word in ("--set", setting)))
    assert done.code == 0 and "resuming from step 6 of 8" in done.err, done.err


def test_an_imported_encoder_is_pretrained_further(
    commands: Commands, text: Path, runs: Callable[[str], Path], tmp_path: Path
) -> None:
    """A discriminator alone comes back: there is a new generator, of any size, and the tokenizer is the imported one."""
    assert commands.run("export", runs("replaced"), "--to", "hf", "--out", tmp_path / "hf").code == 0
    assert commands.run("import", tmp_path / "hf", "--out", tmp_path / "imported").code == 0
    recipe = save_recipe(tmp_path / "recipe.yaml", pretraining_values("replaced", text))
    settings = ("--set", f"start={tmp_path / 'imported'}", "--set", "model.generator_size=0.5", "--set", "training.steps=2")
    done = commands.run("train", recipe, "--out", tmp_path / "run", *settings)
    assert done.code == 0 and f"new, as {tmp_path / 'imported'} has none: masked" in done.err, done.err
    assert json.loads((tmp_path / "run" / "config.json").read_text())["trained_length"] is None


def test_what_a_recipe_says_of_the_model_gives_way(text: Path, tmp_path: Path) -> None:
    values = pretraining_values("masked", text)
    values["model"] |= {"dropout": 0.3}
    recipe = load_recipe(str(save_recipe(tmp_path / "recipe.yaml", values)), ["start=runs/first"])
    assert recipe.tokenizer is None and recipe.model.model_fields_set == {"kind", "dropout"}


def test_what_cannot_be_started_from(commands: Commands, text: Path, runs: Callable[[str], Path], tmp_path: Path) -> None:
    def said(values: dict[str, Any], *settings: str) -> str:
        given = [word for setting in settings for word in ("--set", setting)]
        recipe = save_recipe(tmp_path / "recipe.yaml", values)
        return commands.run("train", recipe, "--out", tmp_path / "run", *given).complaint()

    values = pretraining_values("masked", text)
    assert "is of model.kind electra, and model.kind bert starts from a run of its own kind" in said(
        values, f"start={runs('replaced')}"
    )
    assert "model.width 8: not what" in said(values, f"start={runs('masked')}", "model.width=8")
    assert "a new tokenizer is not the tokenizer of" in said({**values, "start": str(runs("masked"))})
    assert "below data.length 99" in said(values, f"start={runs('masked')}", "data.length=99")
    assert "no such run folder" in said(values, "start=nowhere")
    without = {key: value for key, value in values.items() if key != "model"}
    assert "give start, the run of a pretrained encoder; or model and tokenizer" in said(without)
    assert not (tmp_path / "run").exists()


# Mistakes


@pytest.mark.parametrize(
    ("kind", "changes", "says"),
    [
        ("masked", {"training": {"steps": None}}, "give training.steps or training.minutes"),
        ("masked", {"training": {"batch_tokens": "auto"}}, "training.batch_tokens: input should be a valid integer"),
        ("masked", {"training": {"epochs": 3}}, "training.epochs is for fine-tuning; give training.steps or training.minutes"),
        ("replaced", {"training": {"layer_decay": 0.9}}, "training.layer_decay 0.9 is for fine-tuning; leave it out"),
        (
            "masked",
            {"tokenizer": {"special_tokens": []}},
            "masking needs a token [MASK]; set tokenizer.special_tokens=['[MASK]']",
        ),
        (
            "masked",
            {"objective": {"sentence_tsk": "next"}},
            "unknown key 'objective.sentence_tsk'; did you mean 'sentence_task'?",
        ),
        ("replaced", {"model": {"generater_size": 0.5}}, "unknown key 'model.generater_size'; did you mean 'generator_size'?"),
        ("masked", {"model": {"sise": "mini"}}, "unknown key 'model.sise'; did you mean 'size'?"),
        ("masked", {"data": {"txt": "x"}}, "unknown key 'data.txt'; did you mean 'text'?"),
        ("masked", {"sede": 1}, "unknown key 'sede'; did you mean 'seed'?"),
        ("ernie", {"objective": {"tasks": [{"task": "capital", "first_bach": 3}]}}, "did you mean 'first_batch'?"),
        ("ernie", {"objective": {"tasks": [{"task": "capitals"}]}}, "should be 'capital', 'document', 'reorder'"),
        ("ernie", {"objective": {"tasks": [{"task": "order"}] * 2}}, "a task is named twice; give each once"),
        ("ernie", {"model": {"task_types": 3}}, "model.task_types is below 7, the number of all tasks; set model.task_types=7"),
        ("masked", {"model": {"kind": "bertt"}}, "model.kind 'bertt' is not one of bert, albert, ernie"),
        (
            "masked",
            {"objective": {"kind": "maskd"}},
            "objective.kind 'maskd' is not one of translation, masked-translation, masked, replaced",
        ),
        ("masked", {"model": {"size": "huge"}}, "no model.size 'huge'; sizes of bert are tiny, mini, small"),
        ("masked", {"model": {"heads": 3}}, "model.width 16 does not split into 3 heads"),
        (
            "masked",
            {"data": {"length": 128}},
            "model.max_positions 64 is below data.length 128: raise the one or lower the other",
        ),
        ("masked", {"model": {"width": 10, "positions": "rotary"}}, "model.positions: rotary rotates pairs of dimensions"),
        ("masked", {"model": {"positions": "relativ"}}, "model.positions: input should be 'none', 'counting', 'normalised'"),
        (
            "masked",
            {"model": {"positions": "structural"}},
            "needs texts with dependency heads, and raw text has none",
        ),
        ("next", {"model": {"segments": 1}}, "model.segments 1 is too few to tell 2 texts apart; set model.segments=2"),
        (
            "replaced",
            {"objective": {"kind": "masked"}},
            "model.kind 'electra' is not one of bert, albert, ernie for objective.kind masked; "
            "model.kind electra learns by replaced",
        ),
        ("masked", {"objective": {"mask": 0.5}}, "must sum to 1, not 0.7"),
        ("masked", {"objective": {"rate": 1.5}}, "objective.rate: input should be less than 1, got 1.5"),
        ("masked", {"data": {"text": []}}, "data.text: at least one file of text is needed"),
        (
            "permutation",
            {"objective": {"segment_length": 15}},
            "objective.segment_length 15 does not divide data.length 32; choose",
        ),
        ("permutation", {"objective": {"mask": 0.5}}, "unknown key 'objective.mask'"),
        ("permutation", {"model": {"positions": "rotary"}}, "model.positions: input should be 'none', got 'rotary'"),
        ("permutation", {"model": {"attention": "window"}}, "this model has full attention, not window"),
        (
            "permutation",
            {"model": {"kind": "bert"}},
            "model.kind 'bert' is not one of xlnet for objective.kind permutation; model.kind bert learns by masked, ernie",
        ),
        (
            "masked",
            {"model": {"kind": "xlnet"}},
            "model.kind 'xlnet' is not one of bert, albert, ernie for objective.kind masked; "
            "model.kind xlnet learns by permutation",
        ),
    ],
)
def test_recipes_that_cannot_be(
    commands: Commands, text: Path, tmp_path: Path, kind: str, changes: dict[str, Any], says: str
) -> None:
    recipe = save_recipe(tmp_path / "recipe.yaml", with_changes(pretraining_values(kind, text), changes))
    assert says in commands.run("train", recipe, "--out", tmp_path / "run").complaint()
    assert not (tmp_path / "run").exists()


ONE_SENTENCE = "The tree grows.\n\n" * 20  # documents of one sentence each
BETWEEN = "\n\n".join(["The tree grows.", *["The tree grows. The Rose grows."] * 8, "The tree grows."])


@pytest.mark.parametrize(
    ("kind", "name", "content", "says"),
    [
        ("masked", "a.txt", "", "{file}: no text was found; give lines of UTF-8 text"),
        ("masked", "a.txt", "\n \n\n", "{file}: no text was found; give lines of UTF-8 text"),
        ("masked", "a.txt", bytes(range(128, 256)) * 90, "{file}: is binary or in another encoding than UTF-8"),
        ("masked", "a.txt", b"\0\1\2" * 90, "{file}: is a binary file"),
        ("masked", "a.txt", b"\x1f\x8b" * 90, "{file}: is compressed by gzip; give it a name that ends in .gz"),
        ("masked", "a.txt", "The tree grows.\n", "{file}: the text has 1 documents, of which none can be held out"),
        ("masked", "a.jsonl", '{"text": "a tree"}\n{"text": " "}\n', "{file}, line 2: the document is empty; leave it out"),
        ("masked", "a.jsonl", '{"text": "a"}\n{"txt": "b"}\n', "{file}, line 2: not a document; give"),
        ("ernie", "a.jsonl", '{"text": "a tree", "spans": [[2, 9]]}\n', "{file}, line 1: span [2, 9] is not within the text"),
        (
            "next",
            "a.txt",
            ONE_SENTENCE,
            "{file}: the text is shorter than a pair: no document has two sentences, which the task next",
        ),
        (
            "order",
            "a.txt",
            ONE_SENTENCE,
            "{file}: the text is shorter than a pair: no document has two sentences, which the task order",
        ),
        ("ernie", "a.txt", ONE_SENTENCE, "no document has two sentences, which the task distance needs"),
        ("next", "a.txt", BETWEEN, "{file}: the documents held out to be scored (name others in data.dev): the text is shorter"),
    ],
)
def test_text_that_cannot_be_read(
    commands: Commands, tmp_path: Path, kind: str, name: str, content: str | bytes, says: str
) -> None:
    file, run = tmp_path / name, tmp_path / "run"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    recipe = save_recipe(tmp_path / "recipe.yaml", pretraining_values(kind, file))
    assert says.format(file=file) in commands.run("train", recipe, "--out", run).complaint()
    assert not list(run.rglob("*.partial")) and not (run / "model.safetensors").exists() and not (run / "checkpoints").exists()


def test_a_task_that_would_never_begin(commands: Commands, text: Path, tmp_path: Path) -> None:
    recipe = save_recipe(tmp_path / "recipe.yaml", pretraining_values("ernie", text))
    said = commands.run("train", recipe, "--out", tmp_path / "run", "--set", "training.steps=5").complaint()
    assert "objective.tasks: document would begin with update 5, but training.steps is 5; lower its first_batch" in said
    assert commands.run("train", recipe, "--out", tmp_path / "run", "--set", "training.steps=6").code == 0
    metrics = metrics_without_times(tmp_path / "run")
    assert [row["step"] for row in metrics if "document_loss" in row] == [6]


def test_files_that_are_not_there(commands: Commands, text: Path, tmp_path: Path) -> None:
    values = pretraining_values("masked", text)
    for key in ("text", "dev"):
        recipe = save_recipe(tmp_path / "recipe.yaml", with_changes(values, {"data": {key: str(tmp_path / "no*.txt")}}))
        assert "no*.txt: no file matches this pattern" in commands.run("train", recipe, "--out", tmp_path / "run").complaint()
    assert not (tmp_path / "run").exists()
    done = commands.run("train", save_recipe(tmp_path / "recipe.yaml", values), "--out", tmp_path / "run")
    assert done.code == 0, done.err


def test_a_package_that_is_missing_shows_before_the_work(commands: Commands, text: Path, tmp_path: Path) -> None:
    recipe = save_recipe(tmp_path / "recipe.yaml", with_changes(pretraining_values("ernie", text), {"data": {"units": "jieba"}}))
    without = "import sys; sys.modules['jieba'] = None"
    assert "needs the package jieba" in commands.run("train", recipe, "--out", tmp_path / "run", first=without).complaint()
    assert not (tmp_path / "run").exists()


def test_a_text_that_was_mended_gets_a_tokenizer_of_its_own(
    commands: Commands, text: Path, runs: Callable[[str], Path], tmp_path: Path
) -> None:
    own = tmp_path / "own.txt"
    own.write_text("The tree grows.\n")
    recipe = save_recipe(tmp_path / "recipe.yaml", pretraining_values("masked", own))
    assert "put blank lines between documents" in commands.run("train", recipe, "--out", tmp_path / "run").complaint()
    shutil.copy(text, own)
    done = commands.run("train", recipe, "--out", tmp_path / "run")
    assert done.code == 0 and weights(tmp_path / "run") == weights(runs("masked")), done.err


def test_a_tokenizer_file_takes_the_place_of_what_a_recipe_says(runs: Callable[[str], Path], text: Path) -> None:
    file = f"tokenizer.file={runs('masked') / 'tokenizer.json'}"
    for name in ("bert-mini", "albert-base", "electra-small", "ernie2-base"):
        tokenizer = load_recipe(name, [f"data.text={text}", file]).tokenizer
        assert tokenizer is not None and f"tokenizer.file={tokenizer.file}" == file
    with pytest.raises(ConfigError, match="tokenizer"):  # both said at once
        load_recipe("bert-mini", [f"data.text={text}", file, "tokenizer.vocab=9"])
    shared = load_recipe("transformer-small", ["data.train=a.tsv", "data.dev=a.tsv", "tokenizer.shared.file=x.json"])
    assert shared.tokenizer.shared.file == "x.json"


def test_tokenizers_that_cannot_be_used(commands: Commands, text: Path, tmp_path: Path) -> None:
    translator = tmp_path / "translator"
    done = commands.run("train", write_recipe(tmp_path / "pairs", training={"steps": 1}), "--out", translator)
    assert done.code == 0, done.err
    found = {
        translator / "tokenizer.json": "this tokenizer has no [MASK], which masking needs",
        tmp_path / "none.json": "no such file; a tokenizer.json is wanted",
        text: "not",
    }
    for file, says in found.items():
        values = {**pretraining_values("masked", text), "tokenizer": {"file": str(file)}}
        said = commands.run("train", save_recipe(tmp_path / "recipe.yaml", values), "--out", tmp_path / "run").complaint()
        assert str(file) in said and says in said
        assert not (tmp_path / "run" / "tokenizer.json").exists()
