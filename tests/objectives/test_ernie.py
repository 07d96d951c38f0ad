"""ERNIE 2.0's tasks against loops over single texts: each text counts for its own task."""

from typing import Any

import pytest
import torch
from torch import Tensor

from qkv.base.config import parse
from qkv.base.errors import ConfigError
from qkv.base.rows import IGNORE_INDEX, Rows
from qkv.data.inputs import Passages
from qkv.models.ernie import Ernie, ErnieConfig
from qkv.objectives.ernie import ERNIE_TASKS, TOKEN_TASKS, ErnieTasks, ErnieTasksConfig
from qkv.objectives.masking import MaskedBatch, mask_tokens
from qkv.parts.heads import LABELS, ModelWithHeads
from toy_passages import SPECIAL, each_text, part_of, random_passages, vocabulary

VOCAB = 50
WORDS = vocabulary(VOCAB)
SHAPE: dict[str, Any] = {"width": 16, "feedforward": 24, "heads": 2, "layers": 2, "max_positions": 64, "dropout": 0.0}
ALL = ErnieTasksConfig.model_validate(
    {"rate": 0.3, "tasks": [{"task": task, "weight": 0.5 + number} for number, task in enumerate(LABELS)]}
)


@torch.no_grad()
def make(c: ErnieTasksConfig = ALL, tasks: int = len(ERNIE_TASKS)) -> ModelWithHeads:
    model = ModelWithHeads(Ernie(ErnieConfig(**SHAPE, task_types=tasks), VOCAB), c.heads)
    for parameter in model.parameters():
        parameter += 0.2 * torch.randn_like(parameter)
    return model


def texts(rows: int = 5) -> Passages:
    return random_passages(rows=rows, width=120, tasks={"masking": 2, **LABELS})


def states_of_text(model: ModelWithHeads, passages: Passages, masked: MaskedBatch, row: int, here: slice) -> Tensor:
    one = masked.ids[row, here][None]
    rows = Rows(one, torch.ones_like(one), torch.arange(one.size(1))[None])
    return model.encoder(rows, passages.segment[row, here][None], passages.task[row, here][None])[0]


@torch.no_grad()
def by_hand(model: ModelWithHeads, passages: Passages, masked: MaskedBatch) -> dict[str, list[tuple[float, int, bool]]]:
    """Return for every task, masking too, (loss, tokens it counts for, whether the prediction is right) of all its labels."""
    found: dict[str, list[tuple[float, int, bool]]] = {task: [] for task in ERNIE_TASKS}

    def add(task: str, scores: Tensor, label: int, tokens: int) -> None:
        found[task].append((-float(scores.log_softmax(-1)[label]), tokens, int(scores.argmax()) == label))

    for row, number, here in each_text(passages):
        hidden = states_of_text(model, passages, masked, row, here)
        asked = dict(zip(masked.columns[row].tolist(), masked.labels[row].tolist(), strict=True))
        task = ERNIE_TASKS[int(passages.task[row, here.start])]
        for at in range(here.start, here.stop):
            state = hidden[at - here.start]
            if asked.get(at, IGNORE_INDEX) != IGNORE_INDEX:
                add("masking", model.heads["masked"](state), asked[at], 1)
            elif task in TOKEN_TASKS and int(passages.ids[row, at]) not in SPECIAL:
                add(task, model.heads[task](state), int(bool(passages.flags[row, at] & TOKEN_TASKS[task])), 1)
        if task in LABELS and task not in TOKEN_TASKS:
            label = int(passages.labels[row, number])
            add(task, model.heads[task](model.heads["pooler"](hidden[0])), label, here.stop - here.start)
    return found


@torch.no_grad()
def test_the_loss_of_packed_rows_is_that_of_single_texts() -> None:
    model, objective, passages = make().eval(), ErnieTasks(ALL, WORDS), texts()
    masked = mask_tokens(passages, ALL, WORDS)
    found = by_hand(model, passages, masked)
    weights = {"masking": 1 / 0.3, **{each.task: each.weight for each in ALL.tasks}}
    expected = sum(weights[task] * loss * tokens for task, all_of in found.items() for loss, tokens, _ in all_of)
    assert float(objective.loss(model, passages, masked)) == pytest.approx(expected, rel=1e-5)
    told = objective.tally.read()
    for task, all_of in found.items():
        name = "masked" if task == "masking" else task
        assert len(all_of) > 2
        assert told[f"{name}_loss"] == pytest.approx(sum(loss for loss, _, _ in all_of) / len(all_of), rel=1e-4)
        assert told[f"{name}_accuracy"] == pytest.approx(sum(right for *_, right in all_of) / len(all_of))


@torch.no_grad()
def test_a_task_with_no_texts_yet_is_not_reported() -> None:
    objective = ErnieTasks(ALL, WORDS)
    objective.loss(make(), random_passages(rows=3, tasks={"masking": 2, "distance": 3}))
    assert set(objective.tally.read()) == {"masked_loss", "masked_accuracy", "distance_loss", "distance_accuracy"}
    assert len(objective.tally._sums) == 2 + 2 * len(ALL.tasks), "but its place is kept, for a recorded update"


def gradients(parts: list[slice], passages: Passages, masked: MaskedBatch) -> dict[str, Tensor]:
    torch.manual_seed(1)
    model, objective = make(), ErnieTasks(ALL, WORDS)
    for part in parts:
        objective.loss(model, part_of(passages, part), part_of(masked, part)).backward()
    return {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


def test_parts_of_a_batch_add_up() -> None:
    passages = texts()
    masked = mask_tokens(passages, ALL, WORDS)
    whole, parts = (gradients(parts, passages, masked) for parts in ([slice(None)], [slice(0, 2), slice(2, None)]))
    assert set(whole) == {name for name, _ in make().named_parameters()}, "everything learns"
    for name, gradient in whole.items():
        torch.testing.assert_close(parts[name], gradient, rtol=1e-4, atol=1e-3)


@torch.no_grad()
def test_the_task_embedding_is_used_if_there_is_one() -> None:
    passages, c = texts(), ErnieTasksConfig()
    masked = mask_tokens(passages, c, WORDS)
    other = passages._replace(task=torch.zeros_like(passages.task))
    for tasks, differs in ((len(ERNIE_TASKS), True), (0, False)):
        model, objective = make(c, tasks).eval(), ErnieTasks(c, WORDS)
        one, two = (float(objective.loss(model, read, masked)) for read in (passages, other))
        assert (one != two) == differs


def test_a_model_has_the_heads_its_tasks_need() -> None:
    def heads(*tasks: str) -> tuple[str, ...]:
        return ErnieTasksConfig.model_validate({"tasks": [{"task": task} for task in tasks]}).heads

    assert heads() == ("masked",)
    assert heads("capital", "document") == ("masked", "capital", "document")
    assert heads("reorder", "capital") == ("masked", "pooler", "reorder", "capital")
    assert set(LABELS) | {"masking"} == set(ERNIE_TASKS)


def test_bad_schedules_are_refused() -> None:
    with pytest.raises(ConfigError, match="a task is named twice"):
        parse(ErnieTasksConfig, {"tasks": [{"task": "next"}, {"task": "next", "first_batch": 5}]}, "here")
    with pytest.raises(ConfigError, match=r"tasks\.0\.task"):
        parse(ErnieTasksConfig, {"tasks": [{"task": "discourse"}]}, "here")
    assert ErnieTasksConfig().units == "unit"
