"""CTranslate2 as an engine: its own search, ranked as ours is.

Its beam goes on from the same hypotheses as ours, step by step, but it divides log-probabilities by length ** alpha instead of
((5 + length) / 6) ** alpha, and stops as soon as a number of hypotheses has ended instead of when none could overtake them. So
it is asked to wait for PATIENCE times as many as the beam is wide, and what it found is ranked here.
With a prefix, it takes the end for the word after it only where that is the best of all.
What may not come (pad and bos, an early end, a repeated run) it takes out before the softmax, we after it: probabilities in
scores are a little higher for it. Greedily that changes no word; in a beam, hypotheses to which much was forbidden overtake
others, so there an early end and a repeated run cannot be forbidden.
"""

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from qkv.base.errors import CheckpointError, ConfigError, QkvError, TrainingError
from qkv.base.hardware import cpu_cores
from qkv.decoding.config import DecodingConfig
from qkv.decoding.constraints import max_output_lengths
from qkv.decoding.hypothesis import Hypothesis
from qkv.decoding.search import batches_by_length
from qkv.interop.complaints import BROKEN_COPY, refuse
from qkv.interop.ctranslate2 import PRECISIONS
from qkv.interop.packages import needed
from qkv.text.tokenizer import SPECIAL_TOKENS

PAD, _, BOS, EOS = SPECIAL_TOKENS
PATIENCE = 2.0  # with 1 some sentences of Multi30k came out otherwise, with 1.5 some lists of the n best
HIGHEST_PENALTY = 1.0  # of lengths: beyond, a longer text that would win is not always among those waited for
BATCHES_EACH = 4  # batches for each worker, so that none waits long for the last
SMALLEST_BATCH = 256  # source tokens; smaller ones cost more than they spread


@dataclass(frozen=True)
class Text:
    """What CTranslate2 is to translate."""

    source: list[str]
    prefix: list[str]  # what the output must begin with
    limit: int  # most words of the output, the end included


