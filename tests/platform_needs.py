"""What some tests need of the system they run on, as marks, and why those are skipped where it is not there."""

import os
import sys

NEEDS = {
    "needs_linux": "it reads /proc or limits memory as Linux does",
    "needs_fork": "it forks, or kills processes with SIGKILL; Windows has neither",
}
FORKING_FOLDERS = {"serving", "faults"}  # under tests/: each test there has processes that fork


def lacking(platform: str = sys.platform, fork: bool = hasattr(os, "fork")) -> set[str]:
    """Return the marks of tests that cannot run on a platform."""
    return {*([] if platform == "linux" else ["needs_linux"]), *([] if fork else ["needs_fork"])}


def needs_of(marks: set[str], fixtures: set[str], folder: str) -> set[str]:
    """Return what a test needs: by its marks, by the fixture that forks a process for each command, and by its folder."""
    forks = "commands" in fixtures or folder in FORKING_FOLDERS
    return {*(marks & NEEDS.keys()), *(["needs_fork"] if forks else [])}
