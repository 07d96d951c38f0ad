"""Low-rank adapters: they start as nothing, learn alone, merge into the weights they belong to, and share them with others."""

from typing import Any

import pytest
import torch
from torch import Tensor

from qkv.base.errors import CheckpointError
from qkv.base.rows import padded_rows
from qkv.models.t5 import T5, T5Config
from qkv.models.transformer import Transformer, TransformerConfig
from qkv.models.unilm import UnilmConfig, UnilmTranslator
from qkv.parts.adapters import AdaptedLinear, merge_adapters, with_adapters
from qkv.parts.decoding_weights import PreparedModel
from qkv.parts.linear import Linear
from qkv.parts.model_config import AdapterConfig
from qkv.training.checkpoints import named_weights, set_weights

VOCAB, MASK = 30, 4
WIDE: dict[str, Any] = {"width": 16, "feedforward": 24, "heads": 4}
DEEP = {"encoder_layers": 2, "decoder_layers": 2}
FAMILIES = {
    "post-norm": lambda: Transformer(TransformerConfig(**WIDE, **DEEP, output_bias=True), VOCAB, VOCAB),
    "pre-norm": lambda: Transformer(
        TransformerConfig(**WIDE, **DEEP, norm="pre", activation="swiglu", tied="none"), VOCAB, VOCAB
    ),
    "linformer": lambda: Transformer(
        TransformerConfig(**WIDE, **DEEP, attention={"kind": "linformer", "projected_length": 3}), VOCAB, VOCAB
    ),
    "t5": lambda: T5(T5Config(**WIDE, **DEEP, head_width=8, activation="geglu"), VOCAB, VOCAB),
    "unilm": lambda: UnilmTranslator(UnilmConfig(**WIDE, layers=2, max_positions=40), VOCAB, MASK),
}
every_family = pytest.mark.parametrize("family", FAMILIES)


def make(family: str) -> Any:
    torch.manual_seed(1)
    model = FAMILIES[family]()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn(parameter.shape)
    return model.eval()


def adapt(model: Any, seed: int = 1, **options: Any) -> Any:
    """Return the model with adapters that have learned something."""
    adapted = with_adapters(model, AdapterConfig(**{"rank": 3, "alpha": 6, **options}))
    with torch.no_grad():
        for number, weight in enumerate(named_weights(adapted).values()):
            weight.copy_(0.3 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(100 * seed + number)))
    return adapted


def ids_of(rows: int, length: int, seed: int) -> Tensor:
    return torch.randint(5, VOCAB, (rows, length), generator=torch.Generator().manual_seed(seed))


def hidden(model: Any) -> Tensor:
    return model(*(padded_rows(ids, torch.ones_like(ids).bool()) for ids in (ids_of(3, 7, 1), ids_of(3, 5, 2))))


@torch.no_grad()
def decoded(prepared: PreparedModel) -> Tensor:
    """Return the logits of some steps; a row of its own is computed otherwise than several."""
    found = []
    for rows in (3, 1):
        sources = ids_of(rows, 7, 1)
        state = prepared.start(sources, torch.ones_like(sources).bool(), max_length=5)
        found += [prepared.step(tokens, state) for tokens in ids_of(4, rows, 3)]
    return torch.cat(found)


def test_an_adapted_layer_adds_a_low_rank_product() -> None:
    torch.manual_seed(1)
    base, x = Linear(5, 7), torch.randn(2, 3, 5)
    layer = AdaptedLinear(base, AdapterConfig(rank=2, alpha=3))
    assert torch.equal(layer(x), base(x)), "nothing is learned yet"
    torch.nn.init.normal_(layer.lora_b)
    dense = base.weight + 3 / 2 * layer.lora_b @ layer.lora_a
    torch.testing.assert_close(layer(x), x @ dense.T + base.bias)
    torch.testing.assert_close(layer.then("relu", x), torch.relu(x @ dense.T + base.bias))


def test_dropout_is_on_the_low_rank_input_in_training_alone() -> None:
    torch.manual_seed(1)
    base, x = Linear(50, 7), torch.ones(40, 50)
    layer = AdaptedLinear(base, AdapterConfig(rank=2, dropout=0.5))
    torch.nn.init.ones_(layer.lora_b)
    assert len((layer(x) - base(x)).unique(dim=0)) > 1
    assert len((layer.eval()(x) - base(x)).unique(dim=0)) == 1


