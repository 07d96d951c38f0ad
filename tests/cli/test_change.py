"""qkv change: a summary, a page, numbers; mistakes in one line that says what there is."""

import json
from pathlib import Path

import qkv
from qkv.lens.changes import FixedWeight, SoftmaxTemperature, WithoutHead, WithoutLayer
from qkv.lens.word_edits import DeleteWord, MoveWord, ReplaceWord
from workbench import Commands

WORDS = "small bird sings"


def test_a_summary_and_numbers(commands: Commands, run: Path, tmp_path: Path) -> None:
    done = commands.run("change", run, WORDS, "--without", "cross.1.2", "--replace", "2=ship")
    assert done.code == 0, done.err
    assert done.out.startswith("without head 2 of cross-attention, layer 1; word 2 is 'ship'\n")
    assert "text after:    small ship sings" in done.out and " -> " in done.out
    options = ["--without", "encoder.1", "--weight", "cross.1:1,2=0.9", "--temperature", "2", "--temperature", "decoder.1.2=0.5"]
    words = ["--replace", "1=big", "--delete", "2", "--move", "2,1"]
    done = commands.run("change", run, WORDS, *options, *words, "--out", tmp_path / "numbers.json")
    assert done.code == 0, done.err
    changes = [
        WithoutLayer("encoder.0"),
        FixedWeight("decoder.0.cross", 0, 1, 0.9),
        SoftmaxTemperature(2),
        SoftmaxTemperature(0.5, "decoder.0.self", 1),
        ReplaceWord(0, "big"),
        DeleteWord(1),
        MoveWord(1, 0),
    ]
    assert json.loads((tmp_path / "numbers.json").read_text(encoding="utf-8")) == qkv.change(run, WORDS, changes).json()
    assert WithoutHead("decoder.0.cross") not in changes
    assert commands.run("change", run, WORDS, "--without", "cross.1", "--out", tmp_path / "page.html").code == 0
    assert "<!doctype html>" in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_mistakes(commands: Commands, run: Path) -> None:
    for options, said in [
        ((), "nothing to change; give --without"),
        (("--without", "head3"), "--without head3 is not a part (encoder, decoder or cross), a layer and a head"),
        (("--without", "cross.7.1"), "this model has no attention 'decoder.6.cross'; it has encoder.0.self"),
        (("--without", "encoder.9"), "this model has no layer 'encoder.8'; its layers are encoder.0"),
        (("--weight", "cross.1.1:3>4=1"), "is not a head, two tokens and a weight, such as cross.1.2:3,4=0.9"),
        (("--temperature", "hot"), "--temperature hot is not a temperature"),
        (("--replace", "cat"), "such as 2=cat"),
        (("--move", "4"), "such as 4,1"),
        (("--delete", "9"), "no word 9; its words are 1:small 2:bird 3:sings"),
        (("--delete", "1", "--out", "page.png"), "must end with .html or .json"),
    ]:
        assert said in commands.run("change", run, WORDS, *options).complaint()
