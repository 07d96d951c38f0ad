"""Recurrent and convolutional translators through the same verbs as the Transformer."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from workbench import TARGETS, WORDS, Commands, wait_until, write_corpus, write_recipe

RNN = {"kind": "rnn", "width": 48, "embedding_width": 32, "layers": 1, "dropout": 0.0}
CONVOLUTION = {
    "kind": "convolution", "width": 48, "embedding_width": 32, "encoder_layers": 1, "decoder_layers": 2,
    "dropout": 0.0, "tied": "all",
}  # fmt: skip
MODELS = {"rnn": RNN, "convolution": CONVOLUTION, "one vector": {**RNN, "attention": "none"}}
LINE = "sun rain tree old bird"


def recipe_for(folder: Path, name: str, training: dict[str, Any]) -> Path:
    """A recipe for one of the models, which has other keys than the Transformer's."""
    recipe = write_recipe(folder, training=training, tokenizer={"shared": {"kind": "words", "vocab": 60}})
    values = yaml.safe_load(recipe.read_text())
    recipe.write_text(yaml.safe_dump({**values, "model": MODELS[name]}))
    return recipe


@pytest.fixture(scope="module", params=MODELS)
def run(request: pytest.FixtureRequest, commands: Commands, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of each kind, of which those with attention know their language."""
    folder = tmp_path_factory.mktemp("run")
    write_corpus(folder, pairs=600)
    steps = 30 if request.param == "one vector" else 160
    training = {"steps": steps, "batch_tokens": 600, "learning_rate": 0.01, "schedule": "cosine", "save_every": 1000}
    recipe = recipe_for(folder, request.param, {**training, "validate_every": 1000, "log_every": 50})
    done = commands.run("train", recipe, "--out", folder / request.param)
    assert done.code == 0, done.err
    return folder / request.param


def test_alignments_and_the_report_show_which_word_was_attended_to(commands: Commands, run: Path) -> None:
    done = commands.run("translate", run, "--alignments", stdin=f"{LINE}\n".encode())
    pictures = re.findall(r'<svg[^>]* class="attention".*?</svg>', (run / "report.html").read_text(), flags=re.DOTALL)
    if run.name == "one vector":
        assert "has no attention to the source" in done.complaint() and not pictures
        return
    count = len(LINE.split())
    text, links = done.out.rstrip("\n").split("\t")
    assert text.split() == [TARGETS[WORDS.index(word)] for word in reversed(LINE.split())]
    # The language is read from its end, and so is the diagonal.
    assert links == " ".join(f"{count - 1 - target}-{target}" for target in range(count))
    strongest = re.findall(r"<title>(\w+) ← (\w+): (?:0\.[5-9]|1\.0)", "".join(pictures))
    right = [TARGETS[WORDS.index(source)] == target for target, source in strongest]
    assert len(right) > 8 and sum(right) > 0.8 * len(right)


def test_it_is_scored_and_searched_as_any_other(commands: Commands, run: Path) -> None:
    assert "chrF" in commands.run("evaluate", run).out
    done = commands.run("translate", run, "--beam", 4, "--n-best", 3, "--scores", stdin=f"{LINE}\n".encode())
    scores = [float(line.split("\t")[0]) for line in done.out.splitlines()]
    assert len(scores) == 3 and scores == sorted(scores, reverse=True)
    done = commands.run("translate", run, "--prefix", "lapis", stdin=f"{LINE}\n".encode())
    assert done.out.startswith("lapis")


@pytest.mark.parametrize("to", ["ctranslate2", "hf"])
def test_formats_that_do_not_know_it(commands: Commands, run: Path, to: str, tmp_path: Path) -> None:
    kind = "convolution" if run.name == "convolution" else "rnn"
    says = f"{to} has no mapping for models of kind {kind}; use onnx or qkv itself"
    assert says in commands.run("export", run, "--to", to, "--out", tmp_path / "out").complaint()
    assert not (tmp_path / "out").exists()
    if to == "ctranslate2":
        assert says in commands.run("translate", run, "--engine", to, stdin=b"sun\n").complaint()


def test_its_copy_in_onnx_finds_the_same_words(commands: Commands, run: Path, tmp_path: Path) -> None:
    done = commands.run("export", run, "--to", "onnx", "--out", tmp_path / "out")
    assert done.code == 0 and done.err == "", done.err
    lines = "\n".join([LINE, "", "old bird", "sun", ""]).encode()
    for options in (["--beam", 1], ["--beam", 4, "--n-best", 3]):
        own, theirs = (commands.run("translate", folder, *options, stdin=lines) for folder in (run, tmp_path / "out"))
        assert (theirs.code, theirs.out) == (0, own.out) and own.out.strip(), theirs.err
    own, theirs = (commands.run("translate", folder, "--alignments", stdin=lines) for folder in (run, tmp_path / "out"))
    assert (theirs.code, theirs.out) == (own.code, own.out)
    assert "chrF" in commands.run("evaluate", tmp_path / "out").out
    (code,) = re.findall(r"```python\n(.*?)```", (tmp_path / "out" / "README.md").read_text(), flags=re.DOTALL)
    code = code.replace("How are you?", LINE)
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path / "out", capture_output=True, text=True)
    assert done.stdout.strip() == commands.run("translate", run, "--beam", 1, stdin=LINE.encode()).out.strip(), done.stderr


@pytest.mark.parametrize("name", MODELS)
def test_a_killed_run_goes_on_and_ends_as_if_nothing_had_happened(commands: Commands, name: str, tmp_path: Path) -> None:
    recipe = recipe_for(tmp_path, name, {"steps": 120, "save_every": 5, "validate_every": 1000})
    assert commands.run("train", recipe, "--out", tmp_path / "whole").code == 0
    killed = commands.start("train", recipe, "--out", tmp_path / "killed")
    wait_until(lambda: any((tmp_path / "killed" / "checkpoints").glob("step-*[0-9]")))
    killed.signal()
    assert killed.result().code == -9
    done = commands.run("train", recipe, "--out", tmp_path / "killed")
    assert done.code == 0 and "resuming from step" in done.out + done.err, done.err
    whole, other = ((tmp_path / run / "model.safetensors").read_bytes() for run in ("whole", "killed"))
    assert other == whole


def test_a_kind_of_model_that_a_recipe_is_not_for(commands: Commands, tmp_path: Path) -> None:
    done = commands.run(
        "train", "transformer-small", "--set", "model.kind=rnn", "--set", "data.train=a.tsv", "--set", "data.dev=b.tsv"
    )
    assert done.code == 2 and "(for model.kind=rnn begin with the recipe rnn-small)" in done.err
