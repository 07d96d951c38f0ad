"""A model's twin for decoding: the same modules and code, with weights laid out once as the device reads them fastest.

Decoding multiplies few rows by whole weight matrices at every word, so what takes the time is the reading of weights. On a CPU,
oneDNN reads a layout of its own two to three times as fast as rows of numbers; in bf16 there is half as much to read anywhere.
"""

import copy
from typing import Any
from weakref import WeakKeyDictionary

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from qkv.parts.activations import ACTIVATIONS

# What oneDNN calls the activations.
POINTWISE = {
    "relu": ("relu", ""),
    "gelu": ("gelu", "none"),
    "gelu-tanh": ("gelu", "tanh"),
    "tanh": ("tanh", ""),
    "silu": ("swish", ""),
}
ROWS = 32  # for how many rows oneDNN lays weights out; it makes no difference from 4 on

_twins: WeakKeyDictionary[nn.Module, tuple[object, Tensor, nn.Module]] = WeakKeyDictionary()


@torch.no_grad()
def twin(model: nn.Module, dtype: torch.dtype) -> Any:
    """The twin of a model, kept until its weights change.

    A change that torch does not count (through `.data`, say) shows in the biases and norms, or after `train()` or `eval()`.
    """
    weights = [weight.detach() for weight in model.parameters()]
    stamp = (dtype, [(weight.data_ptr(), 0 if weight.is_inference() else weight._version) for weight in weights])
    # Fused optimisers and CUDA graphs change weights without a count of it: the biases and norms show what they did.
    sample = torch.cat([torch.zeros(1, device=weights[0].device), *(weight.float() for weight in weights if weight.dim() == 1)])
    known = _twins.get(model)
    if known is None or known[0] != stamp or not torch.equal(known[1], sample):
        known = _twins[model] = (stamp, sample, _copied(model, dtype, {}))
    return known[2]


def forget(model: nn.Module) -> None:
    """Let go of the model's twin, as when its weights are about to change."""
    _twins.pop(model, None)


def _copied(module: nn.Module, dtype: torch.dtype, made: dict[int, nn.Parameter]) -> nn.Module:
    """A copy of a module with weights of its own, `made` once each: what was tied stays so."""
    if isinstance(module, nn.Linear) and module.weight.device.type == "cpu" and _packs(dtype):
        return PackedLinear(module, dtype, made)
    other = copy.copy(module)  # hooks and all else stay shared; only packed layers have none
    other._parameters = {name: None if w is None else _cast(w, dtype, made) for name, w in module._parameters.items()}
    other._modules = {name: None if m is None else _copied(m, dtype, made) for name, m in module._modules.items()}
    return other


def _packs(dtype: torch.dtype) -> bool:
    """Whether oneDNN is there for this kind of numbers."""
    if not torch.backends.mkldnn.is_available():
        return False
    return dtype == torch.float32 or (dtype == torch.bfloat16 and torch.ops.mkldnn._is_mkldnn_bf16_supported())


def _cast(weight: Tensor, dtype: torch.dtype, made: dict[int, nn.Parameter]) -> nn.Parameter:
    if id(weight) not in made:
        made[id(weight)] = nn.Parameter(weight.detach().to(dtype), requires_grad=False)
    return made[id(weight)]


def rounded(rows: int) -> int:
    """The next of eight numbers between a power of two and the next.

    oneDNN makes code for each number of rows that it meets, and keeps that of the last thousand: of batches of all sizes, as a
    service has them, this would be hundreds of megabytes.
    """
    step = max(1, 1 << rows.bit_length() >> 4)
    return -(-rows // step) * step


class PackedLinear(nn.Module):
    """A linear layer in the layouts that a CPU reads fastest: oneDNN's own, and columns for a single row. Without gradients."""

    def __init__(self, linear: nn.Linear, dtype: torch.dtype, made: dict[int, nn.Parameter]):
        super().__init__()
        self.weight = _cast(linear.weight, dtype, made)
        self.bias = None if linear.bias is None else _cast(linear.bias, dtype, made)
        self.packed = torch.ops.mkldnn._reorder_linear_weight(self.weight.detach(), ROWS)
        self.columns: Tensor | None = None  # (D, other D), made when first needed

    def forward(self, x: Tensor) -> Tensor:
        """x (..., D) -> (..., other D)."""
        if x.numel() == x.size(-1) and x.dtype == torch.float32:
            return self._of_one_row(x.reshape(1, -1)).view(*x.shape[:-1], -1)
        return self._of_rows(x, "none")

    def then(self, activation: str, x: Tensor) -> Tensor:
        """The same with the activation of that name after it."""
        if x.numel() == x.size(-1) and x.dtype == torch.float32:
            return ACTIVATIONS[activation](self.forward(x))
        return self._of_rows(x, *POINTWISE[activation])

    def _of_rows(self, x: Tensor, after: str, kind: str = "") -> Tensor:
        rows = x.numel() // x.size(-1)
        if missing := rounded(rows) - rows:
            filled = F.pad(x.reshape(rows, -1), (0, 0, 0, missing))
            return self._of_rows(filled, after, kind)[:rows].view(*x.shape[:-1], -1)
        return torch.ops.mkldnn._linear_pointwise(x, self.packed, self.bias, after, [], kind)

    def _of_one_row(self, x: Tensor) -> Tensor:
        if self.columns is None:
            wide = self.weight.size(0) >= self.weight.size(1)  # of long rows and long columns, the longer ones are read faster
            self.columns = self.weight.T.contiguous() if wide else self.weight.T
        return torch.mm(x, self.columns) if self.bias is None else torch.addmm(self.bias, x, self.columns)
