"""The attention context: what every layer of a stack is given beside `x`, made once a pass.

It joins the mask, which holds any bias and knows its engine (`masks.py`), with rotary angles. Layers ask it to `attend`. Which
kind of context it is says what a layer does with its KV cache: nothing, store a prompt (prefill), or one step of decoding.
B batch, T query length, L cached positions, D width, H heads, K head width, R texts that are decoded.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from qkv.parts import kernels
from qkv.parts.cache import LayerCache, StaticKVCache
from qkv.parts.dot_product import is_recording, join_heads, split_heads
from qkv.parts.masks import AttentionMask

if TYPE_CHECKING:
    from qkv.parts.attention import SelfAttention


class RotaryAngles(NamedTuple):
    """The angles by which queries and keys are rotated (Su et al. 2021)."""

    cosine: Tensor  # (B, T, 1, 1, K / 2)
    sine: Tensor

    def rotate(self, qkv: Tensor, heads: int) -> Tensor:
        """Rotate each pair of neighbouring dimensions of queries and keys. (B, T, 3 D) -> (B, T, 3 D)."""
        parts = qkv.unflatten(-1, (3, heads, -1, 2))
        even, odd = parts[:, :, :2].unbind(-1)  # (B, T, 2, H, K / 2)
        rotated = [even * self.cosine - odd * self.sine, even * self.sine + odd * self.cosine]
        return torch.cat([torch.stack(rotated, -1).to(qkv.dtype), parts[:, :, 2:]], 2).flatten(2)


@dataclass(frozen=True, eq=False)
class AttentionContext:
    """Self-attention over whole rows, as in training and encoding: no KV cache."""

    mask: AttentionMask
    rotary: RotaryAngles | None = None

    def attend(self, qkv: Tensor, layer: "SelfAttention", cache: LayerCache | None = None) -> Tensor:
        """Compute a layer's attention from queries, keys and values side by side. (B, T, 3 D) -> (B, T, D)."""
        return self.mask.attend(self.rotate(qkv, layer.heads), layer)

    def rotate(self, qkv: Tensor, heads: int) -> Tensor:
        """Rotate queries and keys where positions are rotary. (B, T, 3 D) -> (B, T, 3 D)."""
        return qkv if self.rotary is None else self.rotary.rotate(qkv, heads)

    def prefill(self) -> "PrefillContext":
        """Return the same for prompts whose keys and values are to be cached."""
        return PrefillContext(self.mask, self.rotary)

    def decode_step(self, shift: Tensor, fused: bool, side_by_side: int = 1) -> "DecodeStepContext":
        """Return the same for the newest token of each text, which attends to the cache; some texts stand side by side.

        shift (R,): positions without a token before each text; `fused`: whether only the mask acts on scores.
        """
        rotary = self.rotary
        if rotary is not None and side_by_side > 1:
            rotary = RotaryAngles(*(angle.view(-1, side_by_side, *angle.shape[2:]) for angle in rotary))
        return DecodeStepContext(self.mask, rotary, fused, shift)

    def masked_step(self) -> "MaskedStepContext":
        """Return the same for UniLM's steps, which attend from a [MASK] that is not cached."""
        return MaskedStepContext(self.mask, self.rotary)


class PrefillContext(AttentionContext):
    """Attention of prompts, or of their next tokens, to themselves and to what is cached; the cache stores keys and values."""

    def attend(self, qkv: Tensor, layer: "SelfAttention", cache: LayerCache | None = None) -> Tensor:
        assert cache is not None
        qkv = self.rotate(qkv, layer.heads)
        cache.prefill(qkv[..., qkv.size(-1) // 3 :])
        if cache.shared.length == qkv.size(1):  # nothing was cached before
            return self.mask.attend(qkv, layer)
        q = split_heads(qkv, 3, layer.heads)[0]
        return join_heads(self.mask.attend_heads(q, *cache.keys_values(layer.heads), layer))


@dataclass(frozen=True, eq=False)
class DecodeStepContext(AttentionContext):
    """One step of decoding: each of the B x T positions is the newest of one text, and attends to what is cached of it."""

    fused: bool = False  # whether the mask hides nothing that is cached of a text, and nothing else acts on scores
    shift: Tensor | None = None  # (R,) positions without a token before each text; None if all are equally long

    def attend(self, qkv: Tensor, layer: "SelfAttention", cache: LayerCache | None = None) -> Tensor:
        assert cache is not None
        shape, shared, width = qkv.shape[:-1], cache.shared, qkv.size(-1) // 3
        qkv = self.rotate(qkv, layer.heads).flatten(0, 1)  # (R, 3 D)
        fused, heads = self.fused and not is_recording(), layer.heads
        q, kv = qkv.split((width, 2 * width), -1)
        if fused and isinstance(shared, StaticKVCache) and kernels.usable(qkv):
            assert cache.log is not None
            index = shared.row_index(qkv.device)
            found = kernels.decode_step.attend_cached(qkv, cache.log, index, shared.position, heads, self.shift)
        elif fused and len(q) * shared.length >= kernels.MANY_POSITIONS and kernels.usable_on_cpu(qkv):
            index = shared.keep_index(qkv.device)
            first = torch.zeros(len(q), dtype=torch.long) if self.shift is None else self.shift
            found = kernels.load_cpu_kernel()(q.contiguous(), cache.add(kv), index, first, heads)
        else:
            found = self.mask.attend_heads(q.unflatten(-1, (heads, 1, -1)), *cache.append(kv, heads), layer)
        return found.reshape(*shape, -1)


class MaskedStepContext(AttentionContext):
    """One step of UniLM's decoding: each text's [MASK] attends to the cache and to itself, and is not cached.

    Rows hold the [MASK] alone, or the text's newest token, which is cached, and then the [MASK].
    """

    def attend(self, qkv: Tensor, layer: "SelfAttention", cache: LayerCache | None = None) -> Tensor:
        assert cache is not None
        qkv = self.rotate(qkv, layer.heads)  # (R, 1 or 2, 3 D)
        q, k, v = split_heads(qkv, 3, layer.heads)
        width = qkv.size(-1) // 3
        cached = cache.append(qkv[:, 0, width:], layer.heads) if qkv.size(1) > 1 else cache.keys_values(layer.heads)
        k, v = (torch.cat([past, new[:, :, -1:]], 2) for past, new in zip(cached, (k, v), strict=True))
        return join_heads(self.mask.attend_heads(q, k, v, layer))
