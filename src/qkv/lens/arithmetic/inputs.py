"""Steps of the input: the token's vector, its scale, and where the position comes from."""

from collections.abc import Iterator
from typing import Any

from torch import Tensor, nn

from qkv.base.rows import Rows
from qkv.lens.arithmetic.steps import Step, norm_step, number, vector
from qkv.lens.trace import ModuleCall
from qkv.parts.positions import LearnedPositions, NoPositions, PositionalEncoding
from qkv.parts.relative import DistanceScheme, PositionScheme, RotaryPositions


def translator_input(
    embedding: nn.Module, positions: PositionalEncoding | None, rows: Rows, i: int, scale: float, position_scale: float = 1.0
) -> Iterator[Step]:
    """Yield the steps of one side of a translator: token vector, scale, and the position where it is added."""
    x = embedding(rows.ids)[0, i]
    yield from _token_steps(x, scale)
    if positions is not None and not isinstance(positions, NoPositions):
        yield _position_step(x * scale, positions.of_rows(rows)[0, i] * position_scale)


def stack_input(call: ModuleCall, projection: nn.Module, i: int) -> Iterator[Step]:
    """Yield the steps of a stack over one text, from the call of its embedding and the projection after it."""
    embedding, (rows, *others) = call.module, call.inputs
    x = embedding.token_embedding(rows.ids)[0, i]
    yield from _token_steps(x, embedding.scale)
    x = x * embedding.scale
    for name, chosen in zip(("segment", "task"), others, strict=True):
        table = getattr(embedding, f"{name}_embedding", None)
        if table is not None:
            added = table.weight[0] if chosen is None else table(chosen)[0, i]
            x = x + added
            yield Step(name, (vector("added", name, added), vector("x", "x", x)))
    yield from _positions_and_norm(embedding, rows, x, i)
    if not isinstance(projection, nn.Identity):
        yield Step("embedding_projection", (vector("x", "x", projection(call.output[0, i])),))


def _positions_and_norm(embedding: Any, rows: Rows, x: Tensor, i: int) -> Iterator[Step]:
    """Learned positions are added before the norm over the embeddings, others after it; a GPT has no such norm."""
    norm, position = getattr(embedding, "norm", None), embedding.positions.of_rows(rows)[0, i]
    if norm is not None and not isinstance(embedding.positions, LearnedPositions):
        yield norm_step("embedding_norm", norm, x)
        x, norm = norm(x), None
    if not isinstance(embedding.positions, NoPositions):
        yield _position_step(x, position)
    if norm is not None:
        yield norm_step("embedding_norm", norm, x + position)


def _token_steps(x: Tensor, scale: float) -> Iterator[Step]:
    yield Step("token", (vector("token", "e", x),))
    if scale != 1:
        yield Step("scale_embedding", (number("scale", "√D", scale), vector("x", "x", x * scale)))


def _position_step(x: Tensor, position: Tensor) -> Step:
    return Step("position_added", (vector("position", "p", position.expand_as(x)), vector("x", "x", x + position)))


def scheme_steps(scheme: PositionScheme | None, added: bool) -> list[Step]:
    """Return the step that says where positions enter if they are not added; None stands for XLNet's scheme."""
    if added:
        return []
    if isinstance(scheme, RotaryPositions):
        return [Step("position_rotary")]
    return [Step("position_bias" if scheme is None or isinstance(scheme, DistanceScheme) else "position_none")]
