"""Span corruption against its definition, text by text and token by token."""

from collections import Counter
from itertools import islice, pairwise

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from qkv.base.errors import ConfigError, DataError
from qkv.data.batches import START, Position
from qkv.data.denoising import DenoisingBatches, segments
from qkv.data.documents import Documents
from qkv.data.tokens import token_texts
from qkv.models.t5 import T5, T5Config
from qkv.objectives.spans import SpanCorruption, SpansConfig, random_partition
from qkv.objectives.translation import Translation, TranslationConfig

BOS, EOS, FIRST = 2, 3, 200
SENTINELS = [90 - number for number in range(60)]  # numbered downwards, as in T5's own vocabulary


def made(rate: float = 0.15, mean: float = 3.0, sentinels: int = 60) -> SpanCorruption:
    return SpanCorruption(SpansConfig(rate=rate, mean_span_length=mean), BOS, EOS, SENTINELS[:sentinels])


def texts_of_lengths(lengths: list[int]) -> list[list[int]]:
    """Return texts in which no token occurs twice, so that each can be followed."""
    numbers = iter(range(FIRST, FIRST + sum(lengths)))
    return [list(islice(numbers, length)) for length in lengths]


def corrupted(spans: SpanCorruption, texts: list[list[int]], seed: int = 1) -> list[tuple[list[int], list[int]]]:
    ids, lengths = np.array([token for text in texts for token in text]), np.array([len(text) for text in texts])
    sides = spans.corrupt((ids, lengths), np.random.default_rng(seed))
    cut = [[part.tolist() for part in np.split(side, np.cumsum(sizes)[:-1])] for side, sizes in sides]
    return list(zip(*cut, strict=True))


def mended(source: list[int], target: list[int]) -> list[int]:
    """Restore the text: replace each sentinel of the source by the span after it in the target."""
    told: dict[int, list[int]] = {}
    for token in target:
        if token in SENTINELS:
            here = told.setdefault(token, [])
        else:
            here.append(token)
    return [token for word in source for token in (told[word] if word in SENTINELS else [word])]


@pytest.mark.parametrize(("rate", "mean"), [(0.15, 3.0), (0.5, 3.0), (0.15, 1.0), (0.9, 5.0)])
def test_every_token_is_on_one_side_and_sentinels_are_in_order(rate: float, mean: float) -> None:
    lengths = [2, 3, 5, 8, 13, 40, 97, 120, 2, 33]
    texts = texts_of_lengths(lengths)
    for text, (source, target) in zip(texts, corrupted(made(rate, mean), texts), strict=True):
        assert source[-1] == EOS and EOS not in target
        flags = [token for token in source if token in SENTINELS]
        assert flags == SENTINELS[: len(flags)]
        assert [token for token in target if token in SENTINELS] == SENTINELS[: len(flags) + 1]
        assert target[0] == SENTINELS[0] and target[-1] == SENTINELS[len(flags)]
        both = Counter(token for token in [*source[:-1], *target] if token not in SENTINELS)
        assert both == Counter(text)
        assert mended(source[:-1], target) == text
        dropped = sum(token not in SENTINELS for token in target)
        assert dropped == min(max(round(len(text) * rate), 1), len(text) - 1)
        assert len(flags) == min(max(round(dropped / mean), 1), len(text) - dropped + 1)
        for side in (source, target):  # spans do not touch, and none is empty
            assert not any(one in SENTINELS and other in SENTINELS for one, other in pairwise(side))


def test_rates_and_lengths_of_long_texts_are_the_papers() -> None:
    texts = texts_of_lengths([500] * 40)
    pairs = corrupted(made(), texts)
    dropped = sum(token >= FIRST for _, target in pairs for token in target)
    spans = sum(token in SENTINELS for source, _ in pairs for token in source)
    assert dropped / (40 * 500) == pytest.approx(0.15)
    assert dropped / spans == pytest.approx(3.0)


def test_every_way_to_divide_is_as_likely() -> None:
    rng = np.random.default_rng(3)
    sizes, parts = np.full(6000, 5), np.full(6000, 3)
    ways = Counter(map(tuple, random_partition(sizes, parts, rng).reshape(-1, 3).tolist()))
    assert {*ways} == {(1, 1, 3), (1, 3, 1), (3, 1, 1), (1, 2, 2), (2, 1, 2), (2, 2, 1)}
    assert all(900 < count < 1100 for count in ways.values())


def test_a_span_may_stand_anywhere() -> None:
    texts = [[FIRST + position for position in range(9)] for _ in range(4000)]
    where = Counter(source.index(SENTINELS[0]) for source, _ in corrupted(made(rate=0.3), texts))  # a span of three
    assert {*where} == {*range(7)} and all(470 < count < 680 for count in where.values())


def test_the_seed_alone_decides() -> None:
    texts = texts_of_lengths([50, 20])
    assert corrupted(made(), texts) == corrupted(made(), texts)
    assert corrupted(made(), texts) != corrupted(made(), texts, seed=2)


def test_too_few_sentinels_are_refused() -> None:
    assert made().widths(512) == (513 - 77 + 26, 77 + 26 + 2)
    told = "the tokenizer has 10 sentinels, texts of 512 tokens need 27; lower data.length, or train a tokenizer with more"
    with pytest.raises(ConfigError, match=told):
        made(sentinels=10).widths(512)


