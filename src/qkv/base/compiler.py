"""Release the memory of LLVM's code after the last kernel is compiled or read from numba's cache."""

import ctypes
import re
from pathlib import Path

MAPS = Path("/proc/self/maps")
LLVM_CODE = re.compile(r"^([0-9a-f]+)-([0-9a-f]+) r-xp .*/libllvmlite\.so$", re.MULTILINE)
MADV_DONTNEED = 4  # from Linux's mman.h


def release_compiler_memory() -> None:
    """Drop LLVM's code pages, about 60 MiB; the kernel reads them back from the library's file if LLVM runs again.

    Only executable pages are dropped: nobody writes to them, while other pages of a library hold relocated addresses.
    """
    if not MAPS.exists():
        return
    madvise = ctypes.CDLL(None).madvise
    madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    for start, end in LLVM_CODE.findall(MAPS.read_text()):
        madvise(int(start, 16), int(end, 16) - int(start, 16), MADV_DONTNEED)
