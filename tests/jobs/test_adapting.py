"""A translator of any kind goes on from another run: its weights, shape, tokenizers and decoding."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import qkv
from qkv.base.errors import CheckpointError, ConfigError
from qkv.folder.networks import read_translator_run
from qkv.folder.run import load_tokenizers, read_recipe
from qkv.jobs.train import train
from qkv.text.tokenizer import Tokenizer, TokenizerConfig, train_tokenizer
from translator_runs import T5, write_pairs_run
from translator_runs import TRANSFORMER as POST_NORM

PAIRS = [("one two", "eins zwei"), ("two three", "zwei drei"), ("three one", "drei eins"), ("one one", "eins eins")]
TRANSFORMER = {**POST_NORM, "tied": "target"}
RNN = {"kind": "rnn", "width": 8, "embedding_width": 8, "layers": 1, "tied": "target"}
CONVOLUTION = {"kind": "convolution", "width": 8, "embedding_width": 8, "encoder_layers": 1, "decoder_layers": 1}


def tokenizer_of(side: int, **more: Any) -> Tokenizer:
    return train_tokenizer(TokenizerConfig(kind="bpe", vocab=40, **more), [pair[side] for pair in PAIRS * 5])


def adapt(tmp_path: Path, start: Path, **settings: Any) -> Path:
    """Adapt a run to the pairs; names of settings have __ for the dot."""
    file = tmp_path / "domain.tsv"
    file.write_text("".join(f"{source}\t{target}\n" for source, target in PAIRS))
    given = {"start": str(start), "data.train": str(file), "data.dev": str(file), "data.check.duplicates": "keep"}
    given |= {"training.steps": 2, "training.learning_rate": 1e-9}
    return train("adapt", tmp_path / "adapted", settings=given | {k.replace("__", "."): v for k, v in settings.items()})


@pytest.mark.parametrize(
    "model",
    [TRANSFORMER, {**TRANSFORMER, "norm": "pre", "tied": "none"}, RNN, CONVOLUTION],
    ids=["transformer", "pre-norm", "rnn", "convolution"],
)
def test_every_translator_goes_on_where_another_run_ended(tmp_path: Path, model: dict[str, Any]) -> None:
    source, target = tokenizer_of(0), tokenizer_of(1)
    start = write_pairs_run(tmp_path / "start", model, source, target, decoding={"beam": 3})
    adapted = adapt(tmp_path, start)
    recipe, before = read_recipe(adapted), read_recipe(start)
    assert recipe.model == before.model and recipe.decoding == before.decoding
    taken = load_tokenizers(adapted)
    assert taken is not None and [t.fingerprint() for t in taken] == [source.fingerprint(), target.fingerprint()]
    old, new = (load_file(run / "model.safetensors") for run in (start, adapted))
    assert old.keys() == new.keys()
    for name in old:
        torch.testing.assert_close(new[name], old[name], rtol=0, atol=1e-6, msg=name)


def test_a_translator_of_one_vocabulary_goes_on_too(tmp_path: Path) -> None:
    shared = tokenizer_of(0, sentinels=4)
    start = write_pairs_run(tmp_path / "start", T5, shared, shared)
    assert read_recipe(adapt(tmp_path, start)).model == read_recipe(start).model


def test_sources_end_as_those_of_the_start(tmp_path: Path) -> None:
    data = {"train": "x", "dev": "x", "source_eos": True, "languages": ["en", "de"]}
    start = write_pairs_run(tmp_path / "start", TRANSFORMER, tokenizer_of(0), tokenizer_of(1), data=data)
    adapted = read_recipe(adapt(tmp_path, start))
    assert adapted.data.source_eos and adapted.data.languages == ("en", "de")
    with pytest.raises(ConfigError, match=r"data.source_eos is True in .*start; leave it out"):
        adapt(tmp_path, start, data__source_eos=False)


def test_the_weights_learn(tmp_path: Path) -> None:
    start = write_pairs_run(tmp_path / "start", TRANSFORMER, tokenizer_of(0), tokenizer_of(1))
    adapted = adapt(tmp_path, start, training__steps=30, training__patience=None, training__learning_rate=1e-2)
    old, new = (read_translator_run(run).weights for run in (start, adapted))
    assert any((old[name] - new[name]).abs().max() > 1e-3 for name in old)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"model__width": 16}, r"model.width 16: not what .*start has; leave model out"),
        ({"model__kind": "rnn"}, "is of model.kind transformer, and model.kind rnn starts from a run of its own kind"),
        ({"tokenizer__shared__kind": "bpe"}, "the tokenizer is taken from start; leave tokenizer out"),
    ],
)
def test_what_does_not_fit_is_refused_before_any_work(tmp_path: Path, settings: dict[str, Any], message: str) -> None:
    start = write_pairs_run(tmp_path / "start", TRANSFORMER, tokenizer_of(0), tokenizer_of(1))
    with pytest.raises(ConfigError, match=message):
        adapt(tmp_path, start, **settings)
    with pytest.raises(CheckpointError, match="nowhere: no such run folder"):
        adapt(tmp_path, Path("nowhere"))
    assert not (tmp_path / "adapted").exists()


def test_scores_of_both_domains_before_and_after(tmp_path: Path) -> None:
    start = write_pairs_run(tmp_path / "start", TRANSFORMER, tokenizer_of(0), tokenizer_of(1))
    old = tmp_path / "old.tsv"
    old.write_text("two\tzwei\nthree three\tdrei drei\n")
    settings = {"data__also_test": str(old), "metrics": ["chrf"]}
    adapted = adapt(tmp_path, start, **settings, training__steps=100, training__patience=None, training__learning_rate=2e-2)
    before = json.loads((adapted / "before.json").read_text())
    assert before["dev"].keys() == {source for source, _ in PAIRS} and before[str(old)].keys() == {"two", "three three"}
    dev, also = json.loads((adapted / "result.json").read_text())["held-out sets"]
    assert (dev["held-out set"], also["held-out set"]) == ("dev", str(old))
    assert float(dev["difference"]) > 20 and float(dev["p"]) < 0.5
    translated = qkv.load(start).translate([source for source, _ in PAIRS])
    assert list(before["dev"].values()) == translated, "the translations of the start itself"
    page = (adapted / "report.html").read_text()
    assert "difference" in page and "old.tsv" in page
