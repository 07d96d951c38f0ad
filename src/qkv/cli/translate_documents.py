"""Whole files in `qkv translate`: which arguments name them, the progress, and the summary at the end."""

import glob
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from qkv.base.errors import ConfigError
from qkv.text.translatable import format_of

if TYPE_CHECKING:
    from qkv.inference.file_translation import FilePlan, Translate

SHOWN = 20  # problems printed; the others are counted


def is_for_files(files: Sequence[Path], out: Path | None, file_format: str | None) -> bool:
    """Return whether files are translated whole: all but a single text file, or standard input, without an output."""
    if len(files) > 1 or out is not None or file_format is not None:
        return True
    path = files[0].expanduser()
    is_pattern = not path.exists() and glob.has_magic(str(path))
    return is_pattern or path.is_dir() or format_of(path) not in (None, "text")


def refuse_with_files(given: dict[str, bool]) -> None:
    """Refuse options that are for lines."""
    if wrong := next((name for name, is_given in given.items() if is_given), None):
        raise ConfigError(f"{wrong} is for text line by line, not for whole files; leave it out, or give text on standard input")


def refuse_with_shards(given: dict[str, bool]) -> None:
    """Refuse options that are for files translated whole."""
    if wrong := next((name for name, is_given in given.items() if is_given), None):
        raise ConfigError(f"{wrong} is for documents translated whole, not for shards; leave it out, or leave out --on")


def translate_documents(plan: "FilePlan", translate: "Translate", protect: tuple[str, ...] | None) -> int:
    """Translate planned files, print what became of them, and return the exit code."""
    from qkv.inference.file_translation import translate_plan
    from qkv.training.progress import Progress

    for reason in plan.skipped:
        print(f"qkv: skipped {reason}", file=sys.stderr)
    with Progress().count("texts") as show:
        report = translate_plan(plan, translate, show, protect)
    sys.stdout.buffer.write(report.content)
    sys.stdout.flush()
    for problem in [*report.failed, *report.problems[:SHOWN]]:
        print(f"qkv: {problem}", file=sys.stderr)
    files = {"written": len(report.written), "skipped": len(plan.skipped), "failed": len(report.failed)}
    segments = {"translated": report.translated, "left as they were": report.left, "with problems": len(report.problems)}
    shown = (", ".join(f"{name} {count:,}" for name, count in counts.items()) for counts in (files, segments))
    codes = f"; identifiers, paths and addresses skipped {report.codes:,}" if report.codes else ""
    print("qkv: files {}; segments {}".format(*shown) + codes, file=sys.stderr)
    return 1 if report.failed else 0
