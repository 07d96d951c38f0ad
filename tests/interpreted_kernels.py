"""Triton's interpreter, without its search through all of triton.language at each call of a device function."""

import inspect
from functools import cache
from typing import Any


def patch_once_per_launch() -> None:
    """Have the interpreter replace the builtins of triton.language at a kernel's launch only.

    It replaces them again at each call of a device function within a kernel, such as tl.sum, and finds that they are
    replaced already: a third of the time.
    """
    from triton.language.core import is_builtin
    from triton.runtime import interpreter

    @cache
    def names(package: Any) -> list[str]:
        return [name for name, member in inspect.getmembers(package) if is_builtin(member)]

    def patch_builtins(package: Any, *rest: Any) -> None:
        found = names(package)
        if found and is_builtin(getattr(package, found[0])):  # they are all replaced and restored together
            for name in found:
                interpreter._patch_attr(package, name, getattr(package, name), *rest)

    interpreter._patch_builtin = patch_builtins
