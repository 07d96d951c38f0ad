"""Documents of a request: HTML and uploaded files, whose texts are translated and whose markup stays."""

import io
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from fastapi import Request

from qkv.inference.file_translation import FileReport, PlannedFile, TextKey, file_texts, write_file
from qkv.inference.segmenter import TranslatedText
from qkv.serving.batching import PreparedRequest
from qkv.serving.errors import invalid
from qkv.serving.routes import Translator, languages_of
from qkv.serving.service import Service
from qkv.text.glossary import Glossary
from qkv.text.protected_text import compile_patterns
from qkv.text.translatable import NothingToTranslate, ReadOptions, parse_translatable
from qkv.text.translatable.file import FileText, TranslatableFile
from qkv.text.translatable.html_page import parse_text

UNPACKED_BYTES = 1 << 26  # of a document that is an archive
PATTERNS = compile_patterns()


@dataclass(frozen=True)
class TranslatedDocument:
    """A document with the best translations of its texts, and the same with the next best ones."""

    contents: list[bytes]
    translated: int  # segments
    left: int  # segments that were translated already, or whose translation would break the document
    outputs: list[list[TranslatedText]]  # of each text


@dataclass(frozen=True)
class DocumentOptions:
    """How the texts of a document are translated."""

    alternatives: int = 0
    glossary: Glossary | None = None
    soft: bool = False


def read_html(content: bytes, languages: tuple[str, str]) -> TranslatableFile:
    """Parse HTML in a request, which is UTF-8 whatever it declares."""
    return parse_text(FileText(Path("html"), content.decode()), languages[1])


def read_upload(file_format: str, content: bytes, languages: tuple[str, str]) -> TranslatableFile:
    """Parse an uploaded file in a format of `FORMATS`."""
    path = Path(f"file.{file_format}")
    if file_format == "docx":
        _check_unpacked(content)
    return parse_translatable(path, content, file_format, ReadOptions(languages))


def _check_unpacked(content: bytes) -> None:
    """Refuse an archive that would fill the memory."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            size = sum(info.file_size for info in archive.infolist())
    except (zipfile.BadZipFile, ValueError):
        return  # its reader says what is wrong
    if size > UNPACKED_BYTES:
        raise invalid(f"the document has more than {UNPACKED_BYTES >> 20} MiB unpacked; split it", "file", "body_too_large")


async def translate_documents(
    service: Service,
    request: Request,
    model: Translator,
    contents: Sequence[bytes],
    read: Callable[[bytes, tuple[str, str]], TranslatableFile],
    options: DocumentOptions,
) -> list[TranslatedDocument]:
    """Translate the texts of documents with one model, all together; a document that has none is returned as it is."""
    files: list[PlannedFile | None] = []
    texts: dict[TextKey, str] = {}

    def prepare() -> PreparedRequest:
        for content in contents:
            try:
                parsed = read(content, languages_of(model))
            except NothingToTranslate:
                files.append(None)
                continue
            todo = [not segment.translated for segment in parsed.segments]
            file = PlannedFile(Path("document"), None, parsed, todo)
            files.append(file)
            texts.update(file_texts(file, PATTERNS))
        service.check_texts(list(texts.values()), "file", any_number=True)
        return model.handler.translate(list(texts.values()), options.alternatives, options.glossary, options.soft, whole=True)

    outputs: list[list[TranslatedText]] = await service.answer(request, model, prepare)
    found = dict(zip(texts, outputs, strict=True))
    return await service.prepare(
        request, lambda: [_write(file, content, found, options) for file, content in zip(files, contents, strict=True)]
    )


def _write(
    file: PlannedFile | None, content: bytes, found: dict[TextKey, list[TranslatedText]], options: DocumentOptions
) -> TranslatedDocument:
    """Return a document with the best translations of its texts, and with the next best ones."""
    if file is None:
        return TranslatedDocument([content] * (options.alternatives + 1), 0, 0, [])
    outputs = {key: found[key] for key in file_texts(file, PATTERNS)}
    reports = []
    for rank in range(max([options.alternatives + 1, *map(len, outputs.values())])):
        reports.append(FileReport())
        write_file(file, {key: each[min(rank, len(each) - 1)].text for key, each in outputs.items()}, PATTERNS, reports[-1])
        if reports[-1].failed:
            raise invalid("a translation has a character that the file's encoding lacks; send UTF-8", "file", "unsuitable")
    return TranslatedDocument([one.content for one in reports], reports[0].translated, reports[0].left, list(outputs.values()))
