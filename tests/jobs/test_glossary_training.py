"""data.glossary: annotated sources in training data, and what it refuses."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import qkv
from qkv.base.errors import ConfigError, DataError
from qkv.data.tokens import TokenPairs
from qkv.inference.segmenter import TextOptions
from qkv.jobs.prepared_pairs import prepare
from qkv.recipes import load_recipe
from qkv.text.annotated_terms import own_tokens
from qkv.text.glossary import Glossary
from qkv.text.tokenizer import Tokenizer
from qkv.training.progress import Progress
from workbench import TARGETS, WORDS, recipe_values, write_corpus


@pytest.fixture
def values(tmp_path: Path) -> dict[str, Any]:
    write_corpus(tmp_path, pairs=100)
    with (tmp_path / "train.tsv").open("a") as file:
        file.write("sun {x} rain\tpluvia {x} sol\n")
    (tmp_path / "terms.tsv").write_text(f"sun\t{TARGETS[0]}\nold bird\tavis vetus\nrain\tnix\n")
    made = recipe_values(tmp_path)
    made["data"]["glossary"] = str(tmp_path / "terms.tsv")
    return made


def prepared(values: dict[str, Any], run: Path, *settings: str) -> tuple[TokenPairs, Tokenizer]:
    run.mkdir(exist_ok=True)
    found = prepare(load_recipe(values, list(settings)), run, Progress(quiet=True))
    return found.train[0], found.tokenizers.source


def annotations(pairs: TokenPairs, tokenizer: Tokenizer) -> list[int]:
    """Return the number of annotated terms of each source."""
    return [pairs.source[number].tolist().count(tokenizer.term_tokens[0]) for number in range(len(pairs))]


def test_sources_of_a_share_of_the_pairs_are_annotated(values: dict[str, Any], tmp_path: Path) -> None:
    pairs, tokenizer = prepared(values, tmp_path / "all", "data.glossary_share=1", "data.protect=true")
    lines = (tmp_path / "train.tsv").read_text().splitlines()
    wanted = [line.split("\t")[0].split().count("sun") + line.split("\t")[0].count("old bird") for line in lines]
    assert annotations(pairs, tokenizer) == wanted and sum(wanted) > 20
    for number, line in enumerate(lines[:-1]):
        source = pairs.source[number].tolist()
        assert [
            [source[index] for index in own_tokens(tokenizer, source)],
            pairs.target[number].tolist(),
        ] == tokenizer.encode_batch(line.split("\t"))
    last = pairs.source[100].tolist()
    assert last.count(tokenizer.sentinels[0]) == 1 and tokenizer.decode(last).split() == ["sun", "sol", "rain"]
    some, half, other = (annotations(*prepared(values, tmp_path / name, f"seed={seed}"))
                         for name, seed in (("a", 1), ("b", 1), ("c", 2)))  # fmt: skip
    assert some == half != other and 0 < sum(map(bool, some)) < sum(map(bool, wanted))
    assert all(one in (0, two) for one, two in zip(some, wanted, strict=True))  # all terms of a pair, or none


def test_a_pair_never_becomes_too_long(values: dict[str, Any], tmp_path: Path) -> None:
    settings = ("data.glossary_share=1", "training.row_width=null")
    pairs, tokenizer = prepared(values, tmp_path / "long", *settings)
    most = max(len(pairs.source[number]) for number in range(len(pairs)))
    short, _ = prepared(values, tmp_path / "short", *settings, f"data.max_tokens={most - 1}")
    assert len(short) == len(pairs) == 101
    assert sum(annotations(short, tokenizer)) < sum(annotations(pairs, tokenizer))
    assert max(len(short.source[number]) for number in range(101)) < most


def test_runs_that_start_from_others_learn_it(values: dict[str, Any], tmp_path: Path) -> None:
    values["training"] |= {"steps": 2}
    start = qkv.train(values, out=tmp_path / "plain", settings={"data.glossary": None})
    untaught = qkv.load(start)
    with pytest.raises(ConfigError, match=r"has not learned to copy translations.*train one with data\.glossary"):
        untaught.translate(["sun"], glossary={"sun": "sol"}, soft=True)
    with pytest.raises(ConfigError, match="give a glossary too"):
        untaught.translate(["sun"], soft=True)
    further = {key: values[key] for key in ("data", "training", "metrics", "score_dev")} | {"start": str(start)}
    with pytest.raises(ConfigError, match=r"leave data\.glossary or model\.adapter out"):
        qkv.train(further, out=tmp_path / "adapter", settings={"model.adapter": {"rank": 2}})
    taught = qkv.train(further, out=tmp_path / "taught")
    third = {**further, "start": str(taught), "data": {key: further["data"][key] for key in ("train", "dev")}}
    for run in (taught, qkv.train(third, out=tmp_path / "third")):  # the tokenizer says what the weights have learned
        (part,) = qkv.load(run).segmenter.cut("the sun", TextOptions(glossary=Glossary({"sun": "sol"}), soft=True))
        assert np.isin(qkv.load(run).tokenizers.source.term_tokens, part.ids).all() and not part.phrases
    adapted = qkv.load(qkv.train(third, out=tmp_path / "adapted", settings={"model.adapter": {"rank": 2}}))
    assert adapted.n_best(["sun"], glossary={"sun": "sol"}, soft=True)[0][0].terms


def test_what_cannot_be_taught_is_refused(values: dict[str, Any], tmp_path: Path) -> None:
    terms = tmp_path / "terms.tsv"
    terms.write_text("moon\tluna\n")
    with pytest.raises(DataError, match=r"no training source is annotated.*leave data\.glossary out"):
        prepared(values, tmp_path / "none")
    terms.write_text("sun\t\n")
    with pytest.raises(DataError, match="line 1 has an empty translation"):
        qkv.train(values, out=tmp_path / "empty")
    with pytest.raises(DataError, match="no such file"):
        qkv.train(values, out=tmp_path / "missing", settings={"data.glossary": str(tmp_path / "no.tsv")})
    with pytest.raises(ConfigError, match="glossary_share"):
        load_recipe(values, ["data.glossary_share=0"])
    with pytest.raises(ConfigError, match="trees have no head"):
        load_recipe({**values, "model": {**values["model"], "positions": "structural"}}, [])
    assert not (tmp_path / "empty").exists()


def test_a_run_goes_on_with_the_glossary_that_it_began_with(values: dict[str, Any], tmp_path: Path) -> None:
    values["training"] |= {"steps": 10, "keep_checkpoints": True}
    run = qkv.train(values, out=tmp_path / "run")
    (tmp_path / "terms.tsv").write_text(f"sun\t{TARGETS[0]}\n{WORDS[1]}\t{TARGETS[1]}\n")
    with pytest.raises(ConfigError, match="the training text is not what"):
        qkv.train(values, out=run, settings={"training.steps": 12})