class CTranslate2Engine:
    """A model that `write_ctranslate2` wrote."""

    def __init__(self, folder: Path, max_positions: int | None, precision: str, device: str = "auto"):
        self.longest, self.precision = max_positions, precision
        self.source, self.target = _vocabularies(folder)
        self.ids = {piece: number for number, piece in enumerate(self.target)}
        self.translator = _open(folder, precision, device)

    def decode(
        self,
        sources: Sequence[list[int]],
        config: DecodingConfig,
        prefixes: Sequence[list[int]] | None = None,
        allowed: Tensor | None = None,
        first: int = 0,
    ) -> list[list[Hypothesis]]:
        """The n best hypotheses of each source, best first."""
        refuse("ctranslate2", _impossible(config, allowed, self.precision))
        begin = [[] for _ in sources] if prefixes is None else list(prefixes)
        limits = max_output_lengths(config, map(len, sources), map(len, begin))
        texts = [
            Text([self.source[i] for i in source], [self.target[i] for i in prefix], limit)
            for source, prefix, limit in zip(sources, begin, limits, strict=True)
        ]
        found = self._search(texts, config)
        # A batch runs to the limit of its longest text; what went beyond its own is searched again with those that share it.
        over = [i for i, result in enumerate(found) if max(map(len, result.hypotheses)) > limits[i]]
        for limit in sorted({limits[i] for i in over}):
            again = [i for i in over if limits[i] == limit]
            for i, result in zip(again, self._search([texts[i] for i in again], config), strict=True):
                found[i] = result
        given = self._prefix_logprobs(texts)
        return [self._ranked(result, more, config) for result, more in zip(found, given, strict=True)]

    def _search(self, texts: list[Text], config: DecodingConfig) -> list[Any]:
        """What CTranslate2 finds for each text."""
        found: list[Any] = [None] * len(texts)
        waiting = []
        for batch in self._batches(texts, config.batch_tokens):
            options = _options(config, max(texts[i].limit for i in batch))
            forced = [texts[i].prefix for i in batch] if texts[batch[0]].prefix else None
            started = self.translator.translate_batch([texts[i].source for i in batch], forced, asynchronous=True, **options)
            waiting.append((batch, started))
        for batch, started in waiting:
            for i, result in zip(batch, started, strict=True):
                found[i] = _result(result)
        return found

    def _batches(self, texts: list[Text], most: int) -> Iterator[list[int]]:
        """Places of texts of like length, enough batches for all workers."""
        # Apart: beside a text with a prefix, CTranslate2 is loath to end any other at its first word.
        for forced in (False, True):
            max_positions = [i for i, text in enumerate(texts) if bool(text.prefix) == forced]
            lengths = [len(texts[i].source) for i in max_positions]
            spread = max(SMALLEST_BATCH, sum(lengths) // (BATCHES_EACH * self.translator.num_translators))
            for rows in batches_by_length(lengths, min(most, spread)):
                yield [max_positions[row] for row in rows]

    def _ranked(self, result: Any, given: float, config: DecodingConfig) -> list[Hypothesis]:
        """The hypotheses by our penalty; `given` is the log-probability of a forced prefix, which is not in their scores."""
        hypotheses, alpha = [], config.length_penalty
        for words, score in zip(result.hypotheses, result.scores, strict=True):
            logprob = score * len(words) ** alpha + given
            if not math.isfinite(logprob):
                raise TrainingError(BROKEN_COPY)
            finished = words[-1] == EOS
            ids = [self.ids[word] for word in (words[:-1] if finished else words)]
            hypotheses.append(Hypothesis(ids, logprob / ((5 + len(words)) / 6) ** alpha, logprob, finished))
        return sorted(hypotheses, key=lambda one: (not one.finished, -one.score))[: config.n_best]

    def _prefix_logprobs(self, texts: list[Text]) -> list[float]:
        totals = [0.0] * len(texts)
        forced = [i for i, text in enumerate(texts) if text.prefix]
        if forced:
            sides = [texts[i].source for i in forced], [texts[i].prefix for i in forced]
            for i, result in zip(forced, self.translator.score_batch(*sides, max_input_length=0), strict=True):
                totals[i] = sum(result.log_probs[: len(texts[i].prefix)])
        return totals

    def attention(self, source: list[int], target: list[int]) -> Tensor:
        """CTranslate2 tells the attention of one layer; alignments are made from all of them."""
        raise ConfigError("alignments are not for the engine ctranslate2; use qkv's own engine for them, or leave them out")


def _result(started: Any) -> Any:
    """What a translation under way ends with."""
    try:
        return started.result()
    except RuntimeError as error:  # out of memory, most often
        why = " ".join(str(error).split())[:200]
        raise QkvError(f"CTranslate2 gave up ({why}); try a smaller batch_tokens, or qkv's own engine") from None


def _options(config: DecodingConfig, limit: int) -> dict[str, Any]:
    """Our choices in CTranslate2's names."""
    patience = PATIENCE if config.beam > 1 else 1.0
    return {
        "beam_size": config.beam,
        "patience": patience,
        "num_hypotheses": round(config.beam * patience),
        "length_penalty": config.length_penalty,
        "no_repeat_ngram_size": config.no_repeat_ngram,
        "min_decoding_length": config.min_length,
        "max_decoding_length": limit,  # the end included, as ours is
        "max_input_length": 0,  # what is too long was split
        "suppress_sequences": [[PAD], [BOS]],
        "return_end_token": True,  # or an end could not be told from the length limit
        "return_scores": True,
    }


def _impossible(config: DecodingConfig, allowed: Tensor | None, precision: str) -> dict[str, bool]:
    """What CTranslate2 cannot do as we do, and whether it is asked for."""
    beam, alpha = config.beam > 1, config.length_penalty
    return {
        "sampling": config.sampling,  # its samples depend on the batch and the threads, ours on the seed alone
        "coverage_penalty": config.coverage_penalty > 0,
        "min_length with a beam": beam and config.min_length > 0,
        "repetition_penalty": config.repetition_penalty != 1,
        "no_repeat_ngram with a beam": beam and config.no_repeat_ngram > 0,
        f"length_penalty {alpha:g}, above {HIGHEST_PENALTY:g}, with a beam": beam and alpha > HIGHEST_PENALTY,
        "a list of words to keep to": allowed is not None,
        f"decoding.precision {config.precision} over a copy in {precision}": config.precision not in ("auto", precision),
    }


def _vocabularies(folder: Path) -> tuple[list[str], list[str]]:
    """The pieces of each side, as the model's folder lists them."""
    try:
        shared = folder / "shared_vocabulary.json"
        paths = [shared, shared] if shared.exists() else [folder / f"{side}_vocabulary.json" for side in ("source", "target")]
        source, target = (json.loads(path.read_text(encoding="utf-8")) for path in paths)
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{folder}: not a whole CTranslate2 model ({error}); export it again") from None
    if not all(isinstance(side, list) and all(isinstance(piece, str) for piece in side) for side in (source, target)):
        raise CheckpointError(f"{folder}: its vocabulary is not a list of tokens; export it again")
    return source, target


def _open(folder: Path, precision: str, device: str) -> Any:
    """CTranslate2's translator. On a CPU a worker for each core, of one thread: two that share a small product mostly wait."""
    library = needed("ctranslate2")
    if device == "auto":
        device = "cuda" if library.get_cuda_device_count() else "cpu"
    kind, _, index = device.partition(":")
    computed = PRECISIONS[precision]
    if computed not in library.get_supported_compute_types(kind):
        computed = "float32"  # weights stored in bf16 are widened, as few CPUs multiply it
    threads = {"inter_threads": cpu_cores(), "intra_threads": 1} if kind == "cpu" else {}
    try:
        return library.Translator(str(folder), kind, device_index=int(index or 0), compute_type=computed, **threads)
    except (RuntimeError, ValueError) as error:
        why = " ".join(str(error).split())[:200]
        instead = "export it again" if kind == "cpu" else "try the device cpu, or export it again"
        raise CheckpointError(f"{folder}: CTranslate2 cannot use it on {device} ({why}); {instead}") from None
