"""Text line by line in `qkv translate`: lines are translated as they arrive, and printed in order."""

import queue
import sys
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from qkv.base.errors import QkvError

if TYPE_CHECKING:
    from qkv.inference.translation_lines import LineOptions
    from qkv.inference.translator import TranslatedText, Translator

CHUNK = 512  # lines translated at once
NO_LINE_YET = object()  # no line arrived for a moment


def translate_lines(
    lines: Iterator[str],
    translator: "Translator",
    translate: "Callable[..., list[list[TranslatedText]]]",
    options: "LineOptions",
) -> None:
    """Print the translations of lines; `translate` takes texts and options of `Translator.n_best`."""
    from qkv.inference.translation_lines import format_translations
    from qkv.text.treebank import TextWithHeads
    from qkv.training.progress import Progress

    confidence = options.scores and _has_confidence(translator)
    # On a terminal the translations themselves show the progress.
    with Progress(quiet=sys.stdout.isatty()).count("lines") as show:
        done = 0
        for chunk in _chunks(lines):
            if translator.trees:
                chunk = [TextWithHeads.from_line(line, f"line {done + number}") for number, line in enumerate(chunk, 1)]
            prefixes = None if options.prefix is None else [options.prefix] * len(chunk)
            for outputs in translate(chunk, prefixes=prefixes, first=done, confidence=confidence):
                for line in format_translations(outputs, translator, options, confidence):
                    print(line)
            sys.stdout.flush()
            done += len(chunk)
            show(done)


def _has_confidence(translator: "Translator") -> bool:
    """Return whether a run's calibration can be used; if not, say why, and that scores are printed instead."""
    try:
        _ = translator.confidence_model
    except QkvError as error:
        print(f"qkv: --scores prints scores of the search, not probabilities: {error}", file=sys.stderr)
        return False
    return True


def _chunks(lines: Iterator[str]) -> Iterator[list[str]]:
    """Yield the lines that have arrived, up to CHUNK: a slow writer gets each answer at once, a fast one full batches."""
    ready: queue.Queue[str | Exception | None] = queue.Queue(4 * CHUNK)

    def read() -> None:
        try:
            for line in lines:
                ready.put(line)
            ready.put(None)
        except Exception as error:
            ready.put(error)

    def next_item() -> object:
        try:
            return ready.get(timeout=0.02)
        except queue.Empty:
            return NO_LINE_YET

    threading.Thread(target=read, daemon=True).start()
    item: object = ready.get()
    while isinstance(item, str):
        chunk = [item]
        item = next_item()
        while isinstance(item, str) and len(chunk) < CHUNK:
            chunk.append(item)
            item = next_item()
        yield chunk
        item = ready.get() if item is NO_LINE_YET else item
    if isinstance(item, Exception):
        raise item
