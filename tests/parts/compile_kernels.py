"""Compile every Triton kernel for GPUs of two generations, as far as machine code: no GPU is needed for that.

A script of its own, run by test_kernels.py: under Triton's interpreter, which the other tests use, nothing is compiled.
Attention takes seconds to compile, so each generation has its half of the combinations of constants: every combination is
compiled for one, and every value of a constant for both, but for the head widths of float32 block-sparse attention.
"""

from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from qkv.parts.activations import ACTIVATIONS
from qkv.parts.kernels import (
    attention,
    block_sparse,
    decode_step,
    draw,
    dropout,
    embedding,
    gated,
    linear,
    loss,
    lstm,
    residual,
    sums,
    two_stream,
    wide,
)

BF16, F32, I64, I32 = "*bf16", "*fp32", "*i64", "*i32"
ROW = {"T": "i32", "S": "i32", "step": "i32", "scale": "fp32"}
SHAPE = {"H": 8, "Q_STEP": 1536, "KV_STEP": 1536, "K_AT": 512, "V_AT": 1024}
DROP = {"P": "i32", "threshold": "i32", "grown": "fp32"}
NORM = {"D": 512, "BD": 512, "BN": 4, "DROP": True}

TABLES = dict.fromkeys("ABCE", F32) | {f"AT_{name}": I64 for name in "ABCE"}
TABLES |= {"WEIGHT": F32, "KEYS": I64, "N": "i32", **DROP, "epsilon": "fp32"}

LOOK = {"Q": BF16, "KV": BF16, "QUERIES": I64, "KEYS": I64, "BIAS": BF16}
LOOK_BACK = {**LOOK, "GRAD": BF16, "GRAD_Q": BF16, "GRAD_KV": BF16, "GRAD_SCORES": BF16}
LISTED = {"QKV": BF16} | dict.fromkeys(("TEXT", "POSITION", "CHOSEN", "ENTRIES", "START", "COUNT", "BEGIN"), I32)
LISTED |= {"GRAD_QKV": BF16, "scale": "fp32"} | dict.fromkeys(("T", "blocks", "entries", "radius", "global_tokens"), "i32")
LOOKED_BACK = {"GRAD": BF16, "OUT": BF16, "LOG": F32, "MEAN": F32}
BLOCK_SPARSE = (
    block_sparse.block_sparse_forward,
    block_sparse.block_sparse_backward_queries,
    block_sparse.block_sparse_backward_keys,
)
OPTIONS = ("num_warps", "num_stages")
ALIGNED = ("step",)
STREAMS = {"Q": BF16, "KV": BF16, "PRODUCTS": BF16, "SEGMENT_BIAS": F32, "QUERIES": I32, "KEYS": I32, "OUT": BF16, "LOG": F32}
STREAMS |= {"GRAD": BF16, "GRAD_Q": BF16, "GRAD_KV": BF16, "GRAD_PRODUCTS": BF16, "GRAD_OTHER": F32, "scale": "fp32"}
STREAMS |= dict.fromkeys(("B", "N", "S", "L", "step", "kv_row"), "i32")


def short_rows(kernel: Any, head_width: int, causal: bool, biased: bool) -> dict[str, Any]:
    if head_width == 64:
        blocks = {"BT": 128, "BS": 128}
    elif kernel is attention._attend_forward:
        blocks = {"BT": 32, "BS": 128}
    else:
        blocks = {"BT": attention.WIDEST_FORWARD, "BS": attention.WIDEST_FORWARD}
    return attention_rows(kernel, head_width, causal, biased) | blocks


def wide_rows(kernel: Any, head_width: int, causal: bool, biased: bool) -> dict[str, Any]:
    return attention_rows(kernel, head_width, causal, biased) | wide.sizes(kernel, head_width, causal)


def attention_rows(kernel: Any, head_width: int, causal: bool, biased: bool) -> dict[str, Any]:
    learned = {"LEARNED": biased} if "LEARNED" in kernel.arg_names else {}
    return {**SHAPE, "K": head_width, "BK": head_width, "CAUSAL": causal, "BIASED": biased, **learned}


def listed_blocks(kernel: Any, head_width: int, block: int, exact: bool = False) -> dict[str, Any]:
    blocks = {"BLOCK": block, **block_sparse.sizes(kernel, head_width, block, exact)}
    return {"H": 8, "K": head_width, "BK": head_width, "R": 3, **blocks}


