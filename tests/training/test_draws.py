"""Random draws in training depend on (seed, step, row), not on the processes and the micro-batches that compute the rows."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from pretraining_models import MAKERS
from qkv.base.characters import character_ids
from qkv.base.rows import Rows, padded_rows
from qkv.data.batches import START, Batch
from qkv.models.convolution import Convolution, ConvolutionConfig
from qkv.models.elmo import Elmo, ElmoConfig
from qkv.models.rnn import Rnn, RnnConfig
from qkv.models.t5 import T5, T5Config
from qkv.models.transformer import Transformer, TransformerConfig
from qkv.models.unilm import UnilmConfig, UnilmTranslator
from qkv.objectives.bidirectional import BidirectionalConfig, BidirectionalLanguageModelling
from qkv.objectives.masked_translation import MaskedTranslation, MaskedTranslationConfig
from qkv.objectives.spans import SpanCorruption, SpansConfig
from qkv.objectives.translation import Translation, TranslationConfig
from qkv.parts import draws, dropout
from qkv.parts.adapters import with_adapters
from qkv.parts.heads import ModelWithHeads
from qkv.parts.model_config import AdapterConfig
from qkv.training.gradients import GradientAccumulator
from qkv.training.progress import Progress
from toy_passages import FIRST, UNK, lay_out, random_passages, text_of

VOCAB, BOS, EOS, MASK, ROWS = 50, 2, 3, 4, 5
SHAPE: dict[str, Any] = {"width": 16, "feedforward": 24, "heads": 2}
DEEP: dict[str, Any] = {"encoder_layers": 1, "decoder_layers": 1}
Made = tuple[Any, Any, tuple[Any, ...]]  # objective, model, inputs of a batch
Draws = dict[tuple[int, int], Tensor]  # the random bits of each row in each draw of a pass


def transformer(**options: Any) -> Transformer:
    return Transformer(TransformerConfig(**SHAPE, **DEEP, **options), VOCAB, VOCAB)


def translation(model: Any) -> Made:
    return Translation(TranslationConfig(), BOS), model, sides()


def sides() -> tuple[Rows, Rows]:
    """Rows of one pair of texts each, all of different lengths."""
    length = torch.arange(ROWS)[:, None]
    ids = torch.randint(FIRST, VOCAB, (2, ROWS, 9), generator=torch.Generator().manual_seed(1))
    return tuple(padded_rows(side, torch.arange(9) < 4 + turn) for side, turn in zip(ids, (length, length.flip(0)), strict=True))  # type: ignore[return-value]


def elmo() -> Made:
    shape = {"width": 12, "lstm_width": 10, "character_width": 5, "filters": ((1, 3), (2, 4)), "max_characters": 8}
    model = ModelWithHeads(Elmo(ElmoConfig(**shape), VOCAB), BidirectionalConfig().heads)
    words: Any = model.encoder.embedding.token_embedding
    words.set_vocabulary(character_ids([*range(FIRST), *(f"w{n}" for n in range(VOCAB - FIRST))], 8))
    texts = lay_out([[text_of(list(range(FIRST, FIRST + n)))] for n in range(1, ROWS + 1)], 9, 1)
    return BidirectionalLanguageModelling(BidirectionalConfig(), UNK), model, (texts,)


FAMILIES: dict[str, Callable[[], Made]] = {
    "transformer": lambda: translation(transformer()),
    "pre-norm": lambda: translation(transformer(norm="pre")),
    "adapters": lambda: translation(with_adapters(transformer(), AdapterConfig(rank=2, dropout=0.2))),
    "rnn": lambda: translation(Rnn(RnnConfig(width=8, embedding_width=8), VOCAB, VOCAB)),
    "convolution": lambda: translation(
        Convolution(ConvolutionConfig(width=8, embedding_width=8, **DEEP, max_positions=16), VOCAB, VOCAB)
    ),
    "t5": lambda: (
        SpanCorruption(SpansConfig(), BOS, EOS, [VOCAB - 1]),
        T5(T5Config(**SHAPE, **DEEP, head_width=8), VOCAB, VOCAB),
        sides(),
    ),
    "unilm translator": lambda: (
        MaskedTranslation(MaskedTranslationConfig(), MASK),
        UnilmTranslator(UnilmConfig(**SHAPE, layers=1, max_positions=20), VOCAB, MASK),
        sides(),
    ),
    "elmo": elmo,
    **{kind: lambda make=make: (*make(), (random_passages(ROWS, width=40),)) for kind, make in MAKERS.items()},  # type: ignore[misc]
}


class Recorder:
    """Computes parts of a batch and records what each row draws."""

    def __init__(self, made: Made, monkeypatch: pytest.MonkeyPatch):
        self.objective, self.model, inputs = made
        self.model.train()
        self.batch = Batch(inputs, 100, 100, 100, 100, START)
        self.drawn: Draws = {}
        self.count, self.calls = 0, 0

        def hashed(keys: Tensor, count: int, hashed: Any = dropout.hashed) -> Tensor:
            bits = hashed(keys, count)
            assert len(bits) == len(self.rows)
            self.drawn |= {(row, self.count): own for row, own in zip(self.rows, bits, strict=True)}
            self.count += 1
            return bits

        for module in (dropout, draws):
            monkeypatch.setattr(module, "hashed", hashed)

    def loss(self, model: Any, *inputs: Any) -> Tensor:
        """Return the objective's loss, whose draws belong to the rows of the part."""
        self.calls += 1
        ids = self.batch.inputs[0].ids
        self.rows = [int((ids == row).all(1).nonzero()[0]) for row in inputs[0].ids]
        self.count = 0
        return self.objective.loss(model, *inputs)

    def over(self, processes: int, micro_batches: int, loss: Any = None, step: int = 3) -> tuple[Draws, float, list[Tensor]]:
        """Return all draws, the loss and the gradients over some processes."""
        accumulator = GradientAccumulator(
            self.model, loss or self.loss, torch.float32, micro_batches, seed=1, progress=Progress(quiet=True)
        )
        self.drawn, total, gradients = {}, 0.0, [torch.zeros_like(p) for p in accumulator.parameters]
        for rank in range(processes):
            torch.manual_seed(rank)  # must not matter
            accumulator.zero_grad()
            total += float(accumulator.accumulate(self.batch.part(slice(rank, None, processes)), step))
            for gradient, parameter in zip(gradients, accumulator.parameters, strict=True):
                if parameter.grad is not None:
                    gradient += parameter.grad
        return self.drawn, total, gradients


