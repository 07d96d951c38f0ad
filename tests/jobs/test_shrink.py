"""A run without the pieces that some texts do not need translates as before."""

import json
import random
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import qkv
from qkv.base.errors import ConfigError, DataError
from qkv.cli.app import app
from qkv.data.trees import encode_sources
from qkv.decoding.config import DecodingConfig
from qkv.folder.networks import read_translator_run
from qkv.folder.run import read_run
from qkv.jobs.shrink import shrink
from qkv.jobs.train import train
from qkv.text.tokenizer import Tokenizer, TokenizerConfig, train_tokenizer
from translator_runs import T5, TRANSFORMER, write_pairs_run

RANDOM = random.Random(7)
WORDS = ["".join(RANDOM.choices("abdefgiklmnoprstu", k=RANDOM.randint(3, 7))) for _ in range(60)]
GREEDY = DecodingConfig(beam=1, max_length=6, precision="float32")
MODELS: dict[str, dict[str, Any]] = {
    "transformer": {**TRANSFORMER, "tied": "all", "output_bias": True},
    "two vocabularies": {**TRANSFORMER, "tied": "none"},
    "rnn": {"kind": "rnn", "width": 8, "embedding_width": 8, "layers": 1, "tied": "target"},
    "convolution": {"kind": "convolution", "width": 8, "embedding_width": 8, "encoder_layers": 1, "decoder_layers": 1},
    "t5": T5,
    "unilm": {"kind": "unilm", "width": 8, "feedforward": 8, "heads": 2, "layers": 1, "max_positions": 400},
}
TWO = ("two vocabularies", "rnn", "convolution")


def tokenizer_of(words: list[str], kind: str) -> Tokenizer:
    config = TokenizerConfig(kind=kind, vocab=200, special_tokens=("[MASK]",))  # type: ignore[arg-type]
    return train_tokenizer(config, [" ".join(RANDOM.choices(words, k=8)) for _ in range(200)])


def write_start(folder: Path, name: str, kind: str = "bpe") -> Path:
    source = tokenizer_of(WORDS, kind)
    target = tokenizer_of(WORDS[::-1], kind) if name in TWO else source
    objective = {"objective": {"kind": "masked-translation"}} if name == "unilm" else {}
    return write_pairs_run(folder, MODELS[name], source, target, **objective)


def write_texts(folder: Path) -> Path:
    rng, file = random.Random(3), folder / "texts.tsv"
    lines = ["\t".join(" ".join(rng.choices(WORDS[:45], k=4)) for _ in range(2)) for _ in range(40)]
    file.write_text("".join(f"{line}\n" for line in lines))
    return file


@pytest.mark.parametrize("name", MODELS)
def test_texts_of_kept_pieces_are_translated_as_before(name: str, tmp_path: Path) -> None:
    run = write_start(tmp_path / "run", name, "unigram" if name == "t5" else "bpe")
    before, after = shrink(run, [write_texts(tmp_path)], tmp_path / "small")
    (_, old), (_, new) = read_run(run), read_run(tmp_path / "small")
    assert before.pieces == (len(old.source), len(old.target)) > after.pieces == (len(new.source), len(new.target))
    saved = sum(weight.numel() for weight in read_translator_run(tmp_path / "small").weights.values())
    assert before.parameters > after.parameters == saved
    assert json.loads((tmp_path / "small" / "config.json").read_text())["vocabularies"] == [*after.pieces]

    rng, compared = random.Random(5), 0
    texts = [" ".join(rng.choices(WORDS[:45], k=rng.randint(1, 5))) for _ in range(60)]
    known = {*new.source.pieces(range(len(new.source)))}
    texts = [text for text in texts if {*old.source.pieces(old.source.encode(text))} <= known]
    full, small = qkv.load(run), qkv.load(tmp_path / "small")
    sources = [[side.source.encode(text) for text in texts] for side in (old, new)]
    for ids, other in zip(*sources, strict=True):
        assert old.source.pieces(ids) == new.source.pieces(other)
    wanted, got = (
        x.engine.decode(encode_sources(x.tokenizers.source, texts, x.recipe.source_format), GREEDY) for x in (full, small)
    )
    kept = {*new.target.pieces(range(len(new.target)))}
    for (one,), (other,) in zip(wanted, got, strict=True):
        pieces = old.target.pieces(one.ids)
        if {*pieces} <= kept:
            compared += 1
            assert new.target.pieces(other.ids) == pieces
    assert compared > 5


def test_the_smaller_run_is_a_run(tmp_path: Path) -> None:
    run, texts = write_start(tmp_path / "run", "transformer"), write_texts(tmp_path)
    done = CliRunner().invoke(app, ["shrink", str(run), str(texts), "--out", str(tmp_path / "small")])
    assert done.exit_code == 0 and " pieces before, " in done.output and " parameters before, " in done.output
    settings = {"start": str(tmp_path / "small"), "data.train": str(texts), "data.dev": str(texts), "training.steps": 1}
    settings |= {"metrics": ["exact"], "data.max_tokens": 20, "tokenizer.grow": 5, "decoding.beam": 1, "decoding.max_length": 5}
    grown = train("adapt", tmp_path / "grown", settings=settings)
    assert len(read_run(grown)[1].source) == len(read_run(tmp_path / "small")[1].source) + 5
    with pytest.raises(ConfigError, match="holds an imported model"):
        train("adapt", tmp_path / "small", settings=settings)


def test_what_cannot_be_done_is_refused(tmp_path: Path) -> None:
    run, texts = write_start(tmp_path / "run", "transformer"), write_texts(tmp_path)
    with pytest.raises(ConfigError, match="run exists already; choose another --out"):
        shrink(run, [texts], run)
    shrink(run, [texts], tmp_path / "small")
    with pytest.raises(ConfigError, match=r"these texts need all .* pieces, so that nothing can be dropped"):
        shrink(tmp_path / "small", [texts], tmp_path / "smaller")
    (tmp_path / "empty.tsv").write_text("")
    with pytest.raises(DataError):
        shrink(run, [tmp_path / "empty.tsv"], tmp_path / "smaller")
    with pytest.raises(DataError, match="nowhere"):
        shrink(run, ["nowhere.tsv"], tmp_path / "smaller")
    assert not (tmp_path / "smaller").exists()