SHORT = {  # per generation: the width of a head, causal, biased
    80: ((64, True, False), (128, True, True)),
    90: ((64, True, True), (128, True, False)),
}
WIDE = {  # every two values of constants together; the one that takes most shared memory is of the generation that has less
    80: ((64, True, False), (64, False, True), (128, True, True), (128, False, False)),
    90: ((64, True, True), (64, False, False), (128, True, False), (128, False, True)),
}
EXACT = {80: 128, 90: 64}  # the width of a head in float32, without tensor cores: the wider takes most shared memory

Kernel = tuple[Any, dict[str, str], dict[str, Any]]  # a kernel, its arguments' types, its constants' values


def attention_kernels(generation: int) -> list[Kernel]:
    return [
        *(
            (kernel, types | ROW, short_rows(kernel, *constants))
            for constants in SHORT[generation]
            for kernel, types in (
                (attention._attend_forward, {**LOOK, "OUT": BF16}),
                (attention._attend_backward, LOOK_BACK),
            )
        ),
        *(
            (
                kernel,
                {"Q": BF16, "KV": BF16, "FROM": I32, "TO": I32, "BIAS": BF16, **types, **ROW},
                wide_rows(kernel, *constants),
            )
            for constants in WIDE[generation]
            for kernel, types in (
                (wide.wide_forward, {"OUT": BF16, "LOG": F32}),
                (
                    wide.wide_backward_queries,
                    {"GRAD": BF16, "OUT": BF16, "LOG": F32, "MEAN": F32, "GRAD_Q": BF16, "GRAD_SCORES": BF16},
                ),
                (wide.wide_backward_keys, {"GRAD": BF16, "LOG": F32, "MEAN": F32, "GRAD_KV": BF16}),
            )
        ),
        *(
            (
                kernel,
                dict.fromkeys(LISTED | LOOKED_BACK, F32) | {n: t for n, t in LISTED.items() if t != BF16},
                listed_blocks(kernel, EXACT[generation], 64, exact=True),
            )
            for kernel in BLOCK_SPARSE
        ),
    ]


