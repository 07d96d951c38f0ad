"""A translator of any kind goes on from another run: its weights, shape, tokenizers and decoding."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import qkv
from qkv.base.errors import CheckpointError, ConfigError, QkvWarning
from qkv.folder.networks import read_translator_run
from qkv.folder.run import load_tokenizers, read_recipe
from qkv.folder.start import complete_recipe
from qkv.folder.start_weights import weights_to_hold
from qkv.jobs.before_after import start_warnings
from qkv.jobs.train import train
from qkv.recipes import load_recipe, parse_recipe
from qkv.text.tokenizer import Tokenizer, TokenizerConfig, train_tokenizer
from qkv.training.checkpoints import save_weights
from qkv.training.loop import Validation
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


def test_the_longest_text_is_that_of_the_start(tmp_path: Path) -> None:
    data = {"train": "x", "dev": "x", "max_tokens": 40}
    start = write_pairs_run(tmp_path / "start", TRANSFORMER, tokenizer_of(0), tokenizer_of(1), data=data)
    values = {"start": str(start), "data": {"train": "x", "dev": "x"}, "training": {"steps": 1}}
    assert complete_recipe(parse_recipe(values, "here")).data.max_tokens == 40
    values["data"] |= {"max_tokens": 30}
    assert complete_recipe(parse_recipe(values, "here")).data.max_tokens == 30


def test_languages_that_the_script_contradicts_are_not_taken_over(tmp_path: Path) -> None:
    data = {"train": "x", "dev": "x", "languages": ["en", "de"]}
    start = write_pairs_run(tmp_path / "start", TRANSFORMER, tokenizer_of(0), tokenizer_of(1), data=data)
    file = tmp_path / "zh.tsv"
    file.write_text("one two\t一和二\nthree\t三\n")
    values = {"start": str(start), "data": {"train": str(file), "dev": str(file)}, "training": {"steps": 1}}
    with pytest.warns(QkvWarning, match=r"data.dev are not in the script of de: data.languages of .*start are not taken"):
        assert complete_recipe(parse_recipe(values, "here")).data.languages is None
    values["data"]["languages"] = ["en", "de"]
    assert complete_recipe(parse_recipe(values, "here")).data.languages == ("en", "de"), "given ones stay"


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
    assert dev["metric"] == "chrf" and dev["low"] <= dev["value"] <= dev["high"]
    assert dev["difference"] == dev["value"] - dev["before"] > 20 and dev["p"] < 0.5
    translated = qkv.load(start).translate([source for source, _ in PAIRS])
    assert list(before["dev"].values()) == translated, "the translations of the start itself"
    page = (adapted / "report.html").read_text()
    assert "difference" in page and "old.tsv" in page and f"<td>{dev['difference']:+.1f}</td>" in page


def test_a_run_that_ends_below_its_start_warns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    start = write_pairs_run(tmp_path / "start", TRANSFORMER, tokenizer_of(0), tokenizer_of(1))
    learned = adapt(tmp_path, start, metrics=["chrf"], training__steps=100, training__patience=None, training__learning_rate=2e-2)
    assert "no better" not in (learned / "report.html").read_text()
    said = capsys.readouterr().err
    assert "before training: dev_loss" in said and "confidence was not calibrated: " in said
    (tmp_path / "worse").mkdir()
    settings = {"metrics": ["chrf"], "training__steps": 40, "training__patience": None, "training__learning_rate": 1.0}
    worse = adapt(tmp_path / "worse", learned, **settings)
    (warning,) = [one for one in json.loads((worse / "result.json").read_text())["warnings"] if "no better on dev" in one]
    assert str(learned) in warning and "dev_chrf" in warning
    assert "no better on dev" in (worse / "report.html").read_text()
    assert "no better on dev" in " ".join("".join(capsys.readouterr()).split())


def test_warnings_follow_the_direction_of_the_metric() -> None:
    same = Validation({"dev_loss": 1.0}, -1.0)
    row = {"held-out set": "test", "metric": "ter", "value": 50.0, "low": 40.0, "high": 60.0, "before": 40.0, "p": 0.01}
    (warning,) = start_warnings("runs/a", Validation({"dev_loss": 2.0}, -2.0), same, [row | {"difference": 10.0}])
    assert warning.startswith("test is worse than with runs/a: TER 50.0 [40.0, 60.0], before 40.0, p = 0.010; lower")
    for other in ({"difference": -10.0}, {"difference": 10.0, "p": 0.05}, {"difference": 10.0, "held-out set": "old.tsv"}):
        (warning,) = start_warnings("runs/a", same, same, [row | other])
        assert "no better on dev than those of runs/a (dev_loss 1.000 -> 1.000)" in warning


# The penalty towards the weights of the start

STEADY = {"training__schedule": "inverse-sqrt", "training__warmup": 1, "training__learning_rate": 1e-2,
          "training__averaging": "none", "training__keep_checkpoints": True, "training__patience": None,
          "training__validate_every": 2}  # fmt: skip


def test_a_penalty_holds_weights_near_the_start_and_is_exact_after_resuming(tmp_path: Path) -> None:
    start = write_pairs_run(tmp_path / "start", TRANSFORMER, tokenizer_of(0), tokenizer_of(1))
    old, runs = load_file(start / "model.safetensors"), {}
    for name, penalty, lengths in (("free", 0, [8]), ("held", 2.0, [8]), ("resumed", 2.0, [2, 8])):
        for steps in lengths:
            (tmp_path / name).mkdir(exist_ok=True)
            made = adapt(tmp_path / name, start, **STEADY, training__steps=steps, training__start_penalty=penalty)
        runs[name] = load_file(sorted((made / "checkpoints").glob("step-*"))[-1] / "model.safetensors")
    far, near = (sum(float(((runs[name][key] - old[key]) ** 2).sum()) for key in old) for name in ("free", "held"))
    assert near < 0.7 * far
    assert all(torch.equal(runs["held"][key], runs["resumed"][key]) for key in old)


def test_a_penalty_knows_the_weights_it_began_with(tmp_path: Path) -> None:
    start = write_pairs_run(tmp_path / "start", TRANSFORMER, tokenizer_of(0), tokenizer_of(1))
    adapt(tmp_path, start, **STEADY, training__start_penalty=1.0)
    weights = load_file(start / "model.safetensors")
    save_weights(start / "model.safetensors", {name: w + 1 for name, w in weights.items()})
    with pytest.raises(ConfigError, match=r"start: its weights are not those that .*adapted began with"):
        adapt(tmp_path, start, **STEADY, training__start_penalty=1.0, training__steps=4)
    with pytest.raises(ConfigError, match=r"training.start_penalty holds weights near those of start; give start"):
        load_recipe("transformer-small", ["data.train=x", "data.dev=x", "training.start_penalty=1"])


def test_only_weights_that_come_from_the_start_are_held(tmp_path: Path) -> None:
    start = write_pairs_run(tmp_path / "start", TRANSFORMER, tokenizer_of(0), tokenizer_of(1))
    values = {"start": str(start), "data": {"train": "x", "dev": "x"}, "training": {"steps": 1, "start_penalty": 1.0}}
    recipe = complete_recipe(parse_recipe(values, "here"))
    model, names = read_translator_run(start).model(), set(load_file(start / "model.safetensors"))
    assert weights_to_hold(recipe, tmp_path, model).keys() == names
    with torch.no_grad():
        model.encoder[0].feedforward.up.weight += 1  # as if it were new
        model.decoder[0].feedforward.up.weight[5] += 1  # as if new rows began here
    model.encoder[0].feedforward.down.weight.requires_grad_(False)
    held = names - {f"encoder.0.feedforward.{part}.weight" for part in ("up", "down")}
    found = weights_to_hold(recipe, tmp_path, model)
    assert found.keys() == held and len(found["decoder.0.feedforward.up.weight"]) == 5
    with pytest.raises(ConfigError, match="no weight that is trained comes from"):
        weights_to_hold(recipe, tmp_path, model.requires_grad_(False))
