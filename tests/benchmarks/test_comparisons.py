"""The scripts that compare models skip only runs with the same settings, and report the settings of the runs themselves."""

import argparse
import importlib
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from qkv.base.config import dump_yaml
from qkv.recipes import parse_recipe
from qkv.text.examples import TextExample

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
FILES = ["--train", "train.tsv", "--dev", "dev.tsv", "--test", "test.tsv"]
Load = Callable[[str], ModuleType]


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Load:
    """Load a script by its name, without running it."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module


def run_main(script: ModuleType, monkeypatch: pytest.MonkeyPatch, *arguments: Any) -> None:
    monkeypatch.setattr(sys, "argv", [str(script.__file__), *map(str, arguments)])
    script.main()


def options_of(script: ModuleType, monkeypatch: pytest.MonkeyPatch, *arguments: Any) -> Any:
    """Return the options that `main` parses, without running anything."""
    seen: list[Any] = []
    with monkeypatch.context() as patch:
        patch.setattr(script, "report", seen.append)
        run_main(script, patch, "report", *arguments)
    return seen[0]


def finished(run: Path, recipe: Any, score: dict[str, Any] | None = None) -> None:
    """Write the files of a finished run that the scripts read."""
    run.mkdir(parents=True)
    (run / "recipe.yaml").write_text(dump_yaml(recipe))
    for name in (".lock", "result.json"):
        (run / name).write_text("{}")
    if score is not None:
        (run / "score.json").write_text(json.dumps(score))


def translated(name: str) -> dict[str, Any]:
    scores = [{"name": "BLEU", "signature": "s", "value": 30.0, "low": 29.0, "high": 31.0}]
    lengths = [{"shortest": 1, "longest": 9, "texts": 40, "bleu": 30.0}]
    numbers = {"parameters": 10**6, "updates": 70, "training_seconds": 9.5, "sentences_per_second": 100.0}
    return {"model": name, "device": "a CPU", "scores": scores, "lengths": lengths, **numbers}


def classified(accuracy: float) -> dict[str, Any]:
    numbers = {"updates": 7, "training_seconds": 9.5, "epochs": 1, "reviews_per_second": 10.0, "parameters": 10**6}
    return {"accuracy": accuracy, "accuracy_long": accuracy, "device": "a CPU", **numbers}


# Names and processes


@pytest.mark.parametrize("name", ["architectures", "long_documents", "pretrained_models", "pretrained_translators"])
def test_models_have_folders_of_their_own(script: Load, tmp_path: Path, name: str) -> None:
    module = script(name)
    seed = [1] if name == "long_documents" else []
    trained = [name for name, variant in module.VARIANTS.items() if not getattr(variant, "run_of", "")]  # by themselves
    folders = [module.folder_of(tmp_path, name, *seed) for name in trained]
    assert len(set(folders)) == len(trained)
    assert all(folder.parent == tmp_path and not set(folder.name) & set(" ,()+") for folder in folders)


def test_names_of_folders_stay_as_they_are(script: Load) -> None:
    named = script("comparison").folder_name
    assert named("ALBERT (layers shared) + sentence order") == "albert-layers-shared-and-sentence-order"
    assert named("BigBird, 4,096 tokens") == "bigbird-4096-tokens"


def test_a_subcommand_has_the_same_options(script: Load, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    module, shared = script("architectures"), script("comparison")
    arguments = [*FILES, "--out", tmp_path, "--languages", "de", "en", "--batch-tokens", 7, "--variant", "convolution"]
    options = options_of(module, monkeypatch, *arguments)
    _, file, *rest = shared.subcommand("a.py", options, "report", ["Transformer", "RNN, dot attention"])
    assert file == "a.py"
    again = options_of(module, monkeypatch, *rest[1:])
    assert vars(again) == {**vars(options), "variant": ["Transformer", "RNN, dot attention"]}


def test_an_option_of_a_subcommand_replaces_the_given_one(script: Load, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    module, shared = script("long_documents"), script("comparison")
    options = options_of(module, monkeypatch, "--train", "a", "--test", "b", "--out", tmp_path)
    _, _, *rest = shared.subcommand("a.py", options, "train", ["window, 4,096 tokens"], seed=3)
    again = options_of(module, monkeypatch, *rest[1:])
    assert vars(again) == {**vars(options), "action": "report", "variant": ["window, 4,096 tokens"], "seed": 3}


def python(code: str, *arguments: Any) -> list[str]:
    return [sys.executable, "-S", "-c", f"import pathlib, sys, time; {code}", *map(str, arguments)]


def test_all_commands_are_run(script: Load, tmp_path: Path) -> None:
    commands = [python("pathlib.Path(sys.argv[1]).touch()", tmp_path / str(number)) for number in range(3)]
    script("comparison").run_parallel(commands, 2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0", "1", "2"]


def test_where_one_fails_the_others_end_first_and_none_begins(script: Load, tmp_path: Path) -> None:
    here, late = tmp_path / "here", tmp_path / "late"
    alive = "[pathlib.Path(sys.argv[1]).write_text(str(n)) or time.sleep(0.01) for n in range(2000)]"
    failing = "[time.sleep(0.01) for n in range(2000) if not pathlib.Path(sys.argv[1]).exists()]; sys.exit(3)"
    commands = [python(alive, here), python(failing, here), python("pathlib.Path(sys.argv[1]).touch()", late)]
    with pytest.raises(SystemExit, match="one of the processes failed"):
        script("comparison").run_parallel(commands, 2)
    before = here.read_text()
    time.sleep(0.1)
    assert here.read_text() == before, "the other process is still running"
    assert not late.exists()


# Existing runs


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (["--seconds", 40], "training.minutes: 0.5 -> 0.6666666666666666"),
        (["--batch-tokens", 99], "training.batch_tokens: 8192 -> 99"),
        (["--seed", 2], "seed: 1 -> 2"),
        (["--updates", 5], "training.steps: None -> 5"),
    ],
)
def test_a_translator_made_with_other_settings_is_refused(
    script: Load, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, given: list[Any], says: str
) -> None:
    module = script("architectures")
    arguments = [*FILES, "--out", tmp_path, "--variant", "convolution"]
    finished(tmp_path / "convolution", module.recipe_of(options_of(module, monkeypatch, *arguments), "convolution"))
    monkeypatch.setattr(module, "everything", lambda options: None)
    run_main(module, monkeypatch, "all", *arguments)
    with pytest.raises(SystemExit) as refused:
        run_main(module, monkeypatch, "all", *arguments, *given)
    assert says in str(refused.value) and str(tmp_path / "convolution") in str(refused.value)
    assert "\n" not in str(refused.value)


def test_an_encoder_of_long_documents_made_with_other_settings_is_refused(
    script: Load, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    module = script("long_documents")
    arguments = ["--train", "a.tsv", "--test", "b.tsv", "--out", tmp_path, "--variant", "window, 4,096 tokens"]
    recipe = module.recipe_of(options_of(module, monkeypatch, *arguments), "window, 4,096 tokens", 2)
    finished(tmp_path / "window-4096-tokens-2", recipe)
    monkeypatch.setattr(module, "everything", lambda options: None)
    run_main(module, monkeypatch, "all", *arguments)
    with pytest.raises(SystemExit, match=r"-tokens-2 was made with other settings: training\.learning_rate: 0\.0005 -> 0\.1"):
        run_main(module, monkeypatch, "all", *arguments, "--rate", 0.1)


@pytest.mark.parametrize(
    ("given", "says"), [(["--epochs", 9], "training.epochs: 8 -> 9"), (["--rate", 0.1], "training.learning_rate: 0.002 -> 0.1")]
)
def test_a_tagger_made_with_other_settings_is_refused(
    script: Load, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, given: list[Any], says: str
) -> None:
    module = script("structure")
    seen: list[Any] = []
    monkeypatch.setattr(module, "prepare", seen.append)
    monkeypatch.setattr(module, "report", lambda options: None)
    run_main(module, monkeypatch, *FILES, "--out", tmp_path)
    finished(tmp_path / "pos-none-1", module.recipe_of(seen[0], "pos", "none", 1))
    run_main(module, monkeypatch, *FILES, "--out", tmp_path)
    with pytest.raises(SystemExit, match=f"pos-none-1 was made with other settings: {says}"):
        run_main(module, monkeypatch, *FILES, "--out", tmp_path, *given)


GLUE = ["--text", "a.txt", "--glue", "glue", "--tokenizer", "t.json"]


def family_options(module: ModuleType, monkeypatch: pytest.MonkeyPatch, out: Path, *others: Any) -> Any:
    seen: list[Any] = []
    monkeypatch.setattr(module, "report", seen.append)
    run_main(module, monkeypatch, "report", *GLUE, "--out", out, *others)
    return seen[0]


def test_all_of_the_family_have_recipes(script: Load, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    module = script("pretrained_models")
    options = family_options(module, monkeypatch, tmp_path)
    for variant in module.VARIANTS:
        recipe = module.pretraining_recipe(options, variant)
        split = variant == "ELMo, features"
        assert recipe.data.text == (str(tmp_path / "split-texts" / "text.txt") if split else "a.txt",)
        assert recipe.tokenizer.file == (str(tmp_path / "split-texts" / "words.json") if split else "t.json")
        assert recipe.training.minutes is None and recipe.data.length == 128
    rates = {name: module.pretraining_recipe(options, name).training.learning_rate for name in ("ELECTRA", "GPT, last token")}
    assert rates == {"ELECTRA": 5e-4, "GPT, last token": 1e-3}


@pytest.mark.parametrize("variant", ["GPT, last token", "ELMo, features", "BERT without pretraining"])
def test_all_are_fine_tuned_alike(script: Load, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, variant: str) -> None:
    module = script("pretrained_models")
    options = family_options(module, monkeypatch, tmp_path)
    recipe = module.finetuning_recipe(options, variant, "STS-B", 2)
    other = module.finetuning_recipe(options, "UniLM, four ways", "STS-B", 2)
    assert recipe.training == other.training and recipe.objective == other.objective and recipe.model.dropout == 0.1
    assert recipe.start == (None if variant == module.NEW else str(module.folder_of(tmp_path, variant)))
    split = variant == "ELMo, features"
    assert (recipe.data.text, recipe.data.pair, recipe.data.label) == (
        ("text", "pair", "label") if split else ("sentence1", "sentence2", "score")
    )
    assert getattr(recipe.model, "frozen", False) is split


def test_a_member_of_the_family_made_with_other_settings_is_refused(
    script: Load, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    module = script("pretrained_models")
    finished(tmp_path / "xlnet", module.pretraining_recipe(family_options(module, monkeypatch, tmp_path), "XLNet", 600))
    module.write_settings(tmp_path / module.SPEEDS, {"XLNet": 10.0})  # updates that it makes alone in a second
    with pytest.raises(SystemExit, match=r"xlnet was made with other settings: training\.steps: 600 -> 300"):
        run_main(module, monkeypatch, "pretrain", *GLUE, "--out", tmp_path, "--seconds", 30, "--variant", "XLNet")


def test_a_pretrained_translator_made_with_other_settings_is_refused(
    script: Load, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    family, module = script("pretrained_models"), script("pretrained_translators")
    options = family_options(family, monkeypatch, tmp_path)
    for name, variant in {"unilm": "UniLM, four ways", "t5": "T5, text to text"}.items():
        finished(tmp_path / name, family.pretraining_recipe(options, variant))
    arguments = [*FILES, "--tokenizer", "t.json", "--unilm", tmp_path / "unilm", "--t5", tmp_path / "t5", "--out", tmp_path]
    recipe = module.recipe_of(options_of(module, monkeypatch, *arguments), "T5, new")
    assert recipe.model.encoder_layers == 12 and recipe.model.dropout == 0.1 and recipe.start is None
    assert module.recipe_of(options_of(module, monkeypatch, *arguments), "UniLM, pretrained").start == str(tmp_path / "unilm")
    finished(tmp_path / "t5-new", recipe)
    with pytest.raises(SystemExit, match=r"t5-new was made with other settings: training\.batch_tokens: 8192 -> 7"):
        run_main(module, monkeypatch, "train", *arguments, "--variant", "T5, new", "--batch-tokens", 7)


def test_sentences_are_scored_once(script: Load, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    module = script("blimp")
    run, pairs, out = tmp_path / "gpt", tmp_path / "pairs.jsonl.gz", tmp_path / "out"
    values = {
        "data": {"text": "a.txt"}, "tokenizer": {"file": "t.json"}, "model": {"kind": "gpt"}, "objective": {"kind": "causal"},
        "training": {"steps": 1},
    }  # fmt: skip
    finished(run, parse_recipe(values, "a test"))
    for path in (run / "model.safetensors", pairs):
        path.write_bytes(b"1")
    result = {"model": "gpt", "how": "left", "device": "a CPU", "seconds": 2.0, "accuracy": 0.75, "pairs": 4}
    scored: list[str] = []

    def measure(options: Any, run: Path, how: str) -> dict[str, Any]:
        scored.append(how)
        return {**result, "groups": {"npi_licensing": [1.0, 1], "binding": [2 / 3, 3]}, "bits_per_byte": 1.25}

    monkeypatch.setattr(module, "measure", measure)
    for _ in range(2):
        run_main(module, monkeypatch, run, "--pairs", pairs, "--out", out)
    assert scored == ["left"]
    table = (out / "table.md").read_text()
    assert "| binding | 3 | 66.7 |" in table and "| bits per byte of held-out text | | 1.250 |" in table
    assert (out / "phenomena.svg").exists()
    pairs.write_bytes(b"2")
    with pytest.raises(SystemExit, match="out was made with other settings: file"):
        run_main(module, monkeypatch, run, "--pairs", pairs, "--out", out)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Who'd hug Richard?", "Who 'd hug Richard ?"),
        ('He doesn\'t know "it".', 'He does n\'t know " it " .'),
        ("The long-term U.S. plan (1942)", "The long-term U . S . plan ( 1942 )"),
        ("rock 'n' roll", "rock 'n' roll"),
    ],
)
def test_punctuation_is_split_from_words(script: Load, text: str, expected: str) -> None:
    split = script("split_punctuation").split_punctuation
    assert split(text) == expected
    assert split(expected) == expected


def test_texts_and_examples_with_split_punctuation(script: Load, tmp_path: Path) -> None:
    module = script("split_punctuation")
    (tmp_path / "text.txt").write_text("One, two.\nThree.\n\nFour!\n")
    module.write_text(tmp_path / "text.txt", tmp_path / "split.txt", 20, tmp_path / "words.json")
    assert (tmp_path / "split.txt").read_text() == "One , two .\nThree .\n\nFour !\n\n"
    assert "Four" in (tmp_path / "words.json").read_text()
    (tmp_path / "a.tsv").write_text("score\tfirst\tsecond\n3.50\tOne, two\tThree.\n")
    columns = {"text": "first", "pair": "second", "label": "score"}
    module.write_examples(tmp_path / "a.tsv", tmp_path / "b" / "a.tsv", "regression", columns)
    assert (tmp_path / "b" / "a.tsv").read_text() == "text\tpair\tlabel\nOne , two\tThree .\t3.50\n"


def test_tasks_from_text_to_text(script: Load) -> None:
    module = script("glue_as_text")
    pair, number = TextExample("a", "b", "not_entailment", "f", 1), TextExample("a", "b", "3.71", "f", 1)
    assert (module.source_of("RTE", pair), module.target_of("RTE", pair)) == ("RTE: a / b", "other")
    assert module.target_of("STS-B", number) == "3.8"
    assert module.parse_outputs("RTE", ["other", "entailment", "no"]) == [1, 0, 0]
    assert module.parse_outputs("STS-B", ["3.8", "nan", "x", ""]) == [3.8, 0, 0, 0]
    tasks = script("pretrained_models").TASKS
    assert {name for name, (_, kind, _, _) in tasks.items() if kind == "classification"} == set(module.CLASS_NAMES)


def test_a_run_that_learned_nothing_is_begun_anew(script: Load, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    architectures, shared = script("architectures"), script("comparison")
    recipe = architectures.recipe_of(options_of(architectures, monkeypatch, *FILES, "--out", tmp_path), "Transformer")
    finished(tmp_path / "run", recipe)
    other = recipe.model_copy(update={"seed": 7})
    (tmp_path / "run" / "result.json").unlink()
    shared.refuse_other_runs([(tmp_path / "run", other)])
    (tmp_path / "run" / "checkpoints" / "step-10").mkdir(parents=True)
    with pytest.raises(SystemExit, match="seed: 1 -> 7"):
        shared.refuse_other_runs([(tmp_path / "run", other)])


def test_data_made_with_other_settings_is_refused(script: Load, tmp_path: Path) -> None:
    shared, file = script("comparison"), tmp_path / "settings.json"
    shared.refuse_other_settings(file, {"vocab": 100})  # made without a file of settings
    shared.write_settings(file, {"vocab": 100})
    shared.refuse_other_settings(file, {"vocab": 100})
    with pytest.raises(SystemExit, match=r"other settings: vocab: 100 -> 200\. Use the same"):
        shared.refuse_other_settings(file, {"vocab": 200})


# Reports


def test_the_report_has_the_budget_of_the_runs_not_of_the_options(
    script: Load, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    module = script("architectures")
    made = options_of(module, monkeypatch, *FILES, "--out", tmp_path, "--seconds", 65, "--seed", 3, "--beam", 4)
    finished(tmp_path / "transformer", module.recipe_of(made, "Transformer"), translated("Transformer"))
    (tmp_path / "transformer" / "parallel-jobs").write_text("2")
    run_main(module, monkeypatch, "report", *FILES, "--out", tmp_path, "--seconds", 10, "--jobs", 5)
    described = "65 seconds each, 8,192 target tokens an update, seed 3, beam 4, 2 trained in parallel; a CPU"
    assert capsys.readouterr().out.splitlines()[0] == f"{tmp_path}: {described}"
    other = options_of(module, monkeypatch, *FILES, "--out", tmp_path, "--updates", 2000)
    finished(tmp_path / "convolution", module.recipe_of(other, "convolution"), translated("convolution"))
    with pytest.raises(
        SystemExit, match=r"cannot be compared: .*convolution had 2,000 updates each.*; .*transformer had 65 seconds each"
    ):
        run_main(module, monkeypatch, "report", *FILES, "--out", tmp_path)


def test_a_report_without_a_plotted_model_has_no_picture(
    script: Load, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    module, name = script("architectures"), "Transformer, post-norm, none"
    with pytest.raises(SystemExit, match="nothing has been scored yet"):
        run_main(module, monkeypatch, "report", *FILES, "--out", tmp_path)
    made = options_of(module, monkeypatch, *FILES, "--out", tmp_path)
    finished(tmp_path / "transformer-post-norm-none", module.recipe_of(made, name), translated(name))
    run_main(module, monkeypatch, "report", *FILES, "--out", tmp_path)
    assert f"| {name} | 30.0 [29.0, 31.0] |" in capsys.readouterr().out
    assert sorted(path.name for path in tmp_path.glob("*.*")) == ["table.json", "table.md"]
    finished(tmp_path / "convolution", module.recipe_of(made, "convolution"), translated("convolution"))
    run_main(module, monkeypatch, "report", *FILES, "--out", tmp_path)
    assert (tmp_path / "lengths.svg").exists()


def test_a_report_says_which_seeds_are_missing(
    script: Load, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    module, files = script("long_documents"), ["--train", "a.tsv", "--test", "b.tsv", "--out", tmp_path]
    with pytest.raises(SystemExit, match="nothing has been scored yet"):
        run_main(module, monkeypatch, "report", *files)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "lengths.json").write_text(json.dumps({"train": [9, 600], "dev": [], "test": [5000, 700, 3]}))
    made = options_of(module, monkeypatch, *files, "--updates", 2500)
    for variant, seed in [("window, 4,096 tokens", 1), ("window, 4,096 tokens", 2), ("Linformer, 4,096 tokens", 2)]:
        finished(module.folder_of(tmp_path, variant, seed), module.recipe_of(made, variant, seed), classified(0.8 + seed / 100))
    run_main(module, monkeypatch, "report", *files, "--seconds", 7)
    first, _, _, _, window, linformer, _, lengths = capsys.readouterr().out.splitlines()
    assert first == "2,500 updates each, 32,768 tokens an update, a CPU; means of 2 seeds (lowest to highest)"
    assert window.startswith("| window, 4,096 tokens | 81.5 % (81.0 to 82.0) |")
    assert linformer.startswith("| Linformer, 4,096 tokens; 1 of 2 seeds | 82.0 % (82.0 to 82.0) |")
    assert "2 of 3 reviews of the test set (1 beyond 4,096), 1 of 2 of training" in lengths


def test_updates_and_tokens_come_from_the_pretraining_run(script: Load, tmp_path: Path) -> None:
    module, described = script("pretrained_models"), script("pretrained_models_report").pretrained
    values = {
        "data": {"text": "a.txt"}, "tokenizer": {"file": "t.json"}, "model": {"kind": "bert"}, "objective": {"kind": "masked"},
        "training": {"steps": 3000, "batch_tokens": 5000},
    }  # fmt: skip
    finished(tmp_path / "run", module.parse_recipe(values, "a test"))
    (tmp_path / "run" / "metrics.jsonl").write_text('{"step": 1000}\n{"step": 3000}\n')
    assert described(tmp_path / "run") == "3,000 | 15 M"
    assert described(tmp_path / "none") == "0 | 0 M"


# Two checkouts


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["{none}", "{root}", "--", "train"], "has no src/qkv; give a checkout of qkv"),
        (["{root}", "{root}", "--", "trian"], "no benchmark 'trian'; choose train, pretrain, decode"),
        (["{root}", "{root}", "--rounds", "1", "--", "train"], "--rounds 1 is too few; give at least 2"),
    ],
)
def test_wrong_arguments_for_two_checkouts(
    script: Load, monkeypatch: pytest.MonkeyPatch, capsys: Any, tmp_path: Path, arguments: list[str], message: str
) -> None:
    given = [argument.format(none=tmp_path, root=BENCHMARKS.parent) for argument in arguments]
    with pytest.raises(SystemExit) as ended:
        run_main(script("two_checkouts"), monkeypatch, *given)
    assert ended.value.code == 2 and message in capsys.readouterr().err


def test_a_checkout_is_measured_by_its_own_code_and_says_why_it_fails(script: Load, tmp_path: Path) -> None:
    """The second checkout is an empty package: nothing is measured with the code of the first."""
    (tmp_path / "src" / "qkv").mkdir(parents=True)
    (tmp_path / "src" / "qkv" / "__init__.py").write_text("")
    with pytest.raises(SystemExit, match=r"bench train started no worker:\n[\s\S]*No module named qkv.__main__"):
        script("two_checkouts").Worker(tmp_path, tmp_path / "job", ["train"])


def test_recipes_are_trained_with_a_multiple_of_their_rate(script: Load, tmp_path: Path) -> None:
    budgets = script("recipe_budgets")
    options = argparse.Namespace(text="t.txt", train=None, dev=None, minutes=2.0, rate=10.0, out=tmp_path)
    command = budgets.training_command(options, "bert-mini")
    assert {"data.text=t.txt", "training.minutes=2", "training.learning_rate=0.005"} < set(command)
    run = tmp_path / "bert-mini"
    run.mkdir()
    figures = [{"step": 1, "dev_loss": 9.0, "dev_masked_loss": 8.0}, {"step": 2, "dev_loss": 5.0, "dev_masked_loss": 4.0}]
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in figures))
    (run / "result.json").write_text(json.dumps({"steps": "2", "warnings": ["it died"]}))
    assert budgets.line(run) == "| bert-mini | 2 | masked_loss 8.00 -> 4.00 | it died |"


# Adaptation


def adaptation_options(script: Load, monkeypatch: pytest.MonkeyPatch, folder: Path) -> Any:
    (folder / "old.tsv").write_text("".join(f"old {i}\talt {i}\n" for i in range(40)))
    (folder / "domain.tsv").write_text("".join(f"word {i}\tWort {i}\n" for i in range(12)))
    files = {"start": "runs/general", "train": folder / "domain.tsv", "dev": "dev.tsv", "test": "test.tsv",
             "old-train": folder / "old.tsv", "old-test": "old-test.tsv", "out": folder / "out"}  # fmt: skip
    given = [word for name, value in files.items() for word in (f"--{name}", value)]
    return options_of(script("adaptation"), monkeypatch, *given, "--sizes", 5, 10, "--steps", 7)


def test_cells_of_an_adaptation_differ_in_method_and_pairs(script: Load, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    module, options = script("adaptation"), adaptation_options(script, monkeypatch, tmp_path)
    plain, old, held = (module.recipe_of(options, f"{name}, 10") for name in ("all weights", "with old pairs", "with penalty"))
    assert [(corpus.pairs, corpus.weight) for corpus in old.data.train] == [
        (str(tmp_path / "out" / "domain-10.tsv"), 1.0),
        (str(tmp_path / "old.tsv"), 0.25),  # as many as the domain has
    ]
    assert (plain.training.start_penalty, held.training.start_penalty) == (0.0, 0.1) and len(plain.data.train) == 1
    module.write_samples(options)
    few, more = ((tmp_path / "out" / f"domain-{size}.tsv").read_text().splitlines() for size in (5, 10))
    assert more[: len(few)] == few and (len(few), len(more)) == (6, 11)


def test_the_table_of_an_adaptation(
    script: Load, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    module, options = script("adaptation"), adaptation_options(script, monkeypatch, tmp_path)
    for cell, gain in (("all weights, 5", 2.0), ("with old pairs, 10", -1.5)):
        row = {"value": 20 + gain, "before": 20.0, "difference": gain, "p": 0.01}
        rows = [{"held-out set": name, **row} for name in ("test", "test", "old-test.tsv", "old-test.tsv")]
        folder = module.folder_of(options, cell)
        folder.mkdir(parents=True)
        (folder / "result.json").write_text(json.dumps({"held-out sets": rows}))
    module.report(options)
    assert capsys.readouterr().out.splitlines()[2:] == [
        "| all weights | 5 | 20.0 | 22.0 | 0.010 | 20.0 | 22.0 | 0.010 |",
        "| with old pairs | 10 | 20.0 | 18.5 | 0.010 | 20.0 | 18.5 | 0.010 |",
    ]
    assert (tmp_path / "out" / "adaptation.svg").exists()
