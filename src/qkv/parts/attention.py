"""Multi-head attention ("Attention Is All You Need", section 3.2.2): the projections around one attention.

A layer's self-attention is given an `AttentionContext` (`context.py`), which joins the mask with position information and knows
the engine: torch's fused kernel, ours for packed rows on a GPU, ours for block-sparse patterns, or Linformer's. Cross-attention
needs a mask alone.
B batch, T query length, S key length, D width, H heads, K head width.
"""

from torch import Tensor, nn

from qkv.parts.cache import LayerCache
from qkv.parts.context import AttentionContext
from qkv.parts.dot_product import RecordedAttention
from qkv.parts.linear import Linear
from qkv.parts.masks import AttentionMask, KeysValues
from qkv.parts.relative import NoBias, PositionScheme


class SelfAttention(RecordedAttention):
    """Multi-head self-attention; queries, keys and values are one matrix product.

    The position scheme gives each layer the weights that it learns per layer. Heads share the width unless `head_width` is given.
    """

    def __init__(
        self, width: int, heads: int, scheme: PositionScheme | None = None, head_width: int | None = None, bias: bool = True
    ):
        super().__init__()
        if head_width is None and width % heads:
            raise ValueError(f"width {width} does not split into {heads} heads; choose heads that divide it")
        head_width = head_width or width // heads
        self.heads = heads
        self.qkv = Linear(width, 3 * heads * head_width, bias=bias)
        self.out = Linear(heads * head_width, width, bias=bias)
        self.relative = (scheme or NoBias()).layer_weights(head_width)

    def forward(self, x: Tensor, context: AttentionContext, cache: LayerCache | None = None) -> Tensor:
        """x (B, T, D) -> (B, T, D). The kind of context says how the cache is used."""
        return self.out(context.attend(self.qkv(x), self, cache))


class CrossAttention(RecordedAttention):
    """Multi-head attention from one text to another, the memory."""

    def __init__(self, width: int, heads: int, head_width: int | None = None, bias: bool = True):
        super().__init__()
        inside = heads * (head_width or width // heads)
        self.heads = heads
        self.q = Linear(width, inside, bias=bias)
        self.kv = Linear(width, 2 * inside, bias=bias)
        self.out = Linear(inside, width, bias=bias)

    def project_memory(self, memory: Tensor, mask: AttentionMask) -> KeysValues:
        """Return keys and values of the memory (B, S, D), as the mask's engine reads them; every decoding step uses the same."""
        return mask.split_memory(self.kv(memory), self.heads)

    def forward(self, x: Tensor, memory: KeysValues, mask: AttentionMask) -> Tensor:
        """x (B, T, D), memory from `project_memory` -> (B, T, D)."""
        return self.out(mask.attend_cross(self.q(x), memory, self.heads))


def init_attention(module: nn.Module) -> None:
    """Initialise the projections after Glorot, each of the stacked ones scaled as the matrix it is."""
    if isinstance(module, SelfAttention | CrossAttention):
        for name, linear in module.named_children():
            if isinstance(linear, nn.Linear):
                for block in linear.weight.chunk({"qkv": 3, "kv": 2}.get(name, 1)):
                    nn.init.xavier_uniform_(block)
                nn.init.zeros_(linear.bias)
