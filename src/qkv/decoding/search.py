"""The entry point: `decode` takes a batch of inputs and returns the best hypotheses of each."""

import contextlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from qkv.base.errors import ConfigError, DataError
from qkv.base.hardware import choose_precision
from qkv.decoding.batch import DecodingBatch, OnToken
from qkv.decoding.beam import BeamSearch
from qkv.decoding.config import DecodingConfig
from qkv.decoding.constraints import Constraints, max_output_lengths
from qkv.decoding.hypothesis import Hypothesis, best_first
from qkv.decoding.logprobs import LogprobRecord
from qkv.decoding.phrases import Phrase, PhraseTables
from qkv.decoding.protocol import Decodable
from qkv.decoding.sampling import TokenSearch

Search = BeamSearch | TokenSearch


@torch.inference_mode()
def decode(model: Decodable, ids: Tensor, keep: Tensor, config: DecodingConfig, **options: Any) -> list[list[Hypothesis]]:
    """Return the n best hypotheses of each source, ids and keep (B, S), best first; the options are those of `begin_search`."""
    if not ids.size(0):
        return []
    with decoding_precision(config.precision, ids.device):
        search = begin_search(model, ids, keep, config, **options)
        found: dict[Any, list[Hypothesis]] = {}
        while len(search):
            found.update(search.step())
    copies = config.n_best if config.sampling else 1
    outputs = [[one for copy in range(copies) for one in found[copies * i + copy]] for i in range(ids.size(0))]
    return [best_first(each) for each in outputs] if copies > 1 else outputs


def begin_search(
    model: Decodable,
    ids: Tensor,
    keep: Tensor,
    config: DecodingConfig,
    *,
    bos: int,
    eos: int,
    pad: int,
    prefix: Tensor | list[list[int]] | None = None,
    allowed: list[Tensor] | None = None,
    seed: int = 0,
    index: Sequence[int] | None = None,
    last_tokens: list[int] | None = None,
    max_lengths: Sequence[int] | None = None,
    on_token: OnToken | None = None,
    phrases: Sequence[Sequence[Phrase]] | None = None,
    never: Sequence[int] = (),
    records: Sequence[LogprobRecord | None] | None = None,
    owners: Sequence[Any] | None = None,
) -> Search:
    """Read sources, ids and keep (B, S), and return the search for their outputs, which `step` makes token by token.

    It returns each output with its owner: the number of its source among these, unless `owners` are given.

    `prefix` holds the tokens that each output must begin with (a tensor is padded with pad), `allowed` the ids that each may use
    besides eos, and `index` the number of each input in the whole job: with the seed, it decides the samples.

    Outputs may also continue the inputs as prompts: `last_tokens` then holds the last token of each, which is not in ids.
    `max_lengths` limits the length of each output further than the config does. `on_token` is called with each token as it is
    generated and may end the output there; not in beam search, which takes tokens back. `records` receive the log-probabilities
    of each output's tokens but the end, before `on_token` is called; one output for each input.

    Outputs of a beam search contain their `phrases`; each adds its length to the limit. An output that cannot contain all
    contains as many as were found. Tokens of phrases are generated even where `allowed` or
    `no_repeat_ngram` forbid them, and even if they are among the ids that are `never` generated otherwise.
    """
    inputs = ids.size(0)
    if ids.shape != keep.shape or ids.dim() != 2:
        raise DataError(f"ids {tuple(ids.shape)} and keep {tuple(keep.shape)} must both be (inputs, source length)")
    _check_count("allowed", allowed, inputs)
    _check_count("index", index, inputs)
    _check_count("last_tokens", last_tokens, inputs)
    _check_count("max_lengths", max_lengths, inputs)
    if on_token is not None and config.searches:
        raise ConfigError("beam search takes tokens back, so it cannot pass them on one by one; set beam: 1 or sampling: true")
    _check_count("records", records, inputs)
    if records is not None and (config.searches or config.n_best > 1):
        raise ConfigError("log-probabilities of tokens need one output that is never revised; set beam: 1 and n_best: 1")
    _check_count("phrases", phrases, inputs)
    if any(phrases or ()) and not config.searches:
        raise ConfigError("only beam search finds outputs that contain phrases; set beam above 1, and leave sampling out")
    prefixes = _prefixes(prefix, inputs, {bos, eos, pad}, pad)
    wanted = [list(each) for each in phrases] if phrases else [[] for _ in range(inputs)]
    room = [sum(max(map(len, phrase.forms)) for phrase in each) for each in wanted]
    lengths = keep.sum(1).tolist() if config.max_ratio else [0] * inputs  # a GPU would have to be waited for
    limits = max_output_lengths(config, lengths, map(len, prefixes), room)
    limits = limits if max_lengths is None else [min(pair) for pair in zip(limits, max_lengths, strict=True)]
    tables = PhraseTables(wanted, eos) if any(wanted) else None
    constraints = Constraints(config, prefixes, allowed, eos, sorted({bos, pad, *never} - {eos}), ids.device, tables)
    numbers = list(range(inputs) if index is None else index)
    batch = DecodingBatch(
        ids.device, config, constraints, np.array(limits), numbers, owners or range(inputs), bos, eos, seed, last_tokens,
        on_token, records, _prompts(ids, keep, last_tokens) if config.repetition_penalty != 1 else None,
        keep if config.coverage_penalty else None,
    )  # fmt: skip
    if config.searches:
        return BeamSearch(model, batch, ids, keep)
    return TokenSearch(model, batch, ids, keep, config.n_best if config.sampling else 1)


