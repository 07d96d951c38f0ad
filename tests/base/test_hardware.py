"""Choosing a device and a precision: the one asked for, or a clear error."""

import pytest
import torch

from qkv.base import hardware
from qkv.base.errors import ConfigError
from qkv.base.hardware import choose_device, choose_precision, cpu_cores, describe_device, peak_flops

CPU = torch.device("cpu")


def test_a_device_by_name() -> None:
    assert choose_device("cpu") == CPU


def test_without_a_gpu_auto_is_the_cpu_and_cuda_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert choose_device("auto") == CPU
    with pytest.raises(ConfigError, match="torch sees no GPU here; use device=cpu or auto"):
        choose_device("cuda:1")


@pytest.mark.parametrize("name", ["gpu", "", "cpu:x"])
def test_an_unknown_device_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="is not known; use auto, cpu, cuda"):
        choose_device(name)


def test_precision_as_asked_or_as_the_processor_can(monkeypatch: pytest.MonkeyPatch) -> None:
    assert choose_precision("bf16", CPU) == torch.bfloat16
    assert choose_precision("float32", CPU) == torch.float32
    for flags, wanted in (({"avx512_bf16"}, torch.bfloat16), ({"amx_bf16"}, torch.bfloat16), ({"avx2"}, torch.float32)):
        monkeypatch.setattr(hardware, "_cpu_flags", lambda flags=flags: flags)
        assert choose_precision("auto", CPU) == wanted


def test_the_processor_in_words() -> None:
    assert cpu_cores() >= 1
    assert describe_device(CPU).endswith(f", {cpu_cores()} cores")


@pytest.mark.parametrize(
    ("name", "peak"),
    [("NVIDIA H200", 989e12), ("NVIDIA H100 PCIe", 756e12), ("NVIDIA A100-SXM4-80GB", 312e12), ("NVIDIA RTX A4000", None),
     ("NVIDIA A10G", None), ("Tesla T4", None)],
)  # fmt: skip
def test_the_peak_of_a_gpu_by_its_whole_name(monkeypatch: pytest.MonkeyPatch, name: str, peak: float | None) -> None:
    monkeypatch.setattr(hardware, "describe_device", lambda device: name)
    assert peak_flops(torch.device("cuda"), torch.bfloat16) == peak
    assert peak_flops(torch.device("cuda"), torch.float32) is None
    assert peak_flops(CPU, torch.bfloat16) is None
