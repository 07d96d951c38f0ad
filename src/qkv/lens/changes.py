"""Changes to a running model: heads and layers switched off, attention weights set, the temperature of a softmax.

>>> with changing(inspector, [WithoutHead("decoder.1.cross", 2), SoftmaxTemperature(0.5)]):
...     logits = inspector.logits()

Weights are changed where attention computes them step by step (`parts/dot_product.py`), so that the changed ones are recorded,
and layers by hooks. Both act in this thread alone, in decoding too, and leave the model as it was. Layers, heads and positions
count from 0. B batch, H heads, T query positions, S key positions.
"""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from threading import get_ident
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from qkv.base.errors import ConfigError
from qkv.lens.inspectors import CROSS, DECODER, ENCODER, AttentionLayer, Inspector
from qkv.parts.dot_product import changing_weights


@dataclass(frozen=True)
class WithoutHead:
    """Sets the weights of a head to 0, so that it adds nothing."""

    attention: str  # the name of the attention, such as decoder.1.cross
    head: int | None = None  # None: all heads


@dataclass(frozen=True)
class WithoutLayer:
    """Skips a layer: its output is its input."""

    layer: str  # such as encoder.0


@dataclass(frozen=True)
class FixedWeight:
    """Sets the weight of one key for one query; the other weights of the query are scaled so that all sum to 1."""

    attention: str
    query: int
    key: int
    value: float
    head: int | None = None  # None: in all heads


@dataclass(frozen=True)
class SoftmaxTemperature:
    """Divides scores by a temperature before the softmax: below 1 sharpens attention, above 1 flattens it."""

    value: float
    attention: str | None = None  # None: every attention
    head: int | None = None  # None: all heads


Change = WithoutHead | WithoutLayer | FixedWeight | SoftmaxTemperature


@contextlib.contextmanager
def changing(inspector: Inspector, changes: Sequence[Change]) -> Iterator[None]:
    """Change the inspector's model for this thread inside; raise ConfigError for names that it does not have.

    The model may also read other texts or decode inside. Only where it reads source and target as one text (UniLM) must the
    source have as many tokens as the inspector's.
    """
    check_names(inspector, changes)
    off = {change.layer for change in changes if isinstance(change, WithoutLayer)}
    edits = [change for change in changes if not isinstance(change, WithoutLayer)]
    with contextlib.ExitStack() as stack:
        if off:
            stack.enter_context(_skipped(inspector.layers(), off))
        if edits:
            stack.enter_context(_edited(inspector, edits))
        yield


def check_names(inspector: Inspector, changes: Sequence[Change]) -> None:
    """Refuse changes of layers, attentions and heads that the model does not have, and values that make no sense."""
    attentions = {one.name: one for one in inspector.attentions()}
    layers = list(dict.fromkeys(name for name, _, _ in inspector.layers()))
    for change in changes:
        if isinstance(change, WithoutLayer):
            if change.layer not in layers:
                raise ConfigError(f"this model has no layer {change.layer!r}; {_known_layers(layers)}")
            continue
        check_attention(attentions, change.attention, change.head)
        if isinstance(change, SoftmaxTemperature) and not 0 < change.value < float("inf"):
            raise ConfigError(f"a temperature of {change.value:g} is not above 0; 0.5 sharpens attention, 2 flattens it")
        if isinstance(change, FixedWeight) and not 0 <= change.value <= 1:
            raise ConfigError(f"a weight of {change.value:g} is not between 0 and 1; give a share of the query's attention")


def check_attention(attentions: dict[str, AttentionLayer], name: str | None, head: int | None) -> None:
    """Refuse the name of an attention, and a head, that a model does not have; None stands for all."""
    if name is not None and name not in attentions:
        parts = dict.fromkeys(one.part for one in attentions.values())
        numbers = {part: [one.layer for one in attentions.values() if one.part == part] for part in parts}
        short = ", ".join(f"{part}.1 to {part}.{max(layers) + 1}" for part, layers in numbers.items())
        raise ConfigError(f"this model has no attention {name!r}; it has {', '.join(attentions)}", f"as options {short}")
    most = max(one.heads for one in attentions.values() if name in (None, one.name))
    if head is not None and not 0 <= head < most:
        known = f"it has {most}, from 0 to {most - 1}"
        raise ConfigError(f"{name or 'this model'} has no head {head}; {known}", f"as options 1 to {most}")


