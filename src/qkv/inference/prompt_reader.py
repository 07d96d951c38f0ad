"""How a GPT reads prompts: in pieces, and with a record of their tokens' log-probabilities where one is wanted.

R prompts, T tokens of each, D width.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from qkv.decoding.logprobs import LogprobRecord, token_logprobs
from qkv.models.gpt import Gpt
from qkv.parts.decoding_weights import PreparedModel

SCORED_AT_ONCE = 128  # tokens of a prompt, whose logits are in memory together


class PromptReader:
    """A model to decode from, for some prompts: its states read at most a piece of them in a step."""

    def __init__(
        self,
        model: PreparedModel,
        gpt: Gpt,
        prompts: Sequence[list[int]],
        records: Sequence[LogprobRecord | None],
        piece: int | None,
    ):
        """`records` receive the log-probabilities of each prompt's tokens from the second one on."""
        self.model, self.gpt, self.prompts, self.records, self.piece = model, gpt, prompts, records, piece
        self.step = model.step

    def start(self, ids: Tensor, keep: Tensor, max_length: int, attention: bool = False) -> Any:
        state = self.model.start(ids, keep, max_length, attention, self.piece)
        if any(record is not None for record in self.records):
            shift = (ids.size(1) - keep.sum(1)).tolist()
            state.on_read = lambda first, states: self._record([first - before for before in shift], states)
        return state

    def _record(self, positions: Sequence[int], states: Tensor) -> None:
        """Record the log-probabilities of the tokens that follow states (R, T, D); each row has its first position."""
        dtype = self.gpt.embedding.token_embedding.weight.dtype
        for prompt, record, first, row in zip(self.prompts, self.records, positions, states, strict=True):
            if record is None:
                continue
            row, begin = row[max(0, -first) :], max(0, first)  # padding stands in front
            following = torch.tensor(prompt[begin + 1 : begin + 1 + len(row)], dtype=torch.long, device=row.device)
            for some, tokens in zip(row.split(SCORED_AT_ONCE), following.split(SCORED_AT_ONCE), strict=False):
                logits = self.gpt.logits(some[: len(tokens)].to(dtype))
                found = token_logprobs(logits, tokens, [record.alternatives] * len(tokens))
                record.tokens += [one for one in found if one is not None]
