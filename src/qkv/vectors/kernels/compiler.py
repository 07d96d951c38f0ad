"""The memory that LLVM takes after the last kernel is compiled, or read from numba's cache: given back before training."""

import ctypes
import re
from pathlib import Path

MAPS = Path("/proc/self/maps")
CODE = re.compile(r"^([0-9a-f]+)-([0-9a-f]+) r-xp .*/libllvmlite\.so$", re.MULTILINE)
DONT_NEED = 4  # MADV_DONTNEED of Linux


def let_go_of_compiler() -> None:
    """Take LLVM's code out of memory, about 60 MiB; where it is called again, it is read again from its file.

    Only code, which no one writes to: other parts of a library hold addresses that its file does not.
    """
    if not MAPS.exists():
        return
    advise = ctypes.CDLL(None).madvise
    advise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    for start, end in CODE.findall(MAPS.read_text()):
        advise(int(start, 16), int(end, 16) - int(start, 16), DONT_NEED)
