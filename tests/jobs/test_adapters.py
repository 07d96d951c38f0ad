"""Adapters of a translator: trained and saved alone, resumed exactly, used over their base alone, merged into a complete run."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import qkv
from qkv.base.errors import CheckpointError, ConfigError, QkvWarning
from qkv.folder.merging import merge
from qkv.folder.networks import read_translator_run
from qkv.folder.run import read_recipe
from qkv.inference.adapters import load_adapters
from qkv.inference.load import load_translator
from qkv.jobs.train import train
from qkv.text.tokenizer import Tokenizer, TokenizerConfig, train_tokenizer
from qkv.training.checkpoints import save_weights
from translator_runs import T5, TRANSFORMER, write_pairs_run
from unfinished_runs import unfinish

PAIRS = [("one two", "eins zwei"), ("two three", "zwei drei"), ("three one", "drei eins"), ("one one", "eins eins")]
SOURCES = [source for source, _ in PAIRS]
UNILM = {"kind": "unilm", "width": 8, "feedforward": 8, "heads": 2, "layers": 1}
FAMILIES: dict[str, dict[str, Any]] = {
    "transformer": {"model": TRANSFORMER},
    "pre-norm": {"model": {**TRANSFORMER, "norm": "pre", "activation": "swiglu", "tied": "none"}},
    "t5": {"model": T5},
    "unilm": {"model": UNILM, "objective": {"kind": "masked-translation"}},
}
RNN = {"kind": "rnn", "width": 8, "embedding_width": 8, "layers": 1, "tied": "target"}
CONVOLUTION = {"kind": "convolution", "width": 8, "embedding_width": 8, "encoder_layers": 1, "decoder_layers": 1}


def tokenizer() -> Tokenizer:
    texts = [text for pair in PAIRS for text in pair] * 5
    return train_tokenizer(TokenizerConfig(kind="bpe", vocab=40, sentinels=4, special_tokens=["[MASK]"]), texts)


def write_base(folder: Path, model: dict[str, Any] = TRANSFORMER, **more: Any) -> Path:
    shared = tokenizer()
    return write_pairs_run(folder, model, shared, shared, decoding={"beam": 2, "max_extra": 8}, **more)


def adapt(start: Path, out: Path, **settings: Any) -> Path:
    """Train an adapter on the pairs; names of settings have __ for the dot."""
    file = out.parent / "domain.tsv"
    file.write_text("".join(f"{source}\t{target}\n" for source, target in PAIRS))
    given = {"start": str(start), "data.train": str(file), "data.dev": str(file), "data.check.duplicates": "keep"}
    given |= {"model.adapter.rank": 2, "training.steps": 10, "training.learning_rate": 0.05, "training.patience": None}
    return train("adapt", out, settings=given | {name.replace("__", "."): value for name, value in settings.items()})


@pytest.fixture(scope="module", params=FAMILIES)
def trained(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A base of each family, and an adapter that was trained for it."""
    folder = tmp_path_factory.mktemp(request.param)
    base = write_base(folder / "base", **FAMILIES[request.param])
    return base, adapt(base, folder / "adapter")


