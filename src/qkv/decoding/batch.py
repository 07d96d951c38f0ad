"""The inputs of one decoding, and how its steps tell the host which rows are done: one small tensor a step.

R hypotheses, N inputs still in the batch, B inputs in all, S source length, V vocabulary.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from qkv.base.errors import TrainingError
from qkv.decoding.config import DecodingConfig
from qkv.decoding.constraints import Constraints
from qkv.decoding.logprobs import LogprobRecord
from qkv.decoding.scoring import BROKEN_MODEL, length_penalty

OnToken = Callable[[int, int], bool]  # called with the number of a row and its next token; True ends the output there

CONTINUE, DONE, AT_LIMIT, STUCK, GONE = range(5)  # status of a row after a step; GONE: it was done before


@dataclass
class DecodingBatch:
    """The inputs of one decoding, with everything that holds for all its steps."""

    ids: Tensor  # (B, S)
    keep: Tensor  # (B, S)
    config: DecodingConfig
    constraints: Constraints
    max_lengths: list[int]  # length limit of each output, the end included
    index: list[int]  # the number of each input in the whole job
    bos: int
    eos: int
    seed: int
    last_tokens: list[int] | None = None  # the last token of each prompt; None if outputs begin with bos
    on_token: OnToken | None = None  # called with each token but the end, where tokens are never taken back
    records: Sequence[LogprobRecord | None] | None = None  # of the outputs whose log-probabilities are wanted

    def __post_init__(self) -> None:
        device = self.ids.device
        first = [self.bos] * len(self.ids) if self.last_tokens is None else self.last_tokens
        self.first = torch.tensor(first, dtype=torch.long, device=device)  # (B,) the token that each output follows
        self.max_length = max(self.max_lengths)
        self.limit = np.array(self.max_lengths)  # (B,)
        # One table for all uses, so that bounds and scores round alike.
        penalty = length_penalty(torch.arange(self.max_length + 1), self.config.length_penalty)
        self.penalty, self.penalty_on_host = penalty.to(device), penalty.numpy()

    def previous_tokens(self, inputs: Tensor) -> list[list[int]]:
        """Return the prompt of each of the inputs (R,); empty if outputs do not continue their inputs."""
        if self.last_tokens is None:
            return [[] for _ in inputs]
        prompts = [ids[keep].tolist() for ids, keep in zip(self.ids.cpu(), self.keep.cpu(), strict=True)]
        return [[*prompts[position], self.last_tokens[position]] for position in inputs.tolist()]


def to_host(*values: Tensor) -> np.ndarray:
    """Copy several numbers for each row, (N,) each, in one transfer: a step's only wait for the device. -> (values, N)."""
    return torch.stack([value.float() for value in values]).cpu().numpy()


def check(logprob: np.ndarray, here: np.ndarray, batch: DecodingBatch, step: int) -> None:
    """Raise an error if a log-probability (N,) of the inputs here, (N,), is not a number: the model is broken."""
    if np.isnan(logprob).any():
        position = batch.index[here[np.isnan(logprob).argmax()]]
        raise TrainingError(f"input {position}, token {step + 1}: {BROKEN_MODEL}")


def worth_leaving(active: np.ndarray, device: torch.device) -> bool:
    """Return whether rows that are done should leave the batch now; active (N,) is False for them."""
    # A GPU computes a few rows more in the same time, but new shapes cost it preparation: there rows wait until half are done.
    left = int(active.sum())
    return left < len(active) if device.type == "cpu" else 2 * left <= len(active)
