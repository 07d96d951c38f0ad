"""qkv arithmetic: readable steps in a terminal, numbers as JSON, mistakes in one line."""

import json
from pathlib import Path

import qkv
from workbench import Commands

WORDS = "small bird sings"


def test_steps_are_printed(commands: Commands, run: Path) -> None:
    done = commands.run("arithmetic", run, WORDS, "--part", "encoder", "--layer", "1", "--head", "2", "--position", "2")
    assert done.code == 0, done.err
    found = qkv.arithmetic(run, WORDS, part="encoder", layer=0, head=1, position=1)
    lines = done.out.splitlines()
    assert "encoder attention, layer 1 of" in lines[0] and "head 2 of 2, position 2 of" in lines[0]
    for number, step in enumerate(found.steps, 1):
        assert f"{number}. {step.words.title}   {step.words.formula}" in lines
    table = lines.index(next(line for line in lines if "q·k" in line and "weight" in line))
    for n, key in enumerate(found.keys):
        name, *numbers = lines[table + 1 + n].split()
        expected = [found["dot"]["dot"][n], found["divide"]["scores"][n], found["softmax"]["weights"][n]]
        assert name == key and numbers[:3] == [f"{float(value):.3f}" for value in expected]


def test_numbers(commands: Commands, run: Path, tmp_path: Path) -> None:
    done = commands.run("arithmetic", run, WORDS, "--target", "avis parvus", "--out", tmp_path / "numbers.json")
    assert done.code == 0, done.err
    told = json.loads((tmp_path / "numbers.json").read_text(encoding="utf-8"))
    assert told == qkv.arithmetic(qkv.load(run), WORDS, "avis parvus").json() and told["part"] == "cross"


def test_mistakes(commands: Commands, run: Path) -> None:
    for options, said in [
        (("--out", "page.txt"), "must end with .html or .json"),
        (("--part", "memory"), "has the parts encoder, decoder, cross"),
        (("--layer", "0"), "no layer 0; the cross attention has"),
        (("--head", "3"), "no head 3; the cross attention has 2, counted from 1; choose 1 to 2"),
        (("--position", "99"), "no position 99; the text that attends (target) has"),
    ]:
        assert said in commands.run("arithmetic", run, WORDS, *options).complaint()
    assert "the text is empty" in commands.run("arithmetic", run, " ").complaint()
