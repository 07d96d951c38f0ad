"""The arithmetic of one attention head at one position: the model's own numbers, step by step.

`arithmetic` runs a model once, records what its modules were given and returned, and lays out the steps from the token's vector
to the layer's output or the most probable tokens. Layers, heads and positions count from 0.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from qkv.base.errors import ConfigError
from qkv.lens.arithmetic.attending import attending_token, run_at
from qkv.lens.arithmetic.attention import Head
from qkv.lens.arithmetic.choice import HeadChoice, choices
from qkv.lens.arithmetic.inputs import scheme_steps, stack_input, translator_input
from qkv.lens.arithmetic.layers import layer_of, layer_steps
from qkv.lens.arithmetic.outputs import output_steps
from qkv.lens.arithmetic.steps import Step, vector
from qkv.lens.arithmetic.translators import convolution_steps, recurrent_steps
from qkv.lens.inspectors import ENCODER, AttentionMap, EncoderDecoderInspector, UnilmInspector
from qkv.lens.page import notebook_frame, save_view
from qkv.lens.tokenized_text import TokenizedText
from qkv.lens.trace import Trace, traced
from qkv.lens.view import NO_ATTENTION, Inspectable
from qkv.parts.convolution import SourceAttention
from qkv.parts.linformer import LinformerAttention
from qkv.parts.recurrent import RecurrentAttention
from qkv.parts.relative import PositionScheme
from qkv.parts.two_stream import RelativeAttention

MAX_HEADS = 16  # on one page


@dataclass(frozen=True, repr=False)
class Arithmetic:
    """The steps of one head at one position; `found["softmax"]` is one of them, `found["softmax"]["weights"]` its numbers.

    >>> found = qkv.arithmetic("runs/mine", "How are you?", part="cross", layer=1, head=2, position=3)
    """

    kind: str
    model: str
    texts: dict[str, TokenizedText]
    choices: list[dict[str, Any]]  # the parts, each with its numbers of layers, heads and positions
    part: str
    layer: int
    head: int
    position: int
    reads: str  # the token whose vector comes in
    predicts: str | None  # the token that the text has where the model predicts one
    keys: list[str]  # the tokens that are attended to
    steps: list[Step]

    def __getitem__(self, name: str) -> Step:
        """Return the step of that name."""
        return next(step for step in self.steps if step.name == name)

    def json(self) -> dict[str, Any]:
        """Return everything as lists, strings and numbers, rounded to four digits."""
        return {
            "view": "arithmetic",
            "kind": self.kind,
            "model": self.model,
            "texts": {name: text.tokens for name, text in self.texts.items()},
            "choices": self.choices,
            "part": self.part,
            "layer": self.layer,
            "head": self.head,
            "position": self.position,
            "reads": self.reads,
            "predicts": self.predicts,
            "keys": self.keys,
            "steps": [step.json() for step in self.steps],
        }

    def save(self, path: str | Path) -> Path:
        """Write the page, one HTML file that works offline; or the values alone, if the name ends with .json."""
        return save_view(self.json(), path)

    def _repr_html_(self) -> str:
        """Return the page in a frame of its own, for notebooks."""
        return notebook_frame(self.json())

    def __repr__(self) -> str:
        where = f"{self.part}, layer {self.layer}, head {self.head}, position {self.position}, {self.reads!r}"
        return f"Arithmetic({self.kind}, {self.model}: {where}; {len(self.steps)} steps, .json())"


@torch.no_grad()
def arithmetic(loaded: Inspectable, text: str, target: str | None = None, choice: HeadChoice | None = None) -> Arithmetic:
    """Run a loaded model on a text and lay out the steps of one head at one position.

    `choice` decides the head and the position. By default: cross-attention if there is any, the last layer, the first word of
    some length (of a GPT the prompt's last token, of an encoder a [MASK]), and the head that attends most to one word.
    """
    inspector = loaded.inspect(text, target)
    maps = inspector.maps()
    if not maps:
        raise ConfigError(NO_ATTENTION)
    number, head, position = (choice or HeadChoice()).find(inspector, maps)
    attention = maps[number]
    with traced(inspector.network) as trace:
        run_at(inspector, attention, position)
    calls = [call for call in trace.attentions() if not isinstance(call.module, LinformerAttention)]
    token = attending_token(inspector, attention, position)
    chosen = Head(calls[number * len(calls) // len(maps)], head, token.row)  # a UniLM has three maps of one call
    layers = sum(one.part == attention.part for one in maps)
    steps = [*_layer(inspector, trace, attention, chosen)]
    steps += output_steps(inspector, trace, attention, chosen, token, last=attention.layer == layers - 1)
    tokens = inspector.tokenizer.pieces([] if token.predicted is None else [token.predicted])
    return Arithmetic(
        inspector.kind,
        inspector.model,
        inspector.texts,
        choices(maps),
        attention.part,
        attention.layer,
        head,
        position,
        token.reads,
        tokens[0] if tokens else None,
        token.keys,
        steps,
    )


def with_other_heads(loaded: Inspectable, text: str, target: str | None, found: Arithmetic) -> dict[str, Any]:
    """Return the values of `found` with those of the layer's other heads at the same position, which a page offers."""
    heads = next(one["heads"] for one in found.choices if one["part"] == found.part)
    rest = [n for n in range(min(heads, MAX_HEADS)) if n != found.head]
    choices = [HeadChoice(found.part, found.layer, head, found.position) for head in rest]
    return {**found.json(), "others": [arithmetic(loaded, text, target, choice).json() for choice in choices]}


def _layer(inspector: Any, trace: Trace, attention: AttentionMap, head: Head) -> Iterator[Step]:
    """Yield the steps from the token to the layer's output, which is the last step's x."""
    if isinstance(head.call.module, RecurrentAttention):
        yield from recurrent_steps(inspector, trace, head)
    elif isinstance(head.call.module, SourceAttention):
        yield from convolution_steps(inspector, trace, head, attention.layer)
    else:
        found, steps = _input(inspector, trace, attention.part, head.position)
        scheme = None if isinstance(head.call.module, RelativeAttention) else found
        yield from steps
        yield from scheme_steps(scheme, any(step.name == "position_added" for step in steps))
        if attention.layer:
            yield Step("layers_below", (vector("x", "x", layer_of(trace, head.call)[0].inputs[0][0, head.position]),))
        yield from layer_steps(trace, head, scheme)


def _input(inspector: Any, trace: Trace, part: str, row: int) -> tuple[PositionScheme, list[Step]]:
    """Return the position scheme and the steps of the input."""
    network = inspector.network
    if isinstance(inspector, EncoderDecoderInspector):
        side, rows = ("source", inspector.source) if part == ENCODER else ("target", inspector.read)
        embedding, positions = getattr(network, f"{side}_embedding"), getattr(network, f"{side}_positions")
        steps = translator_input(embedding, positions, rows, row, network.embedding_scale)
        return getattr(network, f"{side}_position_scheme"), [*steps]
    stack, prefix = (network.encoder, "encoder.") if isinstance(inspector, UnilmInspector) else (network, "")
    embedded = trace.called(f"{prefix}embedding")
    return stack.position_scheme, [*stack_input(embedded, stack.projection, row)]
