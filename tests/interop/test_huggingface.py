"""Folders of transformers' that are old, odd or damaged, without transformers; what it computes is in tests/parity."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from huggingface_networks import ENCODERS, from_huggingface, read_huggingface, to_huggingface, write_huggingface
from qkv.base.errors import CheckpointError, ConfigError
from qkv.folder.networks import SavedNetwork
from qkv.interop.huggingface.albert import AlbertFamily
from qkv.interop.huggingface.electra import ElectraFamily
from qkv.interop.huggingface.ernie import ErnieFamily
from qkv.parts.heads import ModelWithHeads

TINY: dict[str, Any] = {"width": 8, "feedforward": 12, "heads": 2, "layers": 2, "max_positions": 16}
VOCAB = 11


def make(
    kind: str = "bert", heads: tuple[str, ...] = ("pooler", "masked", "sentence_task"), labels: int = 3, **options: Any
) -> SavedNetwork:
    config, encoder = ENCODERS[kind]
    c = config(**{**TINY, **options})
    return SavedNetwork(c, ModelWithHeads(encoder(c, VOCAB), heads, labels).weights())  # type: ignore[arg-type]


def assert_equal(one: SavedNetwork, other: SavedNetwork) -> None:
    assert one.config == other.config
    assert one.weights.keys() == other.weights.keys()
    for part, weights in one.weights.items():
        assert weights.keys() == other.weights[part].keys()
        assert all(torch.equal(weight, other.weights[part][name]) for name, weight in weights.items())


SOME = [
    ("bert", ("pooler", "masked", "sentence_task"), {}),
    ("bert", (), {"activation": "relu", "epsilon": 1e-6, "segments": 5}),
    ("bert", ("pooler", "classes"), {"labels": 1}),
    ("albert", ("tags",), {"embedding_width": 4, "groups": 2}),
    ("albert", ("pooler", "masked"), {"dropout": 0.2, "embedding_width": 8}),
    ("electra", ("pooler", "classes"), {"embedding_width": 4}),
    ("electra", ("replaced",), {"embedding_width": 8}),
    ("electra", ("masked",), {"embedding_width": 4}),
    ("ernie", ("span",), {"task_types": 3}),
    ("ernie", ("masked",), {"task_types": 0}),
]


@pytest.mark.parametrize(("kind", "heads", "options"), SOME, ids=str)
def test_there_and_back(kind: str, heads: tuple[str, ...], options: dict[str, Any], tmp_path: Path) -> None:
    checkpoint = make(kind, heads, **options)
    write_huggingface(checkpoint, tmp_path / "hf", {"tokenizer.json": "{}"})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["hf"]
    assert sorted(path.name for path in (tmp_path / "hf").iterdir()) == ["config.json", "model.safetensors", "tokenizer.json"]
    assert_equal(read_huggingface(tmp_path / "hf"), checkpoint)


def test_names_of_labels_are_kept(tmp_path: Path) -> None:
    named = make(heads=("tags",))._replace(label_names=("O", "B-PER", "I-PER"))
    write_huggingface(named, tmp_path / "hf")
    assert read_huggingface(tmp_path / "hf").label_names == ("O", "B-PER", "I-PER")
    assert from_huggingface(*to_huggingface(make(heads=("tags",)))).label_names == ("LABEL_0", "LABEL_1", "LABEL_2")
    for wrong in (("a", "b"), ("a", "b", "b")):
        with pytest.raises(ConfigError, match="3 labels need 3 different names"):
            to_huggingface(named._replace(label_names=wrong))


def renamed(weights: dict[str, Tensor], change: Callable[[str], str]) -> dict[str, Tensor]:
    return {change(name): weight for name, weight in weights.items()}


def test_names_that_old_checkpoints_have() -> None:
    checkpoint = make()
    config, weights = to_huggingface(checkpoint)
    old = renamed(
        weights, lambda name: name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")
    )
    old["bert.embeddings.position_ids"] = torch.arange(16)[None]
    old["cls.predictions.decoder.weight"] = weights["bert.embeddings.word_embeddings.weight"].clone()
    old["cls.predictions.decoder.bias"] = old.pop("cls.predictions.bias")
    assert_equal(from_huggingface(config, old), checkpoint)


def test_weights_of_half_precision_become_whole() -> None:
    config, weights = to_huggingface(make())
    halves = from_huggingface(config, {name: weight.half() for name, weight in weights.items()})
    assert {weight.dtype for part in halves.weights.values() for weight in part.values()} == {torch.float32}


def test_heads_are_found_without_the_name_of_the_class() -> None:
    for heads in (("pooler", "classes"), ("tags",)):
        config, weights = to_huggingface(make(heads=heads))
        del config["architectures"]
        assert from_huggingface(config, weights).weights.keys() == {"encoder", *heads}


def test_a_config_that_says_little_means_their_defaults() -> None:
    assert AlbertFamily().read_config({"model_type": "albert"}).model_dump() == ENCODERS["albert"][0](
        width=4096, feedforward=16384, heads=64, layers=12, embedding_width=128
    ).model_dump()  # fmt: skip
    assert ElectraFamily().read_config({"model_type": "electra"}).width == 256
    assert ErnieFamily().read_config({"model_type": "ernie", "task_type_vocab_size": 3}).task_types == 0  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"model_type": "gptj"}, "model_type 'gptj' in config.json is not one of bert, albert, electra, ernie, gpt2, openai-gpt"),
        ({"hidden_act": "silu"}, "hidden_act='silu' in config.json is an activation that qkv does not have"),
        ({"hidden_act": ["gelu"]}, "is an activation that qkv does not have"),
        ({"position_embedding_type": "relative_key"}, "position_embedding_type='relative_key' .* takes only 'absolute'"),
        ({"is_decoder": True}, "is_decoder=True"),
        ({"tie_word_embeddings": False}, "tie_word_embeddings=False"),
        ({"problem_type": "multi_label_classification"}, "gives a text one label, not several"),
        ({"architectures": ["BertLMHeadModel"]}, "architecture BertLMHeadModel .* is not one of BertFor"),
        ({"num_attention_heads": 3}, "model.width 8 does not split into 3 heads"),
        ({"num_hidden_layers": 10**9}, "num_hidden_layers=1000000000 in config.json is more than any model has"),
        ({"hidden_size": "wide"}, "config.json: width: .* got 'wide'"),
    ],
    ids=str,
)
def test_what_we_do_not_have_is_refused(option: dict[str, Any], message: str, tmp_path: Path) -> None:
    config, weights = to_huggingface(make())
    tmp_path.joinpath("config.json").write_text(json.dumps({**config, **option}))
    save_file(weights, tmp_path / "model.safetensors")
    with pytest.raises(ConfigError, match=message) as refused:
        read_huggingface(tmp_path)
    assert str(refused.value).startswith(f"{tmp_path}: ") and "\n" not in str(refused.value)


def test_groups_within_groups_are_refused() -> None:
    config, weights = to_huggingface(make("albert", ()))
    with pytest.raises(ConfigError, match="inner_group_num=2"):
        from_huggingface({**config, "inner_group_num": 2}, weights)


def without(name: str) -> Callable[[dict[str, Tensor]], None]:
    return lambda weights: weights.__delitem__(name)


DAMAGE = [
    (without("bert.encoder.layer.1.attention.self.key.weight"), "lack bert.encoder.layer.1.attention.self.key.weight"),
    (without("bert.encoder.layer.1.attention.self.query.bias"), "lack bert.encoder.layer.1.attention.self.query.bias"),
    (without("bert.encoder.layer.0.output.dense.bias"), r"lack encoder.layers.0.feedforward.down.bias \(qkv's name for it\)"),
    (without("bert.embeddings.word_embeddings.weight"), "lack the word embeddings"),
    (without("cls.predictions.bias"), r"lack masked.bias \(qkv's name for it\)"),
    (
        lambda weights: weights.update({"bert.more": torch.ones(1)}),
        "bert.more and 0 more weights have no counterpart in qkv's bert",
    ),
    (lambda weights: weights.update({"bert.pooler.dense.bias": torch.ones(3)}), r"pooler.dense.bias have the shape \(3,\)"),
    (lambda weights: weights.update({"cls.predictions.decoder.weight": torch.ones(11, 8)}), "is not the word embedding"),
]


@pytest.mark.parametrize(("damage", "message"), DAMAGE, ids=[message for _, message in DAMAGE])
def test_weights_that_are_not_whole(damage: Callable[[dict[str, Tensor]], None], message: str, tmp_path: Path) -> None:
    write_huggingface(make(), tmp_path / "hf")
    weights = load_file(tmp_path / "hf" / "model.safetensors")
    damage(weights)
    save_file(weights, tmp_path / "hf" / "model.safetensors")
    with pytest.raises(CheckpointError, match=message):
        read_huggingface(tmp_path / "hf")


def test_labels_that_are_not_the_weights() -> None:
    config, weights = to_huggingface(make(heads=("tags",)))
    with pytest.raises(CheckpointError, match="lack those of the classifier"):
        from_huggingface(config, {name: weight for name, weight in weights.items() if name != "classifier.weight"})
    with pytest.raises(CheckpointError, match=r"id2label in config\.json has 2 labels, the weights are for 3"):
        from_huggingface({**config, "id2label": {"0": "a", "1": "b"}}, weights)
    with pytest.raises(CheckpointError, match="does not map numbers to names"):
        from_huggingface({**config, "id2label": ["a", "b", "c"]}, weights)


def test_a_pickle_is_refused_with_the_command_that_converts_it(tmp_path: Path) -> None:
    tmp_path.joinpath("config.json").write_text(json.dumps(to_huggingface(make())[0]))
    tmp_path.joinpath("pytorch_model.bin").write_bytes(b"\x80\x02")
    with pytest.raises(
        CheckpointError, match=r"is a pickle.*convert it with python -c .*t\.BertForPreTraining\.from_pretrained"
    ) as refused:
        read_huggingface(tmp_path)
    assert "\n" not in str(refused.value)


def test_folders_that_hold_no_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"no config\.json there"):
        read_huggingface(tmp_path)
    tmp_path.joinpath("config.json").write_text("{")
    with pytest.raises(CheckpointError, match=r"config\.json: not readable"):
        read_huggingface(tmp_path)
    tmp_path.joinpath("config.json").write_text('{"model_type": "bert"}')
    with pytest.raises(CheckpointError, match=r"no model\.safetensors there"):
        read_huggingface(tmp_path)
    tmp_path.joinpath("model.safetensors").write_bytes(b"nothing")
    with pytest.raises(CheckpointError, match="not a readable safetensors file"):
        read_huggingface(tmp_path)


def test_an_index_may_not_lead_out_of_the_folder(tmp_path: Path) -> None:
    tmp_path.joinpath("config.json").write_text('{"model_type": "bert"}')
    tmp_path.joinpath("model.safetensors.index.json").write_text('{"weight_map": {"a": "../model.safetensors"}}')
    with pytest.raises(CheckpointError, match="no list of files in this folder"):
        read_huggingface(tmp_path)


@pytest.mark.parametrize(
    ("kind", "heads", "message"),
    [
        ("bert", ("pooler", "classes", "tags"), "write one of classes and tags"),
        ("bert", ("classes",), "write the head pooler with it"),
        ("electra", ("pooler", "sentence_task"), "no head for a sentence task"),
    ],
)
def test_heads_that_transformers_does_not_have_together(kind: str, heads: tuple[str, ...], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        to_huggingface(make(kind, heads))


@pytest.mark.parametrize("positions", ["sinusoidal", "rotary"])
def test_positions_that_transformers_does_not_have(positions: str) -> None:
    message = f"transformers' bert has no model.positions={positions}, only learned ones; use it with qkv"
    with pytest.raises(ConfigError, match=message):
        to_huggingface(make("bert", positions=positions))


def test_the_model_is_not_the_checkpoint_itself() -> None:
    checkpoint = make()
    model = checkpoint.model()
    with torch.no_grad():
        model.encoder.embedding.token_embedding.weight.zero_()
    assert checkpoint.weights["encoder"]["embedding.token_embedding.weight"].any()
    assert not model.heads["masked"].weight.any()  # type: ignore[operator]


@pytest.mark.parametrize("kind", ["window", "bigbird", "linformer"])
def test_attention_that_transformers_does_not_have(kind: str) -> None:
    attention = {"kind": kind, **({"projected_length": 4} if kind == "linformer" else {})}
    says = rf"^transformers' bert has no model\.attention={kind}, only full attention; use it with qkv"
    with pytest.raises(ConfigError, match=says):
        to_huggingface(make("bert", attention=attention))
