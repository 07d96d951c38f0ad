"""What one decoding works on, and how its steps tell the host who leaves: one small tensor a step, and nothing else.

R hypotheses, N inputs still in the batch, B inputs in all, S source length, V vocabulary.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from qkv.base.errors import TrainingError
from qkv.decoding.config import DecodingConfig
from qkv.decoding.limits import Limits
from qkv.decoding.scoring import BROKEN_MODEL, length_penalty

Listener = Callable[[int, int], bool]  # the number of a row and the next word there: whether it shall end with that

GO_ON, DONE, AT_LIMIT, STUCK, GONE = range(5)  # what becomes of a row after a step, or has become of it before


@dataclass
class Task:
    """The inputs of one decoding and all that holds for them."""

    ids: Tensor  # (B, S)
    keep: Tensor  # (B, S)
    config: DecodingConfig
    limits: Limits
    longest: list[int]  # most words of each output, the end included
    index: list[int]  # the number of each input in the whole job
    bos: int
    eos: int
    seed: int
    last: list[int] | None = None  # of inputs that outputs go on from, the last word of each; without them, bos begins an output
    listener: Listener | None = None  # told each word that is not the end, where words are never taken back

    def __post_init__(self) -> None:
        device = self.ids.device
        begin = [self.bos] * len(self.ids) if self.last is None else self.last
        self.begin = torch.tensor(begin, dtype=torch.long, device=device)  # (B,) what each output begins after
        self.room = max(self.longest)
        self.ends_at = np.array(self.longest)  # (B,)
        # One table for all uses, so that bounds and scores round alike.
        penalty = length_penalty(torch.arange(self.room + 1), self.config.length_penalty)
        self.penalty, self.penalty_on_host = penalty.to(device), penalty.numpy()

    def said(self, inputs: Tensor) -> list[list[int]]:
        """The words before each output of the inputs (R,); none where these are sources of another kind."""
        if self.last is None:
            return [[] for _ in inputs]
        known = [ids[keep].tolist() for ids, keep in zip(self.ids.cpu(), self.keep.cpu(), strict=True)]
        return [[*known[position], self.last[position]] for position in inputs.tolist()]


def to_host(*values: Tensor) -> np.ndarray:
    """Several numbers for each row, (N,) each, in one transfer: the one wait for the device in a step. -> (values, N)."""
    return torch.stack([value.float() for value in values]).cpu().numpy()


def check(logprob: np.ndarray, here: np.ndarray, task: Task, step: int) -> None:
    """Log-probabilities (N,) of the inputs here, (N,): one that is not a number means a broken model."""
    if np.isnan(logprob).any():
        position = task.index[here[np.isnan(logprob).argmax()]]
        raise TrainingError(f"input {position}, word {step + 1}: {BROKEN_MODEL}")


def worth_leaving(going: np.ndarray, device: torch.device) -> bool:
    """Whether the rows that are done should leave the batch now."""
    # A GPU computes a few rows more in no more time, while new shapes cost it preparation: there they wait until half are done.
    left = int(going.sum())
    return left < len(going) if device.type == "cpu" else 2 * left <= len(going)
