"""Activation functions by name."""

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,  # Hendrycks and Gimpel 2016, exactly
    "gelu-tanh": partial(F.gelu, approximate="tanh"),  # their approximation, which ALBERT was trained with
    "tanh": torch.tanh,
    "silu": F.silu,  # x times its logistic function, Marian's "swish"
}
