"""Who sees whom in attention that is not quadratic: a window, first places and random blocks (Zaheer et al. 2020, section 2).

A `Pattern` is a rule on the one attention, "same text" and one of three: at most so far away; one of the two among the text's
first places; or the key in a block that was chosen at random for the query's block, a graph fixed by the seed. Places and blocks
are those within a text, so that a packed row and a padded one give the same result, and a text has all of its random blocks
however long the row is.

Departures from "Big Bird": the window is counted in places, not in blocks; the global places are the text's own first ones (the
paper's ITC), the graph is the same for all heads, and no random block is one that the window touches or first places are in.
B rows, T places, N blocks, R random blocks.
"""

import functools
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from qkv.base.errors import ConfigError
from qkv.base.seeds import rng_at
from qkv.parts.masks import Rule, same_text

BLOCKS = (16, 32, 64, 128)  # places in a block that the kernel's programs can hold
NONE = 1 << 30  # above every place and block


def window(radius: int) -> Rule:
    """A place sees those at most `reach` away, to both sides."""
    if radius < 1:
        raise ConfigError(f"a window of reach {radius} shows no neighbour; use 1 or more")
    return Rule(lambda b, q, k: (q - k).abs() <= radius)


def first_places(position: Tensor, first: int) -> Rule:
    """The first places of a text see and are seen by all. place (B, T), within the text."""
    return Rule(lambda b, q, k: (position[b, q] < first) | (position[b, k] < first))


def random_blocks(position: Tensor, chosen: Tensor, block: int) -> Rule:
    """A place sees the blocks of its text that were chosen for it. place (B, T), chosen (B, T, R), -1 where there is none."""

    def allows(b: Tensor, q: Tensor, k: Tensor) -> Tensor:
        theirs = position[b, k] // block
        return functools.reduce(torch.logical_or, (one == theirs for one in chosen[b, q].unbind(-1)))

    return Rule(allows)


@dataclass(frozen=True)
class Pattern:
    """Who may look at whom within a text."""

    radius: int  # places to each side that a place sees
    first: int = 0  # places at a text's beginning that see and are seen by all of it
    random: int = 0  # blocks chosen at random for each block
    block: int = 64  # places in a block
    seed: int = 0  # of the choice

    def __post_init__(self) -> None:
        window(self.radius)  # which refuses what is none
        for name, count in (("first", self.first), ("random", self.random)):
            if count < 0:
                raise ConfigError(f"{name} {count} is below 0; use 0 for none of them, or more")
        if self.block not in BLOCKS:
            raise ConfigError(f"a block of {self.block} places is none of {', '.join(map(str, BLOCKS))}; use one of these")

    @property
    def touched(self) -> int:
        """Blocks to one side that a window reaches into from anywhere in a block."""
        return -(-self.radius // self.block)

    def rule(self, text: Tensor) -> Rule:
        """As a rule for rows whose places belong to these texts. text (B, T), 0 = padding."""
        return same_text(text, text) & self.within(*positions(text))

    def within(self, position: Tensor, length: Tensor, draws: Tensor | None = None) -> Rule:
        """The rule for two places of one text. place and its text's length (B, T); draws as for `chosen`."""
        rule = window(self.radius)
        if self.first:
            rule = rule | first_places(position, self.first)
        if self.random:
            rule = rule | random_blocks(position, self.chosen(position, length, draws), self.block)
        return rule

    def draws(self, length: int, device: torch.device) -> Tensor:
        """What the random blocks of texts of so many tokens are chosen by. -> (N, R)."""
        return _draws(self.seed, -(-length // self.block), self.random, device)

    def chosen(self, position: Tensor, length: Tensor, draws: Tensor | None = None) -> Tensor:
        """The random blocks that each place sees. place and its text's length (B, T) -> (B, T, R), -1 = none.

        Where rows have no fixed width, as in a graph for others, draws for at least as many places are given.
        """
        own = position // self.block
        end = -(-length // self.block)
        begin = -(-self.first // self.block)  # what lies before is seen anyway, and so is what the window touches:
        low = (own - self.touched).clamp(min=begin)
        skipped = (torch.minimum(own + self.touched + 1, end) - low).clamp(min=0)
        left = end - begin - skipped
        draws = self.draws(position.size(1), position.device) if draws is None else draws
        picks = _without_repeats(draws[own], left)
        picks = torch.where(picks < NONE, picks + begin, NONE)
        return torch.where(picks < NONE, picks + (picks >= low[..., None]) * skipped[..., None], -1)


@functools.cache
def _draws(seed: int, blocks: int, many: int, device: torch.device) -> Tensor:
    """Random numbers for each block of a text; those of the first blocks do not depend on how many there are. -> (N, R)."""
    return torch.from_numpy(rng_at(seed, "random blocks").integers(0, 1 << 31, (blocks, many))).to(device)


def _without_repeats(draws: Tensor, left: Tensor) -> Tensor:
    """Different numbers below `left`, as many as there are, then NONE. draws (B, T, R), left (B, T) -> (B, T, R)."""
    picks = torch.full_like(draws, NONE)
    for number in range(draws.size(-1)):
        remain = left - number
        pick = draws[..., number] % remain.clamp(min=1)
        for earlier in picks[..., :number].sort(-1).values.unbind(-1):
            pick = pick + (pick >= earlier)
        picks[..., number] = torch.where(remain > 0, pick, NONE)
    return picks


def positions(text: Tensor) -> tuple[Tensor, Tensor]:
    """Each token's place within its text, and the text's length; of padding, those within it. text (B, T) -> two of (B, T)."""
    at = torch.arange(text.size(1), device=text.device).expand_as(text)
    border = (text[:, 1:] != text[:, :-1]).long()
    start = (F.pad(border, (1, 0), value=1) * at).cummax(1).values
    end = torch.where(F.pad(border, (0, 1), value=1) > 0, at + 1, NONE).flip(1).cummin(1).values.flip(1)
    return at - start, end - start
