"""ELECTRA's two losses against loops; what counts as replaced; nothing is learned through what is drawn."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from qkv.base.rows import IGNORE_INDEX, Rows
from qkv.data.inputs import Passages
from qkv.models.electra import Electra, ElectraConfig
from qkv.objectives import replaced
from qkv.objectives.masking import Hidden, hide
from qkv.objectives.replaced import Replaced, ReplacedConfig, draw, draw_from, guess, replace
from toy_passages import MASK, each_text, lay_out, part_of, random_passages, text_of, vocabulary

VOCAB = 50
WORDS = vocabulary(VOCAB)
SHAPE: dict[str, Any] = {
    "width": 16,
    "feedforward": 24,
    "heads": 2,
    "layers": 2,
    "max_positions": 64,
    "embedding_width": 12,
    "generator_size": 0.5,
}


@torch.no_grad()
def make() -> Electra:
    model = Electra(ElectraConfig(**SHAPE, dropout=0.0), VOCAB)
    for parameter in model.parameters():
        parameter += 0.2 * torch.randn_like(parameter)
    return model


def known_alone(encoder: Any, passages: Passages, ids: Tensor, row: int, here: slice) -> Tensor:
    one = ids[row, here][None]
    return encoder(Rows(one, torch.ones_like(one), torch.arange(one.size(1))[None]), passages.segment[row, here][None])[0]


@torch.no_grad()
def by_hand(model: Electra, passages: Passages, hidden: Hidden, read: Tensor) -> tuple[float, float, dict[str, float]]:
    """Both losses, and what the tally should say, text by text and token by token."""
    generator = discriminator = 0.0
    guesses, right, found = 0, 0, {(was, said): 0 for was in (True, False) for said in (True, False)}
    for row, _, here in each_text(passages):
        known = known_alone(model.generator.encoder, passages, hidden.ids, row, here)
        for where, answer in zip(hidden.where[row].tolist(), hidden.answer[row].tolist(), strict=True):
            if answer != IGNORE_INDEX and here.start <= where < here.stop:
                scores = model.generator.heads["masked"](known[where - here.start])
                generator -= float(scores.log_softmax(-1)[answer])
                guesses, right = guesses + 1, right + (int(scores.argmax()) == answer)
        scores = model.discriminator.heads["replaced"](known_alone(model.discriminator.encoder, passages, read, row, here))
        for score, now, before in zip(scores.tolist(), read[row, here].tolist(), passages.ids[row, here].tolist(), strict=True):
            discriminator += math.log(1 + math.exp(-score if now != before else score))
            found[now != before, score > 0] += 1
    others, originals = found[True, True] + found[True, False], found[False, True] + found[False, False]
    told = {
        "generator_loss": generator / guesses,
        "generator_accuracy": right / guesses,
        "replaced": others / (others + originals),
        "recall_replaced": found[True, True] / others,
        "recall_original": found[False, False] / originals,
        "discriminator_loss": discriminator / (others + originals),
    }
    return generator, discriminator, told


@torch.no_grad()
def test_packed_rows_lose_what_texts_lose_one_by_one() -> None:
    c = ReplacedConfig(rate=0.3, discriminator_weight=7.0)
    model, objective, passages = make().eval(), Replaced(c, WORDS), random_passages(rows=4)
    hidden = hide(passages, c, WORDS)
    torch.manual_seed(5)
    read = replace(passages.ids, hidden, guess(model.generator, passages, hidden).drawn)
    generator, discriminator, told = by_hand(model, passages, hidden, read)
    torch.manual_seed(5)
    assert float(objective.loss_of(model, passages, hidden)) == pytest.approx(generator / 0.3 + 7 * discriminator, rel=1e-5)
    assert objective.tally.read() == pytest.approx(told, rel=1e-5)


def test_what_is_drawn_stands_where_tokens_were_chosen_and_nowhere_else() -> None:
    ids = torch.tensor([[2, 11, 12, 13, 14, 3]])
    hidden = Hidden(torch.tensor([[2, MASK, 12, MASK, 14, 3]]), torch.tensor([[3, 1, 4]]), torch.tensor([[13, 11, IGNORE_INDEX]]))
    assert replace(ids, hidden, torch.tensor([[20, 21, 22]])).tolist() == [[2, 21, 12, 20, 14, 3]]


@torch.no_grad()
def test_a_token_that_is_drawn_as_it_was_counts_as_original() -> None:
    model, objective = make().eval(), Replaced(ReplacedConfig(), WORDS)
    passages = lay_out([[text_of([11, 12, 13, 14])]], 8, 1)  # six tokens, then padding
    where, answer = torch.tensor([[1, 2]]), torch.tensor([[11, 12]])
    hidden = Hidden(passages.ids.scatter(1, where, MASK), where, answer)
    objective.detection_loss(model.discriminator, passages, replace(passages.ids, hidden, answer))
    told = objective.tally.read()
    assert told["replaced"] == 0 and "recall_replaced" not in told
    objective.detection_loss(model.discriminator, passages, replace(passages.ids, hidden, torch.tensor([[11, 20]])))
    assert objective.tally.read()["replaced"] == pytest.approx(1 / 6)


def test_both_recalls_are_counted() -> None:
    objective = Replaced(ReplacedConfig(), WORDS)
    said = torch.tensor([[True, True, False, False, True, False, True]])
    was = torch.tensor([[True, False, True, False, False, False, False]])
    real = torch.tensor([[True] * 6 + [False]])
    objective.count_findings(said, was & real, ~was & real)
    assert objective.tally.read() == pytest.approx({"replaced": 2 / 6, "recall_replaced": 1 / 2, "recall_original": 2 / 4})


def gradients(weight: float, passages: Passages, hidden: Hidden, parts: list[slice] | None = None) -> dict[str, Tensor]:
    torch.manual_seed(1)
    model, objective = make(), Replaced(ReplacedConfig(discriminator_weight=weight), WORDS)
    for part in parts or [slice(None)]:
        objective.loss_of(model, part_of(passages, part), part_of(hidden, part)).backward()
    return {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


def test_nothing_is_learned_through_what_is_drawn() -> None:
    passages = random_passages(rows=4)
    hidden = hide(passages, ReplacedConfig(), WORDS)
    without, with_it = gradients(0.0, passages, hidden), gradients(50.0, passages, hidden)
    own = [name for name in with_it if name.startswith("generator.")]
    assert own and all(torch.equal(with_it[name], without[name]) for name in own)
    assert not any(without[name].any() for name in without if ".heads.replaced." in name)
    shared = "discriminator.encoder.embedding.words.weight"
    assert not torch.allclose(with_it[shared], without[shared]), "embeddings learn from both"
    assert set(with_it) == {name for name, _ in make().named_parameters()}, "everything learns"


def test_parts_of_a_batch_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replaced, "draw_from", lambda scores: (scores.argmin(-1), scores.argmax(-1)))  # the same in any part
    passages = random_passages(rows=5)
    hidden = hide(passages, ReplacedConfig(), WORDS)
    whole = gradients(50.0, passages, hidden)
    parts = gradients(50.0, passages, hidden, [slice(0, 2), slice(2, None)])
    for name, gradient in whole.items():
        torch.testing.assert_close(parts[name], gradient, rtol=1e-4, atol=1e-3)


def test_words_are_drawn_by_their_probability() -> None:
    scores = torch.tensor([[2.0, 0.0, -1.0, 1.0, -30.0]])
    drawn, likeliest = draw_from(scores.expand(40_000, -1))
    shares = torch.bincount(drawn, minlength=5) / 40_000
    torch.testing.assert_close(shares, scores.softmax(-1)[0], rtol=0, atol=0.01)
    assert (likeliest == 0).all() and not shares[-1]


@torch.no_grad()
def test_drawing_some_places_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    head, features = make().generator.heads["masked"], torch.randn(23, 12)
    whole = draw(head, features)[1]
    monkeypatch.setitem(replaced.SCORES, "cpu", 5 * 2 * VOCAB)
    drawn, likeliest = draw(head, features)
    assert torch.equal(likeliest, whole) and drawn.shape == (23,)


def test_padding_is_not_asked_about() -> None:
    model, objective = make(), Replaced(ReplacedConfig(), WORDS)
    losses = []
    for width in (10, 30):
        passages = lay_out([[text_of([11, 12, 13, 14, 15])]], width, 1)
        losses.append(float(objective.detection_loss(model.discriminator, passages, passages.ids.clamp(max=13)).detach()))
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


@torch.no_grad()
def test_the_generator_reads_masks_alone() -> None:
    passages = random_passages(rows=10)
    hidden = hide(passages, ReplacedConfig(), WORDS)
    chosen = hidden.answer != IGNORE_INDEX
    assert (hidden.ids.gather(1, hidden.where)[chosen] == MASK).all()
