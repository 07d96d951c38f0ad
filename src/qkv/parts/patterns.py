"""Sparse attention patterns: a window, global tokens and random blocks (Zaheer et al. 2020, "Big Bird", section 2).

A `Pattern` is a rule. A query attends to a key of the same text if the key is within the window, if one of the two is among the
text's first tokens, or if the key is in a block that was chosen at random for the query's block, a graph fixed by the seed.
Positions and blocks are counted within a text, so that a packed row and a padded one give the same result, and a text has all of
its random blocks in a row of any length.

Departures from the paper: the window is counted in positions, not in blocks; the global tokens are the text's own first ones (the
paper's ITC), the graph is the same for all heads, and no random block is one that the window touches or global tokens are in.
B rows, T positions, N blocks, R random blocks.
"""

import functools
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from qkv.base.errors import ConfigError
from qkv.base.seeds import rng_at
from qkv.parts.masks import Rule, same_text

BLOCK_SIZES = (16, 32, 64, 128)  # positions in a block that the kernel's programs can hold
NONE = 1 << 30  # above every position and block


def window(radius: int) -> Rule:
    """Allow keys at most `radius` away, on both sides."""
    if radius < 1:
        raise ConfigError(f"a window of radius {radius} shows no neighbour; use 1 or more")
    return Rule(lambda b, q, k: (q - k).abs() <= radius)


def global_tokens(position: Tensor, count: int) -> Rule:
    """Allow all pairs with one of a text's first tokens. position (B, T), within the text."""
    return Rule(lambda b, q, k: (position[b, q] < count) | (position[b, k] < count))


def random_blocks(position: Tensor, chosen: Tensor, block_size: int) -> Rule:
    """Allow the blocks that were chosen for each query. position (B, T), within the text; chosen (B, T, R), -1 = none."""

    def allows(b: Tensor, q: Tensor, k: Tensor) -> Tensor:
        block = position[b, k] // block_size
        return functools.reduce(torch.logical_or, (one == block for one in chosen[b, q].unbind(-1)))

    return Rule(allows)


@dataclass(frozen=True)
class Pattern:
    """Which pairs of a text's positions attend to each other."""

    radius: int  # positions to each side in the window
    global_tokens: int = 0  # tokens at a text's beginning that attend to all of it, and all to them
    random_blocks: int = 0  # blocks chosen at random for each block
    block_size: int = 64  # positions in a block
    seed: int = 0  # of the choice

    def __post_init__(self) -> None:
        window(self.radius)  # raises where the radius is none
        for name in ("global_tokens", "random_blocks"):
            if getattr(self, name) < 0:
                raise ConfigError(f"{name} {getattr(self, name)} is below 0; use 0 for none, or more")
        if self.block_size not in BLOCK_SIZES:
            raise ConfigError(f"block_size {self.block_size} is not one of {', '.join(map(str, BLOCK_SIZES))}; use one of them")

    @property
    def window_blocks(self) -> int:
        """The most blocks on one side that the window reaches into."""
        return -(-self.radius // self.block_size)

    def rule(self, text: Tensor) -> Rule:
        """Return the rule for rows whose positions belong to these texts. text (B, T), 0 = padding."""
        return same_text(text, text) & self.within(*text_positions(text))

    def within(self, position: Tensor, length: Tensor, numbers: Tensor | None = None) -> Rule:
        """Return the rule for two positions of one text. position and length of the text (B, T); numbers as for `choose`."""
        rule = window(self.radius)
        if self.global_tokens:
            rule = rule | global_tokens(position, self.global_tokens)
        if self.random_blocks:
            rule = rule | random_blocks(position, self.choose(position, length, numbers), self.block_size)
        return rule

    def random_numbers(self, length: int, device: torch.device) -> Tensor:
        """Return the random numbers that decide the blocks of texts of up to `length` tokens. -> (N, R)."""
        return _random_numbers(self.seed, -(-length // self.block_size), self.random_blocks, device)

    def choose(self, position: Tensor, length: Tensor, numbers: Tensor | None = None) -> Tensor:
        """Choose the random blocks of each position. position and length of the text (B, T) -> (B, T, R), -1 = none.

        An exported graph, whose rows have no fixed width, passes `numbers` for the longest text.
        """
        own = position // self.block_size
        end = -(-length // self.block_size)
        begin = -(-self.global_tokens // self.block_size)  # global tokens are seen anyway, and so is what the window touches:
        low = (own - self.window_blocks).clamp(min=begin)
        skipped = (torch.minimum(own + self.window_blocks + 1, end) - low).clamp(min=0)
        left = end - begin - skipped
        numbers = self.random_numbers(position.size(1), position.device) if numbers is None else numbers
        picks = _without_repeats(numbers[own], left)
        picks = torch.where(picks < NONE, picks + begin, NONE)
        return torch.where(picks < NONE, picks + (picks >= low[..., None]) * skipped[..., None], -1)


@functools.cache
def _random_numbers(seed: int, blocks: int, count: int, device: torch.device) -> Tensor:
    """Return random numbers for each block of a text; a longer text begins with the same ones. -> (N, R)."""
    return torch.from_numpy(rng_at(seed, "random blocks").integers(0, 1 << 31, (blocks, count))).to(device)


def _without_repeats(numbers: Tensor, left: Tensor) -> Tensor:
    """Return different values below `left`, as many as there are, then NONE. numbers (B, T, R), left (B, T) -> (B, T, R)."""
    picks = torch.full_like(numbers, NONE)
    for number in range(numbers.size(-1)):
        remain = left - number
        pick = numbers[..., number] % remain.clamp(min=1)
        for earlier in picks[..., :number].sort(-1).values.unbind(-1):
            pick = pick + (pick >= earlier)
        picks[..., number] = torch.where(remain > 0, pick, NONE)
    return picks


def text_positions(text: Tensor) -> tuple[Tensor, Tensor]:
    """Return each token's position within its text, and the text's length; padding counts as a text. (B, T) -> two of (B, T)."""
    at = torch.arange(text.size(1), device=text.device).expand_as(text)
    border = (text[:, 1:] != text[:, :-1]).long()
    start = (F.pad(border, (1, 0), value=1) * at).cummax(1).values
    end = torch.where(F.pad(border, (0, 1), value=1) > 0, at + 1, NONE).flip(1).cummin(1).values.flip(1)
    return at - start, end - start