@every_family
def test_only_adapters_of_every_projection_are_trained(family: str) -> None:
    model = make(family)
    before = {name: weight.clone() for name, weight in model.named_parameters()}
    adapted = with_adapters(model, AdapterConfig(rank=2))
    torch.testing.assert_close(hidden(adapted), hidden(model), rtol=0, atol=0)
    assert all(name.endswith(("lora_a", "lora_b")) for name in named_weights(adapted))
    projections = {name.rpartition(".")[0].split(".", 2)[-1] for name in named_weights(adapted)}
    own = {"attention.qkv", "attention.out", "feedforward.up", "feedforward.down"}
    cross = set() if family == "unilm" else {"cross.q", "cross.kv", "cross.out"}
    assert {name.removeprefix("0.").removeprefix("1.") for name in projections} == own | cross
    optimiser = torch.optim.SGD([p for p in adapted.parameters() if p.requires_grad], lr=1.0)
    hidden(adapted.train()).pow(2).sum().backward()
    optimiser.step()
    for name, weight in model.named_parameters():
        assert weight.grad is None and torch.equal(weight, before[name]), name
    assert all(weight.abs().max() > 0 for name, weight in named_weights(adapted).items() if name.endswith("lora_b"))


@every_family
def test_rank_zero_is_the_base(family: str) -> None:
    model = make(family)
    adapted = with_adapters(model, AdapterConfig(rank=0))
    assert sum(weight.numel() for weight in named_weights(adapted).values()) == 0
    assert torch.equal(hidden(adapted), hidden(model))
    assert torch.equal(decoded(PreparedModel(adapted)), decoded(PreparedModel(model)))


@every_family
@torch.no_grad()
def test_merged_weights_compute_the_same(family: str) -> None:
    model = make(family)
    adapted, merged = adapt(model), make(family)
    c = AdapterConfig(rank=3, alpha=6)
    set_weights(merged, merge_adapters(named_weights(model), named_weights(adapted), c, "here"), "merged")
    assert (hidden(adapted) - hidden(model)).abs().max() > 0.1
    torch.testing.assert_close(hidden(adapted), hidden(merged), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(decoded(PreparedModel(adapted)), decoded(PreparedModel(merged)), rtol=1e-4, atol=1e-4)


def test_the_adapters_of_another_model_are_refused() -> None:
    model = make("post-norm")
    c, adapters = AdapterConfig(rank=3), dict(named_weights(adapt(model)))
    with pytest.raises(CheckpointError, match=r"here: the adapter is of another model \(differs at 'encoder.0.attention.qkv'\)"):
        merge_adapters(named_weights(make("t5")), adapters, c, "here")
    with pytest.raises(CheckpointError, match=r"the weights are of another model \(encoder.0.attention.qkv.lora_a is \(3, 16\)"):
        set_weights(with_adapters(model, AdapterConfig(rank=4)), adapters, "here")


@every_family
@torch.no_grad()
def test_several_adapters_decode_from_one_copy_of_the_weights(family: str) -> None:
    model = make(family)
    base = PreparedModel(model)
    one, two = (adapt(model, seed) for seed in (1, 2))
    shared = [PreparedModel(adapted, base) for adapted in (one, two)]
    alone = [PreparedModel(adapted) for adapted in (one, two)]
    for prepared, wanted in zip([*shared, base], [*alone, PreparedModel(model)], strict=True):
        assert torch.equal(decoded(prepared), decoded(wanted))
    assert not torch.allclose(decoded(shared[0]), decoded(shared[1]))
    copies = [{*prepared._copies[torch.float32].parameters()} for prepared in (base, *shared)]
    added = [sum(p.numel() for p in copy - copies[0]) for copy in copies[1:]]
    assert copies[0] <= copies[1] & copies[2]
    assert added == [sum(p.numel() for p in named_weights(adapted).values()) for adapted in (one, two)]
    packed = [{id(m) for m in p._copies[torch.float32].modules() if hasattr(m, "packed")} for p in (base, *shared)]
    assert packed[0] == packed[1] == packed[2]


@torch.no_grad()
def test_adapters_decode_in_bf16_too() -> None:
    model = make("post-norm")
    adapted, base = adapt(model), PreparedModel(model)
    with torch.autocast("cpu", torch.bfloat16):
        lower = decoded(PreparedModel(adapted, base))
    torch.testing.assert_close(lower, decoded(PreparedModel(adapted)), rtol=0.1, atol=0.3)
