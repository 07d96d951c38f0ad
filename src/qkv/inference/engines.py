"""Engines turn token ids into hypotheses: here our own search; those of exported folders are in inference/exported.py."""

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from qkv.base.rows import padded_rows
from qkv.data.corpora import Tokenizers
from qkv.data.trees import TokensWithHeads
from qkv.decoding.config import DecodingConfig
from qkv.decoding.hypothesis import Hypothesis
from qkv.decoding.search import batches_by_length, decode
from qkv.lens.capture import cross_attention
from qkv.lens.inspectors import EncoderDecoderInspector, Inspector, UnilmInspector
from qkv.lens.tokenized_text import tokenized_text
from qkv.parts.decoding_weights import PreparedModel
from qkv.text.tokenizer import Tokenizer


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


class SearchEngine:
    """Any model that can be decoded from, searched by `decoding`."""

    def __init__(self, model: Any, device: torch.device, tokenizer: Tokenizer | type[Tokenizer] = Tokenizer):
        """Control tokens are those of the target's tokenizer; all of ours have the same."""
        self.model, self.device, self.tokenizer = model, device, tokenizer
        self.decoder = model  # takes the steps of the search

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
            head = padded_heads([sources[i] for i in batch], self.device)
            found = decode(
                self.decoder if head is None else _Reading(self.decoder, head),
                ids,
                keep,
                config,
                bos=self.tokenizer.bos,
                eos=self.tokenizer.eos,
                pad=self.tokenizer.pad,
                prefix=[prefixes[i] for i in batch] if prefixes else None,
                allowed=None if allowed is None else [allowed] * len(batch),
                seed=config.seed,
                index=[first + i for i in batch],
            )
            for i, hypotheses in zip(batch, found, strict=True):
                results[i] = hypotheses
        return results


class _Reading:
    """A model that reads sources with these heads, (B, S)."""

    def __init__(self, model: Any, head: Tensor):
        self.model, self.head, self.step = model, head, model.step

    def start(self, ids: Tensor, keep: Tensor, max_length: int, attention: bool = False) -> Any:
        return self.model.start(ids, keep, max_length, attention, self.head)


def padded_heads(sources: Sequence[list[int]], device: torch.device) -> Tensor | None:
    """The heads of texts that have them, padded as `pad` does. -> (B, S)."""
    heads = [source.head for source in sources if isinstance(source, TokensWithHeads)]
    return pad(heads, device)[0] if heads else None


class OwnEngine(SearchEngine):
    """A model of ours, whose weights are final: after an update, make another engine."""

    def __init__(self, model: Any, tokenizer: Tokenizer | type[Tokenizer] = Tokenizer):
        super().__init__(model, next(model.parameters()).device, tokenizer)
        self.decoder = PreparedModel(model)
        words = model.output.weight.size(0)
        # An imported model may have more words than its tokenizer, which nobody could spell.
        more = isinstance(tokenizer, Tokenizer) and words > len(tokenizer)
        self.spelled = torch.arange(len(tokenizer)) if more else None  # type: ignore[arg-type]

    def decode(
        self,
        sources: Sequence[list[int]],
        config: DecodingConfig,
        prefixes: Sequence[list[int]] | None = None,
        allowed: Tensor | None = None,
        first: int = 0,
    ) -> list[list[Hypothesis]]:
        return super().decode(sources, config, prefixes, self.spelled if allowed is None else allowed, first)

    def attention(self, source: list[int], target: list[int]) -> Tensor:
        read = padded_rows(*pad([source], self.device), padded_heads([source], self.device))
        written = padded_rows(*pad([[self.tokenizer.bos, *target]], self.device))
        return cross_attention(self.model, read, written)[0].cpu()

    def inspect(self, kind: str, tokenizers: Tokenizers, source: list[int], target: list[int], output: str) -> Inspector:
        """A source and its target, to be looked at; the target's end is written too."""
        first, second = tokenizers.source, tokenizers.target
        rows = padded_rows(*pad([source], self.device), padded_heads([source], self.device))
        texts = {"source": tokenized_text(first, source), "target": tokenized_text(second, [*target, second.eos])}
        if self.model.joins_source_and_target:
            return UnilmInspector(kind, self.model, rows, texts, output)
        begun = [second.bos, *target]
        texts["read"] = tokenized_text(second, begun)
        return EncoderDecoderInspector(kind, self.model, rows, padded_rows(*pad([begun], self.device)), texts, output)


def pad(texts: Iterable[list[int]], device: torch.device) -> tuple[Tensor, Tensor]:
    """Texts of different lengths as one tensor, and where it holds real tokens; both (B, S)."""
    rows = [torch.tensor(ids, dtype=torch.long) for ids in texts]
    ids = nn.utils.rnn.pad_sequence(rows, batch_first=True)
    keep = torch.arange(ids.size(1)) < torch.tensor([len(row) for row in rows])[:, None]
    return ids.to(device), keep.to(device)
