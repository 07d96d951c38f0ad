"""Decoding weights: a copy of a model with the same modules and code, and weights in the layout that the device reads fastest.

Decoding multiplies few rows by whole weight matrices at every token, so reading the weights takes most of the time. On a CPU,
oneDNN reads a layout of its own two to three times as fast as rows of numbers; bf16 halves the bytes on any device.
"""

import copy
from typing import Any, NamedTuple, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from qkv.parts.activations import ACTIVATIONS

# oneDNN's names for the activations.
POINTWISE = {
    "relu": ("relu", ""),
    "gelu": ("gelu", "none"),
    "gelu-tanh": ("gelu", "tanh"),
    "tanh": ("tanh", ""),
    "silu": ("swish", ""),
}
ROWS = 32  # number of rows that oneDNN lays weights out for; it makes no difference from 4 on


def compute_dtype(weight: Tensor) -> torch.dtype:
    """Return the dtype of products with this weight: autocast's where it is enabled, else the weight's own."""
    device = weight.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else weight.dtype


class IncrementalDecoder(nn.Module):
    """A model that decodes token by token: `start` reads the inputs, each `step` reads the newest token of each hypothesis."""

    def prepare_decoding(self, dtype: torch.dtype, made: "MadeWeights | None" = None) -> Self:
        """Return a copy that decodes the same texts faster, in this dtype. Later changes of this model do not reach it.

        It uses the decoding weights that are `made` already, and adds its own.
        """
        return decoding_weights(self, dtype, made)

    def in_compute_dtype(self) -> Self:
        """Return the model if it computes in the dtype of its weights, else a copy in autocast's dtype, made anew."""
        weight = next(self.parameters())
        dtype = compute_dtype(weight)
        return self if dtype == weight.dtype else self.prepare_decoding(dtype)

    def step(self, tokens: Tensor, state: Any) -> Tensor:
        """Return the logits of the next token (R, V), in float32, from the newest token of each hypothesis (R,)."""
        device = tokens.device.type
        if torch.is_autocast_enabled(device):  # the weights have its dtype already
            with torch.autocast(device, enabled=False):
                return state.step(tokens)
        return state.step(tokens)


class PreparedModel:
    """A model whose weights are final, with its decoding weights: one copy per dtype, made when decoding first needs it.

    The copies stay as they are, so a model that is trained further needs a new `PreparedModel`. A model with adapters shares the
    decoding weights of its base.
    """

    def __init__(self, model: IncrementalDecoder, base: "PreparedModel | None" = None):
        self.model, self.step = model, model.step
        self._copies: dict[torch.dtype, Any] = {}
        self._made: dict[torch.dtype, MadeWeights] = {} if base is None else base._made

    def start(self, *inputs: Any, **options: Any) -> Any:
        """Start decoding as the model does, with its decoding weights."""
        dtype = compute_dtype(next(self.model.parameters()))
        if dtype not in self._copies:
            made = self._made.setdefault(dtype, MadeWeights({}, {}))
            self._copies[dtype] = self.model.prepare_decoding(dtype, made)
        return self._copies[dtype].start(*inputs, **options)


class MadeWeights(NamedTuple):
    """Decoding weights that are made already, by the original weight."""

    cast: dict[Tensor, nn.Parameter]
    packed: dict[Tensor, "PackedLinear"]


@torch.no_grad()
def decoding_weights(model: Any, dtype: torch.dtype, made: MadeWeights | None = None) -> Any:
    """Return a copy of a model with weights in this dtype, laid out for decoding. Tied weights stay tied."""
    return _copied(model, dtype, made or MadeWeights({}, {}))


def _copied(module: nn.Module, dtype: torch.dtype, made: MadeWeights) -> nn.Module:
    """Return a copy of a module with the weights that are made already."""
    if isinstance(module, nn.Linear) and module.weight.device.type == "cpu" and _packs(dtype):
        bias = None if module.bias is None else _cast(module.bias, dtype, made)
        found = made.packed.get(module.weight)
        if found is None or found.bias is not bias:
            found = made.packed[module.weight] = PackedLinear(_cast(module.weight, dtype, made), bias)
        return found
    other = copy.copy(module)  # shares hooks and everything else; only packed layers have no hooks
    other._parameters = {name: None if w is None else _cast(w, dtype, made) for name, w in module._parameters.items()}
    other._modules = {name: None if m is None else _copied(m, dtype, made) for name, m in module._modules.items()}
    return other


def _packs(dtype: torch.dtype) -> bool:
    """Return whether oneDNN multiplies numbers of this dtype here."""
    if not torch.backends.mkldnn.is_available():
        return False
    return dtype == torch.float32 or (dtype == torch.bfloat16 and torch.ops.mkldnn._is_mkldnn_bf16_supported())


def _cast(weight: Tensor, dtype: torch.dtype, made: MadeWeights) -> nn.Parameter:
    if weight not in made.cast:
        made.cast[weight] = nn.Parameter(weight.detach().to(dtype), requires_grad=False)
    return made.cast[weight]


def rounded(rows: int) -> int:
    """Round a number of rows up to one of eight values between a power of two and the next.

    oneDNN compiles code for each number of rows and keeps the last thousand. Batches of all sizes, as a service has them, would
    take hundreds of megabytes.
    """
    step = max(1, 1 << rows.bit_length() >> 4)
    return -(-rows // step) * step


class PackedLinear(nn.Module):
    """A linear layer without gradients, in the layouts that a CPU reads fastest: oneDNN's own, and columns for a single row."""

    def __init__(self, weight: nn.Parameter, bias: nn.Parameter | None):
        super().__init__()
        self.weight, self.bias = weight, bias
        self.packed = torch.ops.mkldnn._reorder_linear_weight(self.weight.detach(), ROWS)
        self.columns: Tensor | None = None  # (D, other D), made when first needed

    def forward(self, x: Tensor) -> Tensor:
        """x (..., D) -> (..., other D)."""
        if x.numel() == x.size(-1) and x.dtype == torch.float32:
            return self._one_row(x.reshape(1, -1)).view(*x.shape[:-1], -1)
        return self._rows(x, "none")

    def then(self, activation: str, x: Tensor) -> Tensor:
        """Apply the layer, then the activation of this name."""
        if x.numel() == x.size(-1) and x.dtype == torch.float32:
            return ACTIVATIONS[activation](self.forward(x))
        return self._rows(x, *POINTWISE[activation])

    def _rows(self, x: Tensor, activation: str, variant: str = "") -> Tensor:
        rows = x.numel() // x.size(-1)
        if missing := rounded(rows) - rows:
            filled = F.pad(x.reshape(rows, -1), (0, 0, 0, missing))
            return self._rows(filled, activation, variant)[:rows].view(*x.shape[:-1], -1)
        return torch.ops.mkldnn._linear_pointwise(x, self.packed, self.bias, activation, [], variant)

    def _one_row(self, x: Tensor) -> Tensor:
        if self.columns is None:
            wide = self.weight.size(0) >= self.weight.size(1)  # the longer of rows and columns is read faster
            self.columns = self.weight.T.contiguous() if wide else self.weight.T
        return torch.mm(x, self.columns) if self.bias is None else torch.addmm(self.bias, x, self.columns)
