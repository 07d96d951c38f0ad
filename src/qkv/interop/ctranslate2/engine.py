"""CTranslate2 as an engine: its own search, ranked like ours.

Its beam goes on from the same hypotheses as ours, step by step, but it divides log-probabilities by length ** alpha instead of
((5 + length) / 6) ** alpha, and stops as soon as a number of hypotheses has ended instead of when none could overtake them. So it
waits for PATIENCE times as many as the beam is wide, and we rank the result.
With a prefix, it ends a hypothesis right after the prefix only where the end is the best token of all.
It removes forbidden tokens (pad and bos, an early end, a repeated n-gram) before the softmax, we after it: its probabilities are
a little higher. Greedy outputs stay the same; in a beam, hypotheses with many forbidden tokens overtake others, so there an early
end and a repeated n-gram cannot be forbidden.
"""

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from qkv.base.errors import CheckpointError, ConfigError, QkvError, TrainingError
from qkv.base.hardware import cpu_cores
from qkv.decoding.config import DecodingConfig
from qkv.decoding.constraints import max_output_lengths
from qkv.decoding.hypothesis import Hypothesis
from qkv.decoding.phrases import Phrase
from qkv.decoding.scoring import TokenStatistics
from qkv.decoding.search import batches_by_length
from qkv.interop.ctranslate2.writer import PRECISIONS
from qkv.interop.packages import import_optional
from qkv.interop.unsupported import DAMAGED_COPY, refuse_unsupported
from qkv.text.tokenizer import SPECIAL_TOKENS

PAD, _, BOS, EOS = SPECIAL_TOKENS
PATIENCE = 2.0  # with 1 some sentences of Multi30k differed from our search, with 1.5 some lists of the n best
MAX_LENGTH_PENALTY = 1.0  # beyond it, a longer text that would win is not always among those waited for
BATCHES_PER_WORKER = 4  # so that no worker waits long for the last one
MIN_BATCH = 256  # source tokens; smaller batches cost more than their spreading over workers saves


@dataclass(frozen=True)
class CTranslate2Input:
    """A text to translate, in tokens."""

    source: list[str]
    prefix: list[str]  # forced beginning of the output
    max_length: int  # of the output, the end included


