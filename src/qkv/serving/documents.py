"""Documents of a request: HTML and uploaded files, whose texts are translated and whose markup stays."""

import io
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from fastapi import Request

from qkv.inference.file_translation import FileReport, PlannedFile, TextKey, file_texts, write_file
from qkv.inference.segmenter import TranslatedText
from qkv.serving.batching import PreparedRequest
from qkv.serving.errors import invalid
from qkv.serving.fair_threads import giving_way
from qkv.serving.routes import TranslationRoute, Translator
from qkv.serving.service import Service
from qkv.text.glossary import Glossary
from qkv.text.protected_text import compile_patterns
from qkv.text.translatable import NothingToTranslate, ReadOptions, parse_translatable
from qkv.text.translatable.file import FileText, TranslatableFile
from qkv.text.translatable.html_page import parse_text
from qkv.text.translatable.inline import with_spans_of

UNPACKED_BYTES = 1 << 26  # of a document that is an archive
PATTERNS = compile_patterns()
CALLED = Path("the file")  # in messages; its own name is the client's


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


def read_html(content: bytes, options: ReadOptions) -> TranslatableFile:
    """Parse HTML in a request, which is UTF-8 whatever it declares."""
    return parse_text(FileText(CALLED, content.decode()), options.target)


def read_upload(file_format: str, content: bytes, options: ReadOptions) -> TranslatableFile:
    """Parse an uploaded file in a format of `FORMATS`."""
    if file_format == "docx":
        _check_unpacked(content)
    return parse_translatable(CALLED, content, file_format, options)


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
    route: TranslationRoute,
    contents: Sequence[bytes],
    read: Callable[[bytes, ReadOptions], TranslatableFile],
    options: DocumentOptions,
) -> list[TranslatedDocument]:
    """Translate the texts of documents, all together; a document that has none is returned as it is.

    Documents are read once, whatever the number of models on the route: texts go from model to model, and only the last
    translations are written.
    """
    files: list[PlannedFile | None] = []
    texts: dict[TextKey, str] = {}
    outputs: list[list[TranslatedText]] = []

    most = service.settings.characters
    if sum(content.count(b"\n") for content in contents) > most:  # before it is parsed, which would take long
        raise invalid(f"the document has more than {most:,} lines; split it", "file", "text_too_long")

    def prepare(model: Translator) -> PreparedRequest:
        if model is route.models[0]:
            files.extend(_plan(content, read, route) for content in contents)
            planned = [file for file in files if file is not None]
            if sum(len(file.parsed.segments) for file in planned) > most:
                raise invalid(f"the document has more than {most:,} segments; split it", "file", "text_too_long")
            for file in planned:
                texts.update(file_texts(file, PATTERNS))
            service.check_texts(list(texts.values()), "file", any_number=True)
            reading = list(texts.values())
        else:
            pairs = giving_way(zip(texts.values(), outputs, strict=True))
            reading = [with_spans_of(text, best.text) for text, (best, *_) in pairs]
        how = options if model is route.models[-1] else DocumentOptions()
        return model.handler.translate(reading, how.alternatives, how.glossary, how.soft, whole=True)

    for model in route.models:
        outputs = await service.answer(request, model, partial(prepare, model))
    found = dict(zip(texts, outputs, strict=True))
    return await service.prepare(
        request, lambda: [_write(file, content, found, options) for file, content in zip(files, contents, strict=True)]
    )


def _plan(content: bytes, read: Callable[[bytes, ReadOptions], TranslatableFile], route: TranslationRoute) -> PlannedFile | None:
    """Parse a document; None for one without a text to translate."""
    try:
        parsed = read(content, ReadOptions(route.languages))
    except NothingToTranslate:
        return None
    return PlannedFile(CALLED, None, parsed, [not segment.translated for segment in parsed.segments])


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
