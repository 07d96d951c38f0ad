"""Structural positions learn what only the tree shows: the head of each letter."""

import random
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from qkv.base.rows import Rows
from qkv.models.bert import Bert, BertConfig

LETTERS, WORDS, TEXTS = 6, 7, 64


def some(rng: random.Random) -> tuple[Rows, Tensor]:
    """Return letters in random trees, and for each letter its head; the root is its own head."""
    ids, heads, labels = [], [], []
    for _ in range(TEXTS):
        order, letters = rng.sample(range(WORDS), WORDS), rng.choices(range(LETTERS), k=WORDS)
        head = {order[0]: order[0]} | {word: rng.choice(order[:position]) for position, word in enumerate(order) if position}
        ids.append(letters)
        heads.append([2 * head[word] for word in range(WORDS)])
        labels.append([letters[head[word]] for word in range(WORDS)])
    position = torch.arange(WORDS).expand(TEXTS, WORDS)
    return Rows(torch.tensor(ids), torch.ones_like(position), position, torch.tensor(heads)), torch.tensor(labels)


def learned(positions: Any, steps: int) -> float:
    torch.manual_seed(1)
    rng = random.Random(1)
    shape: dict[str, Any] = {"width": 32, "feedforward": 64, "heads": 4, "layers": 2, "dropout": 0.0, "max_distance": 4}
    model = Bert(BertConfig(**shape, positions=positions), LETTERS)
    head = nn.Linear(32, LETTERS)
    adam = torch.optim.Adam([*model.parameters(), *head.parameters()], lr=4e-3)
    for _ in range(steps):
        rows, labels = some(rng)
        adam.zero_grad()
        F.cross_entropy(head(model(rows)).flatten(0, 1), labels.flatten()).backward()
        adam.step()
    rows, labels = some(rng)
    return float((head(model.eval()(rows)).argmax(-1) == labels).float().mean())


@pytest.mark.parametrize("positions", ["structural-relative", "structural"])
def test_who_knows_the_tree_knows_the_governor(positions: str) -> None:
    assert learned(positions, steps=80) >= 0.9


def test_who_does_not_know_the_tree_does_not() -> None:
    assert learned("relative", steps=80) <= 0.6
