"""Adam's parameter groups, and the guard that skips updates that are not finite."""

import copy

import pytest
import torch
from torch import nn

from qkv.models.albert import Albert, AlbertConfig
from qkv.models.bert import Bert, BertConfig
from qkv.parts.encoder import Encoder
from qkv.parts.heads import ModelWithHeads
from qkv.training.config import TrainingConfig
from qkv.training.optimiser import UpdateGuard, make_optimiser, set_learning_rate
from toy_training import SMALL, toy_model

FINE = torch.tensor(1.0)  # a finite loss

TINY = {"width": 8, "feedforward": 16, "heads": 2, "layers": 3}


def stepped(gradient: torch.Tensor, clip: float = 0.0) -> nn.Linear:
    """Return a layer after one guarded update with a given gradient."""
    torch.manual_seed(0)
    layer = nn.Linear(3, 2, bias=False)
    optimiser = make_optimiser(layer, TrainingConfig(steps=1))
    optimiser.param_groups[0]["lr"] = 0.1
    layer.weight.grad = gradient
    UpdateGuard(optimiser, torch.device("cpu")).step([layer.weight], clip, FINE)
    return layer


def test_every_weight_is_in_one_group_and_only_matrices_decay() -> None:
    model = toy_model(SMALL.model_copy(update={"positions": "learned", "tied": "all"}))
    optimiser = make_optimiser(model, TrainingConfig(steps=1, weight_decay=0.1))
    names = {id(p): name for name, p in model.named_parameters()}
    decay = {names[id(p)]: group["weight_decay"] for group in optimiser.param_groups for p in group["params"]}
    assert sum(len(group["params"]) for group in optimiser.param_groups) == len(names)
    assert decay.keys() == set(names.values()) and set(decay.values()) == {0.1, 0.0}
    assert isinstance(optimiser, torch.optim.AdamW)
    decayed = [name for name in decay if decay[name]]
    assert not [name for name in decayed if "embedding" in name or "positions" in name or "bias" in name or "norm" in name]
    assert {"encoder.0.feedforward.up.weight", "encoder.0.feedforward.up.bias"} & set(decayed) == {
        "encoder.0.feedforward.up.weight"
    }


@pytest.mark.parametrize(
    "model", [Bert(BertConfig(**TINY), 50), Albert(AlbertConfig(**TINY, sharing="ffn", embedding_width=4), 50)]
)
def test_deeper_layers_learn_at_a_lower_rate(model: Encoder) -> None:
    headed = ModelWithHeads(model, ["pooler", "classes"])
    optimiser = make_optimiser(headed, TrainingConfig(steps=1, layer_decay=0.5))
    set_learning_rate(optimiser, 8.0)
    names = {id(p): name for name, p in headed.named_parameters()}
    rate = {names[id(p)]: group["lr"] for group in optimiser.param_groups for p in group["params"]}
    assert rate["heads.classes.output.weight"] == rate["heads.pooler.dense.bias"] == 8.0
    layers = sorted({name.rpartition("attention.qkv")[0]: r for name, r in rate.items() if "attention.qkv" in name}.items())
    assert [r for _, r in layers] == [1.0, 2.0, 4.0]
    assert {r for name, r in rate.items() if "embedding" in name or "projection" in name} == {0.5}


def test_layers_that_are_shared_are_one() -> None:
    headed = ModelWithHeads(Albert(AlbertConfig(**TINY, embedding_width=4), 50), ["pooler"])
    depth = {name.split(".")[1]: headed.layers_above(name) for name, _ in headed.named_parameters()}
    assert depth == {"embedding": 2, "projection": 2, "attention_blocks": 1, "feedforward_blocks": 1, "pooler": 0}


def test_the_defaults_are_the_papers() -> None:
    optimiser = make_optimiser(nn.Linear(2, 2), TrainingConfig(steps=1))
    assert isinstance(optimiser, torch.optim.Adam) and not any(group["weight_decay"] for group in optimiser.param_groups)
    assert (optimiser.defaults["betas"], optimiser.defaults["eps"]) == ((0.9, 0.98), 1e-9)


@pytest.mark.parametrize("size", [0.01, 100.0])
def test_clipping_is_that_of_torch(size: float) -> None:
    torch.manual_seed(1)
    layer, gradient = nn.Linear(4, 4, bias=False), size * torch.randn(4, 4)
    layer.weight.grad = gradient.clone()
    optimiser = make_optimiser(layer, TrainingConfig(steps=1))
    norm = UpdateGuard(optimiser, torch.device("cpu")).step([layer.weight], 1.0, FINE)
    other = nn.Parameter(torch.zeros(4, 4))
    other.grad = gradient.clone()
    assert norm == torch.nn.utils.clip_grad_norm_([other], 1.0)
    assert torch.allclose(layer.weight.grad, other.grad, rtol=1e-6)


def test_without_a_limit_the_gradient_stays_as_it_is() -> None:
    gradient = 1000 * torch.randn(2, 3)
    assert torch.equal(stepped(gradient.clone()).weight.grad, gradient)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("clip", [0.0, 1.0])
def test_a_gradient_that_is_not_finite_changes_nothing(bad: float, clip: float) -> None:
    gradient = torch.ones(2, 3)
    gradient[1, 2] = bad
    after = stepped(gradient, clip).weight
    torch.manual_seed(0)
    assert torch.equal(after, nn.Linear(3, 2, bias=False).weight)


def test_a_skipped_update_leaves_no_trace_in_later_ones() -> None:
    torch.manual_seed(0)
    first = nn.Linear(3, 2, bias=False)
    second = copy.deepcopy(first)
    good, bad = torch.randn(3, 2, 3), torch.full((2, 3), float("nan"))
    for layer, gradients in ((first, [*good]), (second, [good[0], bad, bad, good[1], bad, good[2]])):
        optimiser = make_optimiser(layer, TrainingConfig(steps=1))
        optimiser.param_groups[0]["lr"] = 0.1
        guard = UpdateGuard(optimiser, torch.device("cpu"))
        for gradient in gradients:
            layer.weight.grad = gradient.clone()
            guard.step([layer.weight], 1.0, FINE)
    assert torch.equal(first.weight, second.weight)
    assert (int(guard.skipped), int(guard.consecutive)) == (3, 0)


def test_the_guard_counts_bad_updates_in_a_row() -> None:
    layer = nn.Linear(3, 2, bias=False)
    guard = UpdateGuard(make_optimiser(layer, TrainingConfig(steps=1)), torch.device("cpu"))
    seen = []
    for value in (float("nan"), float("inf"), 1.0, float("nan")):
        layer.weight.grad = torch.full((2, 3), value)
        guard.step([layer.weight], 1.0, FINE)
        seen.append((int(guard.consecutive), int(guard.skipped)))
    assert seen == [(1, 1), (2, 2), (0, 2), (1, 3)]


def test_an_infinite_loss_is_as_bad_as_a_gradient() -> None:
    layer = nn.Linear(3, 2, bias=False)
    guard = UpdateGuard(make_optimiser(layer, TrainingConfig(steps=1)), torch.device("cpu"))
    layer.weight.grad = torch.ones(2, 3)
    guard.step([layer.weight], 1.0, torch.tensor(float("inf")))
    assert int(guard.skipped) == 1
