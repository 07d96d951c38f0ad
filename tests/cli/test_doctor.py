"""qkv doctor: each fault of an installation, made to happen, is found, and the line says what to do."""

import json
import platform
import shutil
import sys
import warnings
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from qkv.cli.doctor import doctor_command
from qkv.cli.doctor.checks import check_installation, check_python
from qkv.cli.doctor.computing import (
    check_compiler,
    check_gpu,
    check_kernels,
    check_numba,
    check_threads,
    check_torch,
    check_training,
)
from qkv.cli.doctor.finding import Diagnosis
from qkv.cli.doctor.packages import GIVES, Requirement, check_core, check_extras, numbers, requirements
from qkv.cli.doctor.system import check_cache, check_disk, check_encoding, check_open_files, check_shared_memory
from qkv.parts import kernels

Patch = pytest.MonkeyPatch
NEEDED = [
    "torch>=2.11", "PyYAML>=6.0", "pyarrow>=17; extra == 'data'", 'ray>=2.40; extra == "cluster"',
    "qkv[data]; extra == 'cluster'",
]  # fmt: skip


@pytest.fixture
def installed(monkeypatch: Patch) -> dict[str, str]:
    """Versions of packages, which a test may change."""
    versions = {"torch": "2.13.0+cpu", "PyYAML": "6.0.3", "pyarrow": "20.0", "ray": "2.60.0"}

    def version(name: str) -> str:
        if name not in versions:
            raise metadata.PackageNotFoundError(name)
        return versions[name]

    monkeypatch.setattr(metadata, "requires", lambda name: NEEDED)
    monkeypatch.setattr(metadata, "version", version)
    return versions


def test_this_installation_is_fine(capsys: pytest.CaptureFixture[str], monkeypatch: Patch, tmp_path: Path) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=1e11, total=1e11))
    doctor_command(as_json=True)
    findings = json.loads(capsys.readouterr().out)
    assert all(set(one) == {"check", "state", "found", "advice"} for one in findings)
    assert {one["state"] for one in findings} <= {"ok", "note"}
    names = [one["check"] for one in findings]
    assert names[:3] == ["python", "packages", "torch"] and names[-2:] == ["kernels", "training"]
    assert {f"extra {name}" for name in GIVES} <= set(names)


def test_a_fault_is_a_line_and_the_exit_code(capsys: pytest.CaptureFixture[str], monkeypatch: Patch) -> None:
    findings = [Diagnosis("a", "ok", "fine"), Diagnosis("b", "fail", "broken", "mend it")]
    monkeypatch.setattr("qkv.cli.doctor.checks.check_installation", lambda: iter(findings))
    with pytest.raises(SystemExit) as ended:
        doctor_command(as_json=False)
    assert ended.value.code == 1
    assert capsys.readouterr().out == "ok    a: fine\nFAIL  b: broken; mend it\n"


def test_an_old_python(monkeypatch: Patch) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 10, 4))
    monkeypatch.setattr(platform, "python_version", lambda: "3.10.4")
    found = check_python()
    assert found.state == "fail" and found.found.startswith("3.10.4") and found.advice == "install Python 3.11 or newer"


def test_requirements_are_those_of_the_metadata(installed: dict[str, str]) -> None:
    assert requirements() == [
        Requirement("torch", "2.11", ""),
        Requirement("PyYAML", "6.0", ""),
        Requirement("pyarrow", "17", "data"),
        Requirement("ray", "2.40", "cluster"),
    ]
    assert numbers("2.13.0+cpu") == (2, 13, 0) < numbers("2.13.1rc1")
    assert [found.state for found in check_core()] == ["ok"]


@pytest.mark.parametrize(("version", "what"), [(None, "torch is missing"), ("2.4.1", "torch 2.4.1 is older than 2.11")])
def test_a_needed_package_that_is_missing_or_old(installed: dict[str, str], version: str | None, what: str) -> None:
    installed.pop("torch") if version is None else installed.update(torch=version)
    assert list(check_core()) == [Diagnosis("packages", "fail", what, "pip install 'torch>=2.11'")]
    assert [found.check for found in check_installation()] == ["python", "packages"]  # nothing that imports it


def test_extras_say_what_they_would_give(installed: dict[str, str]) -> None:
    installed.pop("ray")
    installed["pyarrow"] = "9.0"
    found = {finding.check: finding for finding in check_extras()}
    assert found["extra data"].state == "fail" and found["extra data"].found == "pyarrow 9.0 is older than 17"
    assert found["extra cluster"].state == "note"
    assert found["extra cluster"].advice == f"pip install 'qkv[cluster]' gives {GIVES['cluster']}"


def test_extras_that_are_explained_are_those_of_users() -> None:
    own = {"bench", "dev", "docs"}
    assert set(metadata.metadata("qkv").get_all("Provides-Extra") or []) - own == set(GIVES)


def test_a_torch_that_cannot_be_imported(monkeypatch: Patch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)  # type: ignore[arg-type]
    found = check_torch()
    assert found.state == "fail" and "pip install --force-reinstall torch" in found.advice


