"""Translation of whole files: which are read and where they are written, then all their segments, each text once."""

import glob
import hashlib
import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from qkv.base.errors import ConfigError, DataError
from qkv.base.files import atomic_file, check_writable, digest
from qkv.text.files import find_files
from qkv.text.protected_text import ProtectedSpan, compile_patterns
from qkv.text.translatable import NothingToTranslate, ReadOptions, format_of, read_translatable
from qkv.text.translatable.file import TranslatableFile
from qkv.text.translatable.inline import markup_problem, placeholder_problem
from qkv.text.translatable.pieces import TextPieces

CHUNK = 512  # texts translated at once
SHARD_SUFFIXES = {".jsonl", ".ndjson", ".parquet", ".pq"}  # of files that are no documents; batch work translates them
UNFINISHED = ".qkv-translate.json"  # in a folder of translated files until all are written


class AlreadyTranslated(NothingToTranslate):
    """Every entry of the files has a translation: nothing is left to do."""


Translate = Callable[[list[str]], list[str]]
TextKey = tuple[str, tuple[ProtectedSpan, ...]]


@dataclass(frozen=True)
class PlannedFile:
    """A parsed file and where its translation goes; None for standard output."""

    path: Path
    out: Path | None
    parsed: TranslatableFile
    todo: list[bool]  # for each segment, whether it is translated


@dataclass
class FilePlan:
    """The files of one command, all of them parsed, and those that were skipped with the reason."""

    files: list[PlannedFile]
    skipped: list[str] = field(default_factory=list)
    folder: Path | None = None  # where the translations go, if there can be several
    fingerprint: str = ""


@dataclass
class FileReport:
    """Counts of the files and segments of one command, and the reasons for those that were not translated."""

    written: list[Path | None] = field(default_factory=list)
    translated: int = 0  # segments
    left: int = 0  # segments that had a translation, or that cannot be translated
    codes: int = 0  # values of JSON that are identifiers, paths, colours or addresses
    problems: list[str] = field(default_factory=list)  # segments left as they were, and why
    failed: list[str] = field(default_factory=list)  # files that could not be written, and why
    content: bytes = b""  # the translated file, where no output was named


def plan_files(
    inputs: Sequence[str | Path],
    out: str | Path | None = None,
    all_segments: bool = False,
    file_format: str | None = None,
    options: ReadOptions | None = None,
    fingerprint: str = "",
) -> FilePlan:
    """Parse the files that paths, patterns and folders name, and check that nothing would be overwritten.

    Raise an error that names all damaged files, and `AlreadyTranslated` where nothing is left to do. In folders and patterns,
    files without a known format or without texts to translate are skipped. `fingerprint` says which command this is: the same one
    continues where it was interrupted.
    """
    plan = FilePlan([])
    target = Path(out).expanduser() if out is not None else None
    found = [pair for given in inputs for pair in _expand(Path(given).expanduser(), target)]
    several = len(inputs) != 1 or not Path(inputs[0]).expanduser().is_file()
    if several and target is None:
        names = ", ".join(map(str, inputs[:3]))
        raise ConfigError(f"{names}: {len(found)} files; give --out FOLDER for their translations")
    if target is not None and (several or target.is_dir()):
        plan.folder = target
        if target.exists() and not target.is_dir():
            raise ConfigError(f"{target}: is a file; several files need a folder that is new or has no files of their names")
    done, broken = 0, list[str]()  # files in which everything has a translation; why others cannot be read
    for path, relative in found:
        if several and file_format is None and format_of(path) is None:
            is_shard = not SHARD_SUFFIXES.isdisjoint(suffix.lower() for suffix in path.suffixes)
            plan.skipped.append(f"{path}: {'a shard, which --on local translates' if is_shard else 'unknown format'}")
            continue
        try:
            parsed = read_translatable(path, file_format, options)
            todo = [all_segments or not segment.translated for segment in parsed.segments]
            if not any(todo):
                raise AlreadyTranslated(f"{path}: everything has a translation; --all translates it again")
            plan.files.append(PlannedFile(path, target / relative if plan.folder and target else target, parsed, todo))
        except NothingToTranslate as error:
            if not several:
                raise
            plan.skipped.append(str(error))
            done += isinstance(error, AlreadyTranslated)
        except DataError as error:
            broken.append(str(error))
    if broken:
        raise DataError(broken[0] if len(broken) == 1 else "\n  ".join([f"{len(broken):,} files cannot be read:", *broken]))
    if done and not plan.files:
        raise AlreadyTranslated(f"everything has a translation in {done:,} of {len(found):,} files; --all translates it again")
    if not plan.files:
        raise DataError(f"no file to translate; {plan.skipped[0] if plan.skipped else 'the folder is empty'}")
    if plan.folder is not None:
        command = [fingerprint, all_segments, file_format, options, *(f"{file.path} {digest(file.path)}" for file in plan.files)]
        plan.fingerprint = hashlib.blake2b(repr(command).encode(), digest_size=16).hexdigest()
    _refuse_overwriting(plan)
    return plan


def _expand(given: Path, out: Path | None) -> Iterator[tuple[Path, Path]]:
    """Yield the files that a path, a pattern or a folder names, each with its path below the folder of translations."""
    if given.is_dir():
        for path in sorted(given.rglob("*")):
            relative = path.relative_to(given)
            is_output = out is not None and path.resolve().is_relative_to(out.resolve())
            if path.is_file() and not is_output and not any(part.startswith(".") for part in relative.parts):
                yield path, relative
        return
    fixed = given.parent
    while not given.exists() and glob.has_magic(str(fixed)):
        fixed = fixed.parent
    for path in find_files(str(given)):
        yield path, path.relative_to(fixed)


