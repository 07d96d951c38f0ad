"""Steps of a Transformer's layer around one attention: residuals, norms and the feed-forward network, in the model's order."""

from collections.abc import Iterator

from torch import Tensor

from qkv.lens.arithmetic.attention import Head, attention_steps
from qkv.lens.arithmetic.steps import Step, norm_step, number, vector
from qkv.lens.trace import ModuleCall, Trace
from qkv.parts.activations import ACTIVATIONS
from qkv.parts.attention import CrossAttention
from qkv.parts.dot_product import RecordedAttention
from qkv.parts.feedforward import GATED, FeedForward
from qkv.parts.relative import PositionScheme
from qkv.parts.residual import Residual


def layer_of(trace: Trace, attention: ModuleCall) -> list[ModuleCall]:
    """Return the calls of residual connections that make up the layer of an attention."""
    layers: list[list[ModuleCall]] = []
    for call in trace:
        if isinstance(call.module, Residual):
            if isinstance(_sublayer(trace, call).module, FeedForward | CrossAttention):
                layers[-1].append(call)
            else:  # self-attention begins a layer
                layers.append([call])
    return next(layer for layer in layers if any(_sublayer(trace, call) is attention for call in layer))


def layer_steps(trace: Trace, head: Head, scheme: PositionScheme | None) -> Iterator[Step]:
    """Yield the steps of the layer that a head belongs to."""
    i, before = head.position, True
    for call in layer_of(trace, head.call):
        sublayer = _sublayer(trace, call)
        if sublayer is head.call:
            before = False
            yield from _around(call, i, sublayer, ("norm_before", "residual", "norm"), attention_steps(head, scheme))
        elif isinstance(sublayer.module, FeedForward):
            names = ("norm_feedforward", "feedforward_residual", "feedforward_norm")
            yield from _around(call, i, sublayer, names, _feedforward(sublayer, i))
        else:
            yield Step("self_attention_before" if before else "cross_attention_after", (vector("x", "x", call.output[0, i]),))


def _sublayer(trace: Trace, residual: ModuleCall) -> ModuleCall:
    """Return the call of the attention or feed-forward network inside a residual connection."""
    return next(call for call in trace.inside(residual) if isinstance(call.module, RecordedAttention | FeedForward))


def _around(
    residual: ModuleCall, i: int, sublayer: ModuleCall, names: tuple[str, str, str], inside: Iterator[Step]
) -> Iterator[Step]:
    """Yield the steps of a sub-layer with its residual and its norm, which stands before or after."""
    x, module = residual.inputs[0][0, i], residual.module
    norm_before, add, norm_after = names
    if module.pre_norm:
        yield norm_step(norm_before, module.norm, x, "y")
    yield from inside
    change = sublayer.output[0, i]
    total = x + change
    yield Step(add, (vector("before", "came in", x), vector("output", "added", change), vector("x", "x", total)))
    if not module.pre_norm:
        yield norm_step(norm_after, module.norm, total)


def _feedforward(call: ModuleCall, i: int) -> Iterator[Step]:
    network, y = call.module, call.inputs[0][0, i]
    units = inner_units(network, y)
    numbers = number("width", "units", len(units)), number("active", "units above 0", (units > 0).sum())
    name = "feedforward_gated" if network.activation in GATED else "feedforward_inner"
    biased = network.down.bias is not None
    yield Step(name, (*numbers, vector("units", "u", units)), biased)
    yield Step("feedforward", (vector("output", "f", call.output[0, i]),), biased)


def inner_units(network: FeedForward, y: Tensor) -> Tensor:
    """Return the units between the two matrices of a feed-forward network. (D,) -> (F,)."""
    inside = network.up(y)
    if network.activation not in GATED:
        return ACTIVATIONS[network.activation](inside)
    gate, value = inside.chunk(2, dim=-1)
    return ACTIVATIONS[GATED[network.activation]](gate) * value
