"""qkv evaluate: scores with signature and confidence, and the test between two runs."""

import json
from pathlib import Path

import pytest

from workbench import TARGETS, Commands, write_corpus, write_recipe


def test_scores_with_signature_and_confidence(commands: Commands, run: Path) -> None:
    done = commands.run("evaluate", run, COLUMNS="200")
    assert done.code == 0 and done.err == "", done.err
    for part in ("chrF", "95 % confidence", "nrefs:1|bs:1000|seed:12345"):
        assert part in done.out


def test_chinese_is_recognised_and_scored_as_chinese(commands: Commands, tmp_path: Path) -> None:
    write_corpus(tmp_path)
    for file in tmp_path.glob("*.tsv"):
        text = file.read_text()
        for word, character in zip(TARGETS, "日雨树鸟红老唱落家河石小", strict=True):
            text = text.replace(word, character)
        file.write_text(text)
    recipe = write_recipe(tmp_path, training={"steps": 4}, metrics=["bleu"])
    done = commands.run("train", recipe, "--out", tmp_path / "run")
    line = "targets are Chinese by their script: BLEU uses sacreBLEU's tokenizer zh (data.languages is not set)"
    assert done.code == 0 and " ".join((done.out + done.err).split()).count(line) == 1
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result["detected language"] == line and "tok:zh" in result["scores"][0]["signature"]
    done = commands.run("evaluate", tmp_path / "run", "--json", "--metrics", "bleu", "--against", tmp_path / "run")
    assert done.err == f"{line}\n"
    found = json.loads(done.out)
    assert "tok:zh" in found["scores"][0]["signature"] and "tok:zh" in found["against"][0]["signature"]
    done = commands.run("train", recipe, "--out", tmp_path / "named", "--set", "data.languages=[la,x]")
    assert line not in " ".join((done.out + done.err).split())
    result = json.loads((tmp_path / "named" / "result.json").read_text())
    assert "detected language" not in result and "tok:13a" in result["scores"][0]["signature"]


def test_as_json_on_other_data_with_other_metrics(commands: Commands, run: Path, recipe: Path) -> None:
    data = recipe.parent / "dev.tsv"
    done = commands.run("evaluate", run, "--data", data, "--metrics", "bleu,ter,exact", "--json", "--set", "beam=1")
    scores = {score["name"]: score for score in json.loads(done.out)["scores"]}
    assert set(scores) == {"bleu", "ter", "exact"}
    assert all(score["low"] <= score["value"] <= score["high"] for score in scores.values())


def test_the_columns_of_other_data_can_be_named(commands: Commands, run: Path, recipe: Path, tmp_path: Path) -> None:
    rows = [line.split("\t") for line in (recipe.parent / "test.tsv").read_text().splitlines()]
    (tmp_path / "big.csv").write_text("".join(f"{number};{target};{source}\n" for number, (source, target) in enumerate(rows)))
    data = ("evaluate", run, "--data", tmp_path / "big.csv", "--json", "--metrics", "chrf")
    assert "which of its 3 columns are source and target?" in commands.run(*data).complaint()
    named = commands.run(*data, "--set", "columns=[3,2]")
    assert named.code == 0 and named.out == commands.run("evaluate", run, "--json", "--metrics", "chrf").out
    assert "give --data" in commands.run("evaluate", run, "--set", "columns=[3,2]").complaint()


def test_against_itself_nothing_differs(commands: Commands, run: Path) -> None:
    done = commands.run("evaluate", run, "--against", run, "--metrics", "chrf", "--json")
    (compared,) = json.loads(done.out)["against"]
    assert compared["baseline"] == compared["system"] and compared["p_value"] > 0.9


def test_against_a_worse_run_the_difference_is_no_chance(commands: Commands, run: Path, other: Path, recipe: Path) -> None:
    done = commands.run("evaluate", run, "--against", other, "--metrics", "chrf", "--data", recipe.parent / "train.tsv")
    assert done.code == 0, done.err
    assert f"{other} " in done.out and "p = 0.00" in done.out and done.out.rstrip().endswith("differs")


def test_outputs_are_written_a_line_each(commands: Commands, run: Path, recipe: Path, tmp_path: Path) -> None:
    assert commands.run("evaluate", run, "--outputs", tmp_path / "out.txt").code == 0
    sources = [line.split("\t")[0] for line in (recipe.parent / "test.tsv").read_text().splitlines()]
    translated = commands.run("translate", run, stdin="".join(f"{s}\n" for s in sources).encode()).out
    assert (tmp_path / "out.txt").read_text() == translated


def test_outputs_overwrite_nothing(commands: Commands, run: Path, tmp_path: Path) -> None:
    (tmp_path / "out.txt").write_text("precious")
    assert "exists already; choose another name" in commands.run("evaluate", run, "--outputs", tmp_path / "out.txt").complaint()
    assert (tmp_path / "out.txt").read_text() == "precious"
    assert str(tmp_path) in commands.run("evaluate", run, "--outputs", tmp_path / "out.txt" / "below").complaint()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--metrics", "blue"], "bleu"),
        (["--metrics", ""], "metric"),
        (["--set", "beem=3"], "unknown key 'beem'; did you mean 'beam'?"),
        (["--data", "missing.tsv"], "missing.tsv: no such file"),
        (["--against", "missing"], "missing: no such run folder"),
        (["--unknown"], "--unknown"),
    ],
    ids=str,
)
def test_what_cannot_be_used(commands: Commands, run: Path, options: list[str], says: str) -> None:
    done = commands.run("evaluate", run, *options)
    assert says in done.complaint() and done.out == ""


def test_data_without_pairs(commands: Commands, run: Path, tmp_path: Path) -> None:
    (tmp_path / "none.tsv").write_text("\n\n")
    assert "give --data a file with at least one" in commands.run("evaluate", run, "--data", tmp_path / "none.tsv").complaint()
