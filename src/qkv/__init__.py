"""qkv: train, run and look inside attention models on your own text."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from qkv.inference.attribute import attribute
    from qkv.inference.laboratory import layers, patch, steps
    from qkv.inference.lesson import lesson
    from qkv.inference.load import arithmetic, change, load, look
    from qkv.inference.through_training import look_through_training
    from qkv.jobs.sweep import sweep
    from qkv.jobs.train import train

__all__ = [
    "__version__",
    "arithmetic",
    "attribute",
    "change",
    "layers",
    "lesson",
    "load",
    "look",
    "look_through_training",
    "patch",
    "steps",
    "sweep",
    "train",
]

# Where each function is; it is imported when it is first used: `import qkv` must not wait for torch.
_MODULES = {
    "arithmetic": "qkv.inference.load",
    "attribute": "qkv.inference.attribute",
    "change": "qkv.inference.load",
    "layers": "qkv.inference.laboratory",
    "lesson": "qkv.inference.lesson",
    "load": "qkv.inference.load",
    "look": "qkv.inference.load",
    "look_through_training": "qkv.inference.through_training",
    "patch": "qkv.inference.laboratory",
    "steps": "qkv.inference.laboratory",
    "sweep": "qkv.jobs.sweep",
    "train": "qkv.jobs.train",
}


def __dir__() -> list[str]:
    return sorted([*globals(), *_MODULES])


def __getattr__(name: str) -> Any:
    """Import lazily."""
    if name not in _MODULES:
        raise AttributeError(f"module 'qkv' has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)