def equal(one: Draws, other: Draws) -> bool:
    return one.keys() == other.keys() and all(one[at].equal(other[at]) for at in one)


@pytest.mark.parametrize("family", FAMILIES)
def test_any_number_of_processes_and_micro_batches_draws_the_same(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(2)
    recorder = Recorder(FAMILIES[family](), monkeypatch)
    drawn, loss, gradients = recorder.over(1, 1)
    assert {row for row, _ in drawn} == set(range(ROWS)) and len(drawn) % ROWS == 0
    for processes, micro_batches in ((1, 2), (1, 3), (2, 1), (2, 2), (3, 1), (4, 1), (6, 1)):  # the sixth process has no row
        again, same, others = recorder.over(processes, micro_batches)
        assert equal(drawn, again), (processes, micro_batches)
        assert same == pytest.approx(loss, rel=1e-5)
        torch.testing.assert_close(others, gradients, rtol=1e-3, atol=1e-4 * max(float(g.abs().max()) for g in gradients))
    another, *_ = recorder.over(1, 1, step=4)
    assert another.keys() == drawn.keys() and not any(drawn[at].equal(another[at]) for at in drawn if drawn[at].numel() > 1)


def test_parts_after_an_out_of_memory_error_draw_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = Recorder(FAMILIES["replaced"](), monkeypatch)

    def fits(model: Any, *inputs: Any) -> Tensor:
        loss = recorder.loss(model, *inputs)
        if len(inputs[0].ids) > 2:
            raise MemoryError
        return loss

    drawn, loss, _ = recorder.over(1, 1)
    again, same, _ = recorder.over(1, 1, loss=fits)
    assert recorder.calls == 1 + 1 + 1 + 3, "whole, in two parts of which the first failed, and in four, of two rows at most"
    assert equal(drawn, again) and same == pytest.approx(loss, rel=1e-5)
