"""Fine-tuning objectives against single texts: packing and micro-batches change nothing."""

import itertools
import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from qkv.base.rows import IGNORE_INDEX, map_tensors, padded_rows
from qkv.data.inputs import LabelledTexts
from qkv.models.bert import Bert, BertConfig
from qkv.models.electra import ElectraConfig, ElectraEncoder
from qkv.models.gpt import Gpt, GptConfig
from qkv.objectives.answering import AnsweringConfig, QuestionAnswering
from qkv.objectives.classification import Classification, ClassificationConfig, last_columns, mean_states
from qkv.objectives.regression import Regression, RegressionConfig
from qkv.objectives.tagging import Tagging, TaggingConfig
from qkv.parts.heads import ModelWithHeads

VOCAB, CLASSES, WIDTH, MOST = 30, 3, 26, 4
OBJECTIVES: dict[str, tuple[Any, Any]] = {
    "classification": (Classification, ClassificationConfig),
    "regression": (Regression, RegressionConfig),
    "tagging": (Tagging, TaggingConfig),
    "answering": (QuestionAnswering, AnsweringConfig),
}
LENGTHS = [[9, 6, 10], [11, 7], [], [5]]  # of the texts of each row; 7 of them
EMPTY = {"classification": IGNORE_INDEX, "regression": math.nan, "tagging": IGNORE_INDEX, "answering": IGNORE_INDEX}


def made(kind: str, encoder: Any = Bert, config: Any = BertConfig, **options: Any) -> tuple[Any, ModelWithHeads]:
    torch.manual_seed(0)
    objective, its_config = OBJECTIVES[kind]
    heads = its_config(**options).heads
    tiny = config(width=8, feedforward=12, heads=2, layers=2, max_positions=WIDTH, dropout=0.1)
    model = ModelWithHeads(encoder(tiny, VOCAB), heads, labels=1 if kind == "regression" else CLASSES)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.2 * torch.randn_like(parameter)
    return objective(its_config(**options)), model.eval()


def packed(kind: str, seed: int = 0) -> LabelledTexts:
    """Rows with several texts, one, and none; each text in two segments."""
    torch.manual_seed(seed)
    rows = len(LENGTHS)
    ids, text, position, segment = (torch.zeros(rows, WIDTH, dtype=torch.long) for _ in range(4))
    first = torch.zeros(rows, MOST, dtype=torch.long)
    shape = {"tagging": (rows, WIDTH), "answering": (rows, MOST, 2)}.get(kind, (rows, MOST))
    labels = torch.full(shape, EMPTY[kind])
    for row, lengths in enumerate(LENGTHS):
        at = 0
        for slot, length in enumerate(lengths):
            part = slice(at, at + length)
            ids[row, part] = torch.randint(1, VOCAB, (length,))
            text[row, part], position[row, part] = slot + 1, torch.arange(length)
            segment[row, at + 3 : at + length] = 1
            first[row, slot] = at
            if kind == "tagging":
                labels[row, at + 1 : at + length - 1 : 2] = torch.randint(0, CLASSES, (len(range(1, length - 1, 2)),))
            elif kind == "answering":
                labels[row, slot] = at + (torch.tensor([3, length - 2]) if (row + slot) % 2 == 0 else torch.tensor([0, 0]))
            else:
                labels[row, slot] = torch.randint(0, CLASSES, ()) if kind == "classification" else torch.randn(())
            at += length
    return LabelledTexts(ids, text, position, segment, first, labels)


def single_texts(kind: str, labelled: LabelledTexts) -> list[LabelledTexts]:
    """Return the same texts, each in a row of its own without padding."""
    found = []
    for row, lengths in enumerate(LENGTHS):
        for slot, length in enumerate(lengths):
            at = int(labelled.first[row, slot])
            tokens = [tensor[row : row + 1, at : at + length] for tensor in labelled[:4]]
            if kind == "tagging":
                labels = labelled.labels[row : row + 1, at : at + length]
            else:
                labels = labelled.labels[row : row + 1, slot : slot + 1] - (at if kind == "answering" else 0)
            first = torch.zeros(1, 1, dtype=torch.long)
            found.append(LabelledTexts(tokens[0], torch.ones_like(tokens[1]), tokens[2], tokens[3], first, labels))
    return found


