"""The penalty towards the weights of the start is the formula's, and draws weights towards them."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from qkv.training.loop import Trainer
from toy_training import largest_difference, toy_model, toy_trainer, weights_of, without_key_biases

SETTINGS: dict[str, Any] = {"averaging": "ema", "learning_rate": 0.003, "weight_decay": 0.01}


def start_of_toys() -> dict[str, Tensor]:
    """Return old weights of most parameters of the toy: one is new, and one has a new row."""
    old = {name: p.detach().clone() for name, p in toy_model().named_parameters()}
    del old["encoder.0.feedforward.up.bias"]
    old["target_embedding.weight"] = old["target_embedding.weight"][:-1]
    return old


def distance(weights: dict[str, Tensor], old: dict[str, Tensor]) -> Tensor:
    """Return the squared distance from the old weights."""
    return sum(((weights[name][: len(w)] - w) ** 2).sum() for name, w in old.items())  # type: ignore[return-value]


def with_loss_side_penalty(trainer: Trainer, old: dict[str, Tensor], penalty: float) -> Trainer:
    """Add the penalty to the loss itself and let autograd find its gradient."""
    accumulate = trainer.gradients.accumulate

    def penalised(batch: Any, step: int) -> Tensor:
        loss = accumulate(batch, step)
        (penalty / 2 * distance(dict(trainer.model.named_parameters()), old)).backward()  # type: ignore[no-untyped-call]
        return loss

    trainer.gradients.accumulate = penalised  # type: ignore[method-assign]
    return trainer


@pytest.mark.parametrize("changes", [{}, {"accumulate": 3}, {"clip": 0.05}, {"precision": "bf16"}], ids=str)
def test_it_equals_the_formula_update_by_update(tmp_path: Path, changes: dict[str, Any]) -> None:
    old, settings = start_of_toys(), {**SETTINGS, **changes}
    held = toy_trainer(tmp_path / "held", start_weights=old, start_penalty=0.5, **settings)
    formula = with_loss_side_penalty(toy_trainer(tmp_path / "formula", **settings), old, 0.5)
    for batch, _ in zip(held.batches.starting(held.state.position), range(12), strict=False):
        for trainer in (held, formula):
            trainer.update(batch)
        one, other = (without_key_biases(weights_of(trainer)) for trainer in (held, formula))
        assert largest_difference(one, other) < 2e-6
    free = toy_trainer(tmp_path / "free", **settings)
    free.train()
    assert largest_difference(weights_of(held), weights_of(free)) > 1e-3


def test_the_larger_it_is_the_nearer_weights_stay(tmp_path: Path) -> None:
    old, found = start_of_toys(), []
    for penalty in (0.0, 0.1, 1.0, 10.0):
        trainer = toy_trainer(tmp_path / str(penalty), start_weights=old, start_penalty=penalty, **SETTINGS)
        trainer.train()
        found.append(float(distance(weights_of(trainer), old)))
    assert found == sorted(found, reverse=True) and found[-1] < 0.5 * found[0]


def test_parameters_without_a_gradient_are_left_alone(tmp_path: Path) -> None:
    trainer = toy_trainer(tmp_path, start_weights=start_of_toys(), start_penalty=1.0)
    trainer.penalty.add_gradient()  # type: ignore[union-attr]
    assert all(p.grad is None for p in trainer.parameters)
    with torch.no_grad():
        for p in trainer.parameters:
            p.grad = torch.zeros_like(p)
            p += 1
    trainer.penalty.add_gradient()  # type: ignore[union-attr]
    gradients = {name: p.grad for name, p in trainer.model.named_parameters()}
    assert not gradients["encoder.0.feedforward.up.bias"].any() and not gradients["target_embedding.weight"][-1].any()
    assert torch.allclose(gradients["target_embedding.weight"][:-1], torch.ones(()), atol=1e-6)
