"""qkv patch, layers, steps and lesson: what they print and write; mistakes in one line, before anything is loaded."""

import json
from pathlib import Path

import qkv
from workbench import Commands

TEXT, OTHER = "small bird sings", "small tree sings"


def test_patch(commands: Commands, run: Path, tmp_path: Path) -> None:
    done = commands.run("patch", run, TEXT, OTHER)
    assert done.code == 0, done.err
    view = qkv.patch(run, TEXT, OTHER)
    values = view.json()
    assert f"translator, transformer: {values['answer']} and not {values['instead']}" in done.out
    line = next(line for line in done.out.splitlines() if line.startswith("  cross, layer 1 "))
    assert [float(value) for value in line.split()[3:]] == [round(float(value), 2) for value in _row(values, "decoder.0.cross")]
    done = commands.run("patch", run, TEXT, OTHER, "--position", "2", "--out", tmp_path / "numbers.json")
    assert done.code == 0, done.err
    assert json.loads((tmp_path / "numbers.json").read_text()) == qkv.patch(run, TEXT, OTHER, position=1).json()
    assert commands.run("patch", run, TEXT, OTHER, "--out", tmp_path / "picture.png").code == 0
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")
    assert (
        "the name must end with .html or .png or .json" in commands.run("patch", run, TEXT, OTHER, "--out", "a.txt").complaint()
    )
    assert "both texts are the same" in commands.run("patch", run, TEXT, TEXT).complaint()
    assert "tokens, and differ in “sings” / “”" in commands.run("patch", run, TEXT, "small bird").complaint()


def _row(values: dict, name: str) -> list[float]:
    return next(row["values"] for row in values["heads"] if row["name"] == name)


def test_layers(commands: Commands, run: Path, tmp_path: Path) -> None:
    done = commands.run("layers", run, TEXT)
    assert done.code == 0, done.err
    view = qkv.layers(run, TEXT)
    assert done.out.count("\n  decoder, layer 1\t") == len(view.answers)
    assert f"{view.answers[0]}, after <s>:" in done.out
    done = commands.run("layers", run, TEXT, "--target", "avis parvus", "--top", "2", "--out", tmp_path / "numbers.json")
    assert done.code == 0, done.err
    assert json.loads((tmp_path / "numbers.json").read_text()) == qkv.layers(run, TEXT, "avis parvus", top=2).json()
    assert commands.run("layers", run, TEXT, "--out", tmp_path / "picture.png").code == 0
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")


def test_steps(commands: Commands, run: Path, tmp_path: Path) -> None:
    done = commands.run("steps", run, TEXT, "--set", "beam=3")
    assert done.code == 0, done.err
    output = qkv.load(run).translate([TEXT], beam=3)[0]  # type: ignore[union-attr]
    assert done.out.startswith(f"beam, transformer: {output}\n") and "the beam as a tree" in done.out
    done = commands.run("steps", run, TEXT, "--set", "sampling=true", "--set", "top_k=3", "--out", tmp_path / "numbers.json")
    assert done.code == 0, done.err
    values = json.loads((tmp_path / "numbers.json").read_text())
    assert values == qkv.steps(run, TEXT, sampling=True, top_k=3).json() and values["steps"][0]["draw"]["choices"] <= 3
    assert "--tokens is for a GPT" in commands.run("steps", run, TEXT, "--tokens", "4").complaint()
    assert "must end with .html or .json" in commands.run("steps", run, TEXT, "--out", "a.png").complaint()
    assert "beem" in commands.run("steps", run, TEXT, "--set", "beem=4").complaint()


def test_lesson(commands: Commands, run: Path, tmp_path: Path) -> None:
    page, numbers = tmp_path / "lesson.html", tmp_path / "numbers.json"
    done = commands.run("lesson", run, "--text", TEXT, "--text", OTHER, "--out", page)
    assert (done.code, done.out.strip()) == (0, str(page)), done.err
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>") and TEXT in page.read_text(encoding="utf-8")
    assert commands.run("lesson", run, "--text", TEXT, "--out", numbers).code == 0
    assert json.loads(numbers.read_text()) == qkv.lesson(run, [TEXT]).json()
    assert "the name must end with .html or .json" in commands.run("lesson", run, "--out", "lesson.pdf").complaint()
    assert "lesson takes 1 to 12 sentences, got 13" in commands.run("lesson", run, *["--text", TEXT] * 13).complaint()
