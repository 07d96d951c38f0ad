"""The inputs of one decoding, and how its steps tell the host which rows are done: one small tensor a step.

N inputs in the batch, S source length, R hypotheses.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from qkv.base.errors import TrainingError
from qkv.base.transfer import on_device
from qkv.decoding.config import DecodingConfig
from qkv.decoding.constraints import Constraints
from qkv.decoding.logprobs import LogprobRecord
from qkv.decoding.protocol import Replaceable
from qkv.decoding.scoring import BROKEN_MODEL, length_penalties
from qkv.decoding.trace import SearchTrace

OnToken = Callable[[Any, int], bool]  # called with a row's owner and its next token; True ends the output there

CONTINUE, DONE, AT_LIMIT, STUCK, GONE = range(5)  # status of a row after a step; GONE: it was done before


@dataclass
class DecodingBatch:
    """The inputs that are decoded together, with everything that holds for all their steps; others may join them."""

    device: torch.device
    config: DecodingConfig
    constraints: Constraints
    limit: np.ndarray  # (N,) length limit of each output, the end included
    numbers: list[int]  # of each input in the whole job
    owners: Sequence[Any]  # whom each output is for: what `step` returns it with
    bos: int
    eos: int
    seed: int
    last_tokens: list[int] | None = None  # the last token of each prompt; None if outputs begin with bos
    on_token: OnToken | None = None  # called with each token but the end, where tokens are never taken back
    records: Sequence[LogprobRecord | None] | None = None  # of the outputs whose log-probabilities are wanted
    prompts: list[list[int]] | None = None  # tokens before each output; None where no penalty reads them
    keep: Tensor | None = None  # (N, S) where sources have tokens; None where no penalty reads it
    trace: SearchTrace | None = None  # records the search for a single input

    def __post_init__(self) -> None:
        self.lengths = np.zeros(len(self.limit), dtype=np.int64)  # (N,) tokens of each output so far
        self._tabulate()

    def _tabulate(self) -> None:
        # One table for all uses, so that bounds and scores round alike.
        self.penalty = length_penalties(int(self.limit.max()), self.config.length_penalty)

    def __len__(self) -> int:
        return len(self.limit)

    @property
    def first_tokens(self) -> Tensor:
        """The token that each output follows, (N,)."""
        first = [self.bos] * len(self) if self.last_tokens is None else self.last_tokens
        return on_device(np.array(first, dtype=np.int64), self.device)

    @property
    def all_records(self) -> Sequence[LogprobRecord | None]:
        """The record of each output, None where none is wanted."""
        return [None] * len(self) if self.records is None else self.records

    def pick(self, rows: np.ndarray) -> "DecodingBatch":
        """Return some of the inputs; they may repeat."""
        picked = replace(
            self,
            prompts=None if self.prompts is None else [self.prompts[row] for row in rows],
            keep=None if self.keep is None else self.keep[on_device(rows, self.device)],
            constraints=self.constraints.pick(rows),
            limit=self.limit[rows],
            numbers=[self.numbers[row] for row in rows],
            owners=[self.owners[row] for row in rows],
            last_tokens=None if self.last_tokens is None else [self.last_tokens[row] for row in rows],
            records=None if self.records is None else [self.records[row] for row in rows],
        )
        picked.lengths = self.lengths[rows]
        return picked

    def join(self, other: "DecodingBatch") -> "DecodingBatch":
        """Return the inputs of both, in this order."""
        joined = replace(
            self,
            prompts=None if self.prompts is None else [*self.prompts, *(other.prompts or ())],
            constraints=self.constraints.join(other.constraints),
            limit=np.concatenate([self.limit, other.limit]),
            numbers=[*self.numbers, *other.numbers],
            owners=[*self.owners, *other.owners],
            last_tokens=None if self.last_tokens is None else [*self.last_tokens, *(other.last_tokens or ())],
            records=None if self.records is None and other.records is None else [*self.all_records, *other.all_records],
        )
        joined.lengths = np.concatenate([self.lengths, other.lengths])
        return joined


def joined_rows(first: Tensor, second: Tensor, fill: int = 0, left: bool = False) -> Tensor:
    """Return the rows of both, (N, ..., X) and (M, ..., Y), the shorter ones filled at their end or at their beginning."""
    width = max(first.size(-1), second.size(-1))
    sides = [((width - each.size(-1)), 0) if left else (0, width - each.size(-1)) for each in (first, second)]
    return torch.cat([F.pad(each, side, value=fill) for each, side in zip((first, second), sides, strict=True)])


def take_places(state: Any, done: np.ndarray, other: Any, count: int, device: torch.device) -> np.ndarray | None:
    """Let the texts of another state take the places of some that are done, (N,).

    Return the order in which the joined texts stand then; None if there are too few places, or the state cannot do it.
    """
    places = np.flatnonzero(done)[:count]
    if len(places) < count or not isinstance(state, Replaceable):
        return None
    if not state.replace(on_device(places, device), other):
        return None
    order = np.arange(len(done))
    order[places] = len(done) + np.arange(count)
    return order


def to_host(*values: Tensor) -> np.ndarray:
    """Copy several numbers for each row, (N,) each, in one transfer: a step's only wait for the device. -> (values, N)."""
    return torch.stack([value.float() for value in values]).cpu().numpy()


def check(logprob: np.ndarray, batch: DecodingBatch, counted: np.ndarray | None = None) -> None:
    """Raise an error if a log-probability (N,) is not a number: the model is broken. Only those that are counted (N,) matter."""
    broken = np.isnan(logprob) if counted is None else np.isnan(logprob) & counted
    if broken.any():
        row = int(broken.argmax())
        raise TrainingError(f"input {batch.numbers[row]}, token {batch.lengths[row] + 1}: {BROKEN_MODEL}")


def worth_leaving(active: np.ndarray, device: torch.device) -> bool:
    """Return whether rows that are done should leave the batch now; active (N,) is False for them."""
    # A GPU computes a few rows more in the same time, but new shapes cost it preparation: there rows wait until half are done.
    left = int(active.sum())
    return left < len(active) if device.type == "cpu" else 2 * left <= len(active)
