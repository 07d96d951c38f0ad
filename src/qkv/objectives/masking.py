"""Masking: which tokens are to be guessed, and what stands in their places.

Devlin et al. 2019 (BERT), section 3.1 and appendix A.1: 15 % of the tokens are chosen; of these 80 % become [MASK], 10 % a random
token and 10 % stay as they are. What is chosen may be tokens, whole words, n-grams of words (Lan et al. 2020, ALBERT, section
4.1: of n words with a probability in proportion to 1 / n), a few tokens, that is one 80 % of the time, else two or three (Dong et
al. 2019, UniLM, section 2.3), or units of knowledge, which are phrases and entities where the text has some and words
elsewhere (Sun et al. 2019, ERNIE, section 3.2). Each time a text is read it is masked anew.

Where we depart from the papers: the rate is a row's, which may hold several texts, and not each text's; it is kept by chance, not
by rounding: the unit with which a row would have too many is taken with the probability that makes their expected number right.
Units that a row's room for chosen tokens (SLACK beyond the rate) cannot hold are left out, so that fewer are chosen where these
are, and of a unit longer than that room none ever.
All shapes follow from the row's width alone, and nothing waits for the device. R rows, W width, K places to be chosen.
"""

import math
from typing import Any, ClassVar, Literal, NamedTuple

import torch
from pydantic import Field, model_validator
from torch import Tensor

from qkv.base.rows import IGNORE_INDEX
from qkv.data.inputs import BEGINS_UNIT, BEGINS_WORD, Passages
from qkv.objectives.objective import PretrainingConfig

Units = Literal["token", "short-span", "word", "ngram", "unit"]
# Places of a row beyond rate * W, for a last unit that is longer than what was still wanted. One too long for them is left out.
SLACK: dict[str, int] = {"token": 0, "short-span": 2, "word": 4, "ngram": 8, "unit": 8}
OF_WORDS = (6 / 11, 3 / 11, 2 / 11)  # shares of n-grams of one word, of two, of three
OF_TOKENS = (0.8, 0.1, 0.1)  # and of one token, of two, of three
LAST = torch.iinfo(torch.int64).max  # the score of what must not be chosen


class ChoosingConfig(PretrainingConfig):
    """How much is to be guessed, and in what units."""

    rate: float = Field(default=0.15, gt=0, lt=1)  # of tokens that are to be guessed
    units: Units = "token"  # what is chosen as a whole


class MaskingConfig(ChoosingConfig):
    """The same, and what is put there."""

    needs_mask: ClassVar[bool] = True

    mask: float = Field(default=0.8, ge=0, le=1)  # share of these that become [MASK],
    random: float = Field(default=0.1, ge=0, le=1)  # another token,
    keep: float = Field(default=0.1, ge=0, le=1)  # or stay

    @model_validator(mode="after")
    def _all_of_them(self) -> "MaskingConfig":
        if not math.isclose(total := self.mask + self.random + self.keep, 1, abs_tol=1e-6):
            raise ValueError(f"mask, random and keep are shares of the chosen tokens and must sum to 1, not {total:g}")
        return self


class Vocabulary(NamedTuple):
    """What masking must know of a tokenizer."""

    size: int
    ordinary: int  # the first id of a token that comes from text; those before it are control tokens
    mask: int  # the id of [MASK]
    special: tuple[int, ...]  # ids that are never chosen: those of [CLS], [SEP] and padding

    @classmethod
    def of(cls, tokenizer: Any, masks: bool = True) -> "Vocabulary":
        """Describe a tokenizer; without `masks`, the objective never writes [MASK], and the tokenizer need not have it."""
        special = (tokenizer.pad, tokenizer.bos, tokenizer.eos)
        return cls(len(tokenizer), tokenizer.first_text_id, tokenizer.mask if masks else tokenizer.unk, special)


class Hidden(NamedTuple):
    """Rows as they are read, and what is to be guessed."""

    ids: Tensor  # (R, W)
    where: Tensor  # (R, K) places in the row, no two the same
    answer: Tensor  # (R, K) the tokens that stood there; SKIP at places that were not chosen after all


