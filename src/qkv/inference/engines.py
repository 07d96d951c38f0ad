"""Engines turn token ids into hypotheses: here our own search; those of exported folders are in inference/exported.py."""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from qkv.base.errors import ConfigError
from qkv.base.rows import padded_rows
from qkv.base.transfer import on_device
from qkv.data.corpora import Tokenizers
from qkv.data.trees import TokensWithHeads
from qkv.decoding.config import DecodingConfig
from qkv.decoding.hypothesis import Hypothesis
from qkv.decoding.phrases import Phrase
from qkv.decoding.scoring import TokenStatistics, score
from qkv.decoding.search import Search, batches_by_length, begin_search, decode, decoding_precision
from qkv.lens.capture import cross_attention
from qkv.lens.inspectors import EncoderDecoderInspector, Inspector, UnilmInspector
from qkv.lens.tokenized_text import tokenized_text
from qkv.parts.adapters import with_adapters
from qkv.parts.decoding_weights import PreparedModel
from qkv.parts.model_config import AdapterConfig
from qkv.text.tokenizer import Tokenizer
from qkv.training.checkpoints import set_weights

PHRASE_BEAM = 4  # beam of greedy search where outputs must contain phrases


class Engine(Protocol):
    """The part of a translator that turns token ids into token ids."""

    device: torch.device

    @property
    def longest(self) -> int | None:
        """The most tokens that a text may have; None where there is no limit."""
        ...

    def decode(
        self,
        sources: Sequence[list[int]],
        config: DecodingConfig,
        prefixes: Sequence[list[int]] | None = None,
        allowed: Tensor | None = None,
        first: int = 0,
        phrases: Sequence[Sequence[Phrase]] | None = None,
    ) -> list[list[Hypothesis]]:
        """Return the n best hypotheses of each source, best first.

        Outputs begin with their prefixes, use only the allowed ids and contain their phrases; `first` is the number of the first
        source in a larger job, on which samples depend.
        """
        ...

    def statistics(
        self, sources: Sequence[list[int]], targets: Sequence[list[int]], config: DecodingConfig
    ) -> list[TokenStatistics]:
        """Return the probabilities of each target's tokens, given its source."""
        ...

    def takes_phrases(self, config: DecodingConfig) -> bool:
        """Return whether `decode` can make outputs contain phrases with these options."""
        ...

    def attention(self, source: list[int], target: list[int]) -> Tensor:
        """Return how much each target token, and the end, attends to each source token. -> (T + 1, S)."""
        ...


class SearchEngine:
    """Decodes from any model that has `start` and `step`, by the search of `decoding`."""

    def __init__(self, model: Any, device: torch.device, tokenizer: Tokenizer | type[Tokenizer] = Tokenizer):
        """`tokenizer` is the target's, for its control tokens.

        The class itself will do, because all of ours have the same ids.
        """
        self.model, self.device, self.tokenizer = model, device, tokenizer
        self.decoder = model  # computes the steps of the search
        # Ids of special tokens that a translation has only in phrases.
        self.placeholders = sorted(tokenizer.additional_special_tokens.values()) if isinstance(tokenizer, Tokenizer) else []

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
        phrases: Sequence[Sequence[Phrase]] | None = None,
    ) -> list[list[Hypothesis]]:
        results: list[list[Hypothesis]] = [[] for _ in sources]
        for batch, options in self._batches(sources, config, phrases):
            ids, keep = pad([sources[i] for i in batch], self.device)
            head = padded_heads([sources[i] for i in batch], self.device)
            found = decode(
                self.decoder if head is None else _WithHeads(self.decoder, head),
                ids,
                keep,
                options,
                bos=self.tokenizer.bos,
                eos=self.tokenizer.eos,
                pad=self.tokenizer.pad,
                prefix=[prefixes[i] for i in batch] if prefixes else None,
                allowed=None if allowed is None else [allowed] * len(batch),
                seed=config.seed,
                index=[first + i for i in batch],
                phrases=None if phrases is None else [phrases[i] for i in batch],
                never=() if phrases is None else self.placeholders,
            )
            for i, hypotheses in zip(batch, found, strict=True):
                results[i] = hypotheses
        return results

    def statistics(
        self, sources: Sequence[list[int]], targets: Sequence[list[int]], config: DecodingConfig
    ) -> list[TokenStatistics]:
        found: dict[int, TokenStatistics] = {}
        if self.longest is not None:  # an output that filled all positions leaves none for its end
            targets = [target[: self.longest - 1] for target in targets]
        lengths = [max(len(source), len(target) + 1) for source, target in zip(sources, targets, strict=True)]
        for batch in batches_by_length(lengths, config.batch_tokens):
            ids, keep = pad([sources[i] for i in batch], self.device)
            head = padded_heads([sources[i] for i in batch], self.device)
            model = self.decoder if head is None else _WithHeads(self.decoder, head)
            with decoding_precision(config.precision, self.device):
                scored = score(model, ids, keep, [targets[i] for i in batch], bos=self.tokenizer.bos, eos=self.tokenizer.eos)
            found.update(zip(batch, scored, strict=True))
        return [found[i] for i in range(len(sources))]

    def takes_phrases(self, config: DecodingConfig) -> bool:
        return config.searches or not (config.sampling or config.penalties)

    def _batches(
        self, sources: Sequence[list[int]], config: DecodingConfig, phrases: Sequence[Sequence[Phrase]] | None
    ) -> Iterator[tuple[list[int], DecodingConfig]]:
        """Yield the positions of the sources of each batch, and its options.

        Greedy search takes no token back and would put phrases anywhere, so sources with phrases get a beam.
        """
        constrained = [i for i, each in enumerate(phrases or ()) if each]
        if not constrained or config.searches:
            groups = [(list(range(len(sources))), config)]
        elif not self.takes_phrases(config):
            wrong = "sampling" if config.sampling else config.penalties[0]
            raise ConfigError(f"outputs that must contain phrases are searched with a beam, without {wrong}; leave it out")
        else:
            free = sorted(set(range(len(sources))).difference(constrained))
            groups = [(free, config), (constrained, config.model_copy(update={"beam": PHRASE_BEAM}))]
        for members, options in groups:
            for batch in batches_by_length([len(sources[i]) for i in members], config.batch_tokens):
                yield [members[i] for i in batch], options