KERNELS: list[Kernel] = [
    *(
        (kernel, STREAMS, {**SHAPE, "K": each, "BK": each, **two_stream.sizes(kernel, each), **constants})
        for each in (64, 128)
        for kernel, constants in (
            (two_stream.streams_forward, {}),
            (two_stream.streams_backward_keys, {"ALL": True}),
            (two_stream.streams_backward_keys, {"ALL": False}),
            (two_stream.streams_backward_queries, {}),
        )
    ),
    *(
        (kernel, LISTED | LOOKED_BACK, listed_blocks(kernel, each, block))
        for each, block in ((64, 16), (64, 64), (128, 128))
        for kernel in BLOCK_SPARSE
    ),
    *(
        (
            residual._add_and_norm_forward,
            {"X": F32, "CHANGE": BF16, "WEIGHT": F32, "BIAS": F32, "KEYS": I64, "Y": BF16, "SUM": BF16, "MEAN": F32, "SCALE": F32}
            | {"N": "i32", **DROP, "epsilon": "fp32"},
            {**NORM, "RMS": rms},
        )
        for rms in (False, True)
    ),
    *(
        (
            residual._add_and_norm_backward,
            {"GRAD": BF16, "GRAD_SUM": F32, "SUM": F32, "WEIGHT": F32, "KEYS": I64, "MEAN": F32, "SCALE": F32, "GRAD_X": F32}
            | {"GRAD_CHANGE": BF16, "SUMS": F32, "N": "i32", **DROP},
            {**NORM, "RMS": rms, "GOES_ON": True, "BLOCKS": residual.BLOCKS},
        )
        for rms in (False, True)
    ),
    *(
        (kernel, {"X": BF16, **types, "F": "i32"}, {"ACTIVATION": activation, "AT_ONCE": gated.AT_ONCE})
        for activation in ("silu", "gelu-tanh")
        for kernel, types in ((gated._gate_forward, {"Y": BF16}), (gated._gate_backward, {"GRAD": BF16, "GRAD_X": BF16}))
    ),
    (
        dropout._dropout,
        {"X": BF16, "KEYS": I64, "Y": BF16, "N": "i32", "blocks": "i32", "threshold": "i32", "grown": "fp32"},
        {"BLOCK": dropout.BLOCK},
    ),
    (dropout._random_bits, {"KEYS": I64, "Y": I32, "N": "i32", "blocks": "i32"}, {"BLOCK": dropout.BLOCK}),
    (embedding._embed_forward, {**TABLES, "BIAS": F32, "Y": BF16}, {**NORM, "FOUR": True}),
    (
        embedding._embed_backward,
        {**TABLES, "GRAD": BF16, "GRAD_SUM": BF16, "SUMS": F32},
        {**NORM, "FOUR": True, "BLOCKS": residual.BLOCKS},
    ),
    *(
        (
            linear._sum_rows,
            {"GRAD": BF16, "SEEN": BF16, "THROUGH": BF16, "SUMS": F32, "N": "i32"},
            {"D": 512, "ACTIVATION": activation, "ROWS": linear.ROWS, "AT_ONCE": 16, "WIDTH": linear.WIDTH},
        )
        for activation in ACTIVATIONS
    ),
    (sums._add_lines, {"LINES": F32, "SUM": F32, "D": "i32"}, {"P": 98, "AT_ONCE": 64, "WIDTH": 32}),
    *(
        (
            loss._cross_entropy,
            {"LOGITS": BF16, "LABELS": I64, "LOSS": F32, "ignore_index": "i32", "smoothing": "fp32"},
            {"V": words, "STEP": words + -words % 64, "SMOOTHED": True, "GRADIENT": True, **loss.sizes(words)},
        )
        for words in (8000, 50257)
    ),
    (
        lstm._cell_forward,
        {"STATE": BF16, "WEIGHT": BF16, "GATES": BF16, "CELL_BEFORE": F32, "CELL": F32, "OUT": BF16, "B": "i32", "step": "i32"},
        {"H": 1024, "P": 128, **lstm.CELL_BLOCKS},
    ),
    (
        lstm._cell_backward,
        {"GRAD_STATE": BF16, "PROJECTION": BF16, "GATES": BF16, "CELL_BEFORE": F32, "CELL": F32, "GRAD_CELL": F32}
        | {"GRAD_GATES": BF16, "B": "i32", "step": "i32"},
        {"H": 1024, "P": 128, **lstm.CELL_BLOCKS},
    ),
    *(
        (
            lstm._product,
            {"X": BF16, "WEIGHT": BF16, "OUT": BF16, "B": "i32", "step": "i32"},
            {"K": 1024, "P": 128, "ADD": add, **lstm.PRODUCT_BLOCKS},
        )
        for add in (False, True)
    ),
    (draw._draw, {"LOGITS": BF16, "KEYS": I64, "DRAWN": I64, "LIKELIEST": I64}, {"V": 30522, "BLOCK": 4096}),
    *(
        (
            decode_step._attend,
            {"QKV": BF16, "LOG": BF16, "INDEX": I64, "NEWEST": I64, "BEGIN": I64, "OUT": BF16, "qkv_step": "i32"}
            | {"index_step": "i32", "scale": "fp32"},
            {"H": 8, "K": 64, "BK": 64, "BL": decode_step.POSITIONS, "SHIFTED": shifted},
        )
        for shifted in (False, True)
    ),
]

SHARED = {80: 99 << 10, 90: 227 << 10}  # bytes that a program may use; of the first generation, the smaller GPUs' (8.6, 8.9)

for generation in SHARED:
    for kernel, types, given in attention_kernels(generation) + KERNELS:
        constants = {name: value for name, value in given.items() if name not in OPTIONS}
        options = {"num_warps": 4} | {name: value for name, value in given.items() if name in OPTIONS}
        signature = {name: types.get(name, "constexpr") for name in kernel.arg_names}
        assert {name for name in signature if signature[name] == "constexpr"} == set(constants), kernel.__name__
        # Tensors begin at multiples of 16 bytes, and lines of a bias are as long, without which nothing would be fetched ahead
        # into shared memory.
        aligned = {
            (position,): [["tt.divisibility", 16]]
            for position, (name, kind) in enumerate(signature.items())
            if kind.startswith("*") or name in ALIGNED
        }
        made = triton.compile(
            ASTSource(kernel, signature, {(kernel.arg_names.index(name),): value for name, value in constants.items()}, aligned),
            target=GPUTarget("cuda", generation, 32),
            options=options,
        )
        assert made.metadata.shared <= SHARED[generation], kernel.__name__
        print(kernel.__name__, generation, len(made.asm["cubin"]))
