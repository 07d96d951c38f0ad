"""What made a result: versions, the code, the machine."""

import hashlib
import importlib.metadata
import platform
from functools import cache
from pathlib import Path
from typing import Any

from qkv.base.hardware import cpu_cores, describe_device


@cache
def package_digest() -> str:
    """Return a digest of the code of qkv."""
    import qkv

    root, found = Path(qkv.__file__).parent, hashlib.blake2b(digest_size=8)
    for path in sorted(root.rglob("*.py")):
        found.update(str(path.relative_to(root)).encode() + path.read_bytes())
    return found.hexdigest()


def software() -> dict[str, str]:
    """Return the versions of qkv, Python and torch, and the digest of qkv's code."""
    import qkv

    return {
        "qkv": qkv.__version__,
        "code": package_digest(),
        "python": platform.python_version(),
        "torch": importlib.metadata.version("torch"),
    }


def machine(device: Any) -> dict[str, str]:
    """Return the device that computes, and the machine around it."""
    return {"device": describe_device(device), "cores": str(cpu_cores()), "system": platform.platform(), "host": platform.node()}
