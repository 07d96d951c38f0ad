"""The steps of one head, recomputed in plain torch from a model's weights, for comparison with `qkv.lens.arithmetic`.

Every number of a step must follow from the steps before it and from the weights. What other layers and sub-layers contribute is
taken from the model's own pass, by hooks, as are all positions' inputs of the attention. i is the position that attends.
"""

import math
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from qkv.lens.arithmetic import Arithmetic, Step
from qkv.lens.inspectors import AttentionMap, EncoderDecoderInspector, Inspector, UnilmInspector
from qkv.parts.trees import tree_depths, tree_distances

SQRT_HALF = 0.5**0.5
ACTIVATIONS: dict[str, Any] = {
    "relu": torch.relu,
    "gelu": F.gelu,
    "gelu-tanh": lambda x: 0.5 * x * (1 + torch.tanh((2 / math.pi) ** 0.5 * (x + 0.044715 * x**3))),
    "silu": lambda x: x * torch.sigmoid(x),
}
GATES = {"geglu": "gelu-tanh", "swiglu": "silu"}
METHODS = {"segment": "segment_"}  # names of steps that cannot be those of methods
Calls = dict[str, list[tuple[tuple[Any, ...], Any]]]


def calls_of(network: nn.Module, *inputs: Any) -> Calls:
    """Run a network and return inputs and output of every call of its modules, by name."""
    calls: Calls = defaultdict(list)
    handles = [
        module.register_forward_hook(lambda _, given, output, name=name: calls[name].append((given, output)))
        for name, module in network.named_modules()
    ]
    network(*inputs)
    for handle in handles:
        handle.remove()
    return calls


def linear(layer: Any, x: Tensor) -> Tensor:
    return x @ layer.weight.T + (0 if layer.bias is None else layer.bias)


def normed(norm: Any, x: Tensor) -> dict[str, Tensor]:
    if isinstance(norm, nn.RMSNorm):
        rms = ((x * x).mean() + norm.eps).sqrt()
        return {"rms": rms, "x": x / rms * norm.weight}
    mean = x.sum() / len(x)
    deviation = (((x - mean) ** 2).sum() / len(x) + norm.eps).sqrt()
    return {"mean": mean, "deviation": deviation, "x": (x - mean) / deviation * norm.weight + norm.bias}


