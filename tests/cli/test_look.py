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
