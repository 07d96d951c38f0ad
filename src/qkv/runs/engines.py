"""Engines: what turns token ids into hypotheses. Qkv's own search over a model; others' programs are in `interop`."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from qkv.base.rows import padded_rows
from qkv.build import Recipe, make_model
from qkv.data.corpora import Tokenizers
from qkv.decoding.config import DecodingConfig
from qkv.decoding.hypothesis import Hypothesis
from qkv.decoding.search import batches_by_length, decode
from qkv.lens.capture import cross_attention
from qkv.text.tokenizer import Tokenizer
from qkv.training import checkpoints


class Engine(Protocol):
    """A translator's inner half: ids in, ids out."""

    @property
    def longest(self) -> int | None:
        """Places a text may have; None where there is no limit."""
        ...

    def decode(
        self,
        sources: Sequence[list[int]],
        config: DecodingConfig,
        prefixes: Sequence[list[int]] | None = None,
        allowed: Tensor | None = None,
        first: int = 0,
    ) -> list[list[Hypothesis]]:
        """The n best hypotheses of each source, best first.

        Outputs begin with their prefixes and use no ids but those allowed; `first` is the number of the first source in a
        larger job, from which samples are drawn.
        """
        ...

    def attention(self, source: list[int], target: list[int]) -> Tensor:
        """How much each target token (and the end) looked at each source token. -> (T + 1, S)."""
        ...


class OwnEngine:
    """A model of ours, searched by `decoding`."""

    def __init__(self, model: nn.Module):
        self.model: Any = model
        self.device = next(model.parameters()).device

    @property
    def longest(self) -> int | None:
        return self.model.longest

    @torch.inference_mode()
    def decode(
        self,
        sources: Sequence[list[int]],
        config: DecodingConfig,
        prefixes: Sequence[list[int]] | None = None,
        allowed: Tensor | None = None,
        first: int = 0,
    ) -> list[list[Hypothesis]]:
        results: list[list[Hypothesis]] = [[] for _ in sources]
        for batch in batches_by_length([len(ids) for ids in sources], config.batch_tokens):
            ids, keep = pad([sources[i] for i in batch], self.device)
            found = decode(
                self.model,
                ids,
                keep,
                config,
                bos=Tokenizer.bos,
                eos=Tokenizer.eos,
                pad=Tokenizer.pad,
                prefix=[prefixes[i] for i in batch] if prefixes else None,
                allowed=None if allowed is None else [allowed] * len(batch),
                seed=config.seed,
                index=[first + i for i in batch],
            )
            for i, hypotheses in zip(batch, found, strict=True):
                results[i] = hypotheses
        return results

    def attention(self, source: list[int], target: list[int]) -> Tensor:
        rows = [padded_rows(*pad([ids], self.device)) for ids in (source, [Tokenizer.bos, *target])]
        return cross_attention(self.model, *rows)[0].cpu()


def pad(texts: Iterable[list[int]], device: torch.device) -> tuple[Tensor, Tensor]:
    """Texts of different lengths as one tensor, and where it holds real tokens; both (B, S)."""
    rows = [torch.tensor(ids, dtype=torch.long) for ids in texts]
    ids = nn.utils.rnn.pad_sequence(rows, batch_first=True)
    keep = torch.arange(ids.size(1)) < torch.tensor([len(row) for row in rows])[:, None]
    return ids.to(device), keep.to(device)


def model_with(weights: Path, recipe: Recipe, tokenizers: Tokenizers) -> nn.Module:
    """The recipe's model with weights from a file, ready for use."""
    model = make_model(recipe, tokenizers)
    checkpoints.set_weights(model, checkpoints.load_weights(weights), str(weights))
    return model.eval()
