"""What one decoding works on, and how its steps tell the host who leaves: one small tensor a step, and nothing else.

R hypotheses, B inputs, S source length, V vocabulary.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from qkv.base.errors import TrainingError
from qkv.decoding.config import DecodingConfig
from qkv.decoding.limits import Limits
from qkv.decoding.scoring import BROKEN_MODEL, length_penalty

GO_ON, DONE, AT_LIMIT, STUCK, BROKEN = range(5)  # what becomes of a row after a step


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

    def __post_init__(self) -> None:
        device = self.ids.device
        self.room = max(self.longest)
        self.ends_at = torch.tensor(self.longest, device=device)  # (B,)
        # One table for all uses, so that bounds and scores round alike.
        self.penalty = length_penalty(torch.arange(self.room + 1, device=device), self.config.length_penalty)


def logprobs(logits: Tensor) -> tuple[Tensor, Tensor]:
    """Log-probabilities (R, V), ours to write into, and which rows (R,) are no distribution (NaN, or infinite)."""
    scores = torch.log_softmax(logits, -1, dtype=torch.float32)
    return scores, scores[:, 0].isnan()  # one such logit makes the whole row NaN


def read_fates(fates: Tensor, inputs: Tensor, task: Task, step: int) -> np.ndarray:
    """Bring the fates of rows to the host: the one wait for the device in a step; a broken row is an error."""
    told = fates.cpu().numpy()
    if (told == BROKEN).any():
        place = task.index[int(inputs[int(np.argmax(told == BROKEN))])]
        raise TrainingError(f"input {place}, word {step + 1}: {BROKEN_MODEL}")
    return told


def rows_with(told: np.ndarray, fate: int, device: torch.device) -> Tensor:
    """The rows that met a fate."""
    return torch.from_numpy(np.flatnonzero(told == fate)).to(device)
