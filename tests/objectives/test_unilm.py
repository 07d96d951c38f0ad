"""Masked words read in four ways: what the model is told, what it sees, and who is asked what."""

from collections import Counter

import pytest
import torch
from pydantic import ValidationError

from qkv.base.rows import SHAPES, SKIP
from qkv.models.unilm import Unilm, UnilmConfig
from qkv.objectives.masking import Hidden, maskable, numbered_units
from qkv.objectives.unilm import FourWays, FourWaysConfig, segments
from qkv.parts.heads import Headed
from toy_passages import CLS, MASK, SEP, Text, lay_out, random_passages, text_of, vocabulary

VOCAB = 50
WORDS = vocabulary(VOCAB)


def make(seed: int = 1) -> Headed:
    torch.manual_seed(seed)
    c = UnilmConfig(width=16, inner=24, heads=2, layers=2, places=64, dropout=0.0)
    model = Headed(Unilm(c, VOCAB), FourWaysConfig().heads)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.2 * torch.randn(parameter.shape)
    return model


def test_segments_tell_the_way() -> None:
    one, two = [7, 8], [9]
    row = [text_of(one, two, task="next", answer=0), text_of(one, task="left"), text_of(one, task="right")]
    row += [text_of(one, two, task="sequence"), text_of(one)]
    told = segments(lay_out([row], 30, 5))[0].tolist()
    assert told == [0] * 4 + [1] * 2 + [2] * 4 + [3] * 4 + [4] * 4 + [5] * 2 + [0] * 4 + [0] * 6


@pytest.mark.parametrize("task", ["left", "right", "sequence", "next"])
@torch.no_grad()
def test_a_masked_token_is_told_from_what_its_way_shows(task: str) -> None:
    """Of five tokens the third is masked; another token matters to its loss if, and only if, it may be seen."""
    ids = [11, 12, 13, 14, 15]
    objective, model = FourWays(FourWaysConfig(), WORDS), make()

    def loss(tokens: list[int]) -> float:
        parts = [tokens] if task in ("left", "right") else [tokens[:1], tokens[1:]]
        passages = lay_out([[text_of(*parts, task=task)]], 12, 1)
        where, answer = torch.tensor([[passages.ids[0].tolist().index(13)]]), torch.tensor([[13]])
        return float(objective.loss_of(model, passages, Hidden(passages.ids.scatter(1, where, MASK), where, answer)))

    sees = {"left": {0, 1}, "right": {3, 4}, "sequence": {0, 1}, "next": {0, 1, 3, 4}}[task]
    for place in (0, 1, 3, 4):
        other = [*ids]
        other[place] += 20
        assert (loss(other) != loss(ids)) == (place in sees), place


def test_only_pairs_read_in_both_directions_are_asked_whether_they_follow() -> None:
    passages = random_passages(rows=6, tasks={"next": 2, "left": 2, "right": 2, "sequence": 2})
    read_for = passages.task.gather(1, passages.first)
    passages = passages._replace(answer=passages.answer.masked_fill(read_for != SHAPES.index("next"), SKIP))
    objective, model = FourWays(FourWaysConfig(), WORDS), make().eval()
    loss = objective.loss(model, passages)
    loss.backward()
    assert loss.isfinite() and all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())
    assert set(objective.tally.read()) == {"masked_loss", "masked_accuracy", "relation_loss", "relation_accuracy"}


def test_a_few_tokens_are_one_most_of_the_time() -> None:
    passages = lay_out([[text_of([7] * 400)]] * 40, 402, 1)
    units = numbered_units(passages, "few", maskable(passages, WORDS))
    lengths: Counter[int] = Counter()
    for row in units.tolist():
        assert row == sorted(row) and row.count(row[0]) == 1 and row.count(row[-1]) == 1
        lengths.update(list(Counter(row[1:-1]).values())[:-1])
    for n, share in {1: 0.8, 2: 0.1, 3: 0.1}.items():
        assert lengths[n] / lengths.total() == pytest.approx(share, abs=0.02)


def test_a_few_tokens_are_of_one_part() -> None:
    passages = lay_out([[Text([CLS, 7, 7, SEP, 8, 8, SEP], [0] * 7, [0] * 4 + [1] * 3)] * 3], 21, 3)
    for _ in range(30):
        units = numbered_units(passages, "few", maskable(passages, WORDS))[0].tolist()
        together = {tuple(i % 7 for i, other in enumerate(units) if other == unit) for unit in units}
        assert together <= {(0,), (3,), (6,), (1,), (2,), (4,), (5,), (1, 2), (4, 5)}


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"both": 0, "left": 0, "right": 0, "sequence": 0}, "give one of them a share"),
        ({"left": -1}, "greater than or equal to 0"),
        ({"relation": "order"}, "next"),
    ],
)
def test_mistakes(wrong: dict[str, object], told: str) -> None:
    with pytest.raises(ValidationError, match=told):
        FourWaysConfig.model_validate(wrong)
