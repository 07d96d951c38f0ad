"""ELECTRA's two losses against loops; samples equal to the original; no gradient through sampling."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from qkv.base.rows import IGNORE_INDEX, Rows
from qkv.data.inputs import Passages
from qkv.models.electra import Electra, ElectraConfig
from qkv.objectives import replaced
from qkv.objectives.masking import MaskedBatch, mask_tokens
from qkv.objectives.replaced import (
    ReplacedConfig,
    ReplacedTokenDetection,
    replace_tokens,
    run_generator,
    sample_from,
    sample_tokens,
)
from qkv.parts.draws import random_int64
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


def states_of_text(encoder: Any, passages: Passages, ids: Tensor, row: int, here: slice) -> Tensor:
    one = ids[row, here][None]
    return encoder(Rows(one, torch.ones_like(one), torch.arange(one.size(1))[None]), passages.segment[row, here][None])[0]


@torch.no_grad()
def by_hand(model: Electra, passages: Passages, masked: MaskedBatch, read: Tensor) -> tuple[float, float, dict[str, float]]:
    """Return both losses and the expected tally, text by text and token by token."""
    generator = discriminator = generator_masked = 0.0
    guesses, right, found = 0, 0, {(was, said): 0 for was in (True, False) for said in (True, False)}
    for row, _, here in each_text(passages):
        hidden = states_of_text(model.generator.encoder, passages, masked.ids, row, here)
        for column, label in zip(masked.columns[row].tolist(), masked.labels[row].tolist(), strict=True):
            if label != IGNORE_INDEX and here.start <= column < here.stop:
                scores = model.generator.heads["masked"](hidden[column - here.start])
                generator -= float(scores.log_softmax(-1)[label])
                if masked.ids[row, column] == MASK:
                    generator_masked -= float(scores.log_softmax(-1)[label])
                    guesses, right = guesses + 1, right + (int(scores.argmax()) == label)
        scores = model.discriminator.heads["replaced"](states_of_text(model.discriminator.encoder, passages, read, row, here))
        for score, now, before in zip(scores.tolist(), read[row, here].tolist(), passages.ids[row, here].tolist(), strict=True):
            discriminator += math.log(1 + math.exp(-score if now != before else score))
            found[now != before, score > 0] += 1
    others, originals = found[True, True] + found[True, False], found[False, True] + found[False, False]
    told = {
        "generator_loss": generator_masked / guesses,
        "generator_accuracy": right / guesses,
        "replaced": others / (others + originals),
        "recall_replaced": found[True, True] / others,
        "recall_original": found[False, False] / originals,
        "discriminator_loss": discriminator / (others + originals),
    }
    return generator, discriminator, told


@pytest.mark.parametrize("keep", [0.0, 0.4])
@torch.no_grad()
def test_the_loss_of_packed_rows_is_that_of_single_texts(keep: float) -> None:
    c = ReplacedConfig(rate=0.3, mask=1 - keep, keep=keep, discriminator_weight=7.0)
    model, objective, passages = make().eval(), ReplacedTokenDetection(c, WORDS), random_passages(rows=4)
    masked = mask_tokens(passages, c, WORDS)
    torch.manual_seed(5)
    read = replace_tokens(passages.ids, masked, run_generator(model.generator, passages, masked).samples)
    generator, discriminator, told = by_hand(model, passages, masked, read)
    torch.manual_seed(5)
    assert float(objective.loss(model, passages, masked)) == pytest.approx(generator / 0.3 + 7 * discriminator, rel=1e-5)
    assert objective.tally.read() == pytest.approx(told, rel=1e-5)


def test_samples_replace_chosen_tokens_only() -> None:
    ids = torch.tensor([[2, 11, 12, 13, 14, 3]])
    masked = MaskedBatch(
        torch.tensor([[2, MASK, 12, MASK, 14, 3]]), torch.tensor([[3, 1, 4]]), torch.tensor([[13, 11, IGNORE_INDEX]])
    )
    assert replace_tokens(ids, masked, torch.tensor([[20, 21, 22]])).tolist() == [[2, 21, 12, 20, 14, 3]]


@torch.no_grad()
def test_a_sample_equal_to_the_original_counts_as_original() -> None:
    model, objective = make().eval(), ReplacedTokenDetection(ReplacedConfig(), WORDS)
    passages = lay_out([[text_of([11, 12, 13, 14])]], 8, 1)  # six tokens, then padding
    column, label = torch.tensor([[1, 2]]), torch.tensor([[11, 12]])
    masked = MaskedBatch(passages.ids.scatter(1, column, MASK), column, label)
    objective.detection_loss(model.discriminator, passages, replace_tokens(passages.ids, masked, label))
    told = objective.tally.read()
    assert told["replaced"] == 0 and "recall_replaced" not in told
    objective.detection_loss(model.discriminator, passages, replace_tokens(passages.ids, masked, torch.tensor([[11, 20]])))
    assert objective.tally.read()["replaced"] == pytest.approx(1 / 6)


def test_both_recalls_are_counted() -> None:
    objective = ReplacedTokenDetection(ReplacedConfig(), WORDS)
    said = torch.tensor([[True, True, False, False, True, False, True]])
    was = torch.tensor([[True, False, True, False, False, False, False]])
    real = torch.tensor([[True] * 6 + [False]])
    objective.count_recalls(said, was & real, ~was & real)
    assert objective.tally.read() == pytest.approx({"replaced": 2 / 6, "recall_replaced": 1 / 2, "recall_original": 2 / 4})


def gradients(weight: float, passages: Passages, masked: MaskedBatch, parts: list[slice] | None = None) -> dict[str, Tensor]:
    torch.manual_seed(1)
    model, objective = make(), ReplacedTokenDetection(ReplacedConfig(discriminator_weight=weight), WORDS)
    for part in parts or [slice(None)]:
        objective.loss(model, part_of(passages, part), part_of(masked, part)).backward()
    return {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


def test_no_gradient_flows_through_sampling() -> None:
    passages = random_passages(rows=4)
    masked = mask_tokens(passages, ReplacedConfig(), WORDS)
    without, with_it = gradients(0.0, passages, masked), gradients(50.0, passages, masked)
    own = [name for name in with_it if name.startswith("generator.")]
    assert own and all(torch.equal(with_it[name], without[name]) for name in own)
    assert not any(without[name].any() for name in without if ".heads.replaced." in name)
    shared = "discriminator.encoder.embedding.token_embedding.weight"
    assert not torch.allclose(with_it[shared], without[shared]), "embeddings learn from both"
    assert set(with_it) == {name for name, _ in make().named_parameters()}, "everything learns"


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({}, [4, 4, 4, 4]),
        ({"generator_alone": 0.5}, [0, 0, 4, 4]),
        ({"discriminator_warmup": 0.5}, [0, 2, 4, 4]),
        ({"generator_alone": 0.25, "discriminator_warmup": 0.5}, [0, 0, 2, 4]),
    ],
)
def test_the_weight_follows_the_progress_of_training(keys: dict[str, float], expected: list[float]) -> None:
    objective = ReplacedTokenDetection(ReplacedConfig(discriminator_weight=4.0, **keys), WORDS)
    assert objective.weight() == 4, "outside training it is full"
    found = []
    for done in (0.0, 0.25, 0.501, 0.75):
        alone = objective.begin_update(done, torch.device("cpu"))
        found.append(0.0 if alone else float(objective.weight()))
    assert found == pytest.approx(expected, abs=0.02)


def test_no_discriminator_learns_while_the_generator_is_alone() -> None:
    passages, objective, model = (
        random_passages(rows=4),
        ReplacedTokenDetection(ReplacedConfig(generator_alone=0.1), WORDS),
        make(),
    )
    assert objective.begin_update(0.05, torch.device("cpu"))
    objective.loss(model, passages).backward()
    learned = {name for name, p in model.named_parameters() if p.grad is not None and p.grad.any()}
    assert learned and all(name.startswith(("generator.", "discriminator.encoder.embedding.")) for name in learned)
    assert set(objective.tally.read()) == {"generator_loss"}
    assert not objective.begin_update(0.1, torch.device("cpu")), "then both learn"
    objective.loss(model, passages).backward()
    assert all(p.grad is not None for p in model.parameters())
    assert {"generator_accuracy", "recall_replaced"} <= set(objective.tally.read())


def test_parts_of_a_batch_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        replaced, "sample_from", lambda scores, keys: (scores.argmin(-1), scores.argmax(-1))
    )  # the same in any part
    passages = random_passages(rows=5)
    masked = mask_tokens(passages, ReplacedConfig(), WORDS)
    whole = gradients(50.0, passages, masked)
    parts = gradients(50.0, passages, masked, [slice(0, 2), slice(2, None)])
    for name, gradient in whole.items():
        torch.testing.assert_close(parts[name], gradient, rtol=1e-4, atol=1e-3)


def test_tokens_are_sampled_by_their_probability() -> None:
    scores = torch.tensor([[2.0, 0.0, -1.0, 1.0, -30.0]])
    drawn, likeliest = sample_from(scores.expand(40_000, -1), random_int64(40_000, scores.device))
    shares = torch.bincount(drawn, minlength=5) / 40_000
    torch.testing.assert_close(shares, scores.softmax(-1)[0], rtol=0, atol=0.01)
    assert (likeliest == 0).all() and not shares[-1]


@torch.no_grad()
def test_sampling_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    head, features = make().generator.heads["masked"], torch.randn(23, 12)
    whole = sample_tokens(head, features)[1]
    monkeypatch.setitem(replaced.PIECE, "cpu", 5 * 2 * VOCAB)
    drawn, likeliest = sample_tokens(head, features)
    assert torch.equal(likeliest, whole) and drawn.shape == (23,)


def test_padding_has_no_loss() -> None:
    model, objective = make(), ReplacedTokenDetection(ReplacedConfig(), WORDS)
    losses = []
    for width in (10, 30):
        passages = lay_out([[text_of([11, 12, 13, 14, 15])]], width, 1)
        losses.append(float(objective.detection_loss(model.discriminator, passages, passages.ids.clamp(max=13)).detach()))
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


@torch.no_grad()
def test_the_generator_reads_masks_alone() -> None:
    passages = random_passages(rows=10)
    masked = mask_tokens(passages, ReplacedConfig(), WORDS)
    chosen = masked.labels != IGNORE_INDEX
    assert (masked.ids.gather(1, masked.columns)[chosen] == MASK).all()