def _known_layers(layers: Sequence[str]) -> str:
    if not layers:
        return "it has none that can be skipped"
    counts = {name.split(".")[0]: int(name.split(".")[1]) + 1 for name in layers}
    return f"its layers are {', '.join(layers)}, as options " + ", ".join(f"{p}.1 to {p}.{n}" for p, n in counts.items())


# Layers


@contextlib.contextmanager
def _skipped(layers: Sequence[tuple[str, str, nn.Module]], off: set[str]) -> Iterator[None]:
    """Let some layers return their input; the n-th entry of a module is its n-th call in a pass."""
    names = _by_module((name, module) for name, _, module in layers)
    with contextlib.ExitStack() as stack:
        for module, calls in names.items():
            hook = _OnCall(calls, lambda name, inputs, output: inputs[0] if name in off else output)
            stack.callback(module.register_forward_hook(hook).remove)
        yield


def _by_module(named: Any) -> dict[nn.Module, list[Any]]:
    """Collect what belongs to the calls of each module, in order."""
    found: dict[nn.Module, list[Any]] = {}
    for value, module in named:
        found.setdefault(module, []).append(value)
    return found


class _OnCall:
    """A forward hook for this thread that knows which of a module's calls in a pass it is."""

    def __init__(self, calls: Sequence[Any], do: Any):
        self.calls, self.do, self.number, self.thread = calls, do, 0, get_ident()

    def __call__(self, module: nn.Module, inputs: Any, output: Any = None) -> Any:
        if get_ident() != self.thread:
            return None
        value = self.calls[self.number % len(self.calls)]
        self.number += 1
        return self.do(value, inputs, output)


# Attention


@contextlib.contextmanager
def _edited(inspector: Inspector, edits: Sequence[Any]) -> Iterator[None]:
    """Let the softmax of every attention follow the changes."""
    softmax = _ChangedSoftmax(inspector, edits)
    with contextlib.ExitStack() as stack:
        for module, calls in softmax.calls.items():
            stack.callback(module.register_forward_pre_hook(_OnCall(calls, softmax.enter)).remove)
        encoder = getattr(inspector.network, "encoder", None)
        if encoder is not None:  # before each decoding, and each pass over source and target
            first = encoder[0] if isinstance(encoder, nn.ModuleList) else encoder
            stack.callback(first.register_forward_pre_hook(_OnCall([None], softmax.restart)).remove)
        stack.enter_context(changing_weights(softmax))
        yield


class _Region(NamedTuple):
    """The rows and columns of a matrix of weights that belong to one attention map."""

    name: str
    rows: slice
    columns: slice
    positions: list[int]  # of the rows, in their text


