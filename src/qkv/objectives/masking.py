"""Masking: choose the tokens to predict, and replace them.

Devlin et al. 2019 (BERT), section 3.1 and appendix A.1: 15 % of the tokens are chosen; of these 80 % become [MASK], 10 % a random
token and 10 % stay. `units` says what is chosen as a whole:

    token        single tokens
    word         whole words
    ngram        one to three words, n with a probability proportional to 1 / n (Lan et al. 2020, ALBERT, section 4.1)
    short-span   one token 80 % of the time, else two or three (Dong et al. 2019, UniLM, section 2.3)
    unit         phrases and entities where the text flags them, words elsewhere (Sun et al. 2019, ERNIE, section 3.2)

Every time that a text is read it is masked anew (dynamic masking).

Where we depart from the papers: the rate holds for a row, which may hold several texts, not for each text. It is met in
expectation, not by rounding: the unit that would exceed it is taken with the probability that makes the expected count right.
A row has a fixed number of slots for chosen tokens (SLACK beyond the rate); units that do not fit into the slots left are not
chosen, and a unit longer than all slots never is.
All shapes follow from the width of the rows alone, and nothing waits for the device. R rows, W width, K slots for chosen tokens.
"""

import math
from typing import Any, ClassVar, Literal, NamedTuple

import torch
from pydantic import Field, model_validator
from torch import Tensor

from qkv.base.rows import IGNORE_INDEX
from qkv.data.inputs import BEGINS_UNIT, BEGINS_WORD, Passages
from qkv.objectives.objective import PretrainingConfig
from qkv.parts.draws import integers, random_bits, uniform

Units = Literal["token", "short-span", "word", "ngram", "unit"]
SLACK: dict[str, int] = {"token": 0, "short-span": 2, "word": 4, "ngram": 8, "unit": 8}  # slots of a row beyond rate * W
NGRAM_SHARES = (6 / 11, 3 / 11, 2 / 11)  # of n-grams of one word, of two, of three
SHORT_SPAN_SHARES = (0.8, 0.1, 0.1)  # of spans of one token, of two, of three
LAST = torch.iinfo(torch.int64).max  # sorts tokens that must not be chosen to the end


class SelectionConfig(PretrainingConfig):
    """How many tokens are predicted, and in what units they are chosen."""

    rate: float = Field(default=0.15, gt=0, lt=1)  # share of tokens that are predicted
    units: Units = "token"  # what is chosen as a whole


class MaskingConfig(SelectionConfig):
    """How many tokens are predicted, and what replaces them."""

    needs_mask: ClassVar[bool] = True

    mask: float = Field(default=0.8, ge=0, le=1)  # share of the chosen tokens that become [MASK],
    random: float = Field(default=0.1, ge=0, le=1)  # become a random token,
    keep: float = Field(default=0.1, ge=0, le=1)  # stay

    @model_validator(mode="after")
    def _shares_sum_to_1(self) -> "MaskingConfig":
        if not math.isclose(total := self.mask + self.random + self.keep, 1, abs_tol=1e-6):
            raise ValueError(f"mask, random and keep are shares of the chosen tokens and must sum to 1, not {total:g}")
        return self


class MaskingVocabulary(NamedTuple):
    """The ids of a tokenizer that masking needs."""

    size: int
    first_text_id: int  # the first id of a token that comes from text; those before it are control tokens
    mask: int  # the id of [MASK]
    special: tuple[int, ...]  # ids that are never chosen: those of [CLS], [SEP] and padding

    @classmethod
    def of(cls, tokenizer: Any, masks: bool = True) -> "MaskingVocabulary":
        """Describe a tokenizer; without `masks`, the objective never writes [MASK], and the tokenizer need not have it."""
        special = (tokenizer.pad, tokenizer.bos, tokenizer.eos)
        return cls(len(tokenizer), tokenizer.first_text_id, tokenizer.mask if masks else tokenizer.unk, special)


class MaskedBatch(NamedTuple):
    """Rows with masked tokens, and the labels to predict."""

    ids: Tensor  # (R, W) the model's input
    columns: Tensor  # (R, K) columns of the slots, all different
    labels: Tensor  # (R, K) the original tokens there; IGNORE_INDEX in slots that were not needed


