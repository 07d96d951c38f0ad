"""Packages that only interop needs, imported when they are used."""

import importlib
from typing import Any

from qkv.base.errors import ConfigError


def import_optional(name: str) -> Any:
    """Import a module of an optional package; an error says what to install."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        package = name.partition(".")[0]
        # The package first: where qkv was installed from its source, no index may know of qkv.
        raise ConfigError(
            f"this needs the package {package} ({error}); pip install {package}, or all that interop needs with 'qkv[interop]'"
        ) from None
