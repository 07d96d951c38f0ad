"""Round trips of real files through the readers of `qkv translate`: which come out byte for byte the same.

    python benchmarks/file_round_trips.py FOLDER_OR_FILE... [--languages en de] [--list]

Each file is parsed and written three times: without translations (kept); with each text translated to itself, after the targets
of a bilingual file were set to its sources (identical); and with changed texts, which must be found again in the file that was
written (read back). Files that are refused are counted with the reason.
"""

import argparse
import tempfile
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from qkv.base.errors import QkvError
from qkv.text.protected_text import ProtectedText
from qkv.text.translatable import ReadOptions, format_of, read_translatable
from qkv.text.translatable.file import TranslatableFile

CHANGE = ' ß "&<5'  # characters that formats write in their own ways


@dataclass
class FormatCounts:
    """What became of the files of one format."""

    counts: Counter[str] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)


def main() -> None:
    """Print a table, and with --list the files that were refused or came out different."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("paths", nargs="+", type=Path)
    parser.add_argument("--languages", nargs=2, metavar=("SOURCE", "TARGET"))
    parser.add_argument("--list", action="store_true", help="name the files that differ or were refused")
    arguments = parser.parse_args()
    options = ReadOptions(tuple(arguments.languages) if arguments.languages else None)
    results = defaultdict[str, FormatCounts](FormatCounts)
    for path in sorted(file for given in arguments.paths for file in ([given] if given.is_file() else given.rglob("*"))):
        name = format_of(path) if path.is_file() else None
        if name is not None:
            count_file(path, options, results[name])
    columns = ("files", "refused", "segments", "kept", "identical", "read back")
    print("".join(f"{column:>12}" for column in ("format", *columns)))
    for name, found in sorted(results.items()):
        print(
            "".join(
                f"{value:>12,}" if isinstance(value, int) else f"{value:>12}"
                for value in (name, *map(found.counts.get, columns, [0] * 6))
            )
        )
        if arguments.list:
            print("".join(f"    {note}\n" for note in found.notes), end="")


def count_file(path: Path, options: ReadOptions, result: FormatCounts) -> None:
    """Parse and write one file in all three ways."""
    content = path.read_bytes()
    result.counts["files"] += 1
    try:
        parsed = read_translatable(path, options=options)
    except QkvError as error:
        result.counts["refused"] += 1
        result.notes.append(f"refused: {error}")
        return
    result.counts["segments"] += len(parsed.segments)
    outcomes = {
        "kept": parsed.render([None] * len(parsed.segments)) == content,
        "identical": _is_identity(parsed, content, path, options),
        "read back": _reads_back(parsed, path, options),
    }
    for name, good in outcomes.items():
        result.counts[name] += good
        if not good:
            result.notes.append(f"not {name}: {path}")


def _is_identity(parsed: TranslatableFile, content: bytes, path: Path, options: ReadOptions) -> bool:
    """Return whether a file with targets that equal its sources is the same after translation by the identity."""
    same = parsed.render([segment.texts for segment in parsed.segments])
    if all(segment.existing == segment.texts for segment in parsed.segments):
        return same == content
    again = _parsed_copy(same, path, options)
    return again is not None and again.render([segment.texts for segment in again.segments]) == same


def _reads_back(parsed: TranslatableFile, path: Path, options: ReadOptions) -> bool:
    """Return whether changed texts are found again, in the same order."""
    changed = [tuple(_changed(text) for text in segment.texts) for segment in parsed.segments]
    again = _parsed_copy(parsed.render(changed), path, options)
    if again is None or len(again.segments) != len(changed):
        return False
    found = [segment.existing for segment in again.segments]
    return all(
        got is not None and list(map(_words, got)) == list(map(_words, want)) for got, want in zip(found, changed, strict=True)
    )


def _changed(text: str) -> str:
    return ProtectedText(text.rstrip() + CHANGE, getattr(text, "spans", ()))


def _words(text: str) -> list[str]:
    """Return the words outside of codes, as attributes of inline tags change too."""
    for span in reversed(getattr(text, "spans", ())):
        text = f"{text[: span.start]} {text[span.end :]}"
    return text.split()


def _parsed_copy(content: bytes, path: Path, options: ReadOptions) -> TranslatableFile | None:
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / path.name
        copy.write_bytes(content)
        try:
            return read_translatable(copy, options=options)
        except QkvError:
            return None


if __name__ == "__main__":
    main()
