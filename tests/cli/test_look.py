"""qkv look: a summary, a page, a picture, numbers; mistakes in one line, before anything is loaded."""

import json
from pathlib import Path

import pytest

import qkv
from encoder_runs import write_run
from workbench import Commands

WORDS = "small bird sings"


def test_a_summary(commands: Commands, run: Path) -> None:
    done = commands.run("look", run, WORDS)
    assert done.code == 0, done.err
    output = qkv.load(run).translate([WORDS])[0]
    assert f"output: {output}" in done.out and "translator, transformer" in done.out
    assert all(f"  {word}\t" in done.out for word in output.split())


def test_a_page(commands: Commands, run: Path, tmp_path: Path) -> None:
    done = commands.run("look", run, WORDS, "--target", "avis parvus", "--out", tmp_path / "page.html")
    assert done.code == 0, done.err
    assert done.out.strip() == str(tmp_path / "page.html")
    seen = qkv.look(run, WORDS, "avis parvus")
    assert (tmp_path / "page.html").read_text(encoding="utf-8") == seen.save(tmp_path / "other.html").read_text(encoding="utf-8")


def test_numbers(commands: Commands, run: Path, tmp_path: Path) -> None:
    assert commands.run("look", run, WORDS, "--out", tmp_path / "numbers.json").code == 0
    assert json.loads((tmp_path / "numbers.json").read_text(encoding="utf-8")) == qkv.look(qkv.load(run), WORDS).json()


@pytest.mark.parametrize("options", [(), ("--view", "rollout"), ("--part", "encoder", "--layer", "1", "--head", "2")])
def test_a_picture(commands: Commands, run: Path, tmp_path: Path, options: tuple[str, ...]) -> None:
    done = commands.run("look", run, WORDS, "--out", tmp_path / "picture.png", *options)
    assert done.code == 0, done.err
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")


def test_an_encoder(commands: Commands, tmp_path: Path) -> None:
    done = commands.run("look", write_run(tmp_path / "run"), "Paris is the [MASK] of France.")
    assert done.code == 0, done.err
    assert "encoder, bert" in done.out and "output: " in done.out


def test_through_training(commands: Commands, run: Path, tmp_path: Path) -> None:
    done = commands.run("look", run, WORDS, "--through-training")
    assert done.code == 0, done.err
    assert [line.split()[0] for line in done.out.splitlines()[1:5]] == ["0", "1", "10", "120"]
    assert done.out.splitlines()[4].endswith(qkv.load(run, step=120).translate([WORDS])[0])  # type: ignore[union-attr]
    for name in ("a.json", "a.png"):
        assert commands.run("look", run, WORDS, "--through-training", "--out", tmp_path / name).out.strip() == str(
            tmp_path / name
        )
    assert json.loads((tmp_path / "a.json").read_text(encoding="utf-8")) == qkv.look_through_training(run, WORDS).json()
    assert "snapshots of steps 0, 1, 10, 120 (" in commands.run("info", run).out
    said = commands.run("look", run, WORDS, "--through-training", "--view", "heads", "--out", tmp_path / "b.png").complaint()
    assert "--view is of one model" in said
    said = commands.run("look", write_run(tmp_path / "run"), WORDS, "--through-training").complaint()
    assert "has no snapshots of its training" in said


def test_attributions(commands: Commands, run: Path, tmp_path: Path) -> None:
    done = commands.run("attribute", run, WORDS, "--method", "integrated", "--word", "1")
    assert done.code == 0, done.err
    assert "integrated gradients: what supports (+) and opposes (-) “" in done.out and "steps: complete" in done.out
    out = tmp_path / "a.json"
    assert commands.run("attribute", run, WORDS, "--method", "occlusion", "--out", out).code == 0
    assert json.loads(out.read_text(encoding="utf-8")) == qkv.attribute(run, WORDS, method="occlusion").json()
    for options, said in [
        (("--out", "page.txt"), "must end with .html or .png or .json"),
        (("--method", "shap"), "choose gradient, integrated, occlusion"),
        (("--word", "99"), "and no other than these"),
        (("--instead", "avis"), "give its number among"),
    ]:
        assert said in commands.run("attribute", run, WORDS, *options).complaint()


def test_mistakes(commands: Commands, run: Path, tmp_path: Path) -> None:
    for options, said in [
        (("--out", "page.txt"), "must end with .html, .png or .json"),
        (("--layer", "1"), "--layer is for pictures"),
        (("--out", "page.html", "--view", "heads"), "--view is for pictures"),
        (("--out", "a.png", "--head", "9"), "it has 1 to 2"),
        (("--out", "a.png", "--view", "none"), "known are heads"),
    ]:
        assert said in commands.run("look", run, WORDS, *options).complaint()
    assert "the text is empty" in commands.run("look", run, " ").complaint()
    assert not Path("a.png").exists()