def _refuse_overwriting(plan: FilePlan) -> None:
    """Refuse to replace files, other than those that the same command wrote before it was interrupted."""
    outs: dict[Path, Path] = {}
    for file in plan.files:
        if file.out is None:
            continue
        if file.out in outs:
            raise ConfigError(f"{outs[file.out]} and {file.path} would both be written to {file.out}; translate them apart")
        outs[file.out] = file.path
    mark = plan.folder / UNFINISHED if plan.folder else None
    written: set[str] = set()
    if mark is not None and mark.exists():
        before = json.loads(mark.read_text(encoding="utf-8"))
        written = set(before["files"]) if before["command"] == plan.fingerprint else set()
    for path in outs:
        if path.exists() and str(path) not in written:
            kind = "folder" if plan.folder else "file"
            raise ConfigError(f"{path}: exists already, and no file is replaced; name a new {kind} with --out, or delete it")
        if not path.exists():
            check_writable(path)


def translate_plan(
    plan: FilePlan,
    translate: Translate,
    progress: Callable[[int, int], None] | None = None,
    protect: tuple[str, ...] | None = (),
) -> FileReport:
    """Translate and write the files of a plan in order; each is written as soon as its texts are translated.

    Equal texts are translated once. `progress` is called with the number of texts done and the number in all. A translation must
    hold the protected spans of its text, of which `protect` gives more patterns; None asks for none but markup.
    """
    report = FileReport()
    patterns = () if protect is None else compile_patterns(protect)
    if plan.folder is not None:
        with atomic_file(plan.folder / UNFINISHED) as mark:
            outs = [str(file.out) for file in plan.files]
            mark.write_text(json.dumps({"command": plan.fingerprint, "files": outs}), encoding="utf-8")
    pending = [file for file in plan.files if file.out is None or not file.out.exists()]
    report.written += [file.out for file in plan.files if file not in pending]  # before an interruption
    texts: dict[TextKey, str] = {}  # each text once, in order
    ends = []  # for each file, how many texts are needed before it can be written
    for file in pending:
        texts |= file_texts(file, patterns)
        ends.append(len(texts))
    keys, translations = list(texts), dict[TextKey, str]()
    for file, end in zip(pending, ends, strict=True):
        while len(translations) < end:
            chunk = keys[len(translations) : len(translations) + CHUNK]
            translations |= zip(chunk, translate([texts[key] for key in chunk]), strict=True)
            if progress:
                progress(len(translations), len(keys))
        write_file(file, translations, patterns, report)
    if plan.folder is not None:
        (plan.folder / UNFINISHED).unlink()
    return report


def file_texts(file: PlannedFile, patterns: Sequence[re.Pattern[str]]) -> dict[TextKey, str]:
    """Return the texts of a file to translate, each once; `patterns` are those of placeholders."""
    return {_key(piece): piece for pieces in _pieces(file, patterns).values() for text in pieces for piece in text.pieces}


def _key(text: str) -> TextKey:
    return text, getattr(text, "spans", ())


def _pieces(file: PlannedFile, patterns: Sequence[re.Pattern[str]]) -> dict[int, list[TextPieces]]:
    """Return the texts of the segments to translate, by the index of the segment; `patterns` are those of placeholders."""
    chosen = [(i, segment) for i, segment in enumerate(file.parsed.segments) if file.todo[i] and not segment.problem]
    return {index: [TextPieces(text, patterns) for text in segment.texts] for index, segment in chosen}


def _problem(source: str, pieces: Sequence[str], translation: str, patterns: Sequence[re.Pattern[str]]) -> str:
    """Return why the translation of a text cannot be written, given the translations of its pieces; "" if it can."""
    if not all(piece.strip() for piece in pieces):
        return "the translation is empty"
    return markup_problem(source, translation) or placeholder_problem(source, translation, patterns)


def write_file(
    file: PlannedFile, translations: dict[TextKey, str], patterns: Sequence[re.Pattern[str]], report: FileReport
) -> None:
    """Write a file with the translations of its texts, and count its segments."""
    filled: list[tuple[str, ...] | None] = [None] * len(file.parsed.segments)
    todo = (segment for segment, is_todo in zip(file.parsed.segments, file.todo, strict=True) if is_todo)
    problems = [(segment.line, segment.problem) for segment in todo if segment.problem]
    for index, pieces in _pieces(file, patterns).items():
        parts = [[translations[_key(piece)] for piece in text.pieces] for text in pieces]
        texts = tuple(text.join(part) for text, part in zip(pieces, parts, strict=True))
        segment = file.parsed.segments[index]
        found = (_problem(*each, patterns) for each in zip(segment.texts, parts, texts, strict=True))
        if problem := next(filter(None, found), "") or segment.check(texts):
            problems.append((segment.line, problem))
        else:
            filled[index] = texts
    report.problems += [f"{file.path}, line {line}: left as it was: {problem}" for line, problem in sorted(problems)]
    try:
        content = file.parsed.render(filled)
    except DataError as error:
        report.failed.append(str(error))
        return
    report.translated += sum(texts is not None for texts in filled)
    report.left += sum(texts is None for texts in filled)
    report.codes += file.parsed.codes
    if file.out is None:
        report.content = content
    else:
        with atomic_file(file.out) as path:
            path.write_bytes(content)
    report.written.append(file.out)
