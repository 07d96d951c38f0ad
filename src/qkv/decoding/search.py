"""The way in: `decode` takes a batch and gives the best hypotheses of each input."""

import contextlib
from collections.abc import Sequence

import torch
from torch import Tensor

from qkv.base.errors import ConfigError, DataError
from qkv.base.hardware import choose_precision
from qkv.decoding.beam import beam_search
from qkv.decoding.config import DecodingConfig
from qkv.decoding.hypothesis import Hypothesis
from qkv.decoding.limits import Limits, longest_outputs
from qkv.decoding.protocol import Decodable
from qkv.decoding.sampling import greedy, sample
from qkv.decoding.task import Listener, Task


@torch.inference_mode()
def decode(
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
    last: list[int] | None = None,
    most: Sequence[int] | None = None,
    listener: Listener | None = None,
) -> list[list[Hypothesis]]:
    """For each source, ids and keep (B, S), its n best hypotheses, best first.

    `prefix` holds what each output must begin with (a tensor is padded with pad), `allowed` the ids each may use beside
    eos, and `index` the number of each input in the whole job, from which, with the seed, its samples are drawn.

    Outputs may also go on from the inputs, as prompts: `last` is then the last word of each, which is not in ids. `most` is how
    many words there is room for in each output, whatever the config says. A `listener` hears each word as it is said, and may
    end an output there; not in beam search, where words are taken back.
    """
    inputs = ids.size(0)
    if ids.shape != keep.shape or ids.dim() != 2:
        raise DataError(f"ids {tuple(ids.shape)} and keep {tuple(keep.shape)} must both be (inputs, source length)")
    _check_count("allowed", allowed, inputs)
    _check_count("index", index, inputs)
    _check_count("last", last, inputs)
    _check_count("most", most, inputs)
    if listener is not None and config.searches:
        raise ConfigError("in beam search words are taken back, so that nobody can listen to them; set beam: 1 or sampling: true")
    if not inputs:
        return []
    begin = _prefixes(prefix, inputs, {bos, eos, pad}, pad)
    longest = longest_outputs(config, keep.sum(1).tolist(), map(len, begin))
    longest = longest if most is None else [min(pair) for pair in zip(longest, most, strict=True)]
    limits = Limits(config, begin, allowed, eos, sorted({bos, pad} - {eos}), ids.device)
    numbers = list(range(inputs) if index is None else index)
    task = Task(ids, keep, config, limits, longest, numbers, bos, eos, seed, last, listener)
    search = sample if config.sampling else beam_search if config.searches else greedy
    with _precision(config.precision, ids.device):
        return search(model, task).hypotheses()


def _precision(wanted: str, device: torch.device) -> contextlib.AbstractContextManager[object]:
    """In which matrix products are computed; on a CPU, auto leaves it to whoever asks for texts."""
    if wanted == "auto" and device.type == "cpu":
        return contextlib.nullcontext()
    dtype = choose_precision(wanted, device)
    return torch.autocast(device.type, dtype, enabled=dtype != torch.float32)


def _check_count(name: str, values: Sequence[object] | None, inputs: int) -> None:
    if values is not None and len(values) != inputs:
        raise DataError(f"{name} has {len(values)} entries for {inputs} inputs; give one for each input")


def _prefixes(prefix: Tensor | list[list[int]] | None, inputs: int, special: set[int], pad: int) -> list[list[int]]:
    """The prefix of each input as a list of ids."""
    if prefix is None:
        return [[] for _ in range(inputs)]
    rows = [_unpadded(row, pad) for row in prefix.tolist()] if isinstance(prefix, Tensor) else prefix
    _check_count("prefix", rows, inputs)
    for wrong in (word for row in rows for word in row if word in special or word < 0):
        raise DataError(f"a prefix holds the id {wrong}, which is no word; leave bos, eos and pad out of it")
    return rows


def _unpadded(row: list[int], pad: int) -> list[int]:
    while row and row[-1] == pad:
        row = row[:-1]
    return row


def batches_by_length(lengths: Sequence[int], budget: int) -> list[list[int]]:
    """Places of inputs in batches of like length, longest first, each at most `budget` tokens when padded.

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