# Batches


def documents(lengths: list[int]) -> Documents:
    texts = texts_of_lengths(lengths)
    return Documents(
        token_texts(texts), token_texts([[len(text)] for text in texts]), token_texts([[0] * len(text) for text in texts])
    )


def batches_of(lengths: list[int], length: int = 20, **options: int) -> DenoisingBatches:
    spans, found = made(), documents(lengths)
    widths = spans.widths(length)
    return DenoisingBatches(
        found, np.arange(len(found)), length, spans.corrupt, seed=options.get("seed", 1), rows=4, widths=widths, eos=EOS
    )


def test_pieces_are_all_of_the_text_but_single_tokens() -> None:
    found = documents([45, 20, 1, 0, 41, 7])
    starts, sizes = segments(found.tokens, np.array([0, 2, 3, 4, 5]), 20)
    assert list(zip(starts.tolist(), sizes.tolist(), strict=True)) == [(0, 20), (20, 20), (40, 5), (66, 20), (86, 20), (107, 7)]


def mended_rows(source: np.ndarray, target: np.ndarray, texts: tuple[np.ndarray, np.ndarray]) -> list[list[int]]:
    found = []
    for row in range(len(source)):
        for number in range(1, texts[0][row].max() + 1):
            read, said = source[row][texts[0][row] == number].tolist(), target[row][texts[1][row] == number].tolist()
            assert read.pop() == said.pop() == EOS
            found.append(mended(read, said))
    return found


def test_an_epoch_reads_every_piece_once_corrupted_anew_each_time() -> None:
    batches = batches_of([45, 20, 30, 17, 9, 3, 100])
    epochs: list[list[list[int]]] = [[], []]
    sources: list[set[tuple[int, ...]]] = [set(), set()]
    for batch in batches.starting(START):
        epoch = batch.after.epoch if batch.after.batch else batch.after.epoch - 1
        if epoch > 1:
            break
        (read, said) = batch.inputs
        epochs[epoch] += mended_rows(read.ids.numpy(), said.ids.numpy(), (read.text.numpy(), said.text.numpy()))
        sources[epoch] |= {tuple(row) for row in read.ids.tolist()}
    wanted = sorted(
        text[start : start + 20] for text in texts_of_lengths([45, 20, 30, 17, 9, 3, 100]) for start in range(0, len(text), 20)
    )
    assert sorted(epochs[0]) == sorted(epochs[1]) == wanted
    assert len(sources[0] & sources[1]) < len(sources[0]) / 2


def test_batches_resume_anywhere_and_dev_is_always_the_same() -> None:
    lengths = [45, 20, 30, 17, 9, 3, 100] * 5
    batches = batches_of(lengths)
    first = list(islice(batches.starting(START), 9))
    again = list(islice(batches_of(lengths).starting(first[3].after), 5))
    for one, other in zip(first[4:], again, strict=True):
        assert all(a.ids.equal(b.ids) for a, b in zip(one.inputs, other.inputs, strict=True)) and one.after == other.after
    dev, same = (
        [rows.ids.tolist() for batch in made.in_order() for rows in batch.inputs] for made in (batches, batches_of(lengths))
    )
    assert dev == same and dev
    assert isinstance(first[0].after, Position)


def test_no_text_is_refused() -> None:
    with pytest.raises(DataError, match="no text of 2 tokens or more to be read"):
        batches_of([1, 0, 1])


# The loss


def test_the_loss_of_dropped_tokens_is_that_without_sentinels_and_eos() -> None:
    spans, vocabulary = made(), FIRST + 224
    model = T5(T5Config(width=16, feedforward=16, heads=2, head_width=8, encoder_layers=1, decoder_layers=1), *[vocabulary] * 2)
    model.eval()
    total, wanted = 0.0, []
    for batch in batches_of([45, 20, 30, 17, 9, 3, 100]).in_order():
        source, target = batch.inputs
        with torch.no_grad():
            loss = spans.loss(model, source, target)
            plain = Translation(TranslationConfig(smoothing=0.0), BOS).loss(model, source, target)
        torch.testing.assert_close(loss, plain)
        total += float(loss)
        logits = model.logits(model(source, spans.shifted(target)))
        each = F.cross_entropy(logits.flatten(0, 1), target.ids.flatten(), reduction="none").view_as(target.ids)
        wanted += each[(target.ids >= FIRST) & (target.text > 0)].tolist()
    assert len(wanted) == sum(int(spans.amounts(np.array([size]))[0][0]) for size in [20, 20, 5, 20, 20, 10, 17, 9, 3, *[20] * 5])
    assert spans.tally.read() == {"span_loss": pytest.approx(sum(wanted) / len(wanted), rel=1e-5)}
    assert sum(wanted) < total


def test_frequencies_of_dropped_tokens_are_those_of_the_text() -> None:
    counts = np.array([0, 0, 0, 0, 3, 1])
    assert made().unigram_figure == "span_loss"
    assert made().unigram_loss(counts) == pytest.approx(-0.75 * np.log(0.75) - 0.25 * np.log(0.25))
