"""The token that attends: where it stands in the row that a network reads, and what the network reads and predicts there."""

from collections.abc import Callable
from typing import Any, NamedTuple

from torch import Tensor

from qkv.lens.arithmetic.choice import MASK
from qkv.lens.inspectors import ENCODER, AttentionMap, EncoderDecoderInspector, Inspector, SelfAttentionInspector, UnilmInspector


class AttendingToken(NamedTuple):
    """A position of one text, as the network sees it."""

    row: int  # its index among the network's positions
    keys: list[str]  # the tokens that an attention layer attends to
    reads: str  # the token whose vector comes in
    predicted: int | None  # id of the token that the text has where the network predicts one
    predict: Callable[[Tensor], Tensor] | None  # output vectors (N, D) -> logits (N, V); None if nothing is predicted


def attending_token(inspector: Inspector, attention: AttentionMap, position: int) -> AttendingToken:
    """Return the token at a position of the text that attends."""
    texts, keys = inspector.texts, inspector.texts[attention.columns].tokens
    source = texts["source"]
    if isinstance(inspector, SelfAttentionInspector):
        after = position + 1 if inspector.network.causal else position
        known = inspector.head is not None and after < len(source.ids) and source.tokens[after] != MASK
        return AttendingToken(position, keys, source.tokens[position], source.ids[after] if known else None, inspector.head)
    joined = isinstance(inspector, UnilmInspector)
    if attention.part == ENCODER:
        return AttendingToken(position, [*keys, MASK] if joined else keys, source.tokens[position], None, None)
    target: Any = texts["target"]
    if joined:
        keys = [*source.tokens, *target.tokens[:position], MASK]
        return AttendingToken(len(keys) - 1, keys, MASK, target.ids[position], inspector.network.heads["masked"])
    return AttendingToken(position, keys, texts["read"].tokens[position], target.ids[position], inspector.network.logits)


def run_at(inspector: Inspector, attention: AttentionMap, position: int) -> None:
    """Run the network as it reads a text when it comes to a position."""
    if isinstance(inspector, EncoderDecoderInspector):
        inspector.network(inspector.source, inspector.read)
    elif isinstance(inspector, SelfAttentionInspector):
        inspector.network(inspector.rows, inspector.segment)
    else:
        inspector.network(inspector.source, inspector.masked_target(0 if attention.part == ENCODER else position))
