"""Steps of one attention head: queries, keys and values, scores, weights, their sum, and the heads joined.

Every position scheme and mask of dot-product attention, and XLNet's attention with its three scores.
T queries, S keys, D width, H heads, K head width.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from qkv.lens.arithmetic.steps import Step, by_key, matrix, number, vector
from qkv.lens.trace import ModuleCall
from qkv.parts.attention import CrossAttention
from qkv.parts.dot_product import split_heads
from qkv.parts.relative import AlibiBias, DistanceScheme, PositionScheme, RelativeMask
from qkv.parts.two_stream import RelativeAttention


@dataclass(frozen=True)
class Head:
    """One head of an attention and the position that attends."""

    call: ModuleCall
    index: int
    position: int

    @property
    def weights(self) -> Tensor:
        """The weights of all heads, (H, S), as the model computed them."""
        assert self.call.weights is not None
        return self.call.weights[0, :, self.position]


def attention_steps(head: Head, scheme: PositionScheme | None) -> Iterator[Step]:
    """Yield the steps of one head, from the query to the joint output of all heads."""
    if isinstance(head.call.module, RelativeAttention):
        yield from _relative_attention(head)
    elif isinstance(head.call.module, CrossAttention):
        yield from _cross_attention(head)
    else:
        yield from _self_attention(head, scheme)
    yield Step("project", (vector("output", "o", head.call.output[0, head.position]),), head.call.module.out.bias is not None)


def _cross_attention(head: Head) -> Iterator[Step]:
    x, (k, v), mask = head.call.inputs
    q = head.call.module.q(x)[0, head.position].unflatten(-1, (head.call.module.heads, -1))[head.index]
    yield from _projections(head, q, k[0, head.index], v[0, head.index], "_source")
    yield from dot_products(q, k[0, head.index])
    yield from masked_softmax(head, _scaled(q, k[0, head.index]), visible_keys(mask.dense(), head))
    yield from _weighted_sum(head, v[0])


def _self_attention(head: Head, scheme: PositionScheme | None) -> Iterator[Step]:
    x, context = head.call.inputs[:2]
    layer, n, i = head.call.module, head.index, head.position
    qkv = layer.qkv(x)
    q, k, v = split_heads(qkv, 3, layer.heads)[:, 0]  # (H, T, K) each
    yield from _projections(head, q[n, i], k[n], v[n])
    q, k, _ = split_heads(context.rotate(qkv, layer.heads), 3, layer.heads)[:, 0]
    if context.rotary is not None:
        yield Step("rotate", (vector("q", "q", q[n, i]), matrix("k", "k", k[n])))
    yield from dot_products(q[n, i], k[n])
    scores = _scaled(q[n, i], k[n])
    tables = list(zip(layer.relative, context.mask.indices, strict=True)) if isinstance(context.mask, RelativeMask) else []
    biases = _relative_biases(tables, q, head) if tables else _distance_bias(scheme, context.mask.dense(), head)
    if biases:
        scores = scores + torch.stack([*biases.values()]).sum(0)
        name = "bias_relative" if tables else "bias_distance" if isinstance(scheme, AlibiBias) else "bias_bucket"
        yield Step(name, (*(by_key(key, key, bias) for key, bias in biases.items()), by_key("scores", "+bias", scores)))
    yield from masked_softmax(head, scores, visible_keys(context.mask.dense(), head))
    yield from _weighted_sum(head, v, tables)


def _relative_biases(tables: list[tuple[Any, Tensor]], q: Tensor, head: Head) -> dict[str, Tensor]:
    """Return what Shaw's vectors add to each score: those for distances in the text, and in its tree where there is one."""
    scaled = q[None] * q.size(-1) ** -0.5
    found = [table.scores(scaled, index)[0, head.index, head.position] for table, index in tables]
    return dict(zip(("distance", "tree"), found, strict=False))


def _distance_bias(scheme: PositionScheme | None, mask: Tensor | None, head: Head) -> dict[str, Tensor]:
    """Return what ALiBi or T5 adds to each score; their mask holds the bias, so that of hidden keys is unknown and shown as 0."""
    if not isinstance(scheme, DistanceScheme) or mask is None:
        return {}
    return {"distance": torch.where(visible_keys(mask, head), _mask_row(mask, head), 0.0)}