def of_texts(kind: str, outputs: Tensor) -> list[Tensor]:
    """Return the outputs of each text."""
    found = []
    for row, lengths in enumerate(LENGTHS):
        at = 0
        for slot, length in enumerate(lengths):
            found.append(outputs[row, at : at + length] if kind == "tagging" else outputs[row, slot])
            at += length
    return found


@pytest.mark.parametrize("kind", OBJECTIVES)
@torch.no_grad()
def test_packed_texts_equal_single_texts(kind: str) -> None:
    objective, model = made(kind)
    labelled = packed(kind)
    singles = single_texts(kind, labelled)
    torch.testing.assert_close(objective.loss(model, labelled), sum(objective.loss(model, single) for single in singles))
    for found, single in zip(of_texts(kind, objective.outputs(model, labelled)), singles, strict=True):
        wanted = objective.outputs(model, single)
        torch.testing.assert_close(found, wanted[0] if kind == "tagging" else wanted[0, 0])


@pytest.mark.parametrize("kind", OBJECTIVES)
def test_parts_of_a_batch_add_up_and_empty_rows_weigh_nothing(kind: str) -> None:
    objective, model = made(kind)
    labelled = packed(kind)

    def gradients(part: LabelledTexts) -> tuple[Tensor, ...]:
        model.zero_grad()
        objective.loss(model, part).backward()
        return tuple(parameter.grad for parameter in model.parameters() if parameter.grad is not None)

    whole = gradients(labelled)
    parts = [gradients(map_tensors(labelled, lambda t, rows=rows: t[rows])) for rows in (slice(0, 1), slice(1, 3), slice(3, 4))]
    for all_of_it, *some in zip(whole, *parts, strict=True):
        torch.testing.assert_close(all_of_it, sum(some), atol=1e-5, rtol=1e-4)
    nothing = gradients(map_tensors(labelled, lambda t: t[2:3]))
    assert all((gradient == 0).all() for gradient in nothing)


@torch.no_grad()
def test_classification_step_by_step() -> None:
    objective, model = made("classification")
    (single, *_) = single_texts("classification", packed("classification"))
    hidden = model.encoder(single.rows, single.segment)[0, 0]
    pooler, classes = model.heads["pooler"].dense, model.heads["classes"].output
    scores = torch.tanh(hidden @ pooler.weight.T + pooler.bias) @ classes.weight.T + classes.bias
    torch.testing.assert_close(objective.outputs(model, single)[0, 0], scores.softmax(-1))
    torch.testing.assert_close(objective.loss(model, single), -scores.log_softmax(-1)[single.labels[0, 0]])


def test_smoothing_only_in_training() -> None:
    smooth, model = made("classification", smoothing=0.2)
    plain, _ = made("classification")
    labelled = packed("classification")
    assert smooth.loss(model, labelled) == plain.loss(model, labelled)
    model.train()
    for part in model.modules():
        if hasattr(part, "dropout"):
            part.dropout = 0.0
    probabilities = smooth.outputs(model, labelled)
    real = labelled.labels != IGNORE_INDEX
    target = F.one_hot(labelled.labels[real], CLASSES) * 0.8 + 0.2 / CLASSES
    torch.testing.assert_close(smooth.loss(model, labelled), -(target * probabilities[real].log()).sum())


@torch.no_grad()
def test_regression_is_the_squared_error() -> None:
    objective, model = made("regression", ElectraEncoder, ElectraConfig)
    labelled = packed("regression")
    found, wanted = objective.outputs(model, labelled), labelled.labels
    real = ~wanted.isnan()
    torch.testing.assert_close(objective.loss(model, labelled), ((found - wanted)[real] ** 2).sum())