def mask_tokens(passages: Passages, c: MaskingConfig, vocabulary: MaskingVocabulary) -> MaskedBatch:
    """Choose tokens, and replace each by [MASK], by a random token, or by itself."""
    columns, chosen = choose_tokens(passages, c, vocabulary)
    original = passages.ids.gather(1, columns)
    drawn = uniform(original.shape, original.device)
    other = integers(vocabulary.first_text_id, vocabulary.size, original.shape, original.device)
    replaced = torch.where(drawn < c.mask, vocabulary.mask, torch.where(drawn < c.mask + c.random, other, original))
    ids = passages.ids.scatter(1, columns, torch.where(chosen, replaced, original))
    return MaskedBatch(ids, columns, original.masked_fill(~chosen, IGNORE_INDEX))


def choose_tokens(passages: Passages, c: SelectionConfig, vocabulary: MaskingVocabulary) -> tuple[Tensor, Tensor]:
    """Choose whole units in random order until they make up the rate. -> columns (R, K), and which of them are chosen (R, K)."""
    candidates = maskable(passages, vocabulary)
    unit = unit_numbers(passages, c.units, candidates)
    size = torch.zeros_like(unit).scatter_add_(1, unit, torch.ones_like(unit)).gather(1, unit)
    slots = slot_count(c, unit.size(1))
    # Sorting by a random key per unit keeps the tokens of a unit side by side.
    key, columns = random_keys(unit).masked_fill(~candidates, LAST).topk(slots, largest=False)
    order = torch.arange(slots, device=unit.device)
    before = (order * (key != key.roll(1, 1))).cummax(1).values  # tokens of the units that come before this one
    size = size.gather(1, columns)
    wanted = c.rate * candidates.sum(1, keepdim=True)
    # True for units that fit the rate, false for those after it, random only for the one that crosses it.
    within_rate = wanted - before > size * uniform((len(unit), 1), unit.device)
    return columns, candidates.gather(1, columns) & within_rate & (before + size <= slots)


def slot_count(c: SelectionConfig, width: int) -> int:
    """Return K, the number of slots for a row's chosen tokens."""
    return min(width, math.ceil(c.rate * width) + SLACK[c.units])


def maskable(passages: Passages, vocabulary: MaskingVocabulary) -> Tensor:
    """Return the tokens that may be chosen. -> (R, W)."""
    candidates = passages.text > 0
    for token in vocabulary.special:
        candidates = candidates & (passages.ids != token)
    return candidates


def random_keys(unit: Tensor) -> Tensor:
    """Draw a random sort key for each unit; it ends in the unit's number, so that no two units share one. (R, W) -> (R, W)."""
    drawn = random_bits(unit.shape, unit.device).gather(1, unit)
    return drawn.long() * unit.size(1) + unit


def unit_numbers(passages: Passages, units: Units, candidates: Tensor) -> Tensor:
    """Return the number, from 0 in each row, of the unit that each token belongs to. -> (R, W)."""
    if units == "token":
        return torch.arange(candidates.size(1), device=candidates.device).expand(candidates.shape)
    # Special tokens are units of their own, and no unit crosses from one text into the next.
    apart = ~candidates | ~candidates.roll(1, 1) | (passages.position == 0)
    begins = apart | (units == "short-span") | (passages.flags & (BEGINS_UNIT if units == "unit" else BEGINS_WORD) > 0)
    if units in ("ngram", "short-span"):
        ngram = ngram_numbers(_count_beginnings(begins), NGRAM_SHARES if units == "ngram" else SHORT_SPAN_SHARES)
        begins = apart | (ngram != ngram.roll(1, 1))
    return _count_beginnings(begins)


def _count_beginnings(begins: Tensor) -> Tensor:
    """Number stretches from 0 by where they begin. (R, W) -> (R, W)."""
    return begins.cumsum(1) - begins[:, :1].long()


def ngram_numbers(word: Tensor, shares: tuple[float, ...] = NGRAM_SHARES) -> Tensor:
    """Join words at random into n-grams, n = 1, 2, ... with these shares; return each word's n-gram. (R, W) -> (R, W)."""
    drawn = uniform(word.shape, word.device)
    length = torch.ones_like(word)
    for n in range(1, len(shares)):
        length += drawn >= sum(shares[:n])
    return torch.searchsorted(length.cumsum(1), word, right=True)