def _relative_attention(head: Head) -> Iterator[Step]:
    """Yield XLNet's steps: a score is the sum of three products, each of the query and a learned vector."""
    x, source, distances, mask = head.call.inputs
    layer, n, i = head.call.module, head.index, head.position
    q = layer.q(x)[0, i].unflatten(-1, (layer.heads, -1))[n]
    k, v = layer.kv(x if source is None else source)[0].unflatten(-1, (2, layer.heads, -1)).permute(1, 2, 0, 3)  # (H, S, K) each
    yield from _projections(head, q, k[n], v[n])
    distance = layer.distance(distances).unflatten(-1, (layer.heads, -1))[:, n]  # (L, K), from the largest distance down
    r = distance[x.size(1) - i + torch.arange(k.size(1), device=x.device)]  # (S, K)
    same_or_other = layer.segments[:, n][mask.other_segment[0, 0, i].long()]  # (S, K)
    u, w, s = layer.to_content[n], layer.to_distance[n], layer.to_segment[n]
    parts = {"content": (u, k[n]), "distance": (w, r), "segment": (s, same_or_other)}
    scores = {name: (q + bias) @ vectors.mT for name, (bias, vectors) in parts.items()}
    for name, (bias, vectors) in parts.items():
        met = () if name == "content" else (matrix(name, name, vectors),)  # the keys have been shown
        yield Step(f"dot_{name}", (vector("added", "added to q", bias), *met, by_key("dot", name, scores[name])))
    total = torch.stack([*scores.values()]).sum(0)
    yield Step("dot_sum", (by_key("dot", "sum", total),))
    yield _division(total, q.numel())
    yield from masked_softmax(head, total * q.numel() ** -0.5, mask.mask[0, 0, i])
    yield from _weighted_sum(head, v)


def _projections(head: Head, q: Tensor, k: Tensor, v: Tensor, side: str = "") -> Iterator[Step]:
    biased = head.call.module.out.bias is not None  # all matrices of an attention have one, or none has
    yield Step("query", (vector("q", "q", q),), biased)
    yield Step(f"keys{side}", (matrix("k", "k", k),), biased)
    yield Step(f"values{side}", (matrix("v", "v", v),), biased)


def dot_products(q: Tensor, k: Tensor) -> Iterator[Step]:
    """Yield the products of a query (K,) with keys (S, K), and the same divided by sqrt(K)."""
    yield Step("dot", (by_key("dot", "q·k", k @ q),))
    yield _division(k @ q, q.numel())


def _division(scores: Tensor, width: int) -> Step:
    return Step("divide", (number("sqrt_d", "√d", width**0.5), by_key("scores", "÷√d", scores * width**-0.5)))


def _scaled(q: Tensor, k: Tensor) -> Tensor:
    return k @ q * q.numel() ** -0.5


def _mask_row(mask: Tensor, head: Head) -> Tensor:
    """Return a dense mask's row of the position. (1, 1 or H, 1 or T, S) -> (S,)."""
    return mask[0, min(head.index, mask.size(1) - 1), min(head.position, mask.size(2) - 1)]


def visible_keys(mask: Tensor | None, head: Head) -> Tensor:
    """Return which keys the position attends to. -> (S,), boolean."""
    if mask is None:
        return torch.ones_like(head.weights[0], dtype=torch.bool)
    row = _mask_row(mask, head)
    return row if row.dtype == torch.bool else row > torch.finfo(row.dtype).min / 2


def masked_softmax(head: Head, scores: Tensor, visible: Tensor) -> Iterator[Step]:
    """Yield the mask and the softmax of scores (S,)."""
    later = torch.arange(len(scores), device=scores.device) > head.position
    name = "mask_none" if bool(visible.all()) else "mask_causal" if torch.equal(~visible, later) else "mask_pattern"
    masked = scores.masked_fill(~visible, -torch.inf)
    yield Step(name, (by_key("scores", "masked", masked),))
    yield Step("softmax", (by_key("weights", "weight", head.weights[head.index]),))


def _weighted_sum(head: Head, v: Tensor, tables: list[tuple[Any, Tensor]] | None = None) -> Iterator[Step]:
    """Yield the weighted sums of values (H, S, K): this head's, and all heads' side by side."""
    joined = (head.weights[:, None] @ v)[:, 0]  # (H, K)
    yield Step("weighted_sum", (vector("z", "z", joined[head.index]),))
    if tables:
        added = sum(table.weighted_values(head.call.weights, index)[0, :, head.position] for table, index in tables)
        joined = joined + added
        yield Step("weighted_relative", (vector("added", "added", added[head.index]), vector("z", "z", joined[head.index])))
    yield Step("heads_joined", (matrix("z", "z", joined, "heads"),))
