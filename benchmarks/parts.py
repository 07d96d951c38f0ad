"""Time layers that replace torch's on the CPU against the originals: milliseconds, forward and backward, in bf16.

python benchmarks/parts.py
"""

import statistics
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from qkv.parts.dot_product import attend
from qkv.parts.dropout import dropout
from qkv.parts.loss import cross_entropy_sum


def milliseconds(work: Callable[[], Tensor], rounds: int = 15) -> float:
    """Return the median time of several rounds, after three rounds of warm-up."""
    times = []
    for _ in range(rounds + 3):
        start = time.perf_counter()
        with torch.autocast("cpu", torch.bfloat16):
            value = work().sum()
        value.backward()
        times.append((time.perf_counter() - start) * 1000)
    return statistics.median(times[3:])


def main() -> None:
    q, k, v = (torch.randn(32, 4, 64, 48, dtype=torch.bfloat16, requires_grad=True) for _ in range(3))
    mask = (torch.rand(32, 1, 64, 64) > 0.3) | torch.eye(64, dtype=torch.bool)
    x = torch.randn(2048, 192, requires_grad=True)
    hidden, weight = torch.randn(2048, 256, requires_grad=True), torch.randn(8000, 256, requires_grad=True)
    labels = torch.randint(0, 8000, (2048,))

    def torch_loss() -> Tensor:
        return F.cross_entropy(F.linear(hidden, weight), labels, reduction="sum", label_smoothing=0.1)

    pairs: dict[str, tuple[Callable[[], Tensor], Callable[[], Tensor]]] = {
        "attention, 32 rows of 64, 4 heads of 48": (
            lambda: F.scaled_dot_product_attention(q, k, v, attn_mask=mask),
            lambda: attend(q, k, v, mask),
        ),
        "dropout, 2,048 x 192": (lambda: F.dropout(x, 0.1), lambda: dropout(x, 0.1, True)),
        "output layer and loss, 2,048 x 8,000": (torch_loss, lambda: cross_entropy_sum(hidden, weight, labels, 0.1)),
    }
    for name, (theirs, ours) in pairs.items():
        print(f"{name:42} torch {milliseconds(theirs):7.1f} ms   qkv {milliseconds(ours):7.1f} ms")


if __name__ == "__main__":
    main()
