"""qkv on other systems than Linux, as far as Linux can tell: no module needs what Windows lacks, and choices for Apple's GPUs."""

import ctypes
import errno
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from platform_needs import NEEDS, lacking, needs_of
from qkv.base import files, processes
from qkv.base.errors import ConfigError
from qkv.base.hardware import choose_device, choose_precision, describe_device, peak_flops, widest_float
from qkv.cli.serve import serve_command
from qkv.decoding.config import DecodingConfig
from qkv.decoding.sampling import draw
from qkv.objectives.tally import Tally
from qkv.parts import kernels

# Other packages are imported before the system changes its name: they would look for DLLs.
ON_WINDOWS = """
import asyncio, importlib, json, os, pkgutil, sys, types
for name in json.loads(sys.argv[1]):
    importlib.import_module(name)
def hide(name):
    for found in [found for found in sys.modules if found.partition(".")[0] == name]:
        del sys.modules[found]
    sys.modules[name] = None
for name in ("fcntl", "resource", "triton", "pwd", "grp", "termios"):
    hide(name)
for name in ("fork", "geteuid", "getuid", "sched_getaffinity", "killpg", "register_at_fork"):
    delattr(os, name)
sys.modules["msvcrt"] = types.ModuleType("msvcrt")
sys.platform = "win32"
import qkv
failed = {}
def note(name):
    failed[name] = repr(sys.exc_info()[1])
names = [found.name for found in pkgutil.walk_packages(qkv.__path__, "qkv.", note) if not found.name.endswith("__main__")]
for name in names:
    try:
        importlib.import_module(name)
    except Exception as error:
        note(name)
print(json.dumps([len(names), failed]))
"""
PACKAGES = [
    "torch", "torch.distributed", "torch.distributed.fsdp", "torch.utils.checkpoint", "numpy", "numba", "llvmlite.binding",
    "tokenizers", "safetensors.torch", "safetensors.numpy", "pydantic", "yaml", "typer", "rich.console", "rich.progress",
    "sacrebleu", "matplotlib.figure", "fastapi", "uvicorn", "starlette.testclient", "prometheus_client.multiprocess",
    "multipart",
]  # fmt: skip


def test_every_module_is_imported_without_what_windows_lacks() -> None:
    command = [sys.executable, "-W", "ignore", "-c", ON_WINDOWS, json.dumps(PACKAGES)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    count, failed = json.loads(done.stdout.splitlines()[-1])
    # Kernels in Triton are imported by parts/kernels/__init__.py only where it is there.
    triton = {name for name in failed if "triton" in failed[name]}
    assert {name: failed[name] for name in failed if name not in triton} == {}
    assert all(name.startswith("qkv.parts.kernels.") for name in triton)
    assert count > 400


def test_serve_says_what_windows_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "fork")
    with pytest.raises(ConfigError, match="by fork, which Windows lacks; run it under WSL 2 or in a container"):
        serve_command(["runs/mine"])


