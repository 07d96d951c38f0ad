"""Causal language modelling: the label of each token, and the reports beside the loss."""

import math

import pytest
import torch
import torch.nn.functional as F

from qkv.base.rows import IGNORE_INDEX, next_tokens
from qkv.models.gpt import Gpt, GptConfig
from qkv.objectives.causal import CausalConfig, CausalLanguageModelling
from qkv.parts.heads import ModelWithHeads
from toy_passages import each_text, lay_out, random_passages, text_of

VOCAB = 50
SIZES = [0, 1, 0, 0, 0, *(1 + number % 4 for number in range(VOCAB - 5))]


def make() -> ModelWithHeads:
    torch.manual_seed(3)
    return ModelWithHeads(Gpt(GptConfig(width=16, feedforward=24, heads=2, layers=2, max_positions=64), VOCAB), ()).eval()


def test_the_next_token_of_the_same_text() -> None:
    passages = lay_out([[text_of([7, 8]), text_of([9])]], width=9, most=2)
    first, last = passages.ids[0, 0], passages.ids[0, 3]
    told = next_tokens(passages.rows)[0].tolist()
    assert told == [7, 8, int(last), IGNORE_INDEX, 9, int(last), IGNORE_INDEX, IGNORE_INDEX, IGNORE_INDEX]
    assert int(first) not in told


@torch.no_grad()
def test_the_loss_is_the_sum_over_texts_read_alone() -> None:
    model, passages, objective = make(), random_passages(rows=3), CausalLanguageModelling(CausalConfig(), SIZES)
    total, tokens, size = 0.0, 0, 0
    for row, _, where in each_text(passages):
        ids = passages.ids[row, where]
        rows = lay_out([[text_of([])]], width=len(ids), most=1).rows
        rows = rows._replace(ids=ids[None], text=torch.ones_like(ids)[None], position=torch.arange(len(ids))[None])
        scores = model.encoder.logits(model.encoder(rows))[0]  # type: ignore[operator]
        total += float(F.cross_entropy(scores[:-1], ids[1:], reduction="sum"))
        tokens += len(ids) - 1
        size += sum(SIZES[token] for token in ids[1:].tolist())
    assert float(objective.loss(model, passages)) == pytest.approx(total, rel=1e-5)
    told = objective.tally.read()
    assert told["perplexity"] == pytest.approx(math.exp(total / tokens), rel=1e-4)
    assert told["bits_per_byte"] == pytest.approx(total / math.log(2) / size, rel=1e-4)
    assert objective.tally.read() == {}


def test_its_gradient_is_that_of_plain_cross_entropy() -> None:
    model, passages = make(), random_passages(rows=2)
    objective = CausalLanguageModelling(CausalConfig(), SIZES)
    objective.loss(model, passages).backward()
    found = [p.grad.clone() for p in model.parameters() if p.grad is not None]
    model.zero_grad()
    scores = model.encoder.logits(model.encoder(passages.rows))  # type: ignore[operator]
    F.cross_entropy(
        scores.flatten(0, 1), next_tokens(passages.rows).flatten(), ignore_index=IGNORE_INDEX, reduction="sum"
    ).backward()
    for mine, parameter in zip(found, model.parameters(), strict=True):
        assert parameter.grad is not None
        torch.testing.assert_close(mine, parameter.grad, rtol=1e-4, atol=1e-5)
