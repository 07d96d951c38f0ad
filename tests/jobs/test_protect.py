"""data.protect: sentinels in tokenizers and token files, and what a run keeps of its sentences."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

import qkv
from qkv.base.errors import ConfigError
from qkv.data.corpora import Tokenizers, check_corpus, count_sources, sample_pairs
from qkv.data.tokenised_pairs import PairFormat, tokenise_corpus
from qkv.data.workers import Work
from qkv.jobs.prepared_pairs import prepare
from qkv.recipes import load_recipe
from qkv.text.check import CheckConfig
from qkv.text.corpus import ParallelCorpusConfig
from qkv.text.tokenizer import Tokenizer, TokenizerConfig, train_tokenizer
from qkv.training.progress import Progress
from workbench import recipe_values, write_corpus

LINES = [
    "sun {x} rain\tpluvia {x} sol",
    "Old bird. Red tree.\tavis vetus. arbor ruber.",
    "%s old\tvetus",
    "<b>sun</b> red\truber <b>sol</b>",
]


@pytest.fixture
def values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.setenv("QKV_CACHE", str(tmp_path / "cache"))
    write_corpus(tmp_path, pairs=36)
    with (tmp_path / "train.tsv").open("a") as file:
        file.write("".join(f"{line}\n" for line in LINES))
    made = recipe_values(tmp_path)
    made["data"]["protect"] = True
    return made


def test_spans_are_sentinels_on_both_sides(values: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    data = prepare(load_recipe(values, []), tmp_path / "run", Progress(quiet=True))
    tokenizer = data.tokenizers.source
    assert len(tokenizer.sentinels) == 16
    sides = [[side[i].tolist() for i in range(36, 40)] for side in (data.train[0].source, data.train[0].target)]
    first = tokenizer.sentinels[0]
    assert [[ids.count(first) for ids in side] for side in sides] == [[1, 0, 0, 0], [1, 0, 0, 0]]
    assert tokenizer.decode(sides[0][3]) == "sun red" and tokenizer.decode(sides[1][3]) == "ruber sol"
    assert tokenizer.decode(sides[0][2]) == "%s old"  # the other side has none
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert (config["several_sentences"], config["without_letters"]) == (pytest.approx(1 / 40), 0)


def test_token_files_with_and_without_sentinels_are_different(values: dict[str, Any], tmp_path: Path) -> None:
    corpus = check_corpus(ParallelCorpusConfig(pairs=str(tmp_path / "train.tsv")), CheckConfig(), None, set(), Work())
    tokenizer = train_tokenizer(TokenizerConfig(vocab=300, sentinels=2), [line for pair in corpus for line in pair])
    both = [
        tokenise_corpus(corpus, Tokenizers(tokenizer, tokenizer), PairFormat(50, protect=on), Work()).pairs
        for on in (False, True)
    ]
    texts = [pairs.source[36].tolist() for pairs in both]
    assert [tokenizer.sentinels[0] in ids for ids in texts] == [False, True]
    assert tokenizer.decode(texts[0]) == "sun {x} rain"
    assert count_sources(sample_pairs([corpus])) == (pytest.approx(1 / 40), 0)


def test_sources_without_letters_are_counted(tmp_path: Path) -> None:
    (tmp_path / "numbers.tsv").write_text("4 2\tfour two\n%d %%\tper %d\none 7\tI VII\n%s one\t%s I\n")
    corpus = check_corpus(ParallelCorpusConfig(pairs=str(tmp_path / "numbers.tsv")), CheckConfig(), None, set(), Work())
    assert count_sources(sample_pairs([corpus])).without_letters == pytest.approx(2 / 4)


def test_a_given_tokenizer_and_that_of_a_start_get_sentinels(
    values: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train_tokenizer(TokenizerConfig(vocab=100), [*LINES, "sol pluvia avis"]).save(tmp_path / "given.json")
    values["tokenizer"] = {"shared": {"file": str(tmp_path / "given.json")}}
    (tmp_path / "run").mkdir()
    made = prepare(load_recipe(values, []), tmp_path / "run", Progress(quiet=True)).tokenizers.source
    assert len(made.sentinels) == 16 and Tokenizer.load(tmp_path / "run" / "tokenizer.json").sentinels == made.sentinels
    values["data"]["protect"] = False
    values["training"] |= {"steps": 2}
    values["tokenizer"] = {"shared": {"kind": "bpe", "vocab": 60}}
    start = qkv.train(values, out=tmp_path / "plain")
    further = {key: values[key] for key in ("data", "training", "metrics", "score_dev")} | {"start": str(start)}
    adapter = {"data.protect": True, "model.adapter": {"rank": 2}}
    with pytest.raises(ConfigError, match=r"trains no embeddings; leave data\.protect or model\.adapter out"):
        qkv.train(further, out=tmp_path / "adapter", settings=adapter)
    with pytest.raises(ConfigError, match=r"leave tokenizer\.grow or model\.adapter out"):
        qkv.train(further, out=tmp_path / "adapter", settings={**adapter, "tokenizer.grow": 10})
    qkv.train(further, out=tmp_path / "untaught", settings={"data.dev": values["data"]["train"]})
    assert "--set data.protect=true teaches it" in capsys.readouterr().err.replace("\n", " ")
    taught = qkv.load(qkv.train(further, out=tmp_path / "further", settings={"data.protect": True}))
    assert "teaches it" not in capsys.readouterr().err
    assert taught.segmenter.sentinels == 16 and taught.translate(["old {y} bird"])[0].count("{y}") == 1


def test_a_run_that_starts_from_a_taught_one_is_taught_too(values: dict[str, Any], tmp_path: Path) -> None:
    values["training"] |= {"steps": 2}
    start = qkv.train(values, out=tmp_path / "taught")
    further = {key: values[key] for key in ("data", "training", "metrics", "score_dev")} | {"start": str(start)}
    further["data"] = {key: value for key, value in further["data"].items() if key != "protect"}
    made = qkv.load(qkv.train(further, out=tmp_path / "further"))
    assert made.recipe.data.protect and made.segmenter.sentinels == 16
    assert made.translate(["old {y} bird"])[0].count("{y}") == 1


def test_recipes_drop_protect_where_the_start_decides() -> None:
    settings = ["data.train=x", "data.dev=x"]
    assert load_recipe("transformer-small", settings).data.protect  # type: ignore[union-attr]
    assert not load_recipe("transformer-small", [*settings, "start=x"]).data.protect  # type: ignore[union-attr]