@pytest.fixture(scope="module")
def adapter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An adapter that was trained for a Transformer, `base` beside it; it has all its checkpoints."""
    folder = tmp_path_factory.mktemp("adapter")
    settings = {"training__keep_checkpoints": True, "training__save_every": 4, "training__averaging": "ema"}
    return adapt(write_base(folder / "base"), folder / "adapter", **settings, model__adapter__dropout=0.1)


@pytest.fixture
def copied(adapter: Path, tmp_path: Path) -> Path:
    """A copy of that adapter, which a test may change; its base is where it was."""
    return Path(shutil.copytree(adapter, tmp_path / "copy"))


def logits(translator: Any) -> torch.Tensor:
    """Return the logits of a decoding step."""
    ids = torch.tensor([translator.tokenizers.source.encode(source)[:2] for source in SOURCES])
    decoder = translator.engine.decoder
    with torch.no_grad():
        return decoder.step(torch.full((4,), 2), decoder.start(ids, torch.ones_like(ids).bool(), 5))


def test_merged_is_unmerged_is_the_adapter_over_its_base(trained: tuple[Path, Path], tmp_path: Path) -> None:
    base, folder = trained
    own, _ = load_adapters(base, [])
    _, (unmerged,) = load_adapters(base, [folder])
    merged = merge(folder, tmp_path / "merged")
    wanted = logits(unmerged)
    assert (wanted - logits(own)).abs().max() > 0.01, "it has learned something"
    for loaded in (qkv.load(merged), qkv.load(folder), qkv.load(base, adapter=folder)):
        torch.testing.assert_close(logits(loaded), wanted, rtol=1e-4, atol=1e-4)
        assert loaded.translate(SOURCES) == unmerged.translate(SOURCES)
    recipe = read_recipe(merged)
    assert recipe.model == read_recipe(base).model and recipe.start is None
    again = adapt(merged, tmp_path / "again", training__steps=2)
    assert read_recipe(again).start == str(merged)


def test_only_the_adapter_is_saved(adapter: Path) -> None:
    saved, base = load_file(adapter / "model.safetensors"), load_file(adapter.parent / "base" / "model.safetensors")
    assert {name.rpartition(".")[2] for name in saved} == {"lora_a", "lora_b"}
    assert all(weight.size(0 if name.endswith("lora_a") else 1) == 2 for name, weight in saved.items())
    newest = sorted((adapter / "checkpoints").iterdir())[-1]
    assert load_file(newest / "model.safetensors").keys() == load_file(newest / "average.safetensors").keys() == saved.keys()
    moments = {name.partition(".")[2] for name in load_file(newest / "optimizer.safetensors")}
    assert moments == saved.keys()
    assert not saved.keys() & base.keys()
    values = json.loads((adapter / "result.json").read_text())
    count, trained = (sum(weight.numel() for weight in weights.values()) for weights in (base, saved))
    assert values["parameters"] == f"{count + trained:,} ({trained:,} trained)"


def test_a_resumed_adapter_is_the_uninterrupted_one(adapter: Path, copied: Path) -> None:
    for path in (copied / "result.json", copied / "model.safetensors"):
        path.unlink()
    shutil.rmtree(copied / "checkpoints/step-00000010")
    train(read_recipe(copied), copied)
    assert (copied / "model.safetensors").read_bytes() == (adapter / "model.safetensors").read_bytes()


def test_an_unfinished_adapter_has_the_weights_of_its_newest_checkpoint(adapter: Path, copied: Path, tmp_path: Path) -> None:
    wanted = qkv.load(adapter).translate(SOURCES)
    unfinish(copied, 3, 5)
    with pytest.warns(QkvWarning, match="copy: training is not finished; using the weights of step 5 of 10"):
        assert qkv.load(copied).translate(SOURCES) == wanted
    with pytest.warns(QkvWarning, match="training is not finished"):
        merge(copied, tmp_path / "merged")
    assert qkv.load(tmp_path / "merged").translate(SOURCES) == wanted


def test_rank_zero_trains_nothing(tmp_path: Path) -> None:
    base = write_base(tmp_path / "base")
    folder = adapt(base, tmp_path / "adapter", model__adapter__rank=0, metrics=["chrf"])
    old, new = read_translator_run(base).weights, read_translator_run(folder).weights
    assert old.keys() == new.keys() and all(torch.equal(old[name], new[name]) for name in old)
    (row,) = json.loads((folder / "result.json").read_text())["held-out sets"]
    assert row["difference"] == 0


def test_scores_before_are_those_of_the_base(adapter: Path) -> None:
    base = qkv.load(adapter.parent / "base")
    assert list(json.loads((adapter / "before.json").read_text())["dev"].values()) == base.translate(SOURCES)


def test_a_base_that_moved_is_given_by_hand(copied: Path, tmp_path: Path) -> None:
    base = tmp_path / "elsewhere"
    shutil.copytree(Path(read_recipe(copied).start), base)
    recipe = copied / "recipe.yaml"
    recipe.write_text(recipe.read_text().replace(str(read_recipe(copied).start), str(tmp_path / "gone")))
    with pytest.raises(CheckpointError, match=r"copy is an adapter of .*gone, which is not there; say where it is now"):
        qkv.load(copied)
    wanted = qkv.load(base, adapter=copied).translate(SOURCES)
    merge(copied, tmp_path / "merged", base)
    assert qkv.load(tmp_path / "merged").translate(SOURCES) == wanted


def test_a_base_with_other_weights_is_refused(adapter: Path, copied: Path, tmp_path: Path) -> None:
    other = write_base(tmp_path / "other", {**TRANSFORMER, "dropout": 0.0})
    weights = load_file(other / "model.safetensors")
    (other / "model.safetensors").write_bytes((adapter.parent / "base" / "model.safetensors").read_bytes())
    assert qkv.load(other, adapter=adapter), "the weights count, not the folder"
    save_weights(other / "model.safetensors", {name: weight + 1 for name, weight in weights.items()})
    with pytest.raises(CheckpointError, match=r"adapter is an adapter of another model than .*other; it was trained with start="):
        qkv.load(other, adapter=adapter)
    recipe = copied / "recipe.yaml"
    recipe.write_text(recipe.read_text().replace(str(read_recipe(copied).start), str(other)))
    for use in (lambda: qkv.load(copied), lambda: train(read_recipe(copied), unfinish(copied, 4))):
        with pytest.raises(CheckpointError, match=r"copy is an adapter of .*other, whose weights have changed since"):
            use()


def test_what_is_no_adapter_is_refused(adapter: Path, tmp_path: Path) -> None:
    base = adapter.parent / "base"
    for use in (lambda: merge(base, tmp_path / "new"), lambda: load_translator(base, adapter=base)):
        with pytest.raises(ConfigError, match="base is a complete run, not an adapter"):
            use()
    with pytest.raises(CheckpointError, match="nowhere: no such run folder"):
        load_translator(base, adapter=tmp_path / "nowhere")
    (tmp_path / "mine").mkdir()
    with pytest.raises(ConfigError, match="mine exists already; choose another --out"):
        merge(adapter, tmp_path / "mine")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("model", [RNN, CONVOLUTION], ids=["rnn", "convolution"])
def test_models_without_the_projections_are_refused(tmp_path: Path, model: dict[str, Any]) -> None:
    base = write_base(tmp_path / "base", model)
    with pytest.raises(ConfigError, match=f"a model of kind {model['kind']} takes no adapters"):
        adapt(base, tmp_path / "adapter")
    assert not (tmp_path / "adapter").exists()


def test_an_adapter_needs_a_finished_translator_to_start_from(adapter: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"model.adapter is trained over the weights of another run; give start"):
        qkv.train("transformer-small", tmp_path / "a", settings={"model.adapter.rank": 4, "data.train": "x", "data.dev": "x"})
    with pytest.raises(ConfigError, match=r"adapter is an adapter, which has no weights but its own; run qkv merge"):
        adapt(adapter, tmp_path / "a")
    unfinished = unfinish(write_base(tmp_path / "unfinished"), 7)
    with pytest.raises(ConfigError, match="unfinished is still in training, at step 7 of 400, and an adapter fits only final"):
        adapt(unfinished, tmp_path / "a")
    with pytest.raises(ConfigError, match=r"model.adapter is for translators; leave it out"):
        qkv.train("bert-mini", tmp_path / "a", settings={"model.adapter.rank": 4, "data.text": "x"})
    assert not (tmp_path / "a").exists()
