"""The device, the precision and the CPU cores to compute with."""

import os
import platform
import re
from pathlib import Path
from typing import Any

from qkv.base.errors import ConfigError

_one_core = False  # see compute_on_one_core


def choose_device(wanted: str = "auto") -> Any:
    """Return the torch device with this name; `auto` is a GPU if torch sees one, NVIDIA's or Apple's (mps)."""
    import torch

    if not isinstance(wanted, str):
        raise ConfigError(f"device must be a text such as auto, cpu or cuda, got {type(wanted).__name__}")
    if wanted == "auto":
        # Several processes exchange gradients over gloo, which knows no mps.
        mps = torch.backends.mps.is_available() and os.environ.get("WORLD_SIZE", "1") == "1"
        return torch.device("cuda" if torch.cuda.is_available() else "mps" if mps else "cpu")
    kind, _, number = wanted.partition(":")
    if kind not in ("cpu", "cuda", "mps") or (number and not number.isdigit()):
        raise ConfigError(f"device {wanted!r} is not known; use auto, cpu, cuda, cuda:N or mps")
    if kind == "mps" and not torch.backends.mps.is_available():
        raise ConfigError(f"device {wanted!r} was asked for, but torch sees no Apple GPU here; use device=cpu or auto")
    count = torch.cuda.device_count()
    if kind == "cuda" and int(number or 0) >= count:
        raise ConfigError(f"device {wanted!r} was asked for, but torch sees {count or 'no'} GPU here; use device=cpu or auto")
    return torch.device(wanted)


def choose_precision(wanted: str, device: Any) -> Any:
    """Return the torch dtype of matrix products; `auto` is bf16 if the hardware multiplies it natively, else float32."""
    import torch

    if wanted != "auto":
        return {"bf16": torch.bfloat16, "float32": torch.float32}[wanted]
    if device.type == "cuda":
        return torch.bfloat16 if torch.cuda.is_bf16_supported(including_emulation=False) else torch.float32
    if device.type != "cpu":
        return torch.float32
    return torch.bfloat16 if "avx512_bf16" in _cpu_flags() or "amx_bf16" in _cpu_flags() else torch.float32


# Dense bf16 matrix products, from the data sheets; the first name that is part of a GPU's name counts.
PEAKS = {"B200": 2250, "GH200": 989, "H200": 989, "H100 PCIe": 756, "H100 NVL": 835, "H100": 989, "H800": 989, "A100": 312,
         "A800": 312, "L40S": 362, "L40": 181, "A40": 150, "L4": 121, "A10": 125, "RTX 5090": 210, "RTX 4090": 165,
         "RTX 3090": 71}  # TFLOPS  # fmt: skip


def widest_float(device: Any) -> Any:
    """Return the dtype for sums that need many digits: float64, or float32 on an Apple GPU, which has no other."""
    import torch

    return torch.float32 if device.type == "mps" else torch.float64


def peak_flops(device: Any, precision: Any) -> float | None:
    """Return the peak FLOP/s of a GPU in bf16; None if unknown, or for another precision."""
    if device.type != "cuda" or str(precision) != "torch.bfloat16":
        return None
    return next((peak * 1e12 for name, peak in PEAKS.items() if re.search(rf"\b{name}\b", describe_device(device))), None)


def describe_device(device: Any) -> str:
    """Return the name of a device, for logs and reports."""
    if device.type == "cuda":
        import torch

        return str(torch.cuda.get_device_name(device))
    if device.type == "mps":
        return "Apple GPU"
    name = next((v for k, v in _cpu_info() if k == "model name"), platform.machine())
    return f"{name}, {cpu_cores()} cores"


def cpu_cores() -> int:
    """Return the number of CPU cores that this process may use."""
    if _one_core:
        return 1
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def compute_on_one_core() -> None:
    """Let torch, tokenizers and the engines of exported runs compute on one core in this process.

    Sums are then made in the same order, so that results do not depend on how many processes share the machine.
    """
    import torch

    global _one_core
    _one_core = True
    os.environ["RAYON_NUM_THREADS"] = "1"  # of tokenizers
    torch.set_num_threads(1)


def _cpu_info() -> list[tuple[str, str]]:
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    return [(k.strip(), v.strip()) for k, _, v in (line.partition(":") for line in lines)]


def _cpu_flags() -> set[str]:
    return next((set(v.split()) for k, v in _cpu_info() if k == "flags"), set())
