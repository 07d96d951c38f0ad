"""Permutation language modelling: the factorisation order, the loss, and the memory between segments."""

import math

import pytest
import torch
import torch.nn.functional as F

from qkv.base.rows import IGNORE_INDEX, padded_rows
from qkv.data.inputs import Passages
from qkv.models.xlnet import Xlnet, XlnetConfig
from qkv.objectives.permutation import (
    FactorisationOrder,
    PermutationConfig,
    PermutationLanguageModelling,
    draw_order,
    split_segments,
    summary_last,
)
from qkv.parts.heads import ModelWithHeads
from toy_passages import SPECIAL, each_text, lay_out, random_passages, text_of, vocabulary

VOCAB = 50
WORDS = vocabulary(VOCAB)


def make(c: PermutationConfig) -> tuple[PermutationLanguageModelling, ModelWithHeads]:
    torch.manual_seed(3)
    xlnet = Xlnet(XlnetConfig(width=16, feedforward=24, heads=2, layers=2, dropout=0.0), VOCAB)
    model = ModelWithHeads(xlnet, c.heads).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.2 * torch.randn_like(parameter)
    return PermutationLanguageModelling(c, WORDS), model


@pytest.mark.parametrize("units", ["token", "word", "ngram"])
def test_a_sixth_is_drawn_in_random_order(units: str) -> None:
    passages = summary_last(random_passages(rows=400))
    order = draw_order(passages, PermutationConfig(units=units), WORDS)  # type: ignore[arg-type]
    chosen = order.labels != IGNORE_INDEX
    real = (passages.text > 0) & ~torch.isin(passages.ids, torch.tensor(SPECIAL))
    assert float(chosen.sum() / real.sum()) == pytest.approx(1 / 6, abs=0.01)
    assert torch.equal(order.labels[chosen], passages.ids.gather(1, order.columns)[chosen])
    assert ((order.rank > 0).sum(1) == chosen.sum(1)).all()  # the others are before all that is guessed
    assert not (order.rank > 0)[~real].any()
    for row in range(400):
        ranks = order.rank[row][order.rank[row] > 0].tolist()
        assert len(set(ranks)) == len(ranks)
    # Of two that are guessed either may come first.
    turn = order.rank.gather(1, order.columns)
    both = chosen[:, 0] & chosen[:, 1]
    assert 0.4 < float((turn[:, 0] < turn[:, 1])[both].float().mean()) < 0.6


def loss_of_text(model: ModelWithHeads, passages: Passages, order: FactorisationOrder, row: int, inside: slice) -> float:
    """Return the loss of one text of a row, read alone."""
    where, answer = order.columns[row], order.labels[row]
    own = (answer != IGNORE_INDEX) & (where >= inside.start) & (where < inside.stop)
    ids, segment, rank = (values[row, inside][None] for values in (passages.ids, passages.segment, order.rank))
    rows = padded_rows(ids, torch.ones_like(ids).bool())
    found = model.encoder.both_streams(rows, segment, rank, where[own][None] - inside.start)  # type: ignore[operator]
    return float(F.cross_entropy(model.heads["language_model"](found.query[0]), answer[own], reduction="sum"))


@torch.no_grad()
def test_the_loss_is_the_sum_over_texts_read_alone() -> None:
    c = PermutationConfig(rate=0.3)
    objective, model = make(c)
    passages = summary_last(random_passages(rows=3))
    order = draw_order(passages, c, WORDS)
    total = sum(loss_of_text(model, passages, order, row, where) for row, _, where in each_text(passages))
    assert float(objective.loss_on(model, passages, order)) == pytest.approx(total / 0.3, rel=1e-4)
    told = objective.tally.read()
    assert told["word_loss"] == pytest.approx(total / int((order.labels != IGNORE_INDEX).sum()), rel=1e-4)


@torch.no_grad()
def test_segments_attend_to_the_memory() -> None:
    """One text of 12 tokens in three segments has the loss of reading the segments one by one."""
    c = PermutationConfig(rate=0.4, segment_length=4)
    objective, model = make(c)
    passages = summary_last(lay_out([[text_of([7, 8, 9, 10, 11, 12, 13, 14, 15, 16])]], width=12, most=1))
    torch.manual_seed(1)
    order = draw_order(split_segments(passages, 4), c, WORDS)
    assert order.rank.shape == (3, 4)
    total, memory, told = 0.0, None, 0
    for number in range(3):
        here = slice(4 * number, 4 * number + 4)
        rows = padded_rows(passages.ids[:, here], torch.ones(1, 4).bool())
        rank, where, answer = (values[number : number + 1] for values in order)
        found = model.encoder.both_streams(rows, passages.segment[:, here], rank, where, memory, 12)  # type: ignore[operator]
        memory = found.memory
        scores = model.heads["language_model"](found.query[0])
        total += float(F.cross_entropy(scores, answer[0], ignore_index=IGNORE_INDEX, reduction="sum"))
        told += int((answer != IGNORE_INDEX).sum())
    assert told >= 3
    assert float(objective.loss_on(model, passages, order)) == pytest.approx(total / 0.4, rel=1e-4)
    apart = objective.loss_on(model, passages._replace(text=passages.text + torch.arange(12) // 4), order)
    assert float(apart) != pytest.approx(total / 0.4, rel=1e-3)  # without a memory they would guess something else


def test_a_token_without_context_has_no_label() -> None:
    """The second segment begins with one token of a text that has a memory; the next text has none."""
    c = PermutationConfig(rate=0.9, segment_length=4)
    passages = summary_last(lay_out([[text_of([7, 8, 9]), text_of([20, 21, 22])]], width=12, most=2))
    assert passages.text.tolist() == [[1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 0, 0]]
    without_context = 0
    for seed in range(30):
        torch.manual_seed(seed)
        order = draw_order(split_segments(passages, 4), c, WORDS)
        text, position = (values.reshape(3, 4) for values in (passages.text, passages.position))
        for row in range(3):
            for where, answer in zip(order.columns[row].tolist(), order.labels[row].tolist(), strict=True):
                own = (text[row] == text[row, where]) & (order.rank[row] < order.rank[row, where])
                before = bool(own.any()) or bool(text[row, 0] == text[row, where] and position[row, 0] > 0)
                assert answer == IGNORE_INDEX or before
                without_context += answer == IGNORE_INDEX and int(order.rank[row, where]) > 0
    assert without_context > 10  # it was looked for


@torch.no_grad()
def test_the_loss_of_new_weights_is_that_of_chance() -> None:
    objective = PermutationLanguageModelling(PermutationConfig(), WORDS)
    torch.manual_seed(1)
    c = PermutationConfig()
    model = ModelWithHeads(Xlnet(XlnetConfig(width=16, feedforward=24, heads=2, layers=2), VOCAB), c.heads).eval()
    objective.loss(model, random_passages(rows=200))
    assert objective.tally.read()["word_loss"] == pytest.approx(math.log(VOCAB), abs=0.2)
