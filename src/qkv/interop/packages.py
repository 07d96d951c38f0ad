"""Packages that only interop needs, imported when they are used."""

import importlib
from typing import Any

from qkv.base.errors import ConfigError


def needed(name: str) -> Any:
    """A module of an optional package; where it is not installed, what to type."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        package = name.partition(".")[0]
        # The package first: where qkv was installed from its source, no index may know of qkv.
        raise ConfigError(
            f"this needs the package {package} ({error}); pip install {package}, or all that interop needs with 'qkv[interop]'"
        ) from None
