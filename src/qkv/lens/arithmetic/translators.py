"""Steps of the attention of translators that are no Transformers: recurrent and convolutional ones, which have one head."""

from collections.abc import Iterator
from typing import Any

import torch

from qkv.lens.arithmetic.attention import Head, masked_softmax, visible_keys
from qkv.lens.arithmetic.inputs import translator_input
from qkv.lens.arithmetic.steps import Step, by_key, matrix, number, vector
from qkv.lens.trace import Trace
from qkv.parts.convolution import SQRT_HALF


def recurrent_steps(inspector: Any, trace: Trace, head: Head) -> Iterator[Step]:
    """Yield the steps of a recurrent decoder at one position."""
    network, i, attention = inspector.network, head.position, head.call.module
    readouts = trace[0].output[0]  # (T, E)
    yield from translator_input(network.target_embedding, None, inspector.read, i, network.embedding_scale)
    yield Step("position_recurrent")
    if network.config.input_feeding:
        last = readouts[i - 1] if i else torch.zeros_like(readouts[0])
        yield Step("input_feeding", (vector("output", "o", last),))
    q, (keys, values), mask = head.call.inputs
    state = q[0, i]
    yield Step("state", (vector("q", "h", state),))
    if attention.score == "additive":
        yield Step("query_additive", (vector("q", "q", attention.query(state)),))
    yield Step("keys_states" if attention.score == "dot" else "keys_projected", (matrix("k", "k", keys[0]),))
    yield Step("values_states", (matrix("v", "v", values[0]),))
    scores = attention.scores(q[:, i : i + 1], keys)[0, 0]
    learned = (vector("v", "v", attention.v),) if attention.score == "additive" else ()
    yield Step(f"score_{attention.score}", (*learned, by_key("dot", "score", scores)))
    yield from masked_softmax(head, scores, visible_keys(mask[:, None], head))
    yield Step("weighted_sum", (vector("z", "z", head.call.output[0, i]),))
    yield Step("readout", (vector("output", "o", readouts[i]),))


def convolution_steps(inspector: Any, trace: Trace, head: Head, layer: int) -> Iterator[Step]:
    """Yield the steps of a layer of a convolutional decoder at one position."""
    network, i, attention = inspector.network, head.position, head.call.module
    positions = network.target_positions
    yield from translator_input(network.target_embedding, positions, inspector.read, i, 1.0, network.position_scale)
    block, embedded = trace.called(f"decoder.{layer}"), trace.called("decoder_input")
    yield Step("embedding_projection", (vector("x", "x", embedded.output[0, i]),))
    if layer:
        yield Step("layers_below", (vector("x", "x", block.inputs[0][0, i]),))
    c, e, source = head.call.inputs
    q = (attention.query(c[0, i]) + e[0, i]) * SQRT_HALF
    keys, values, scale = source.keys[0, 0], source.values[0, 0], source.scale[0, min(i, source.scale.size(1) - 1), 0]
    yield Step("convolution", (vector("c", "c", c[0, i]),))
    yield Step("query_convolution", (vector("q", "q", q),))
    yield Step("keys_convolution", (matrix("k", "k", keys),))
    yield Step("values_convolution", (matrix("v", "v", values),))
    yield Step("dot", (by_key("dot", "q·k", keys @ q),))
    yield from masked_softmax(head, keys @ q, visible_keys(source.mask, head))
    z = head.weights[0] @ values
    yield Step("weighted_sum", (vector("z", "z", z),))
    yield Step("sum_scaled", (number("scale", "√S", scale), vector("z", "z", z * scale)))
    yield Step("project_convolution", (vector("output", "o", attention.context(z * scale)),))
    yield Step("residual_convolution", (vector("c", "c", head.call.output[0, i]),))
    yield Step("residual_layer", (vector("before", "x", block.inputs[0][0, i]), vector("x", "x", block.output[0, i])))
