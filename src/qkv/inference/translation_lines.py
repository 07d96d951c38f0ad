"""Translations as lines of text: scores, texts and alignments, separated by tabs."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from qkv.inference.translator import TranslatedText, Translator


class LineOptions(NamedTuple):
    """What is printed for each line."""

    n_best: int  # translations
    prefix: str | None  # text that every translation begins with
    scores: bool
    alignments: bool


def format_translations(
    outputs: Sequence[TranslatedText], translator: Translator, options: LineOptions, confidence: bool
) -> Iterator[str]:
    """Yield the lines of a text's translations: probability or score, text and alignment.

    There are always `n_best`, even where there are fewer translations, so that lines can be matched.
    """
    for output in [*outputs, *[TranslatedText("", 0.0)] * (options.n_best - len(outputs))]:
        fields = [output.text]
        if confidence:  # an empty text has none
            fields.insert(0, "" if output.confidence is None else f"{output.confidence:.3f}")
        elif options.scores:
            fields.insert(0, f"{output.score:.4f}")
        if options.alignments:
            fields.append(format_alignment(translator, output))
        yield "\t".join(fields)


def format_alignment(translator: Translator, output: TranslatedText) -> str:
    """Return the alignment of words as pairs such as 0-0 1-2."""
    return " ".join(f"{source}-{target}" for source, target in translator.alignment(output))