class CTranslate2Engine:
    """A model that `write_ctranslate2` wrote."""

    def __init__(self, folder: Path, max_positions: int | None, precision: str, device: str = "auto"):
        self.longest, self.precision = max_positions, precision
        self.source, self.target = _vocabularies(folder)
        self.ids = {piece: number for number, piece in enumerate(self.target)}
        self.translator = _open(folder, precision, device)
        self.device = torch.device(self.translator.device)

    def decode(
        self,
        sources: Sequence[list[int]],
        config: DecodingConfig,
        prefixes: Sequence[list[int]] | None = None,
        allowed: Tensor | None = None,
        first: int = 0,
        phrases: Sequence[Sequence[Phrase]] | None = None,
    ) -> list[list[Hypothesis]]:
        """Return the n best hypotheses of each source, best first."""
        refuse_unsupported("ctranslate2", {**_unsupported(config, allowed, self.precision), "phrases": any(phrases or ())})
        forced = [[] for _ in sources] if prefixes is None else list(prefixes)
        limits = max_output_lengths(config, map(len, sources), map(len, forced))
        texts = [
            CTranslate2Input([self.source[i] for i in source], [self.target[i] for i in prefix], limit)
            for source, prefix, limit in zip(sources, forced, limits, strict=True)
        ]
        found = self._search(texts, config)
        # A batch runs to the limit of its longest text; outputs beyond their own limit are searched again with those that share
        # it.
        over = [i for i, result in enumerate(found) if max(map(len, result.hypotheses)) > limits[i]]
        for limit in sorted({limits[i] for i in over}):
            again = [i for i in over if limits[i] == limit]
            for i, result in zip(again, self._search([texts[i] for i in again], config), strict=True):
                found[i] = result
        prefix_logprobs = self._prefix_logprobs(texts)
        return [self._ranked(result, logprob, config) for result, logprob in zip(found, prefix_logprobs, strict=True)]

    def takes_phrases(self, config: DecodingConfig) -> bool:
        """Return False: CTranslate2 has no such search."""
        return False

    def _search(self, texts: list[CTranslate2Input], config: DecodingConfig) -> list[Any]:
        """Return CTranslate2's result for each text."""
        found: list[Any] = [None] * len(texts)
        running = []
        for batch in self._batches(texts, config.batch_tokens):
            options = _options(config, max(texts[i].max_length for i in batch))
            forced = [texts[i].prefix for i in batch] if texts[batch[0]].prefix else None
            started = self.translator.translate_batch([texts[i].source for i in batch], forced, asynchronous=True, **options)
            running.append((batch, started))
        for batch, started in running:
            for i, result in zip(batch, started, strict=True):
                try:
                    found[i] = result.result()
                except RuntimeError as error:  # out of memory, most often
                    why = " ".join(str(error).split())[:200]
                    raise QkvError(f"CTranslate2 gave up ({why}); try a smaller batch_tokens, or qkv's own engine") from None
        return found

    def _batches(self, texts: list[CTranslate2Input], most: int) -> Iterator[list[int]]:
        """Yield indices of texts of similar length, enough batches for all workers."""
        # Separate batches: beside a text with a prefix, CTranslate2 ends the others too seldom at their first token.
        for forced in (False, True):
            indices = [i for i, text in enumerate(texts) if bool(text.prefix) == forced]
            lengths = [len(texts[i].source) for i in indices]
            spread = max(MIN_BATCH, sum(lengths) // (BATCHES_PER_WORKER * self.translator.num_translators))
            for rows in batches_by_length(lengths, min(most, spread)):
                yield [indices[row] for row in rows]

    def _ranked(self, result: Any, prefix_logprob: float, config: DecodingConfig) -> list[Hypothesis]:
        """Rank hypotheses with our length penalty; CTranslate2's scores leave out the log-probability of a forced prefix."""
        hypotheses, alpha = [], config.length_penalty
        for words, score in zip(result.hypotheses, result.scores, strict=True):
            logprob = score * len(words) ** alpha + prefix_logprob
            if not math.isfinite(logprob):
                raise TrainingError(DAMAGED_COPY)
            finished = words[-1] == EOS
            ids = [self.ids[word] for word in (words[:-1] if finished else words)]
            hypotheses.append(Hypothesis(ids, logprob / ((5 + len(words)) / 6) ** alpha, logprob, finished))
        return sorted(hypotheses, key=lambda one: (not one.finished, -one.score))[: config.n_best]

    def _prefix_logprobs(self, texts: list[CTranslate2Input]) -> list[float]:
        totals = [0.0] * len(texts)
        forced = [i for i, text in enumerate(texts) if text.prefix]
        if forced:
            sides = [texts[i].source for i in forced], [texts[i].prefix for i in forced]
            for i, result in zip(forced, self.translator.score_batch(*sides, max_input_length=0), strict=True):
                totals[i] = sum(result.log_probs[: len(texts[i].prefix)])
        return totals

    def statistics(
        self, sources: Sequence[list[int]], targets: Sequence[list[int]], config: DecodingConfig
    ) -> list[TokenStatistics]:
        """Refuse: CTranslate2 returns neither the distributions of tokens nor the attention of all steps."""
        raise ConfigError("confidence is not for the engine ctranslate2; use qkv's own engine or onnx for it, or leave it out")

    def attention(self, source: list[int], target: list[int]) -> Tensor:
        """Refuse: CTranslate2 returns the attention of one layer, and alignments need all of them."""
        raise ConfigError("alignments are not for the engine ctranslate2; use qkv's own engine for them, or leave them out")


def _options(config: DecodingConfig, limit: int) -> dict[str, Any]:
    """Return our decoding options under CTranslate2's names."""
    patience = PATIENCE if config.beam > 1 else 1.0
    return {
        "beam_size": config.beam,
        "patience": patience,
        "num_hypotheses": round(config.beam * patience),
        "length_penalty": config.length_penalty,
        "no_repeat_ngram_size": config.no_repeat_ngram,
        "min_decoding_length": config.min_length,
        "max_decoding_length": limit,  # the end included, as ours is
        "max_input_length": 0,  # long texts were split before
        "suppress_sequences": [[PAD], [BOS]],
        "return_end_token": True,  # otherwise an end looks like the length limit
        "return_scores": True,
    }


def _unsupported(config: DecodingConfig, allowed: Tensor | None, precision: str) -> dict[str, bool]:
    """Return the options that CTranslate2 does not have or treats otherwise than we do, and whether each was requested."""
    beam, alpha = config.beam > 1, config.length_penalty
    return {
        "sampling": config.sampling,  # its samples depend on the batch and the threads, ours on the seed alone
        "coverage_penalty": config.coverage_penalty > 0,
        "min_length with a beam": beam and config.min_length > 0,
        "repetition_penalty": config.repetition_penalty != 1,
        "frequency_penalty": config.frequency_penalty != 0,
        "presence_penalty": config.presence_penalty != 0,
        "no_repeat_ngram with a beam": beam and config.no_repeat_ngram > 0,
        f"length_penalty {alpha:g}, above {MAX_LENGTH_PENALTY:g}, with a beam": beam and alpha > MAX_LENGTH_PENALTY,
        "a list of words to keep to": allowed is not None,
        f"decoding.precision {config.precision} over a copy in {precision}": config.precision not in ("auto", precision),
    }


def _vocabularies(folder: Path) -> tuple[list[str], list[str]]:
    """Read the tokens of each side, in order of their ids."""
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
    """Open CTranslate2's translator.

    On a CPU each core gets a worker of one thread: two threads on a small product mostly wait.
    """
    library = import_optional("ctranslate2")
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