class _WithHeads:
    """A model whose `start` passes on the heads of the sources, (B, S)."""

    def __init__(self, model: Any, head: Tensor):
        self.model, self.head, self.step = model, head, model.step

    def start(self, ids: Tensor, keep: Tensor, max_length: int, attention: bool = False) -> Any:
        return self.model.start(ids, keep, max_length, attention, self.head)


def padded_heads(sources: Sequence[list[int]], device: torch.device) -> Tensor | None:
    """Pad the heads of texts that have trees, as `pad` does; None where there are none. -> (B, S)."""
    heads = [source.head for source in sources if isinstance(source, TokensWithHeads)]
    return pad(heads, device)[0] if heads else None


class OwnEngine(SearchEngine):
    """Decodes from a model of ours, with decoding weights made once; after an update of the model, make another engine."""

    def __init__(self, model: Any, tokenizer: Tokenizer | type[Tokenizer] = Tokenizer, base_decoder: PreparedModel | None = None):
        """`base_decoder` has decoding weights of a model with adapters, but for the adapters."""
        super().__init__(model, next(model.parameters()).device, tokenizer)
        self.decoder: PreparedModel = PreparedModel(model, base_decoder)
        # The vocabulary of an imported model may exceed its tokenizer's; ids beyond have no text.
        exceeds = isinstance(tokenizer, Tokenizer) and model.output.weight.size(0) > len(tokenizer)
        self.text_tokens = torch.arange(len(tokenizer)) if exceeds else None  # type: ignore[arg-type]

    def decode(
        self,
        sources: Sequence[list[int]],
        config: DecodingConfig,
        prefixes: Sequence[list[int]] | None = None,
        allowed: Tensor | None = None,
        first: int = 0,
        phrases: Sequence[Sequence[Phrase]] | None = None,
    ) -> list[list[Hypothesis]]:
        return super().decode(sources, config, prefixes, self.text_tokens if allowed is None else allowed, first, phrases)

    @torch.inference_mode()
    def begin(self, sources: Sequence[list[int]], config: DecodingConfig, owners: Sequence[Any]) -> Search:
        """Read sources, and return the search for their translations, which others may join; see `decode`."""
        ids, keep = pad(sources, self.device)
        with decoding_precision(config.precision, self.device):
            return begin_search(
                self.decoder,
                ids,
                keep,
                config,
                bos=self.tokenizer.bos,
                eos=self.tokenizer.eos,
                pad=self.tokenizer.pad,
                allowed=None if self.text_tokens is None else [self.text_tokens] * len(sources),
                seed=config.seed,
                never=self.placeholders if self.takes_phrases(config) else (),
                owners=owners,
            )

    def with_adapter(self, c: AdapterConfig, weights: dict[str, Tensor], source: str) -> "OwnEngine":
        """Return an engine with an adapter over this one's model: both use the same weights and decoding weights."""
        model = with_adapters(self.model, c)
        set_weights(model, weights, source)
        return OwnEngine(model, self.tokenizer, self.decoder)

    def attention(self, source: list[int], target: list[int]) -> Tensor:
        source_rows = padded_rows(*pad([source], self.device), padded_heads([source], self.device))
        target_rows = padded_rows(*pad([[self.tokenizer.bos, *target]], self.device))
        return cross_attention(self.model, source_rows, target_rows)[0].cpu()

    def inspect(self, kind: str, tokenizers: Tokenizers, source: list[int], target: list[int], output: str) -> Inspector:
        """Return the model with an encoded source and target, and the target's eos, for `qkv.look`."""
        first, second = tokenizers.source, tokenizers.target
        rows = padded_rows(*pad([source], self.device), padded_heads([source], self.device))
        texts = {"source": tokenized_text(first, source), "target": tokenized_text(second, [*target, second.eos])}
        if self.model.joins_source_and_target:
            return UnilmInspector(kind, self.model, rows, texts, second, output, first.unk)
        begun = [second.bos, *target]
        texts["read"] = tokenized_text(second, begun)
        read = padded_rows(*pad([begun], self.device))
        return EncoderDecoderInspector(kind, self.model, rows, read, texts, second, output, first.unk)


def pad(texts: Iterable[list[int]], device: torch.device) -> tuple[Tensor, Tensor]:
    """Pad texts of different lengths to one tensor; return it, and where it holds real tokens. -> (B, S) each."""
    rows = list(texts)
    lengths = np.array([len(row) for row in rows])
    keep = np.arange(lengths.max()) < lengths[:, None]
    ids = np.zeros(keep.shape, dtype=np.int64)
    ids[keep] = list(itertools.chain.from_iterable(rows))
    return on_device(ids, device), on_device(keep, device)
