"""A model's twin for decoding gives what the model gives, and never an older model's answers."""

import copy

import pytest
import torch
from torch import nn

from qkv.parts.activations import ACTIVATIONS
from qkv.parts.feedforward import FeedForward
from qkv.parts.twin import forget, rounded, twin


@pytest.fixture
def model() -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(nn.Embedding(9, 8), nn.Linear(8, 16), nn.LayerNorm(16), nn.Linear(16, 3, bias=False))


def close(one: torch.Tensor, two: torch.Tensor) -> None:
    torch.testing.assert_close(one, two, rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_it_computes_the_same_and_is_made_once(model: nn.Sequential) -> None:
    ids = torch.arange(9)[:, None]
    other = twin(model, torch.float32)
    close(other(ids), model(ids))
    close(other(ids[0]), model(ids[0]))
    assert twin(model, torch.float32) is other
    assert other[0].weight.data_ptr() == model[0].weight.data_ptr()


@torch.no_grad()
@pytest.mark.parametrize("shape", [(0,), (17,), (5, 7), (65,), (3, 1, 43)])
def test_rows_of_any_number_are_computed(model: nn.Sequential, shape: tuple[int, ...]) -> None:
    ids = torch.randint(9, shape)
    close(twin(model, torch.float32)(ids), model(ids))


def test_there_are_few_numbers_of_rows_and_none_is_much_too_large() -> None:
    found = [rounded(rows) for rows in range(1, 2049)]
    assert all(rows <= room <= 1.125 * rows for rows, room in enumerate(found, 1))
    assert len({*found}) == 8 + 8 * 8 and max(found) == 2048


@torch.no_grad()
def test_changed_weights_make_a_new_twin(model: nn.Sequential) -> None:
    ids = torch.arange(9)
    before = twin(model, torch.float32)(ids)
    model[1].weight.add_(1)
    close(twin(model, torch.float32)(ids), model(ids))
    model.load_state_dict({name: 2 * value for name, value in model.state_dict().items()})
    close(twin(model, torch.float32)(ids), model(ids))
    model[3] = nn.Linear(16, 3)
    close(twin(model, torch.float32)(ids), model(ids))
    assert not torch.equal(twin(model, torch.float32)(ids), before)


@pytest.mark.parametrize("fused", [False, True])
def test_a_step_of_an_optimiser_makes_a_new_twin(model: nn.Sequential, fused: bool) -> None:
    ids = torch.arange(9)
    optimiser = torch.optim.AdamW(model.parameters(), fused=fused)
    for _ in range(2):
        with torch.no_grad():
            close(twin(model, torch.float32)(ids), model(ids))
        model(ids).square().sum().backward()
        optimiser.step()
    with torch.no_grad():
        close(twin(model, torch.float32)(ids), model(ids))


@torch.no_grad()
def test_what_is_forgotten_is_made_anew(model: nn.Sequential) -> None:
    one = twin(model, torch.float32)
    forget(model)
    assert twin(model, torch.float32) is not one


@torch.no_grad()
def test_in_bf16_all_of_it_is(model: nn.Sequential) -> None:
    ids = torch.arange(9)
    other = twin(model, torch.bfloat16)
    assert other(ids).dtype == torch.bfloat16
    torch.testing.assert_close(other(ids).float(), model(ids), rtol=0.05, atol=0.05)
    assert {weight.dtype for weight in model.parameters()} == {torch.float32}


@torch.no_grad()
def test_a_model_with_a_twin_can_be_copied_and_hooked(model: nn.Sequential) -> None:
    ids, seen = torch.arange(9), []
    other = twin(model, torch.float32)
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
    torch.testing.assert_close(twin(model.double(), torch.float64)(ids).float(), wanted, rtol=1e-4, atol=1e-4)


def test_what_was_tied_stays_so() -> None:
    model = nn.Sequential(nn.Embedding(9, 8), nn.Linear(8, 9, bias=False))
    model[1].weight = model[0].weight
    other = twin(model, torch.bfloat16)
    assert other[0].weight is other[1].weight and other[0].weight.dtype == torch.bfloat16


@torch.no_grad()
@pytest.mark.parametrize("rows", [1, 5])
@pytest.mark.parametrize("activation", [*ACTIVATIONS, "swiglu"])
def test_every_activation(activation: str, rows: int) -> None:
    model, x = FeedForward(8, 16, activation), 3 * torch.randn(rows, 8)
    close(twin(model, torch.float32)(x), model(x))
