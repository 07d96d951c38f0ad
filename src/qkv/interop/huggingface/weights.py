"""Pairs of weight names: a weight of ours, and the weights of transformers that are stacked in it.

Transformers keeps query, key and value apart, qkv stacks them. A family lists its pairs once; reading and writing both use that
list.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from qkv.base.errors import CheckpointError

MODEL = "model"  # the only part of a network without heads
Weights = dict[str, dict[str, Tensor]]  # by part: the encoder and each head, or MODEL


def split(weight: Tensor, count: int) -> list[Tensor]:
    """Split a stacked weight into equal blocks."""
    return list(weight.chunk(count))


class WeightPair(NamedTuple):
    """A weight of ours, and those of transformers that are stacked in it."""

    ours: str
    theirs: tuple[str, ...]
    part: str = MODEL
    read: Callable[[list[Tensor]], Tensor] = torch.cat  # from theirs to ours
    write: Callable[[Tensor, int], list[Tensor]] = split  # from ours to as many of theirs


def module_pairs(ours: str, *theirs: str, part: str = MODEL) -> Iterator[WeightPair]:
    """Pair the weight and the bias of a module; a module without one of them is no mistake."""
    for end in (".weight", ".bias"):
        yield WeightPair(ours + end, tuple(name + end for name in theirs), part)


def take(given: dict[str, Tensor], name: str) -> Tensor:
    """Remove a weight from those given and return it in float32."""
    if name not in given:
        raise CheckpointError(f"the weights lack {name}; the checkpoint is not whole")
    return given.pop(name).float()


def read_weights(given: dict[str, Tensor], pairs: Iterable[WeightPair], required: bool = False) -> Weights:
    """Remove the weights of transformers that pairs name and return ours; only required ones must be there."""
    found: Weights = {}
    for pair in pairs:
        if required or not given.keys().isdisjoint(pair.theirs):
            found.setdefault(pair.part, {})[pair.ours] = pair.read([take(given, name) for name in pair.theirs])
    return found


def refuse_unknown(given: Iterable[str], kind: str, ignored: tuple[str, ...] = ()) -> None:
    """Refuse weights that are left over, but for names with an ending that may be ignored."""
    unknown = sorted(name for name in given if not name.endswith(ignored))
    if unknown:
        raise CheckpointError(f"{unknown[0]} and {len(unknown) - 1} more weights have no counterpart in qkv's {kind}")


def check_weights(found: Mapping[str, Tensor], wanted: Mapping[str, Tensor]) -> None:
    """Refuse weights that are missing or have another shape than config.json says."""
    for name, weight in wanted.items():
        if name not in found:
            raise CheckpointError(f"the weights lack {name} (qkv's name for it); the checkpoint is not whole")
        if found[name].shape != weight.shape:
            shapes = f"{tuple(found[name].shape)}, but config.json makes it {tuple(weight.shape)}"
            raise CheckpointError(f"the weights for {name} have the shape {shapes}; they do not belong together")


def write_weights(weights: Mapping[str, Mapping[str, Tensor]], pairs: Iterable[WeightPair]) -> dict[str, Tensor]:
    """Return the weights of transformers for ours."""
    written: dict[str, Tensor] = {}
    for pair in pairs:
        weight = weights.get(pair.part, {}).get(pair.ours)
        if weight is not None:
            pieces = pair.write(weight.detach().cpu(), len(pair.theirs))
            # safetensors refuses tensors that share memory.
            written |= {name: piece.contiguous().clone() for name, piece in zip(pair.theirs, pieces, strict=True)}
    return written
