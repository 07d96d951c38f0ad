"""The losses of masked tokens and of sentence tasks, against loops over single texts."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from qkv.base.rows import IGNORE_INDEX, Rows
from qkv.data.inputs import Passages
from qkv.models.albert import Albert, AlbertConfig
from qkv.models.bert import Bert, BertConfig
from qkv.objectives.masked import MaskedConfig, MaskedLanguageModelling, text_lengths
from qkv.objectives.masking import MaskedBatch, mask_tokens
from qkv.parts.heads import ModelWithHeads
from toy_passages import each_text, lay_out, part_of, random_passages, text_of, vocabulary

VOCAB = 50
WORDS = vocabulary(VOCAB)
SHAPE: dict[str, Any] = {"width": 16, "feedforward": 24, "heads": 2, "layers": 2, "max_positions": 64}
SENTENCE_TASKS = ["none", "next", "order"]


@torch.no_grad()
def make(c: MaskedConfig, dropout: float = 0.0, kind: str = "bert") -> ModelWithHeads:
    options = {**SHAPE, "dropout": dropout}
    encoder = Bert(BertConfig(**options), VOCAB) if kind == "bert" else Albert(AlbertConfig(**options, embedding_width=8), VOCAB)
    model = ModelWithHeads(encoder, c.heads)
    for parameter in model.parameters():
        parameter += 0.2 * torch.randn_like(parameter)
    return model


def by_hand(model: ModelWithHeads, passages: Passages, masked: MaskedBatch) -> tuple[float, float, dict[str, float]]:
    """Return the sums of both losses, and the expected tally, text by text and token by token."""
    words, relations, weighted = [], [], 0.0
    right = guessed = 0
    for row, number, here in each_text(passages):
        ids = masked.ids[row, here][None]
        rows = Rows(ids, torch.ones_like(ids), torch.arange(ids.size(1))[None])
        hidden = model.encoder(rows, passages.segment[row, here][None])[0]
        for column, label in zip(masked.columns[row].tolist(), masked.labels[row].tolist(), strict=True):
            if label != IGNORE_INDEX and here.start <= column < here.stop:
                scores = model.heads["masked"](hidden[column - here.start])
                words.append(-float(scores.log_softmax(-1)[label]))
                right += int(scores.argmax()) == label
        if "sentence_task" in model.heads:
            scores = model.heads["sentence_task"](model.heads["pooler"](hidden[:1]))[0]
            label = int(passages.labels[row, number])
            relations.append(-float(scores.log_softmax(-1)[label]))
            guessed += int(scores.argmax()) == label
            weighted += relations[-1] * ids.size(1)
    told = {"masked_loss": sum(words) / len(words), "masked_accuracy": right / len(words)}
    if relations:
        told |= {"sentence_task_loss": sum(relations) / len(relations), "sentence_task_accuracy": guessed / len(relations)}
    return sum(words), weighted, told


@pytest.mark.parametrize("kind", ["bert", "albert"])
@pytest.mark.parametrize("sentence_task", SENTENCE_TASKS)
@torch.no_grad()
def test_the_loss_of_packed_rows_is_that_of_single_texts(sentence_task: Any, kind: str) -> None:
    c = MaskedConfig(rate=0.3, units="word", sentence_task=sentence_task)
    model, objective, passages = make(c, kind=kind).eval(), MaskedLanguageModelling(c, WORDS), random_passages(rows=4)
    masked = mask_tokens(passages, c, WORDS)
    words, relations, told = by_hand(model, passages, masked)
    assert float(objective.loss(model, passages, masked)) == pytest.approx(words / 0.3 + relations, rel=1e-5)
    assert objective.tally.read() == pytest.approx(told, rel=1e-5)


@torch.no_grad()
def test_in_training_accuracy_is_measured_in_the_first_slots_of_each_row() -> None:
    c = MaskedConfig(rate=0.3)
    model, objective, passages = make(c), MaskedLanguageModelling(c, WORDS), random_passages(rows=40)
    masked = mask_tokens(passages, c, WORDS)
    _, _, told = by_hand(model, passages, masked._replace(columns=masked.columns[:, :2], labels=masked.labels[:, :2]))
    objective.loss(model.train(), passages, masked)
    assert objective.tally.read()["masked_accuracy"] == pytest.approx(told["masked_accuracy"])


def gradients(
    model: ModelWithHeads, objective: MaskedLanguageModelling, passages: Passages, masked: MaskedBatch, parts: list[slice]
) -> tuple[float, list[Tensor]]:
    model.zero_grad()
    total = 0.0
    for part in parts:
        loss = objective.loss(model, part_of(passages, part), part_of(masked, part))
        loss.backward()
        total += float(loss.detach())
    return total, [p.grad.clone() for p in model.parameters() if p.grad is not None]


@pytest.mark.parametrize("sentence_task", SENTENCE_TASKS)
def test_parts_of_a_batch_add_up(sentence_task: Any) -> None:
    c = MaskedConfig(sentence_task=sentence_task)
    model, objective, passages = make(c), MaskedLanguageModelling(c, WORDS), random_passages(rows=5)
    masked = mask_tokens(passages, c, WORDS)
    whole, wanted = gradients(model, objective, passages, masked, [slice(None)])
    before = objective.tally.read()
    parts, found = gradients(model, objective, passages, masked, [slice(0, 2), slice(2, None)])
    assert parts == pytest.approx(whole, rel=1e-5)
    assert objective.tally.read() == pytest.approx(before, rel=1e-5)
    assert len(found) == len(list(model.parameters())), "everything learns"
    for one, two in zip(wanted, found, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-4, atol=1e-4)


def test_rows_without_text_add_nothing() -> None:
    c = MaskedConfig(sentence_task="next", rate=0.9)
    model, objective = make(c), MaskedLanguageModelling(c, WORDS)
    texts = [text_of([7, 8, 9], [10], label=1)]
    losses = []
    for rows in ([texts], [texts, [], []]):
        passages = lay_out(rows, 12, 2)
        masked = MaskedBatch(
            passages.ids,
            torch.tensor([[2, 3]] * len(rows)),
            torch.tensor([[8, IGNORE_INDEX]] + [[IGNORE_INDEX] * 2] * (len(rows) - 1)),
        )
        loss, found = gradients(model, objective, passages, masked, [slice(None)])
        assert all(gradient.isfinite().all() for gradient in found)
        losses.append(loss)
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


@torch.no_grad()
def test_the_loss_over_all_tokens_is_a_mean() -> None:
    """A new model has a loss of ln V per token and ln 2 per sentence label; special tokens have no label."""
    c = MaskedConfig(sentence_task="order")
    model, objective, passages = make(c), MaskedLanguageModelling(c, WORDS), random_passages(rows=20)
    for parameter in [*model.heads.parameters(), model.encoder.embedding.token_embedding.weight]:
        parameter.zero_()
    losses = torch.stack([objective.loss(model, passages) for _ in range(300)])
    filled, asked = int((passages.text > 0).sum()), int((passages.ids >= 5).sum())
    expected = asked / filled * torch.tensor(VOCAB).log() + torch.tensor(2).log()
    assert float(losses.mean()) / filled == pytest.approx(float(expected), rel=0.01)


def test_texts_are_as_long_as_they_are() -> None:
    passages = lay_out([[text_of([7, 8, 9]), text_of([5], [6])], []], 20, 3)
    assert text_lengths(passages).tolist() == [[5, 5, 0], [0, 0, 0]]
    assert float(F.one_hot(passages.text, 4)[..., 1:].sum(1).sub(text_lengths(passages)).abs().sum()) == 0


def test_half_precision_loses_no_gradient() -> None:
    c = MaskedConfig(sentence_task="next")
    model, objective, passages = make(c), MaskedLanguageModelling(c, WORDS), random_passages(rows=5)
    masked = mask_tokens(passages, c, WORDS)
    _, wanted = gradients(model, objective, passages, masked, [slice(None)])
    with torch.autocast("cpu", torch.bfloat16):
        _, found = gradients(model, objective, passages, masked, [slice(None)])
    for one, two in zip(wanted, found, strict=True):
        assert F.cosine_similarity(one.flatten(), two.flatten(), 0) > 0.98 or one.norm() < 1e-3


def test_a_model_has_the_heads_its_objective_needs() -> None:
    assert MaskedConfig().heads == ("masked",)
    assert (
        MaskedConfig(sentence_task="next").heads
        == MaskedConfig(sentence_task="order").heads
        == ("masked", "pooler", "sentence_task")
    )