def decoding_precision(wanted: str, device: torch.device) -> contextlib.AbstractContextManager[object]:
    """Return the context for matrix products in this precision; on a CPU, auto keeps the caller's."""
    if wanted == "auto" and device.type == "cpu":
        return contextlib.nullcontext()
    dtype = choose_precision(wanted, device)
    return torch.autocast(device.type, dtype, enabled=dtype != torch.float32)


def _prompts(ids: Tensor, keep: Tensor, last_tokens: list[int] | None) -> list[list[int]]:
    """Return the tokens before each output; none if outputs do not continue their inputs."""
    if last_tokens is None:
        return [[] for _ in ids]
    rows = zip(ids.cpu(), keep.cpu(), last_tokens, strict=True)
    return [[*row[kept].tolist(), last] for row, kept, last in rows]


def _check_count(name: str, values: Sequence[object] | None, inputs: int) -> None:
    if values is not None and len(values) != inputs:
        raise DataError(f"{name} has {len(values)} entries for {inputs} inputs; give one for each input")


def _prefixes(prefix: Tensor | list[list[int]] | None, inputs: int, special: set[int], pad: int) -> list[list[int]]:
    """Return the prefix of each input as a list of ids."""
    if prefix is None:
        return [[] for _ in range(inputs)]
    rows = prefix.tolist() if isinstance(prefix, Tensor) else prefix
    if isinstance(prefix, Tensor):
        for row in rows:
            while row and row[-1] == pad:
                row.pop()
    _check_count("prefix", rows, inputs)
    for wrong in (token for row in rows for token in row if token in special or token < 0):
        raise DataError(f"a prefix holds the id {wrong}, which is no token of a text; leave bos, eos and pad out of it")
    return rows


def batches_by_length(lengths: Sequence[int], budget: int) -> list[list[int]]:
    """Group the positions of inputs into batches of similar length, longest first, of at most `budget` tokens when padded.

    An input longer than the budget is a batch of its own.
    """
    batches: list[list[int]] = []
    for position in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        longest = lengths[batches[-1][0]] if batches else 0
        if batches and max(longest, 1) * (len(batches[-1]) + 1) <= budget:
            batches[-1].append(position)
        else:
            batches.append([position])
    return batches