def brute_force(objective: Any, model: ModelWithHeads, single: LabelledTexts, longest: int) -> tuple[Tensor, list[float]]:
    """Return the loss of one text, and its best answer, by trying all."""
    begin, end = (scores[0] for scores in model.heads["span"](model.encoder(single.rows, single.segment)))
    context = range(3, single.ids.size(1) - 1)
    may = [0, *context]
    loss = torch.zeros(())
    for scores, labels in zip((begin, end), single.labels[0, 0].tolist(), strict=True):
        loss += (scores[may].logsumexp(0) - scores[labels]) / 2
    spans = [(a, b) for a, b in itertools.product(context, context) if a <= b < a + longest]
    if not spans:
        return loss, [0, 0, -math.inf]
    a, b = max(spans, key=lambda span: float(begin[span[0]] + end[span[1]]))
    return loss, [a, b, float(begin[a] + end[b] - begin[0] - end[0])]


@pytest.mark.parametrize("longest", [1, 2, 30])
@pytest.mark.parametrize("seed", range(4))
@torch.no_grad()
def test_answers_by_brute_force(longest: int, seed: int) -> None:
    objective, model = made("answering", longest_answer=longest)
    labelled = packed("answering", seed)
    singles = single_texts("answering", labelled)
    found = of_texts("answering", objective.outputs(model, labelled))
    total = torch.zeros(())
    for output, single in zip(found, singles, strict=True):
        loss, wanted = brute_force(objective, model, single, longest)
        torch.testing.assert_close(output, torch.tensor(wanted))
        total += loss
    torch.testing.assert_close(objective.loss(model, labelled), total)


@torch.no_grad()
def test_a_text_without_context_has_no_answer() -> None:
    objective, model = made("answering")
    labelled = packed("answering")
    output = objective.outputs(model, labelled._replace(segment=torch.zeros_like(labelled.segment)))
    assert (output[..., :2] == 0).all() and (output[..., 2] == -math.inf).all()


@pytest.mark.parametrize("kind", OBJECTIVES)
def test_loss_and_outputs_do_not_look_at_values(kind: str) -> None:
    """Use the meta device, which has no values: shapes that depend on values would fail."""
    objective, model = made(kind)
    labelled = map_tensors(packed(kind), lambda t: t.to("meta"))
    assert objective.loss(model.to("meta"), labelled).shape == ()
    shapes = {"classification": (4, MOST, CLASSES), "regression": (4, MOST), "tagging": (4, WIDTH, CLASSES)}
    assert objective.outputs(model, labelled).shape == shapes.get(kind, (4, MOST, 3))


@torch.no_grad()
def test_a_gpt_is_read_at_the_last_token_of_each_text() -> None:
    torch.manual_seed(1)
    model = ModelWithHeads(
        Gpt(GptConfig(width=16, feedforward=24, heads=2, layers=2, max_positions=40), 30), ("pooler", "classes"), labels=3
    ).eval()
    assert list(model.heads) == ["classes"]
    text = torch.tensor([[1, 1, 1, 2, 2, 0, 0], [1, 1, 2, 3, 3, 3, 3]])
    position = torch.tensor([[0, 1, 2, 0, 1, 0, 0], [0, 1, 0, 0, 1, 2, 3]])
    first = torch.tensor([[0, 3, 0], [0, 2, 3]])
    ids = torch.randint(4, 30, text.shape)
    labelled = LabelledTexts(ids, text, position, torch.zeros_like(ids), first, torch.zeros_like(first))
    assert last_columns(labelled).tolist() == [[2, 4, 0], [1, 2, 6]]
    found = Classification(ClassificationConfig()).outputs(model, labelled)
    for row, number, (start, end) in ((0, 1, (3, 5)), (1, 2, (3, 7))):
        single_texts = ids[row, start:end][None]
        hidden = model.encoder(padded_rows(single_texts, torch.ones_like(single_texts).bool()))[:, -1]
        torch.testing.assert_close(found[row, number], model.heads["classes"](hidden)[0].softmax(-1), rtol=0, atol=1e-5)


def test_means_are_of_each_text_alone() -> None:
    text = torch.tensor([[1, 1, 2, 0], [1, 1, 1, 1]])
    hidden = torch.arange(8.0).view(2, 4, 1)
    first = torch.tensor([[0, 2], [0, 0]])
    labelled = LabelledTexts(text, text, text, text, first, first)
    assert mean_states(hidden, labelled).squeeze(-1).tolist() == [[0.5, 2.0], [5.5, 0.0]]
