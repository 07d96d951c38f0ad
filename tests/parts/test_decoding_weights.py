"""Decoding weights give what the model gives; a prepared model keeps them, the model itself never uses old ones."""

import copy

import pytest
import torch
from torch import nn

from qkv.parts.activations import ACTIVATIONS
from qkv.parts.decoding_weights import IncrementalDecoder, PreparedModel, decoding_weights, rounded
from qkv.parts.feedforward import FeedForward


@pytest.fixture
def model() -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(nn.Embedding(9, 8), nn.Linear(8, 16), nn.LayerNorm(16), nn.Linear(16, 3, bias=False))


def close(one: torch.Tensor, two: torch.Tensor) -> None:
    torch.testing.assert_close(one, two, rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_a_copy_computes_the_same(model: nn.Sequential) -> None:
    ids = torch.arange(9)[:, None]
    other = decoding_weights(model, torch.float32)
    close(other(ids), model(ids))
    close(other(ids[0]), model(ids[0]))
    assert other[0].weight.data_ptr() == model[0].weight.data_ptr()


@torch.no_grad()
@pytest.mark.parametrize("shape", [(0,), (17,), (5, 7), (65,), (3, 1, 43)])
def test_rows_of_any_number_are_computed(model: nn.Sequential, shape: tuple[int, ...]) -> None:
    ids = torch.randint(9, shape)
    close(decoding_weights(model, torch.float32)(ids), model(ids))


def test_there_are_few_numbers_of_rows_and_none_is_much_too_large() -> None:
    found = [rounded(rows) for rows in range(1, 2049)]
    assert all(rows <= room <= 1.125 * rows for rows, room in enumerate(found, 1))
    assert len({*found}) == 8 + 8 * 8 and max(found) == 2048


class Toy(IncrementalDecoder):
    """Decodes from a model without a memory; its state is the copy that takes the steps."""

    def __init__(self, inside: nn.Sequential):
        super().__init__()
        self.inside = inside

    def start(self) -> "Toy":
        return self.in_compute_dtype()

    def step(self, tokens: torch.Tensor, state: "Toy") -> torch.Tensor:
        return state.inside(tokens)


def change(model: nn.Sequential, how: str) -> None:
    if how == "in place":
        model[1].weight.data.add_(1)
    elif how == "loaded":
        model.load_state_dict({name: 2 * value for name, value in model.state_dict().items()})
    elif how == "replaced":
        model[3] = nn.Linear(16, 3)
    else:
        optimiser = torch.optim.AdamW(model.parameters(), fused=how == "fused")
        with torch.enable_grad():
            model(torch.arange(9)).square().sum().backward()
        optimiser.step()


@torch.no_grad()
@pytest.mark.parametrize("how", ["in place", "loaded", "replaced", "step", "fused"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_model_decodes_with_its_present_weights(model: nn.Sequential, how: str, dtype: torch.dtype) -> None:
    ids, toy = torch.arange(9), Toy(model)
    with torch.autocast("cpu", dtype, enabled=dtype != torch.float32):
        before = toy.step(ids, toy.start())
        change(model, how)
        after = toy.step(ids, toy.start())
    assert not torch.equal(after, before)
    exact = {"rtol": 1e-5, "atol": 1e-5} if dtype == torch.float32 else {"rtol": 0.05, "atol": 0.1}
    torch.testing.assert_close(after.float(), model(ids), **exact)


@torch.no_grad()
def test_a_prepared_model_makes_one_copy_for_each_dtype(model: nn.Sequential) -> None:
    ids, prepared = torch.arange(9), PreparedModel(Toy(model))
    state = prepared.start()
    assert prepared.start() is state and state.inside is not model
    close(prepared.step(ids, state), model(ids))
    with torch.autocast("cpu", torch.bfloat16):
        half = prepared.start()
        assert half is not state and prepared.start() is half
        assert prepared.step(ids, half).dtype == torch.bfloat16
    assert prepared.start() is state


@torch.no_grad()
def test_in_bf16_all_of_it_is(model: nn.Sequential) -> None:
    ids = torch.arange(9)
    other = decoding_weights(model, torch.bfloat16)
    assert other(ids).dtype == torch.bfloat16
    torch.testing.assert_close(other(ids).float(), model(ids), rtol=0.05, atol=0.05)
    assert {weight.dtype for weight in model.parameters()} == {torch.float32}


@torch.no_grad()
def test_a_model_with_a_copy_can_be_copied_and_hooked(model: nn.Sequential) -> None:
    ids, seen = torch.arange(9), []
    other = decoding_weights(model, torch.float32)
    close(copy.deepcopy(model)(ids), other(ids))
    handle = model[2].register_forward_pre_hook(lambda *_: seen.append(1))
    other(ids)
    handle.remove()
    other(ids)
    assert seen == [1]


@torch.no_grad()
def test_numbers_that_cannot_be_packed_are_used_as_they_are(model: nn.Sequential) -> None:
    ids = torch.arange(9)
    wanted = model(ids)
    torch.testing.assert_close(decoding_weights(model.double(), torch.float64)(ids).float(), wanted, rtol=1e-4, atol=1e-4)


def test_what_was_tied_stays_so() -> None:
    model = nn.Sequential(nn.Embedding(9, 8), nn.Linear(8, 9, bias=False))
    model[1].weight = model[0].weight
    other = decoding_weights(model, torch.bfloat16)
    assert other[0].weight is other[1].weight and other[0].weight.dtype == torch.bfloat16


@torch.no_grad()
@pytest.mark.parametrize("rows", [1, 5])
@pytest.mark.parametrize("activation", [*ACTIVATIONS, "swiglu"])
def test_every_activation(activation: str, rows: int) -> None:
    model, x = FeedForward(8, 16, activation), 3 * torch.randn(rows, 8)
    close(decoding_weights(model, torch.float32)(x), model(x))
