"""Unified language modelling: segments, attention and labels of the four modes."""

from collections import Counter

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from qkv.base.rows import IGNORE_INDEX, Rows, map_tensors, padded_rows
from qkv.data.inputs import PASSAGE_TASKS
from qkv.models.unilm import Unilm, UnilmConfig, UnilmTranslator
from qkv.objectives.masked_translation import MaskedTranslation, MaskedTranslationConfig
from qkv.objectives.masking import MaskedBatch, maskable, unit_numbers
from qkv.objectives.unilm import UnifiedLanguageModelling, UnifiedLanguageModellingConfig, mode_segments
from qkv.parts.heads import ModelWithHeads
from toy_passages import CLS, MASK, SEP, Text, lay_out, random_passages, text_of, vocabulary

VOCAB = 50
WORDS = vocabulary(VOCAB)


def make(seed: int = 1) -> ModelWithHeads:
    torch.manual_seed(seed)
    c = UnilmConfig(width=16, feedforward=24, heads=2, layers=2, max_positions=64, dropout=0.0)
    model = ModelWithHeads(Unilm(c, VOCAB), UnifiedLanguageModellingConfig().heads)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.2 * torch.randn(parameter.shape)
    return model


def test_segments_of_the_modes() -> None:
    one, two = [7, 8], [9]
    row = [text_of(one, two, task="next", label=0), text_of(one, task="left_to_right"), text_of(one, task="right_to_left")]
    row += [text_of(one, two, task="sequence_to_sequence"), text_of(one)]
    told = mode_segments(lay_out([row], 30, 5))[0].tolist()
    assert told == [0] * 4 + [1] * 2 + [2] * 4 + [3] * 4 + [4] * 4 + [5] * 2 + [0] * 4 + [0] * 6


@pytest.mark.parametrize("task", ["left_to_right", "right_to_left", "sequence_to_sequence", "next"])
@torch.no_grad()
def test_a_masked_token_is_predicted_from_what_its_mode_shows(task: str) -> None:
    """The third of five tokens is masked; another token changes its loss exactly if the mode lets it be seen."""
    ids = [11, 12, 13, 14, 15]
    objective, model = UnifiedLanguageModelling(UnifiedLanguageModellingConfig(), WORDS), make()

    def loss(tokens: list[int]) -> float:
        parts = [tokens] if task in ("left_to_right", "right_to_left") else [tokens[:1], tokens[1:]]
        passages = lay_out([[text_of(*parts, task=task)]], 12, 1)
        where, answer = torch.tensor([[passages.ids[0].tolist().index(13)]]), torch.tensor([[13]])
        return float(objective.loss(model, passages, MaskedBatch(passages.ids.scatter(1, where, MASK), where, answer)))

    sees = {"left_to_right": {0, 1}, "right_to_left": {3, 4}, "sequence_to_sequence": {0, 1}, "next": {0, 1, 3, 4}}[task]
    for position in (0, 1, 3, 4):
        other = [*ids]
        other[position] += 20
        assert (loss(other) != loss(ids)) == (position in sees), position


def test_only_bidirectional_pairs_have_a_next_sentence_label() -> None:
    passages = random_passages(rows=6, tasks={"next": 2, "left_to_right": 2, "right_to_left": 2, "sequence_to_sequence": 2})
    read_for = passages.task.gather(1, passages.first)
    passages = passages._replace(labels=passages.labels.masked_fill(read_for != PASSAGE_TASKS.index("next"), IGNORE_INDEX))
    objective, model = UnifiedLanguageModelling(UnifiedLanguageModellingConfig(), WORDS), make().eval()
    loss = objective.loss(model, passages)
    loss.backward()
    assert loss.isfinite() and all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())
    assert set(objective.tally.read()) == {"masked_loss", "masked_accuracy", "sentence_task_loss", "sentence_task_accuracy"}


