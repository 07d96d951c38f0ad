"""Gradient x input is the derivative of the score by a scale on a token's embedding, for every kind of model."""

import threading
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from inspected_models import TEXT, TRANSLATORS, TREE, reader, tokenizer, translator
from qkv.lens.attribution import gradient_times_input

STEP = 1e-3


def inspector_of(name: str) -> Any:
    inspector = translator(name).inspect(TREE, "Le café")
    return replace(inspector, network=deepcopy(inspector.network).double())


@torch.no_grad()
def scaled(embedding: nn.Module, position: int, by: float, score: Any) -> float:
    """Return the score with the embedding of one token of the source scaled."""
    calls: list[int] = []

    def change(_: nn.Module, given: Any, found: Tensor) -> Tensor:
        calls.append(1)
        if len(calls) > 1:  # where the target's tokens are looked up in the same table
            return found
        factors = torch.ones_like(found)
        factors[:, position] = by
        return found * factors

    hook = embedding.register_forward_hook(change)
    try:
        return float(score())
    finally:
        hook.remove()


@pytest.mark.parametrize("name", [name for name in TRANSLATORS if name != "unilm"])
def test_translators_by_small_changes(name: str) -> None:
    inspector = inspector_of(name)
    found, written = inspector.attribution(), torch.tensor(inspector.texts["target"].ids)

    def score() -> Tensor:
        hidden = inspector.network(inspector.source, inspector.read)[0]
        return inspector.network.logits(hidden).log_softmax(-1)[torch.arange(len(written)), written].sum()

    for position in (0, 3, len(inspector.texts["source"].ids) - 1):
        more, less = (scaled(inspector.embeddings["source"], position, 1 + by, score) for by in (STEP, -STEP))
        assert float(found.values[position]) == pytest.approx((more - less) / (2 * STEP), rel=1e-3, abs=1e-5)


def test_each_word_of_a_unilm_by_small_changes() -> None:
    inspector = inspector_of("unilm")
    each = inspector.attribution().each
    for number in range(len(inspector.texts["target"].ids)):
        more, less = (
            scaled(inspector.embeddings["source"], 2, 1 + by, lambda n=number: inspector._score(n)) for by in (0.01, -0.01)
        )
        assert float(each[number, 2]) == pytest.approx((more - less) / 0.02, rel=1e-2, abs=1e-4)


@pytest.mark.parametrize("name", ["bert", "albert", "unilm", "xlnet"])
def test_encoders_by_small_changes(name: str, tmp_path: Path) -> None:
    loaded = reader(name, tmp_path)
    loaded.model.double()
    inspector = loaded.inspect("Paris is the [MASK] of France.")
    if name == "xlnet":  # which reads the first token last
        assert inspector.texts["source"].tokens[-2:] == ["</s>", "<s>"]
    found = inspector.attribution()
    assert found is not None and inspector.score is not None
    for position in (0, 2, len(inspector.texts["source"].ids) - 1):
        more, less = (scaled(inspector.embeddings["source"], position, 1 + by, inspector.score) for by in (0.01, -0.01))
        assert float(found.values[position]) == pytest.approx((more - less) / 0.02, rel=1e-2, abs=1e-4)


def test_a_sum_is_attributed_exactly() -> None:
    table = nn.Embedding(5, 3)
    ids = torch.tensor([[1, 2, 2]])
    found = gradient_times_input(table, lambda: (table(ids) * torch.tensor([1.0, 2.0, 0.5])).sum())
    wanted = (table.weight[ids] * torch.tensor([1.0, 2.0, 0.5])).sum(-1)
    torch.testing.assert_close(found, wanted.detach())
    assert not table._forward_hooks


def test_it_works_where_gradients_are_off_and_beside_other_threads() -> None:
    table = nn.Embedding(5, 3)
    ids = torch.tensor([[1, 2, 2]])

    def score() -> Tensor:
        other = threading.Thread(target=table, args=(torch.tensor([[4]]),))
        other.start()
        other.join()
        return table(ids).sum()

    with torch.inference_mode():
        found = gradient_times_input(table, score)
    torch.testing.assert_close(found, table.weight[ids].sum(-1).detach())


def test_the_source_is_attributed_to() -> None:
    inspector = inspector_of("transformer")
    assert inspector.attribution().values.shape == (len(tokenizer().encode(TEXT)),)
