"""Runs that are still in training: every command uses the newest checkpoint, and says in one line which step that is."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml

import qkv
from encoder_runs import LINES, own_tokenizer, randomised, write_model, write_run
from qkv.base.errors import CheckpointError, QkvWarning
from qkv.folder.run import RESULT, WEIGHTS
from qkv.interop.export import export
from qkv.jobs.perplexity import measure_perplexity, read_pretrained_run
from qkv.models.gpt import Gpt, GptConfig
from qkv.parts.heads import ModelWithHeads
from qkv.serving.registry import load_models
from qkv.text.tokenizer import TokenizerConfig, train_tokenizer
from qkv.training import checkpoints
from translator_runs import T5, TRANSFORMER, write_pairs_run
from unfinished_runs import unfinish
from workbench import Commands
from written_checkpoints import write_checkpoint

STEP = "training is not finished; using the weights of step 300 of 400"


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of finished runs, one of each kind."""
    folder = tmp_path_factory.mktemp("finished")
    write_run(folder / "encoder")
    write_run(folder / "classifier", heads=("pooler", "classes"), labels=("no", "yes"), objective="classification")
    tokenizer = train_tokenizer(TokenizerConfig(kind="byte-bpe", vocab=340), LINES * 9)
    c = GptConfig(width=16, feedforward=16, heads=2, layers=1, max_positions=64)
    model = randomised(ModelWithHeads(Gpt(c, len(tokenizer)), ()))
    write_model(folder / "gpt", model, c.model_dump(mode="json"), tokenizer, objective="causal")
    sentinels = train_tokenizer(TokenizerConfig(kind="unigram", vocab=200, sentinels=20), LINES * 9)
    pretrained = {"tokenizer": {"file": "x"}, "data": {"text": "x", "length": 64}, "objective": {"kind": "spans"}}
    write_pairs_run(folder / "t5", T5, sentinels, sentinels, **pretrained)
    own = own_tokenizer("bpe", False)
    write_pairs_run(folder / "translator", TRANSFORMER, own, own)
    return folder