class Recomputed:
    """One head's steps, each from the ones before; `expected` returns the numbers of a step."""

    def __init__(self, inspector: Inspector, found: Arithmetic, maps: list[AttentionMap]) -> None:
        self.network: Any = inspector.network
        self.inspector, self.found, self.i = inspector, found, found.position
        self.part, self.layer, self.head = found.part, found.layer, found.head
        self.weights = next(m.weights for m in maps if (m.part, m.layer) == (self.part, self.layer))[:, self.i]  # (H, S)
        self.stack: Any = self.network
        if isinstance(inspector, EncoderDecoderInspector):
            self.rows = inspector.source if self.part == "encoder" else inspector.read
            self.calls = calls_of(self.network, inspector.source, inspector.read)
        elif isinstance(inspector, UnilmInspector):
            self.stack, encoder = self.network.encoder, self.part == "encoder"
            self.calls = calls_of(self.network, inspector.source, inspector.masked_target(0 if encoder else self.i))
            self.rows, self.segment, _ = self.calls["encoder.embedding"][0][0]
            row = [m.weights for m in maps if m.layer == self.layer]
            if encoder:
                self.weights = F.pad(self.weights, (0, 1))  # the [MASK] is hidden from the source
            else:
                self.weights = torch.cat([row[2][:, self.i], row[1][:, self.i, : self.i + 1]], -1)
                self.i = self.rows.ids.size(1) - 1
        else:
            self.calls = calls_of(self.network, inspector.rows, inspector.segment)
            self.rows, self.segment, _ = self.calls["embedding"][0][0]

    # The model's modules

    def place(self, layer: int) -> str:
        """Return the name of a layer's module; an ALBERT's layers share one."""
        if isinstance(self.inspector, EncoderDecoderInspector):
            return f"{'encoder' if self.part == 'encoder' else 'decoder'}.{layer}"
        shared = hasattr(self.stack, "feedforward_blocks")
        return "feedforward_blocks.0" if shared else f"{'' if self.stack is self.network else 'encoder.'}layers.{layer}"

    def path(self, name: str) -> str:
        """Return the full name of one of attention, cross, feedforward and the residuals around these."""
        if self.place(0) != "feedforward_blocks.0":
            return f"{self.place(self.layer)}.{name}"
        kind = name.removeprefix("around_")
        return f"{kind}_blocks.0.{kind if kind == name else 'around'}"

    def sublayer(self, name: str) -> Any:
        return self.network.get_submodule(self.path(name))

    def called(self, name: str) -> tuple[tuple[Any, ...], Any]:
        """Return inputs and output; a shared module is called once for each layer."""
        calls = self.calls[self.path(name)]
        return calls[0 if len(calls) == 1 else self.layer]

    def output_of(self, layer: int) -> Tensor:
        """Return the model's own output of a layer at the position."""
        calls = self.calls[self.place(layer)]
        return calls[0 if len(calls) == 1 else layer][1][0, self.i]

    @property
    def attends(self) -> str:
        return "cross" if self.part == "cross" and self.stack is self.network else "attention"

    @property
    def attention(self) -> Any:
        return self.sublayer(self.attends)

    @property
    def around(self) -> Any:
        return self.sublayer(f"around_{self.attends}")

    def per_head(self, values: Tensor) -> Tensor:
        """(..., H K) -> (H, ..., K)."""
        return values.unflatten(-1, (self.attention.heads, -1)).movedim(-2, 0)

    # The input

    def token(self) -> dict[str, Tensor]:
        side = "source" if self.part == "encoder" else "target"
        embedding = self.inspector.embeddings.get(side, self.inspector.embeddings["source"])
        self.x = embedding.weight[self.rows.ids[0, self.i]]
        return {"token": self.x}

    def scale_embedding(self) -> dict[str, Tensor]:
        scale = torch.tensor(math.sqrt(len(self.x)))
        return {"scale": scale, "x": self.x * scale}

    def segment_(self) -> dict[str, Tensor]:
        chosen = 0 if self.segment is None else int(self.segment[0, self.i])
        added = self.stack.embedding.segment_embedding.weight[chosen]
        return {"added": added, "x": self.x + added}

    def task(self) -> dict[str, Tensor]:
        added = self.stack.embedding.task_embedding.weight[0]
        return {"added": added, "x": self.x + added}

    def position_added(self) -> dict[str, Tensor]:
        side = "source" if self.part == "encoder" else "target"
        positions = getattr(self.network, f"{side}_positions", None) or self.stack.embedding.positions
        width = len(self.x)

        def sines(position: int) -> Tensor:
            angles = [position / 10000 ** (2 * (n // 2) / width) for n in range(width)]
            return torch.tensor([math.cos(a) if n % 2 else math.sin(a) for n, a in enumerate(angles)])

        if hasattr(positions, "table"):
            position = positions.table.weight[self.i]
        elif hasattr(positions, "mix"):
            depth = int(tree_depths(self.rows.position, self.rows.head)[0, self.i])  # type: ignore[arg-type]
            position = (positions.mix @ torch.cat([sines(self.i), sines(depth)])).tanh()
        else:
            position = sines(self.i)
        return {"position": position, "x": self.x + position}

    def nothing(self) -> dict[str, Tensor]:
        return {}

    position_rotary = position_bias = position_none = position_recurrent = nothing

    def embedding_norm(self) -> dict[str, Tensor]:
        return normed(self.stack.embedding.norm, self.x)

    def embedding_projection(self) -> dict[str, Tensor]:
        return {"x": linear(getattr(self.stack, "projection", None) or self.network.decoder_input, self.x)}

    def layers_below(self) -> dict[str, Tensor]:
        return {"x": self.output_of(self.layer - 1)}

    def self_attention_before(self) -> dict[str, Tensor]:
        return {"x": self.called("around_attention")[1][0, self.i]}

    def norm_before(self) -> dict[str, Tensor]:
        self.residual_input = self.x
        return normed(self.around.norm, self.x)

    # Attention

    def query(self) -> dict[str, Tensor]:
        (given, *_), _ = self.called(self.attends)
        self.inputs = given[0]  # (T, D), all positions
        torch.testing.assert_close(self.inputs[self.i], self.x, rtol=1e-4, atol=1e-5)
        if not self.around.pre_norm:
            self.residual_input = self.x
        layer = self.attention
        if hasattr(layer, "qkv"):
            w, b = layer.qkv.weight.chunk(3), (0, 0, 0) if layer.qkv.bias is None else layer.qkv.bias.chunk(3)
            q, k, v = (self.inputs @ matrix.T + bias for matrix, bias in zip(w, b, strict=True))
        else:
            memory = self.inputs if not hasattr(self.network, "encode") else self.network.encode(self.inspector.source)[0]  # type: ignore[union-attr]
            k, v = linear(layer.kv, memory).chunk(2, -1)
            q = linear(layer.q, self.inputs)
        self.q, self.k, self.v = (self.per_head(values) for values in (q, k, v))
        return {"q": self.q[self.head, self.i]}

    def keys(self) -> dict[str, Tensor]:
        return {"k": self.k[self.head]}

    def values(self) -> dict[str, Tensor]:
        return {"v": self.v[self.head]}

    keys_source, values_source = keys, values

    def rotate(self) -> dict[str, Tensor]:
        def rotated(vectors: Tensor) -> Tensor:  # (H, T, K), by complex numbers
            width = vectors.size(-1)
            speed = 10000.0 ** (-torch.arange(0, width, 2) / width)
            angle = torch.arange(vectors.size(1))[:, None] * speed
            turned = torch.view_as_complex(vectors.unflatten(-1, (-1, 2)).contiguous()) * torch.polar(
                torch.ones_like(angle), angle
            )
            return torch.view_as_real(turned).flatten(-2)

        self.q, self.k = rotated(self.q), rotated(self.k)
        return {"q": self.q[self.head, self.i], "k": self.k[self.head]}

    def dot(self) -> dict[str, Tensor]:
        self.scores = torch.stack([(self.q[self.head, self.i] * key).sum() for key in self.k[self.head]])
        return {"dot": self.scores}

    def dot_content(self) -> dict[str, Tensor]:
        return self.scored("content", self.attention.to_content, self.k[self.head])

    def dot_distance(self) -> dict[str, Tensor]:
        width, length = self.inputs.size(-1), len(self.inputs)
        speed = 10000.0 ** (-torch.arange(0, width, 2) / width)
        angle = (self.i - torch.arange(length))[:, None] * speed  # sines, then cosines, of the distance i - j
        vectors = torch.cat([angle.sin(), angle.cos()], -1) @ self.attention.distance.weight.T
        return self.scored("distance", self.attention.to_distance, self.per_head(vectors)[self.head])

    def dot_segment(self) -> dict[str, Tensor]:
        segments = self.inspector.segment  # type: ignore[union-attr]  # as the tokens came in: the first one is read last
        numbers = [0] * len(self.inputs) if segments is None else [*segments[0, 1:].tolist(), 2]
        numbers[-1] = 2  # the summary token is a segment of its own
        vectors = torch.stack([self.attention.segments[int(n != numbers[self.i]), self.head] for n in numbers])
        return self.scored("segment", self.attention.to_segment, vectors)

    def scored(self, name: str, added: Tensor, vectors: Tensor) -> dict[str, Tensor]:
        scores = ((self.q[self.head, self.i] + added[self.head]) * vectors).sum(-1)
        self.terms = {**getattr(self, "terms", {}), name: scores}
        met = {} if name == "content" else {name: vectors}
        return {"added": added[self.head], **met, "dot": scores}

    def dot_sum(self) -> dict[str, Tensor]:
        self.scores = self.terms["content"] + self.terms["distance"] + self.terms["segment"]
        return {"dot": self.scores}

    def divide(self) -> dict[str, Tensor]:
        width = torch.tensor(self.q.size(-1))
        self.scores = self.scores / width.sqrt()
        return {"sqrt_d": width.sqrt(), "scores": self.scores}

    def bias_distance(self) -> dict[str, Tensor]:
        slope = 2 ** (-8 * (self.head + 1) / self.attention.heads)  # for a power of two of heads
        return self.biased(distance=-slope * (torch.arange(len(self.scores)) - self.i).abs().float())

    def bias_bucket(self) -> dict[str, Tensor]:
        side = "source" if self.part == "encoder" else "target"
        scheme = getattr(self.network, f"{side}_position_scheme", None) or self.network.position_scheme
        causal, count = self.part == "decoder", len(scheme.table) // (1 if self.part == "decoder" else 2)

        def bucket(key: int) -> int:
            far, exact = abs(key - self.i), count // 2
            if far >= exact:
                far = min(count - 1, exact + int(math.log(far / exact) / math.log(scheme.max_distance / exact) * (count - exact)))
            return far + (count if key > self.i and not causal else 0)

        return self.biased(distance=torch.stack([scheme.table[bucket(key), self.head] for key in range(len(self.scores))]))

    def indices(self) -> Iterator[tuple[Any, Tensor]]:
        """Yield Shaw's tables and, for each key, the row that belongs to its distance in the text or in the tree."""
        distance = torch.arange(len(self.scores)) - self.i
        for number, table in enumerate(self.attention.relative):
            if number:
                distance = tree_distances(self.rows.position, self.rows.head)[0, self.i]  # type: ignore[arg-type]
            limit = len(table.keys) // 2
            yield table, distance.clamp(-limit, limit) + limit

    def bias_relative(self) -> dict[str, Tensor]:
        q = self.q[self.head, self.i]
        found = [table.keys[index] @ q / len(q) ** 0.5 for table, index in self.indices()]
        return self.biased(**dict(zip(("distance", "tree"), found, strict=False)))

    def biased(self, **biases: Tensor) -> dict[str, Tensor]:
        causal = torch.arange(len(self.scores)) > self.i if self.part == "decoder" else torch.zeros(len(self.scores)).bool()
        shown = biases if hasattr(self.attention, "relative") and self.attention.relative else {
            name: bias.masked_fill(causal, 0) for name, bias in biases.items()
        }  # fmt: skip
        self.scores = self.scores + sum(shown.values())
        return {**shown, "scores": self.scores}

    def mask_none(self) -> dict[str, Tensor]:
        return {"scores": self.scores}

    def mask_causal(self) -> dict[str, Tensor]:
        return self.masked(torch.arange(len(self.scores)) <= self.i)

    def mask_pattern(self) -> dict[str, Tensor]:
        here, c = torch.arange(len(self.scores)), self.stack.config.attention
        if c.kind == "full":  # a UniLM's source does not see the target
            return self.masked(here < len(self.inspector.texts["source"].ids))
        near = (here - self.i).abs() <= c.radius
        if c.kind == "bigbird":  # one block, which leaves nothing to draw
            near = near | (here < c.global_tokens) | (self.i < c.global_tokens)
        return self.masked(near)

    def masked(self, visible: Tensor) -> dict[str, Tensor]:
        self.scores = torch.where(visible, self.scores, -torch.inf)
        return {"scores": self.scores}

    def softmax(self) -> dict[str, Tensor]:
        powers = (self.scores - self.scores.max()).exp()
        self.a = powers / powers.sum()
        torch.testing.assert_close(self.a, self.weights[self.head], rtol=1e-4, atol=1e-6)  # the model's own
        return {"weights": self.a}

    def weighted_sum(self) -> dict[str, Tensor]:
        self.z = torch.stack([(w[:, None] * v).sum(0) for w, v in zip(self.weights, self.v, strict=True)])
        return {"z": self.z[self.head]}

    def weighted_relative(self) -> dict[str, Tensor]:
        added = sum(self.weights @ table.values[index] for table, index in self.indices())
        self.z = self.z + added
        return {"added": added[self.head], "z": self.z[self.head]}  # type: ignore[index]

    def heads_joined(self) -> dict[str, Tensor]:
        return {"z": self.z}

    def project(self) -> dict[str, Tensor]:
        self.change = linear(self.attention.out, self.z.flatten())
        return {"output": self.change}

    # The rest of the layer

    def residual(self) -> dict[str, Tensor]:
        self.x = self.residual_input + self.change
        return {"before": self.residual_input, "output": self.change, "x": self.x}

    def norm(self) -> dict[str, Tensor]:
        return normed(self.around.norm, self.x)

    def cross_attention_after(self) -> dict[str, Tensor]:
        return {"x": self.called("around_cross")[1][0, self.i]}

    def norm_feedforward(self) -> dict[str, Tensor]:
        self.residual_input = self.x
        return normed(self.sublayer("around_feedforward").norm, self.x)

    def feedforward_inner(self) -> dict[str, Tensor]:
        network = self.sublayer("feedforward")
        if not self.sublayer("around_feedforward").pre_norm:
            self.residual_input = self.x
        inside = linear(network.up, self.x)
        if network.activation in GATES:
            gate, value = inside.chunk(2)
            self.units = ACTIVATIONS[GATES[network.activation]](gate) * value
        else:
            self.units = ACTIVATIONS[network.activation](inside)
        width, active = len(self.units), sum(float(unit) > 0 for unit in self.units)
        return {"width": torch.tensor(float(width)), "active": torch.tensor(float(active)), "units": self.units}

    feedforward_gated = feedforward_inner

    def feedforward(self) -> dict[str, Tensor]:
        self.change = linear(self.sublayer("feedforward").down, self.units)
        return {"output": self.change}

    feedforward_residual = residual

    def feedforward_norm(self) -> dict[str, Tensor]:
        return normed(self.sublayer("around_feedforward").norm, self.x)

    # The output

    def pass_on(self) -> dict[str, Tensor]:
        torch.testing.assert_close(self.x, self.output_of(self.layer), rtol=1e-4, atol=1e-5)  # the model's own
        return {"x": self.x}

    def output(self) -> dict[str, Tensor]:
        own = self.calls[""][0][1][0, self.i] if hasattr(self.network, "norm") else self.output_of(self.layer)
        torch.testing.assert_close(self.x, own, rtol=1e-4, atol=1e-5)
        return {"x": self.x}

    def final_norm(self) -> dict[str, Tensor]:
        torch.testing.assert_close(self.x, self.output_of(self.layer), rtol=1e-4, atol=1e-5)
        name = "encoder_norm" if self.part == "encoder" else "decoder_norm"
        return normed(getattr(self.network, name if hasattr(self.network, name) else "norm"), self.x)

    def pass_to_decoder(self) -> dict[str, Tensor]:
        return {"x": self.network.encode(self.inspector.source)[0, self.i]}  # type: ignore[union-attr]

    def logits(self) -> dict[str, Tensor]:
        output = getattr(self.network, "output", None)  # a GPT's is its embedding
        return {"logits": self.stack.embedding.token_embedding.weight @ self.x if output is None else output.weight @ self.x}

    def logits_masked(self) -> dict[str, Tensor]:
        head: Any = self.network.heads["masked"] if self.stack is not self.network else self.inspector.head  # type: ignore[union-attr]
        features = normed(head.norm, ACTIVATIONS[head.activation](linear(head.dense, self.x)))["x"]
        return {"logits": head.weight @ features + head.bias}

    # Recurrent and convolutional translators

    def input_feeding(self) -> dict[str, Tensor]:
        outputs = self.calls[""][0][1][0]
        self.fed = outputs[self.i - 1] if self.i else torch.zeros_like(outputs[0])
        return {"output": self.fed}

    def state(self) -> dict[str, Tensor]:
        """Run the cells over all positions, from the end of the encoder, in plain torch."""
        network, outputs = self.network, self.calls[""][0][1]
        embedded = network.target_embedding.weight[self.rows.ids] * network.config.embedding_width**0.5
        if network.config.input_feeding:
            embedded = torch.cat([embedded, F.pad(outputs, (0, 0, 1, 0))[:, :-1]], -1)
        self.memory, ends = network.encode(self.inspector.source)  # type: ignore[union-attr]
        for layer, end in zip(network.decoder, ends, strict=True):
            embedded, _ = layer.cells(embedded, tuple(part[None] for part in end) if len(end) > 1 else end[0][None])
        self.h = embedded[0, self.i]
        return {"q": self.h}

    def query_additive(self) -> dict[str, Tensor]:
        return {"q": linear(self.network.cross.query, self.h)}

    def keys_states(self) -> dict[str, Tensor]:
        return {"k": self.memory[0]}

    def keys_projected(self) -> dict[str, Tensor]:
        return {"k": self.memory[0] @ self.network.cross.key.weight.T}

    def values_states(self) -> dict[str, Tensor]:
        self.v = self.memory  # (1, S, D): one head
        return {"v": self.memory[0]}

    def score_additive(self) -> dict[str, Tensor]:
        cross = self.network.cross
        self.scores = torch.stack(
            [(cross.v * (cross.query.weight @ self.h + cross.key.weight @ m).tanh()).sum() for m in self.memory[0]]
        )
        return {"v": cross.v, "dot": self.scores}

    def score_dot(self) -> dict[str, Tensor]:
        self.scores = self.memory[0] @ self.h
        return {"dot": self.scores}

    def score_general(self) -> dict[str, Tensor]:
        self.scores = self.memory[0] @ (self.network.cross.key.weight.T @ self.h)
        return {"dot": self.scores}

    def readout(self) -> dict[str, Tensor]:
        self.x = (self.network.readout.weight @ torch.cat([self.h, self.z[0]])).tanh()
        return {"output": self.x}

    def convolution(self) -> dict[str, Tensor]:
        self.layer_input, convolution = self.x, self.sublayer("convolution.linear")
        whole = self.called("convolution")[0][0][0]  # (T, D)
        torch.testing.assert_close(whole[self.i], self.x, rtol=1e-4, atol=1e-5)
        width = self.network.config.kernel_width
        window = F.pad(whole, (0, 0, width - 1, 0))[self.i : self.i + width].flatten()
        value, gate = (convolution.weight @ window + convolution.bias).chunk(2)
        self.c = value * gate.sigmoid()
        return {"c": self.c}

    def query_convolution(self) -> dict[str, Tensor]:
        embedded = (
            self.network.target_embedding.weight[self.rows.ids[0, self.i]] + self.network.target_positions.table.weight[self.i]
        )
        self.q = ((linear(self.attention.query, self.c) + embedded) * SQRT_HALF)[None, None].expand(1, self.i + 1, -1)
        return {"q": self.q[0, 0]}

    def keys_convolution(self) -> dict[str, Tensor]:
        self.k = self.network.encode(self.inspector.source)[0]  # type: ignore[union-attr]
        return {"k": self.k[0]}

    def values_convolution(self) -> dict[str, Tensor]:
        source = self.inspector.source.ids[0]  # type: ignore[union-attr]
        embedded = self.network.source_embedding.weight[source] + self.network.source_positions.table.weight[: len(source)]
        self.v = (self.k + embedded) * SQRT_HALF
        return {"v": self.v[0]}

    def sum_scaled(self) -> dict[str, Tensor]:
        scale = torch.tensor(math.sqrt(len(self.scores)))
        self.z = self.z * scale
        return {"scale": scale, "z": self.z[0]}

    def project_convolution(self) -> dict[str, Tensor]:
        self.change = linear(self.attention.context, self.z[0])
        return {"output": self.change}

    def residual_convolution(self) -> dict[str, Tensor]:
        self.c = (self.c + self.change) * SQRT_HALF
        return {"c": self.c}

    def residual_layer(self) -> dict[str, Tensor]:
        return {"before": self.layer_input, "x": (self.layer_input + self.c) * SQRT_HALF}

    def output_projection(self) -> dict[str, Tensor]:
        return {"x": linear(self.network.decoder_output, self.x)}

    def expected(self, step: Step) -> dict[str, Tensor]:
        """Return the numbers of the next step by name; its x is the input of the following ones."""
        found = METHODS.get(step.name, step.name)
        numbers: dict[str, Tensor] = getattr(self, found)()
        self.x = numbers.get("x", self.x)
        return numbers