def hide(passages: Passages, c: MaskingConfig, vocabulary: Vocabulary) -> Hidden:
    """Choose tokens and put others in their places."""
    where, chosen = choose(passages, c, vocabulary)
    original = passages.ids.gather(1, where)
    put = torch.where(chosen, corrupted(original, c, vocabulary), original)
    return Hidden(passages.ids.scatter(1, where, put), where, original.masked_fill(~chosen, IGNORE_INDEX))


def corrupted(original: Tensor, c: MaskingConfig, vocabulary: Vocabulary) -> Tensor:
    """What is read in the places of chosen tokens: [MASK], any token at all, or themselves. (R, K) -> (R, K)."""
    drawn = torch.rand(original.shape, device=original.device)
    other = torch.randint_like(original, vocabulary.ordinary, vocabulary.size)
    return torch.where(drawn < c.mask, vocabulary.mask, torch.where(drawn < c.mask + c.random, other, original))


def choose(passages: Passages, c: ChoosingConfig, vocabulary: Vocabulary) -> tuple[Tensor, Tensor]:
    """Whole units in random order, as many as make up the rate. -> places (R, K), and which of them are chosen (R, K)."""
    may = maskable(passages, vocabulary)
    unit = numbered_units(passages, c.units, may)
    size = torch.zeros_like(unit).scatter_add_(1, unit, torch.ones_like(unit)).gather(1, unit)
    positions = places_for(c, unit.size(1))
    score, where = random_scores(unit).masked_fill(~may, LAST).topk(positions, largest=False)  # tokens of a unit side by side
    order = torch.arange(positions, device=unit.device)
    before = (order * (score != score.roll(1, 1))).cummax(1).values  # tokens of units that came before this one's
    size = size.gather(1, where)
    wanted = c.rate * may.sum(1, keepdim=True)
    # Always where the whole unit is wanted, never where nothing is: by chance only for the one in between.
    lucky = wanted - before > size * torch.rand(len(unit), 1, device=unit.device)
    return where, may.gather(1, where) & lucky & (before + size <= positions)


def places_for(c: ChoosingConfig, width: int) -> int:
    """K: room for a row's chosen tokens."""
    return min(width, math.ceil(c.rate * width) + SLACK[c.units])


def maskable(passages: Passages, vocabulary: Vocabulary) -> Tensor:
    """Which tokens may be chosen. -> (R, W)."""
    may = passages.text > 0
    for token in vocabulary.special:
        may = may & (passages.ids != token)
    return may


def random_scores(unit: Tensor) -> Tensor:
    """For each unit a random number, the same at all its tokens and at no others: it ends in the unit's own. (R, W) -> (R, W)."""
    drawn = torch.randint_like(unit, 1 << 31).gather(1, unit)
    return drawn * unit.size(1) + unit


def numbered_units(passages: Passages, kind: Units, may: Tensor) -> Tensor:
    """The number, from 0, of the unit of its row that each token belongs to. -> (R, W)."""
    if kind == "token":
        return torch.arange(may.size(1), device=may.device).expand(may.shape)
    # Special tokens stand by themselves, and no unit goes on from one text into the next.
    apart = ~may | ~may.roll(1, 1) | (passages.position == 0)
    begins = apart | (kind == "short-span") | (passages.marks & (BEGINS_UNIT if kind == "unit" else BEGINS_WORD) > 0)
    if kind in ("ngram", "short-span"):
        ngram = numbered_ngrams(_numbered(begins), OF_WORDS if kind == "ngram" else OF_TOKENS)
        begins = apart | (ngram != ngram.roll(1, 1))
    return _numbered(begins)


def _numbered(begins: Tensor) -> Tensor:
    return begins.cumsum(1) - begins[:, :1].long()


def numbered_ngrams(word: Tensor, shares: tuple[float, ...] = OF_WORDS) -> Tensor:
    """Words put together by chance, one, two and so on with these shares: the number of each word's n-gram. (R, W) -> (R, W)."""
    drawn = torch.rand(word.shape, device=word.device)
    length = torch.ones_like(word)
    for n in range(1, len(shares)):
        length += drawn >= sum(shares[:n])
    return torch.searchsorted(length.cumsum(1), word, right=True)
