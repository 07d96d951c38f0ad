"""Triton's interpreter, without what it does again and again for each operation of a kernel."""

import inspect
from functools import cache
from typing import Any


def speed_up_interpreter() -> None:
    """Have the interpreter look up builtins at a kernel's launch only, and make each type of a block once."""
    patch_once_per_launch()
    remember_types()


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


def remember_types() -> None:
    """Have the interpreter check the shape of a kind of block once, and find numpy's name of a type without a new table.

    Each operation makes the type of its result anew, and each conversion a table of all types: a quarter of the time.
    """
    from triton.language.core import block_type
    from triton.runtime import interpreter

    made: dict[tuple[Any, ...], dict[str, Any]] = {}
    make, find = block_type.__init__, interpreter._get_np_dtype
    numpy_type = cache(find)

    def remember(self: Any, element_ty: Any, shape: Any) -> None:
        key = (element_ty, *shape)
        if element_ty.is_ptr():
            make(self, element_ty, shape)
        elif key in made:
            vars(self).update(made[key])
        else:
            make(self, element_ty, shape)
            made[key] = dict(vars(self))

    block_type.__init__ = remember
    interpreter._get_np_dtype = lambda kind: find(kind) if kind.scalar.is_ptr() else numpy_type(kind.scalar)
