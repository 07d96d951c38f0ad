"""Processes and their limits, on any operating system."""

import ctypes
import os
import sys

# From the headers of Windows.
QUERY_LIMITED_INFORMATION = 0x1000
ACCESS_DENIED = 5
STILL_ACTIVE = 259


def is_running(process: int) -> bool:
    """Return whether a process of this machine runs."""
    if sys.platform == "win32":  # where os.kill would end it, or send Ctrl-C
        kernel = ctypes.WinDLL("kernel32", use_last_error=True)
        kernel.OpenProcess.restype = ctypes.c_void_p  # a handle is as wide as a pointer
        kernel.GetExitCodeProcess.argtypes = [ctypes.c_void_p, ctypes.POINTER(ctypes.c_ulong)]
        kernel.CloseHandle.argtypes = [ctypes.c_void_p]
        handle = kernel.OpenProcess(QUERY_LIMITED_INFORMATION, False, process)
        if not handle:
            return ctypes.get_last_error() == ACCESS_DENIED
        code = ctypes.c_ulong()
        kernel.GetExitCodeProcess(handle, ctypes.byref(code))
        kernel.CloseHandle(handle)
        return code.value == STILL_ACTIVE
    try:
        os.kill(process, 0)  # sends nothing
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:  # it is another user's
        return True
    return True


def open_file_limit() -> int | None:
    """Return how many files this process may have open; None where there is no limit that it could know."""
    if sys.platform == "win32":
        return None
    import resource

    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if limit == resource.RLIM_INFINITY else limit


def raise_open_file_limit(wanted: int) -> int:
    """Allow this process as many open files as it wants, as far as the system lets it. -> how many of these it may have."""
    if sys.platform == "win32":
        return wanted
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    return most