def test_files_are_flushed_as_windows_can(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It opens no folders, and flushes no file that is open for reading alone."""
    real = os.open

    def opened(path: Path, flags: int, *rest: Any) -> int:
        if Path(path).is_dir() or not flags & (os.O_RDWR | os.O_WRONLY):
            raise PermissionError(errno.EACCES, "Permission denied")
        return real(path, flags, *rest)

    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setattr(os, "open", opened)
    with files.atomic_folder(tmp_path / "folder") as folder:
        (folder / "a").write_text("one")
    with files.atomic_file(tmp_path / "folder" / "a") as path:
        path.write_text("two")
    assert (tmp_path / "folder" / "a").read_text() == "two"


@pytest.mark.parametrize(
    ("handle", "error", "code", "runs"), [(0, 5, 0, True), (0, 87, 0, False), (7, 0, 259, True), (7, 0, 1, False)]
)
def test_a_process_is_asked_for_as_windows_can(
    monkeypatch: pytest.MonkeyPatch, handle: int, error: int, code: int, runs: bool
) -> None:
    def exit_code(_: int, found: Any) -> None:
        found._obj.value = code

    kernel = SimpleNamespace(OpenProcess=lambda *_: handle, GetExitCodeProcess=exit_code, CloseHandle=lambda _: None)
    monkeypatch.setattr(ctypes, "WinDLL", lambda *_, **__: kernel, raising=False)
    monkeypatch.setattr(ctypes, "get_last_error", lambda: error, raising=False)
    monkeypatch.setattr(sys, "platform", "win32")
    assert processes.is_running(4) is runs
    assert processes.open_file_limit() is None and processes.raise_open_file_limit(9) == 9


def test_tests_that_a_system_cannot_run_are_skipped() -> None:
    assert lacking("linux", True) == set()
    assert lacking("darwin", True) == {"needs_linux"}
    assert lacking("win32", False) == {"needs_linux", "needs_fork"} == NEEDS.keys()
    assert needs_of({"needs_linux", "skip"}, set(), "data") == {"needs_linux"}
    assert needs_of(set(), {"commands"}, "cli") == needs_of(set(), set(), "serving") == {"needs_fork"}
    assert needs_of(set(), {"tmp_path"}, "base") == set()


# Apple's GPUs: no test can compute on one here, so these test what is chosen, and that sums do without float64.


@pytest.fixture
def on_a_mac(monkeypatch: pytest.MonkeyPatch) -> torch.device:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    return torch.device("mps")


def test_an_apple_gpu_is_chosen_with_float32_and_torchs_kernels(on_a_mac: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    assert choose_device("auto") == choose_device("mps") == on_a_mac
    assert choose_precision("auto", on_a_mac) == torch.float32 == widest_float(on_a_mac)
    assert describe_device(on_a_mac) == "Apple GPU" and peak_flops(on_a_mac, torch.bfloat16) is None
    assert not kernels.run_on(on_a_mac)
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert choose_device("auto") == torch.device("cpu")


def test_an_apple_gpu_that_is_not_there_is_refused(on_a_mac: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    with pytest.raises(ConfigError, match="torch sees no Apple GPU here; use device=cpu or auto"):
        choose_device("mps")
    assert choose_device("auto") == torch.device("cpu")


@pytest.mark.parametrize(
    "module", ["training.loop:PREFETCH", "training.health:PROBE_INTERVAL", "parts.recurrent:MAX_SUMS", "parts.loss:PIECE"]
)
def test_sizes_by_device_have_one_for_apple_gpus(module: str) -> None:
    name, _, table = module.partition(":")
    assert set(getattr(__import__(f"qkv.{name}", fromlist=[table]), table)) == {"cpu", "mps", "cuda"}


class NoFloat64(TorchDispatchMode):
    """Refuses results in float64, as an Apple GPU does."""

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = function(*args, **(kwargs or {}))
        several = found if isinstance(found, tuple | list) else [found]
        assert not any(isinstance(one, torch.Tensor) and one.dtype == torch.float64 for one in several), function
        return found


@pytest.fixture
def no_float64(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("qkv.objectives.tally", "qkv.decoding.sampling"):
        monkeypatch.setattr(f"{module}.widest_float", lambda device: torch.float32)


def sample() -> torch.Tensor:
    logprobs = torch.log_softmax(torch.randn(4, 9), -1)
    return draw(logprobs, torch.rand(4), DecodingConfig(sampling=True, top_k=5))


def report() -> torch.Tensor:
    tally = Tally()
    tally.add("loss", torch.tensor(1.5), torch.tensor(3))
    return tally.copy()["loss"]


@pytest.mark.parametrize("compute", [sample, report])
def test_sums_do_without_float64(no_float64: None, compute: Callable[[], torch.Tensor]) -> None:
    with NoFloat64():
        assert compute().numel()