def test_short_spans_are_single_tokens_most_of_the_time() -> None:
    passages = lay_out([[text_of([7] * 400)]] * 40, 402, 1)
    units = unit_numbers(passages, "short-span", maskable(passages, WORDS))
    lengths: Counter[int] = Counter()
    for row in units.tolist():
        assert row == sorted(row) and row.count(row[0]) == 1 and row.count(row[-1]) == 1
        lengths.update(list(Counter(row[1:-1]).values())[:-1])
    for n, share in {1: 0.8, 2: 0.1, 3: 0.1}.items():
        assert lengths[n] / lengths.total() == pytest.approx(share, abs=0.02)


def test_short_spans_stay_in_one_part() -> None:
    passages = lay_out([[Text([CLS, 7, 7, SEP, 8, 8, SEP], [0] * 7, [0] * 4 + [1] * 3)] * 3], 21, 3)
    for _ in range(30):
        units = unit_numbers(passages, "short-span", maskable(passages, WORDS))[0].tolist()
        together = {tuple(i % 7 for i, other in enumerate(units) if other == unit) for unit in units}
        assert together <= {(0,), (3,), (6,), (1,), (2,), (4,), (5,), (1, 2), (4, 5)}


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"bidirectional": 0, "left_to_right": 0, "right_to_left": 0, "sequence_to_sequence": 0}, "give one of them a share"),
        ({"left_to_right": -1}, "greater than or equal to 0"),
        ({"sentence_task": "order"}, "next"),
    ],
)
def test_mistakes(wrong: dict[str, object], told: str) -> None:
    with pytest.raises(ValidationError, match=told):
        UnifiedLanguageModellingConfig.model_validate(wrong)


class Listening(torch.nn.Module):
    """A model that records its target, and predicts at random."""

    def __init__(self) -> None:
        super().__init__()
        self.heads = make().heads
        self.shown: list[Tensor] = []

    def forward(self, source: Rows, target: Rows) -> Tensor:
        self.shown.append(target.ids)
        return torch.zeros(*target.ids.shape, 16)


@torch.no_grad()
def test_a_share_of_target_tokens_is_masked_eos_too() -> None:
    torch.manual_seed(3)
    ids = torch.randint(6, VOCAB, (40, 30))
    ids[:, 19] = SEP  # the end of each target; padding comes after it
    target, source = padded_rows(ids, (torch.arange(30) < 20).expand(40, -1)), padded_rows(ids, torch.ones_like(ids).bool())
    model, objective = Listening().eval(), MaskedTranslation(MaskedTranslationConfig(), MASK)
    losses = [float(objective.loss(model, source, target)) for _ in range(10)]
    shown = torch.stack(model.shown)
    masked = shown == MASK
    assert torch.equal(shown[~masked], ids.expand(10, -1, -1)[~masked]) and not masked[:, :, 20:].any()
    for positions in (masked[:, :, :20], masked[:, :, 19]):
        assert float(positions.float().mean()) == pytest.approx(0.7, abs=0.03 if positions.dim() == 3 else 0.08)
    # All words are told alike, so that the sum stands for that of all 40 x 20 of them.
    head = model.heads["masked"]
    nats = torch.nn.functional.cross_entropy(head(torch.zeros(800, 16)), ids[:, :20].flatten(), reduction="sum")
    assert sum(losses) / 10 == pytest.approx(float(nats), rel=0.03)


def test_a_translation_loss_can_be_computed_without_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.nn.init, "trunc_normal_", lambda tensor, **_: tensor)  # it looks at what it drew
    ids = torch.randint(6, VOCAB, (4, 12))
    real = padded_rows(ids, torch.ones_like(ids).bool())
    with FakeTensorMode() as unreal:
        model = UnilmTranslator(UnilmConfig(width=16, feedforward=24, heads=2, layers=1, max_positions=64), VOCAB, MASK)
        rows = map_tensors(real, unreal.from_tensor)
        loss = MaskedTranslation(MaskedTranslationConfig(), MASK).loss(model, rows, rows)
        loss.backward()
    assert loss.shape == () and all(p.grad is not None for p in model.parameters())