class _ChangedSoftmax:
    """Computes the weights of the attention that is running."""

    def __init__(self, inspector: Inspector, edits: Sequence[Any]):
        self.edits = edits
        joined = bool(getattr(inspector.network, "joins_source_and_target", False))
        self.source = inspector.source.ids.size(1) if joined else None  # type: ignore[union-attr]
        attentions = [one for one in inspector.attentions() if not joined or one.part == ENCODER]
        self.calls = _by_module((one, one.module) for one in attentions)
        self.current: AttentionLayer | None = attentions[0] if len(attentions) == 1 else None
        self.only = self.current
        self.steps: dict[str, int] = {}  # calls of each cross-attention since the encoder ran

    def enter(self, attention: AttentionLayer, inputs: Any, output: Any) -> None:
        """Note that an attention runs."""
        self.current = attention

    def restart(self, *_: Any) -> None:
        """Note that a source is being encoded, so that the target begins."""
        self.steps.clear()

    def __call__(self, scores: Tensor, first: int | None) -> Tensor:
        """scores (B, H, T, S) -> weights (B, H, T, S)."""
        attention, self.current = self.current, self.only
        if attention is None:  # one that has no map of tokens
            return scores.softmax(-1)
        regions = self._regions(attention, scores, first)
        temperatures = [edit for edit in self.edits if isinstance(edit, SoftmaxTemperature)]
        for region in regions:
            for edit in temperatures:
                if edit.attention in (None, region.name):
                    scores = _divided(scores, region, edit)
        weights = scores.softmax(-1).clone()  # edited in place, while a backward pass needs the softmax
        for region in regions:
            fixed = [edit for edit in self.edits if isinstance(edit, FixedWeight) and edit.attention == region.name]
            for row, position in enumerate(region.positions, region.rows.start):
                for head in range(weights.size(1)):
                    chosen = [edit for edit in fixed if edit.query == position and edit.head in (None, head)]
                    known = {edit.key + region.columns.start: edit.value for edit in chosen}
                    if known:
                        weights[:, head, row] = _with_fixed(weights[:, head, row], scores[:, head, row], known)
        for region in regions:
            for edit in self.edits:
                if isinstance(edit, WithoutHead) and edit.attention == region.name:
                    heads = slice(None) if edit.head is None else slice(edit.head, edit.head + 1)
                    weights[:, heads, region.rows, region.columns] = 0
        return weights

    def _regions(self, attention: AttentionLayer, scores: Tensor, first: int | None) -> list[_Region]:
        rows, columns = scores.shape[-2:]
        everything = slice(0, columns)
        if attention.part == CROSS:
            step = self.steps.get(attention.name, 0)
            self.steps[attention.name] = step + (first is None)
            # A first call has a whole target's queries, or one; later ones have a query of each hypothesis.
            at = [step] * rows if first is None and step else range((first or 0), (first or 0) + rows)
            return [_Region(attention.name, slice(0, rows), everything, [*at])]
        begin = columns - rows  # keys before the first query are those of a cache
        if self.source is None:
            return [_Region(attention.name, slice(0, rows), everything, [*range(begin, columns)])]
        own = min(max(0, self.source - begin), rows)  # rows of the source
        source, target = slice(0, own), slice(own, rows)
        positions = [*range(begin + own - self.source, columns - self.source)]
        end, n = min(columns, self.source), attention.layer
        return [
            _Region(f"{ENCODER}.{n}.self", source, slice(0, end), [*range(begin, begin + own)]),
            _Region(f"{DECODER}.{n}.cross", target, slice(0, end), positions),
            _Region(f"{DECODER}.{n}.self", target, slice(end, columns), positions),
        ]


def _divided(scores: Tensor, region: _Region, edit: SoftmaxTemperature) -> Tensor:
    """Divide the scores of a region by a temperature; masked ones stay finite, so that a row without keys has no NaN."""
    scores = scores.clone()
    heads = slice(None) if edit.head is None else slice(edit.head, edit.head + 1)
    part = scores[:, heads, region.rows, region.columns]
    part.div_(edit.value).clamp_(min=torch.finfo(scores.dtype).min)
    return scores


def _with_fixed(weights: Tensor, scores: Tensor, fixed: dict[int, float]) -> Tensor:
    """Set the weights of some keys and scale the others to the rest of 1. weights and scores (B, S) -> (B, S)."""
    chosen = torch.zeros(weights.size(-1), dtype=torch.bool, device=weights.device)
    values = torch.zeros_like(weights)
    for key, value in fixed.items():
        if key < len(chosen):
            chosen[key], values[:, key] = True, value
    others = weights.masked_fill(chosen, 0)
    total = others.sum(-1, keepdim=True)
    # Where all weight was on the chosen keys, the other keys that are visible share the rest.
    visible = ((scores > torch.finfo(scores.dtype).min / 4) & ~chosen).to(weights.dtype)
    shares = torch.where(total > 0, others / total.clamp(min=1e-30), visible / visible.sum(-1, keepdim=True).clamp(min=1))
    return values + shares * (1 - values.sum(-1, keepdim=True))
