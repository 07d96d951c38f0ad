"""The number of examples decides batches and epochs where the recipe leaves them to qkv."""

import numpy as np
import pytest

from qkv.data.encoded import EncodedExamples, EncodedLabelledTexts, EncodedTaggedTexts
from qkv.data.labelled import BatchShape, LabelledBatches
from qkv.jobs.finetuning import auto_batch_tokens, with_length
from qkv.recipes.finetuning import FinetuningTraining

AUTO = FinetuningTraining(epochs="auto")


def examples(texts: int, length: int, tagged: bool) -> EncodedExamples:
    """Return texts with a tag at each of their tokens, or with a label each."""
    ids, ends = np.ones(texts * length, dtype=np.int64), np.arange(1, texts + 1) * length
    if tagged:
        return EncodedTaggedTexts(ids, ids * 0, ends, np.arange(texts), ids, words=np.arange(len(ids)))
    return EncodedLabelledTexts(ids, ids * 0, ends, np.arange(texts), np.arange(texts) % 2)


def chosen(given: EncodedExamples, length: int, one_text_per_row: bool = False) -> tuple[int, int, int]:
    """Return the tokens of an update, the updates of an epoch, and the epochs."""
    shape = BatchShape.holding(length, auto_batch_tokens(given), one_text_per_row, pad=0)
    batches = LabelledBatches(given, 1, shape).batches_in_epoch
    config = with_length(AUTO, shape.rows * shape.width, batches)
    assert config.steps == config.epochs * batches and config.validate_every == config.save_every == batches
    return config.batch_tokens, batches, config.epochs


@pytest.mark.parametrize("tagged", [True, False])
@pytest.mark.parametrize("length", [8, 20, 100, 300])
@pytest.mark.parametrize("texts", [3, 50, 500, 1500, 6000, 20_000])
def test_enough_updates_are_made_within_limits(texts: int, length: int, tagged: bool) -> None:
    given = examples(texts, length, tagged)
    tokens, updates, epochs = chosen(given, length)
    assert min(256, length) <= tokens <= 2048 and 3 <= epochs <= 10
    assert updates * epochs >= 300 or epochs == 10
    labels = given.label_counts.sum() / len(given.ids) * tokens
    assert labels >= 5 or tokens > 1024  # texts of 300 tokens with a label each
    if tokens > 512 and tagged:
        assert updates >= 90  # larger batches only where there are enough of them
    if updates > 200 and tokens < 1024:
        assert tagged or labels < 16  # smaller ones only where they are needed


@pytest.mark.parametrize(
    ("texts", "length", "tagged", "wanted"),
    [
        (1500, 20, True, (256, 125, 3)),
        (20_000, 20, True, (2048, 209, 3)),
        (200, 20, True, (256, 17, 10)),
        (200, 100, False, (768, 34, 9)),
        (67_000, 12, False, (2048, 420, 3)),
    ],
)
def test_choices(texts: int, length: int, tagged: bool, wanted: tuple[int, int, int]) -> None:
    tokens, updates, epochs = chosen(examples(texts, length, tagged), length)
    assert (tokens, epochs) == (wanted[0], wanted[2]) and updates == pytest.approx(wanted[1], rel=0.1)


def test_a_batch_is_never_narrower_than_a_row() -> None:
    shape = BatchShape.holding(512, auto_batch_tokens(examples(4, 512, True)), False, pad=0)
    assert (shape.rows, shape.width) == (1, 512)


def test_given_numbers_win() -> None:
    both = with_length(FinetuningTraining(epochs=2, batch_tokens=4096), 4000, 17)
    assert (both.epochs, both.steps, both.batch_tokens, both.validate_every) == (2, 34, 4096, 17)
    steps = with_length(FinetuningTraining(epochs="auto", steps=70, validate_every=30), 256, 17)
    assert (steps.epochs, steps.steps, steps.batch_tokens, steps.validate_every) == (None, 70, 256, 30)
