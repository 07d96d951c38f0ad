"""Masking: the rate, the units, and the replacements of chosen tokens."""

import math
from collections import Counter
from typing import Any

import pytest
import torch
from torch import Tensor

from qkv.base.config import parse
from qkv.base.errors import ConfigError
from qkv.base.rows import IGNORE_INDEX
from qkv.data.inputs import BEGINS_UNIT, BEGINS_WORD, Passages
from qkv.objectives.masking import (
    MaskedBatch,
    MaskingConfig,
    choose_tokens,
    mask_tokens,
    maskable,
    ngram_numbers,
    slot_count,
    unit_numbers,
)
from toy_passages import CLS, FIRST, MASK, PAD, SEP, SPECIAL, UNK, Text, lay_out, random_passages, text_of, vocabulary

VOCAB = 50
WORDS = vocabulary(VOCAB)
UNITS = ["token", "word", "ngram", "unit"]
every_unit = pytest.mark.parametrize("units", UNITS)


def chosen_in(passages: Passages, masked: MaskedBatch) -> Tensor:
    """Return the chosen tokens. -> (R, W)."""
    return torch.zeros_like(passages.ids).scatter(1, masked.columns, (masked.labels != IGNORE_INDEX).long()) > 0


def many_times(passages: Passages, c: MaskingConfig, times: int) -> list[MaskedBatch]:
    return [mask_tokens(passages, c, WORDS) for _ in range(times)]


def share_chosen(passages: Passages, c: MaskingConfig, times: int) -> float:
    chosen = sum(int((masked.labels != IGNORE_INDEX).sum()) for masked in many_times(passages, c, times))
    return chosen / times / int(maskable(passages, WORDS).sum())


@every_unit
@pytest.mark.parametrize("rate", [0.15, 0.3])
def test_the_rate_holds(units: Any, rate: float) -> None:
    passages = random_passages(rows=40)
    assert share_chosen(passages, MaskingConfig(rate=rate, units=units), 200) == pytest.approx(rate, rel=0.02)


@every_unit
def test_the_rate_holds_in_rows_of_a_few_tokens(units: Any) -> None:
    passages = lay_out([[text_of([7, 8, 9])]] * 500, 16, 1)  # 0.45 of a token in each
    assert share_chosen(passages, MaskingConfig(units=units), 40) == pytest.approx(0.15, rel=0.05)


@every_unit
def test_masked_tokens_can_be_restored(units: Any) -> None:
    passages = random_passages(rows=30)
    for masked in many_times(passages, MaskingConfig(units=units), 20):
        chosen = masked.labels != IGNORE_INDEX
        assert torch.equal(masked.labels[chosen], passages.ids.gather(1, masked.columns)[chosen])
        assert torch.equal(masked.ids[~chosen_in(passages, masked)], passages.ids[~chosen_in(passages, masked)])
        assert all(len(set(row)) == len(row) for row in masked.columns.tolist())


@every_unit
def test_special_tokens_and_padding_are_never_chosen(units: Any) -> None:
    passages = random_passages(rows=30)
    passages.ids[3, 1] = UNK  # an unknown word may be
    asked = {int(t) for h in many_times(passages, MaskingConfig(rate=0.6, units=units), 50) for t in h.labels.flatten()} - {
        IGNORE_INDEX
    }
    assert asked == {UNK, *range(FIRST, VOCAB)}
    assert not maskable(passages, WORDS)[passages.text == 0].any()


@every_unit
def test_rows_without_text_have_no_labels(units: Any) -> None:
    passages = lay_out([[], [text_of([])], [text_of([7, 8])]], 12, 1)
    for masked in many_times(passages, MaskingConfig(rate=0.9, units=units), 20):
        assert (masked.labels[:2] == IGNORE_INDEX).all()
        assert torch.equal(masked.ids[:2], passages.ids[:2])


SHARES = [(0.8, 0.1, 0.1), (1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.5, 0.2, 0.3)]


@pytest.mark.parametrize(("mask", "random", "keep"), SHARES)
def test_shares_of_replacements(mask: float, random: float, keep: float) -> None:
    passages = random_passages(rows=60)
    c = MaskingConfig(rate=0.5, mask=mask, random=random, keep=keep)
    found: Counter[str] = Counter()
    others: set[int] = set()
    for masked in many_times(passages, c, 30):
        read, chosen = masked.ids.gather(1, masked.columns), masked.labels != IGNORE_INDEX
        kept, as_mask = chosen & (read == masked.labels), chosen & (read == MASK)
        others |= set(read[chosen & ~kept & ~as_mask].tolist())
        found.update(masked=int(as_mask.sum()), kept=int(kept.sum()), all=int(chosen.sum()))
    by_chance = random / (VOCAB - FIRST)  # a random token may be the same
    assert found["masked"] / found["all"] == pytest.approx(mask, abs=0.01)
    assert found["kept"] / found["all"] == pytest.approx(keep + by_chance, abs=0.01)
    assert others == (set(range(FIRST, VOCAB)) if random else set()), "any token, but none of control"


def test_every_token_is_as_likely_as_any_other() -> None:
    passages = random_passages(rows=1, seed=3)
    times = 4000
    often = sum(chosen_in(passages, masked).double() for masked in many_times(passages, MaskingConfig(), times)) / times
    may = maskable(passages, WORDS)
    assert not often[~may].any()
    deviation = math.sqrt(0.15 * 0.85 / times)
    assert (often[may] - 0.15).abs().max() < 4.5 * deviation