@pytest.fixture(scope="module")
def runs(finished: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same runs, still in training; older checkpoints have other weights."""
    folder = tmp_path_factory.mktemp("unfinished")
    for run in finished.iterdir():
        unfinish(Path(shutil.copytree(run, folder / run.name)), 100, 200, 300)
    return folder


VERBS = {
    "embed": ("encoder", ["text.txt"]),
    "fill": ("encoder", ["the [MASK] fox"]),
    "fill a span": ("t5", ["the [MASK] fox"]),
    "look": ("encoder", ["the fox"]),
    "predict": ("classifier", ["text.txt"]),
    "evaluate labels": ("classifier", ["--data", "labels.tsv", "--set", "text=1", "--set", "label=2"]),
    "evaluate text": ("gpt", ["--data", "text.txt", "--json"]),
    "evaluate pairs": ("translator", ["--data", "pairs.tsv"]),
    "evaluate minimal": ("gpt", ["--pairs", "minimal.tsv", "--set", "label=null", "--set", "text=1", "--set", "pair=2"]),
    "generate": ("gpt", ["Paris is", "--tokens", "5"]),
    "translate": ("translator", ["text.txt"]),
    "translate with ctranslate2": ("translator", ["text.txt", "--engine", "ctranslate2"]),
}  # fmt: skip


@pytest.fixture
def texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Write the files that the commands read. -> their paths by name."""
    contents = {
        "text.txt": "".join(f"{line}\n" for line in LINES),
        "labels.tsv": "".join(f"{line}\t{'no' if number % 2 else 'yes'}\n" for number, line in enumerate(LINES)),
        "pairs.tsv": "".join(f"{line}\t{line}\n" for line in LINES),
        "minimal.tsv": "".join(f"{line}\t{line[::-1]}\n" for line in LINES),
    }
    for name, text in contents.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    return {name: str(tmp_path / name) for name in contents}


@pytest.mark.parametrize("verb", VERBS)
def test_a_command_uses_the_newest_checkpoint_and_says_so(
    commands: Commands, finished: Path, runs: Path, texts: dict[str, str], verb: str
) -> None:
    kind, arguments = VERBS[verb]
    if "ctranslate2" in verb:
        pytest.importorskip("ctranslate2")
    given = [texts.get(argument, argument) for argument in arguments]
    whole, part = (commands.run(verb.split()[0], folder / kind, *given, "--device", "cpu") for folder in (finished, runs))
    assert (whole.code, part.code, whole.err) == (0, 0, ""), part.err + whole.err
    assert part.out == whole.out and part.out.strip()
    assert part.err == f"qkv: {runs / kind}: {STEP}\n"


def test_models_that_are_served_are_named_too(runs: Path) -> None:
    with pytest.warns(QkvWarning, match=STEP) as said:
        load_models([str(runs / name) for name in ("encoder", "gpt", "translator")], "cpu")
    assert len(said) == 3


@pytest.mark.parametrize("kind", ["encoder", "gpt", "t5", "translator"])
def test_an_export_says_which_weights_it_has(commands: Commands, finished: Path, runs: Path, kind: str, tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    for name, folder in (("whole", finished), ("part", runs)):
        done = commands.run("export", folder / kind, "--to", "hf", "--out", tmp_path / name)
        assert done.code == 0, done.err
    assert done.err == f"qkv: {runs / kind}: {STEP}\n"
    whole, part = (tmp_path / name for name in ("whole", "part"))
    assert (whole / WEIGHTS).read_bytes() == (part / WEIGHTS).read_bytes()
    note = "\nThe run was still in training: these are the weights of step 300 of 400.\n"
    assert note in (part / "README.md").read_text() and note not in (whole / "README.md").read_text()


@pytest.mark.parametrize("to", ["ctranslate2", "onnx"])
def test_so_does_the_manifest_of_a_translator(finished: Path, runs: Path, to: str, tmp_path: Path) -> None:
    for package in {"ctranslate2": ["ctranslate2"], "onnx": ["onnx", "onnxscript"]}[to]:
        pytest.importorskip(package)
    with pytest.warns(QkvWarning, match=STEP):
        part = export(runs / "translator", to, tmp_path / "part")
    assert "these are the weights of step 300 of 400" in (part / "README.md").read_text()
    assert json.loads((part / "export.json").read_text())["unfinished"] == "step 300 of 400"
    whole = finished / "translator"
    if to == "ctranslate2":  # whose search is its own; graphs are run by ours
        whole = export(whole, to, tmp_path / "whole")
    assert qkv.load(part).translate(LINES) == qkv.load(whole).translate(LINES)  # type: ignore[union-attr]


def test_a_run_without_a_checkpoint_is_refused(finished: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(finished / "encoder", tmp_path / "run"))
    (run / WEIGHTS).unlink()
    for use in (lambda: qkv.load(run), lambda: export(run, "hf", tmp_path / "hf")):
        with pytest.raises(CheckpointError, match="is this a run folder whose training has saved something"):
            use()


def test_a_finished_run_that_is_trained_further_is_in_training_again(finished: Path, tmp_path: Path) -> None:
    """The weights that it was finished with are older than its checkpoints."""
    run = Path(shutil.copytree(finished / "encoder", tmp_path / "run"))
    final = checkpoints.load_weights(run / WEIGHTS)
    (run / RESULT).write_text("{}")
    files = {checkpoints.MODEL: final, checkpoints.OPTIMISER: {"exp_avg": torch.zeros(1)}}
    write_checkpoint(run, 300, files, {"steps": 300})
    before = qkv.load(run, "cpu").embed(LINES)  # type: ignore[union-attr]
    (run / RESULT).unlink()
    values = yaml.safe_load((run / "recipe.yaml").read_text())
    (run / "recipe.yaml").write_text(yaml.safe_dump({**values, "training": {**values["training"], "steps": 400}}))
    zeros = {name: torch.zeros_like(tensor) for name, tensor in final.items()}
    write_checkpoint(run, 350, {**files, checkpoints.MODEL: zeros}, {"steps": 400})
    with pytest.warns(QkvWarning, match="weights of step 350 of 400"):
        after = qkv.load(run, "cpu").embed(LINES)  # type: ignore[union-attr]
    assert not np.array_equal(before, after)


def test_steps_of_a_run_with_minutes_are_those_that_were_planned(finished: Path, tmp_path: Path) -> None:
    for planned, wanted in ((0, "step 300$"), (700, "step 300 of 700$")):
        run = Path(shutil.copytree(finished / "gpt", tmp_path / str(planned)))
        unfinish(run, 200)
        values = yaml.safe_load((run / "recipe.yaml").read_text())
        values["training"] |= {"steps": None, "minutes": 5}
        (run / "recipe.yaml").write_text(yaml.safe_dump(values))
        weights = checkpoints.load_weights(checkpoints.folders(run)[0] / checkpoints.MODEL)
        write_checkpoint(run, 300, {checkpoints.MODEL: weights}, {"steps": planned})
        with pytest.warns(QkvWarning, match=f"using the weights of {wanted}"):
            read_pretrained_run(run)


def test_perplexity_is_that_of_the_checkpoint(finished: Path, runs: Path, texts: dict[str, str]) -> None:
    with pytest.warns(QkvWarning, match=STEP):
        part = read_pretrained_run(runs / "gpt")
    whole = read_pretrained_run(finished / "gpt")
    assert measure_perplexity(part, texts["text.txt"], "cpu") == measure_perplexity(whole, texts["text.txt"], "cpu")
