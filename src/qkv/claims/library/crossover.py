"""Attention costs n² d, its projections n d²: the first is the larger one only for texts longer than about twice the width
(Vaswani et al. 2017, section 4, table 1).

We count the multiplications of both in qkv's own attention, with torch's counter, and time both, for several widths and lengths.
There are as many texts of each length as it takes to have the same number of words, so that what a call costs by itself does not
pass for the cost of short texts.
"""

import math
from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from qkv.claims.claim import Cell, Claim, Measured
from qkv.claims.pictures import curves, strip
from qkv.claims.timing import seconds
from qkv.claims.verdict import Always, Higher, Same
from qkv.parts.attention import SelfAttention
from qkv.parts.dot_product import attend, attention_weights, split_heads

LENGTHS, HEADS = (0.25, 0.5, 1, 2, 4, 8), 4  # lengths in widths


def crossing(ratios: Sequence[float]) -> float:
    """Return the length, in widths, at which a ratio becomes 1, between two measured ones on logarithmic scales."""
    for (n, low), (m, high) in pairwise(zip(LENGTHS, ratios, strict=True)):
        if low < 1 <= high:
            return n * (m / n) ** (math.log(low) / math.log(low / high))
    return LENGTHS[0] if ratios[0] >= 1 else LENGTHS[-1]


def counted(work: Callable[[], object]) -> int:
    """Return the multiplications and additions of matrix products in a function."""
    with FlopCounterMode(display=False) as counter:
        work()
    return counter.get_total_flops()


def compare(layer: SelfAttention, x: Tensor) -> tuple[float, float]:
    """Return the operations and the time of attention itself, relative to those of the projections around it."""
    q, k, v = split_heads(layer.qkv(x), 3, HEADS)
    operations = counted(lambda: attention_weights(q, k, None) @ v) / counted(lambda: (layer.qkv(x), layer.out(x)))
    device = x.device.type
    # Timed is torch's fused kernel, which users have, and whose operations the counter does not know everywhere.
    return operations, seconds(lambda: attend(q, k, v, None), device) / seconds(lambda: (layer.qkv(x), layer.out(x)), device)


@torch.no_grad()
def measure(cell: Cell) -> Measured:
    """Compare the attention itself with the projections around it, at several lengths."""
    torch.manual_seed(cell.seed)
    width = cell["width"]
    layer = SelfAttention(width, HEADS).to(cell.device)
    words = int(LENGTHS[-1] * width)  # at each length
    shapes = [(words // length, length, width) for length in (int(n * width) for n in LENGTHS)]
    by_count, by_time = zip(*(compare(layer, torch.randn(shape, device=cell.device)) for shape in shapes), strict=True)
    timed = crossing(by_time)
    return {
        "ratios": list(by_time), "shortest": by_time[0], "longest": by_time[-1], "counted": crossing(by_count), "timed": timed,
        "off": math.log2(timed / crossing(by_count)), "length": timed * width,
    }  # fmt: skip


WIDTHS = (64, 128, 256)
CLAIM = Claim(
    topic="cost",
    statement="Attention costs n²d and its projections nd²: the first is the larger one only beyond about twice the width.",
    source="Vaswani et al. 2017, section 4 and table 1: n² d against n d², and n is mostly smaller than d",
    measured="Operations and time of attention itself (scores, softmax, sum of values) and of the four projections around it, "
    "for widths of 64, 128 and 256 and lengths of a quarter to eight times the width.",
    prediction="Counted, both are equal at exactly twice the width. Timed, they are equal within a factor of two of that; and "
    "the crossover moves with the width: from 64 to 256, to at least twice the length.",
    explanation="In a class of n pupils everybody talks with everybody: n² talks. Before, each prepares d notes from d facts: d² "
    "for each pupil. In a small class preparing takes longest; in a large one, talking does. Twice as much preparing moves the "
    "point where both are equal to a larger class.",
    formula="2 n² d = 4 n d²  ⟺  n = 2 d   (with feed-forward layers of width 4 d: n = 6 d; an LSTM: 8 n d²)",
    changes="The softmax is not counted and takes time; kernels and machines differ. Narrow heads are less efficient than wide "
    "ones.",
    variants={f"width {width}": {"width": width} for width in WIDTHS},
    sizes={"cpu": {}, "quick": {}},
    measure=measure,
    units={
        "length": "words at which both take the same time",
        "ratios": "time of attention / time of projections",
        "counted": "crossover in widths, counted",
        "timed": "crossover in widths, timed",
        "off": "timed against counted, in powers of 2",
        "shortest": "ratio of times at a quarter of the width",
        "longest": "ratio of times at eight widths",
    },
    parts=(
        *(Same(f"width {w}: counted, the crossover is at twice the width", "counted", f"width {w}", 2.0, 0.01) for w in WIDTHS),
        *(Same(f"width {w}: timed, within a factor of two of that", "off", f"width {w}", 0.0, 1.0) for w in WIDTHS),
        Higher("the crossover moves with the width", "length", "width 256", "width 64", times=2.0),
    ),
    controls=(
        *(Always(f"width {w}: short texts lie below it", "shortest", f"width {w}", at_most=1.0) for w in WIDTHS),
        *(Always(f"width {w}: long texts lie above it", "longest", f"width {w}", at_least=1.0) for w in WIDTHS),
    ),
    picture=[curves("ratios", LENGTHS, "length of the text, in widths", log=True), strip("length")],
    timed=True,
)  # fmt: skip
