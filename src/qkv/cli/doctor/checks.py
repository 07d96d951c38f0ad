"""All checks of an installation, in the order in which they are printed."""

import platform
import sys
from collections.abc import Iterator

from qkv.cli.doctor.finding import Diagnosis
from qkv.cli.doctor.packages import check_core, check_extras

OLDEST_PYTHON = (3, 11)


def check_python() -> Diagnosis:
    """Check the version of Python."""
    found = f"{platform.python_version()} on {platform.system()}"
    if tuple(sys.version_info[:2]) < OLDEST_PYTHON:
        return Diagnosis("python", "fail", found, "install Python 3.11 or newer")
    return Diagnosis("python", "ok", found)


def check_installation() -> Iterator[Diagnosis]:
    """Yield what each check found; where a package that qkv needs is missing, or torch is broken, nothing more is checked."""
    yield check_python()
    core = list(check_core())
    yield from core
    if any(finding.state == "fail" for finding in core):
        return
    from qkv.cli.doctor import computing, system

    torch = computing.check_torch()
    yield torch
    if torch.state == "fail":
        return
    yield computing.check_gpu()
    yield computing.check_compiler()
    yield computing.check_numba()
    yield computing.check_threads()
    yield system.check_cache()
    yield system.check_disk()
    yield system.check_shared_memory()
    yield system.check_encoding()
    yield system.check_open_files()
    yield from check_extras()
    yield computing.check_kernels()
    yield computing.check_training()