def no_gpu() -> bool:
    warnings.warn("CUDA initialization: The NVIDIA driver on your system is too old (found version 11040).", stacklevel=1)
    return False


def test_a_driver_that_does_not_fit_torch(monkeypatch: Patch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(torch.cuda, "is_available", no_gpu)
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    found = check_gpu()
    assert found.state == "fail" and "driver on your system is too old" in found.found
    assert "update the driver, or install a torch built for an older CUDA than 13.0" in found.advice
    monkeypatch.setattr(torch.version, "cuda", None)
    assert check_gpu() == Diagnosis(
        "gpu", "note", "there is one, and this torch is the build for CPUs", "install torch's build for CUDA"
    )


def test_triton_needs_a_compiler(monkeypatch: Patch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.delenv("CC", raising=False)
    assert check_compiler().state == "note" and "install gcc" in check_compiler().advice
    monkeypatch.setenv("CC", "tcc")
    assert check_compiler().found == "CC=tcc is not there"
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    assert check_compiler() == Diagnosis("C compiler", "ok", "/usr/bin/tcc")


def test_numba_that_does_not_compile(monkeypatch: Patch) -> None:
    monkeypatch.setenv("NUMBA_DISABLE_JIT", "1")
    assert check_numba().state == "fail" and "unset it" in check_numba().advice
    monkeypatch.delenv("NUMBA_DISABLE_JIT")

    def broken() -> Any:
        raise RuntimeError("cannot cache function: no locator available\nfor file")

    monkeypatch.setattr(kernels, "load_cpu_kernel", broken)
    found = check_numba()
    assert found.found == "RuntimeError: cannot cache function: no locator available" and "NUMBA_CACHE_DIR" in found.advice


@pytest.mark.parametrize(("given", "state"), [("", "ok"), ("2", "ok"), ("64", "note"), ("many", "note")])
def test_more_threads_than_cores(monkeypatch: Patch, given: str, state: str) -> None:
    monkeypatch.setattr("qkv.cli.doctor.computing.cpu_cores", lambda: 4)
    monkeypatch.setenv("OMP_NUM_THREADS", given)
    assert check_threads().state == state


def test_a_cache_that_cannot_be_written(monkeypatch: Patch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("QKV_CACHE", str(tmp_path / "file" / "cache"))
    assert check_cache().state == "fail" and "set QKV_CACHE" in check_cache().advice
    monkeypatch.setenv("QKV_CACHE", str(tmp_path / "cache"))
    assert check_cache() == Diagnosis("cache", "ok", str(tmp_path / "cache"))


@pytest.mark.parametrize(("free", "state"), [(1e11, "ok"), (1e9, "note"), (1e7, "fail")])
def test_a_full_disk(monkeypatch: Patch, free: float, state: str) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=free, total=1e12))
    assert check_disk().state == state and "GB free" in check_disk().found


def test_little_shared_memory(monkeypatch: Patch, tmp_path: Path) -> None:
    monkeypatch.setattr("qkv.cli.doctor.system.SHARED_MEMORY", tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=6e7, total=64e6))
    assert check_shared_memory().state == "note" and "--shm-size=1g" in check_shared_memory().advice
    monkeypatch.setattr("qkv.cli.doctor.system.SHARED_MEMORY", tmp_path / "none")
    assert check_shared_memory().state == "ok"


def test_output_that_is_not_utf8(monkeypatch: Patch) -> None:
    monkeypatch.setattr(sys, "stdout", SimpleNamespace(encoding="iso8859-1"))
    found = check_encoding()
    assert found.state == "fail" and found.found == "output in iso8859-1" and "PYTHONUTF8=1" in found.advice


@pytest.mark.parametrize(("limit", "state"), [(None, "ok"), (1_000_000, "ok"), (256, "note"), (64, "fail")])
def test_few_open_files(monkeypatch: Patch, limit: int | None, state: str) -> None:
    monkeypatch.setattr("qkv.cli.doctor.system.open_file_limit", lambda: limit)
    assert check_open_files().state == state


def test_kernels_that_compute_something_else(monkeypatch: Patch) -> None:
    assert check_kernels().state == "ok"
    monkeypatch.setattr(kernels, "load_cpu_kernel", lambda: lambda q, *_: q + 1)
    assert check_kernels().state == "fail" and check_kernels().found == "they give other results than plain torch"


def test_training_that_does_not_learn_or_fails(monkeypatch: Patch) -> None:
    monkeypatch.setattr("qkv.cli.doctor.computing.tiny_loss", lambda device, steps=0: [2.0, float("nan")])
    assert check_training().state == "fail"

    def fails(device: Any, steps: int = 0) -> list[float]:
        raise RuntimeError("no kernel image is available")

    monkeypatch.setattr("qkv.cli.doctor.computing.tiny_loss", fails)
    assert check_training().found == "RuntimeError: no kernel image is available"