def units_by_hand(passages: Passages, bit: int) -> list[list[tuple[int, int]]]:
    """Return (row, column) of the tokens of each unit."""
    found: list[list[tuple[int, int]]] = []
    for r, (ids, flags, position) in enumerate(
        zip(passages.ids.tolist(), passages.flags.tolist(), passages.position.tolist(), strict=True)
    ):
        after_special = True
        for w, (token, mark) in enumerate(zip(ids, flags, strict=True)):
            if token in SPECIAL:
                after_special = True
                continue
            if mark & bit or after_special or position[w] == 0:
                found.append([])
            found[-1].append((r, w))
            after_special = False
    return found


@pytest.mark.parametrize(("units", "bit"), [("word", BEGINS_WORD), ("unit", BEGINS_UNIT), ("ngram", BEGINS_WORD)])
def test_units_are_chosen_as_a_whole(units: Any, bit: int) -> None:
    passages = random_passages(rows=30)
    whole = units_by_hand(passages, bit)
    assert max(map(len, whole)) > 3
    for masked in many_times(passages, MaskingConfig(rate=0.3, units=units), 50):
        chosen = chosen_in(passages, masked)
        for unit in whole:
            assert len({bool(chosen[at]) for at in unit}) == 1, unit


def test_tokens_are_chosen_one_by_one() -> None:
    passages = random_passages(rows=30)
    split = 0
    for masked in many_times(passages, MaskingConfig(rate=0.3), 5):
        chosen = chosen_in(passages, masked)
        split += sum(len({bool(chosen[at]) for at in unit}) == 2 for unit in units_by_hand(passages, BEGINS_WORD))
    assert split


def test_a_word_ends_with_its_text_and_before_special_tokens() -> None:
    one = text_of([7, 8], [9], flags=[BEGINS_WORD, 0, 0])  # the second part begins within a word
    passages = lay_out([[one, one]], 16, 2)
    may = maskable(passages, WORDS)
    numbers = unit_numbers(passages, "word", may)[0].tolist()
    assert passages.ids[0].tolist() == [CLS, 7, 8, SEP, 9, SEP, CLS, 7, 8, SEP, 9, SEP, *[PAD] * 4]
    assert numbers == [0, 1, 1, 2, 3, 4, 5, 6, 6, 7, 8, 9, 10, 11, 12, 13]


def test_a_word_ends_with_its_text_even_where_no_special_token_says_so() -> None:
    passages = lay_out([[Text([7, 8], [0, 0], [0, 0])] * 2], 5, 2)
    assert unit_numbers(passages, "word", maskable(passages, WORDS))[0].tolist() == [0, 0, 1, 1, 2]


def test_n_grams_are_as_long_as_albert_says() -> None:
    words = torch.arange(2000).expand(40, -1).contiguous()
    lengths: Counter[int] = Counter()
    for row in ngram_numbers(words).tolist():
        assert sorted(row) == row and len(set(row)) == row[-1] + 1, "side by side, none left out"
        lengths.update(list(Counter(row).values())[:-1])
    total = sum(lengths.values())
    assert set(lengths) == {1, 2, 3}
    for n, share in {1: 6 / 11, 2: 3 / 11, 3: 2 / 11}.items():
        assert lengths[n] / total == pytest.approx(share, abs=0.01)


def test_n_grams_that_are_chosen_are_as_long_as_albert_says() -> None:
    """In a long text of one-token words with a low rate, runs of chosen tokens are single n-grams."""
    passages = lay_out([[text_of([7] * 400)]] * 50, 402, 1)
    runs: Counter[int] = Counter()
    for masked in many_times(passages, MaskingConfig(rate=0.02, units="ngram"), 20):
        for row in chosen_in(passages, masked).long().tolist():
            runs.update(map(len, "".join(map(str, row)).replace("0", " ").split()))
    total = sum(runs.values())
    for n, share in {1: 6 / 11, 2: 3 / 11, 3: 2 / 11}.items():
        assert runs[n] / total == pytest.approx(share, abs=0.03)  # neighbours look like one


def test_a_unit_that_is_too_long_is_never_chosen() -> None:
    long = text_of([7] * 20, flags=[BEGINS_WORD, *[0] * 19])
    short = text_of([8, 9])
    passages = lay_out([[long, short]] * 50, 32, 2)
    c = MaskingConfig(units="word")
    assert slot_count(c, 32) < 20
    asked = {int(t) for h in many_times(passages, c, 50) for t in h.labels.flatten()} - {IGNORE_INDEX}
    assert asked == {8, 9}
    assert share_chosen(passages, c, 50) <= 2 / 22  # below the rate, as the docstring says


@every_unit
def test_shapes_follow_from_the_width_alone(units: Any) -> None:
    c = MaskingConfig(units=units)
    shapes = set()
    for seed in range(5):
        where, chosen = choose_tokens(random_passages(rows=4, seed=seed), c, WORDS)
        shapes |= {tuple(where.shape), tuple(chosen.shape)}
    assert shapes == {(4, slot_count(c, 60))}
    assert slot_count(c, 2) == (1 if units == "token" else 2)


def test_masks_are_drawn_anew_but_come_again_with_the_seed() -> None:
    passages = random_passages(rows=10)
    drawn = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        drawn.append(mask_tokens(passages, MaskingConfig(units="ngram"), WORDS).ids)
    assert torch.equal(drawn[0], drawn[1]) and not torch.equal(drawn[0], drawn[2])


def test_shares_must_be_of_the_whole() -> None:
    with pytest.raises(ConfigError, match=r"mask, random and keep are shares .* must sum to 1, not 1\.2"):
        parse(MaskingConfig, {"mask": 1.0}, "here")
    with pytest.raises(ConfigError, match="units"):
        parse(MaskingConfig, {"units": "sentence"}, "here")
