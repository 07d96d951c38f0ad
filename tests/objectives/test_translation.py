"""The translation loss against loops in plain Python; the decoder's input; micro-batches add up to the batch."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from qkv.base.rows import Rows
from qkv.data.batches import Batch, make_batch
from qkv.models.transformer import Transformer, TransformerConfig
from qkv.objectives.translation import Translation, TranslationConfig

BOS, EOS, VOCAB = 2, 3, 17


class Fixed(nn.Module):
    """A model with given logits that records its inputs."""

    def __init__(self, scores: Tensor):
        super().__init__()
        self.scores = nn.Parameter(scores)
        self.output = nn.Linear(VOCAB, VOCAB, bias=False)
        nn.init.eye_(self.output.weight)
        self.read: list[Rows] = []

    def forward(self, source: Rows, target: Rows) -> Tensor:
        self.read.append(target)
        return self.scores


def batch_of(rows: list[list[tuple[int, int]]], width: int = 24, seed: int = 0) -> Batch:
    """Return texts of these lengths, (source, target) for each pair of each row."""
    rng = np.random.default_rng(seed)
    sides = [[[rng.integers(4, VOCAB, lengths[side]) for lengths in row] for row in rows] for side in (0, 1)]
    return make_batch(*sides, (width, width), EOS)


ROWS = [[(3, 4), (2, 5), (4, 1)], [(5, 6)], [(1, 0), (2, 2)], [(6, 9), (3, 3)], [(4, 4)]]


def smoothed_by_hand(scores: list[list[list[float]]], target: Rows, smoothing: float) -> float:
    """Return the sum over tokens of -sum_w p(w) log q(w), where p is 1 - smoothing at the label plus smoothing / V everywhere."""
    total = 0.0
    for row, ids, texts in zip(scores, target.ids.tolist(), target.text.tolist(), strict=True):
        for position, answer, text in zip(row, ids, texts, strict=True):
            if text == 0:
                continue
            log_sum = math.log(sum(math.exp(x) for x in position))
            for word, x in enumerate(position):
                wanted = smoothing / len(position) + (1 - smoothing if word == answer else 0.0)
                total -= wanted * (x - log_sum)
    return total


@torch.no_grad()
@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.5])
def test_the_loss_is_the_smoothed_cross_entropy_summed_over_tokens(smoothing: float) -> None:
    source, target = batch_of(ROWS).inputs
    scores = torch.randn(5, 24, VOCAB) * 3
    model, objective = Fixed(scores), Translation(TranslationConfig(smoothing=smoothing), BOS)
    # Smoothed in training only: models are compared by what they know, not by how they are taught.
    for training, spread in ((True, smoothing), (False, 0.0)):
        found = float(objective.loss(model.train(training), source, target))
        assert found == pytest.approx(smoothed_by_hand(scores.tolist(), target, spread), rel=1e-5)


def test_padding_has_no_gradient() -> None:
    batch = batch_of(ROWS)
    model = Fixed(torch.randn(5, 24, VOCAB)).train()
    Translation(TranslationConfig(), BOS).loss(model, *batch.inputs).backward()
    gradient = model.scores.grad
    assert gradient is not None
    real = batch.inputs[1].text > 0
    assert (gradient[real].abs().sum(-1) > 0).all()
    assert not gradient[~real].any()


def test_the_decoder_reads_each_text_one_place_late() -> None:
    sides = [[[np.array([5, 6]), np.array([7])]], [[np.array([8, 9]), np.array([10, 11, 12])]]]
    _, target = make_batch(*sides, (4, 9), EOS).inputs
    shifted = Translation(TranslationConfig(), BOS).shifted(target)
    assert target.ids.tolist() == [[8, 9, EOS, 10, 11, 12, EOS, 0, 0]]
    assert shifted.ids[0, :7].tolist() == [BOS, 8, 9, BOS, 10, 11, 12]
    assert torch.equal(shifted.text, target.text)
    assert torch.equal(shifted.position, target.position)


@pytest.mark.parametrize("rows", [ROWS, [[(1, 0)]], [[(2, 0), (2, 0), (2, 0)]]])
def test_every_text_begins_with_bos_and_never_reads_its_end(rows: list[list[tuple[int, int]]]) -> None:
    _, target = batch_of(rows).inputs
    shifted = Translation(TranslationConfig(), BOS).shifted(target)
    for ids, read, text in zip(target.ids, shifted.ids, target.text, strict=True):
        for number in range(1, int(text.max()) + 1):
            assert read[text == number].tolist() == [BOS, *ids[text == number].tolist()[:-1]]
    assert not (shifted.ids[target.text > 0] == EOS).any()


def test_the_model_is_given_what_is_shifted() -> None:
    batch, objective = batch_of(ROWS), Translation(TranslationConfig(), BOS)
    model = Fixed(torch.zeros(5, 24, VOCAB))
    objective.loss(model, *batch.inputs)
    assert torch.equal(model.read[0].ids, objective.shifted(batch.inputs[1]).ids)


def make(norm: str) -> Transformer:
    shape = {"width": 16, "feedforward": 24, "heads": 2, "encoder_layers": 2, "decoder_layers": 2}
    return Transformer(TransformerConfig(**shape, dropout=0.0, norm=norm), VOCAB, VOCAB).train()  # type: ignore[arg-type]


PARTS = [
    [slice(0, 2), slice(2, 5)],
    [slice(r, r + 1) for r in range(5)],
    [slice(0, None, 2), slice(1, None, 2)],  # as several processes share a batch
]


def gradients(model: Transformer, batch: Batch, parts: list[slice]) -> tuple[float, list[Tensor]]:
    objective = Translation(TranslationConfig(smoothing=0.1), BOS)
    model.zero_grad()
    total = 0.0
    for part in parts:
        loss = objective.loss(model, *batch.part(part).inputs) / batch.tokens
        loss.backward()
        total += float(loss.detach())
    return total, [p.grad.clone() for p in model.parameters() if p.grad is not None]


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("parts", PARTS)
def test_the_gradient_of_the_parts_is_the_gradient_of_the_whole(norm: str, parts: list[slice]) -> None:
    model, batch = make(norm), batch_of(ROWS)
    whole_loss, whole = gradients(model, batch, [slice(None)])
    loss, summed = gradients(model, batch, parts)
    assert loss == pytest.approx(whole_loss, rel=1e-5)
    for one, two in zip(whole, summed, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-4, atol=1e-6)


def test_biases_of_the_output_count() -> None:
    c = TransformerConfig(width=8, feedforward=8, heads=2, encoder_layers=1, decoder_layers=1, dropout=0.0, output_bias=True)
    model, batch, objective = Transformer(c, VOCAB, VOCAB).eval(), batch_of(ROWS), Translation(TranslationConfig(), BOS)
    nn.init.normal_(model.output.bias)  # type: ignore[arg-type]
    source, target = batch.inputs
    scores = model.logits(model(source, objective.shifted(target)))
    real = target.text > 0
    wanted = nn.functional.cross_entropy(scores[real], target.ids[real], reduction="sum")
    torch.testing.assert_close(objective.loss(model, source, target), wanted)


def test_rows_without_text_add_nothing() -> None:
    model = make("post")
    one, two = (gradients(model, batch_of([*ROWS, *empty]), [slice(None)]) for empty in ([], [[], []]))
    assert one[0] == pytest.approx(two[0], rel=1e-6)
    for a, b in zip(one[1], two[1], strict=True):
        assert b.isfinite().all()
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)
