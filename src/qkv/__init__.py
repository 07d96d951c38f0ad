"""qkv: train, run and look inside attention models on your own text."""

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from qkv.inference.load import load, look
    from qkv.jobs.train import train

__all__ = ["__version__", "load", "look", "train"]


def __dir__() -> list[str]:
    return sorted([*globals(), "load", "look", "train"])


def __getattr__(name: str) -> Any:
    """Import lazily: `import qkv` must not wait for torch."""
    if name == "load":
        from qkv.inference.load import load

        return load
    if name == "look":
        from qkv.inference.load import look

        return look
    if name == "train":
        from qkv.jobs.train import train

        return train
    raise AttributeError(f"module 'qkv' has no attribute {name!r}")
