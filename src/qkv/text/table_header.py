"""The header of a table of pairs: a first row that names source and target, or two languages."""

import re
from collections.abc import Sequence
from typing import NamedTuple

from qkv.text.pair import SideNames, same_language

SOURCE_NAMES = {"source", "src", "original", "input", "quelle", "msgid"}
TARGET_NAMES = {"target", "tgt", "trg", "translation", "translated", "output", "ziel", "msgstr"}
FILLERS = {"text", "texts", "sentence", "sentences", "string", "segment", "phrase", "language", "lang", "column", "side"}
# Codes of languages (ISO 639) with their names, in English and as they call themselves.
LANGUAGES = {
    "af": "afrikaans afr", "am": "amharic amh", "ar": "arabic ara العربية", "az": "azerbaijani", "be": "belarusian bel",
    "bg": "bulgarian bul български", "bn": "bengali ben", "bs": "bosnian", "ca": "catalan cat català", "cs": "czech ces čeština",
    "cy": "welsh cym", "da": "danish dan dansk", "de": "german deu ger deutsch", "el": "greek ell ελληνικά", "en": "english eng",
    "eo": "esperanto epo", "es": "spanish spa español", "et": "estonian est eesti", "eu": "basque eus", "fa": "persian farsi fas",
    "fi": "finnish fin suomi", "fr": "french fra fre français", "ga": "irish gle", "gl": "galician glg", "gu": "gujarati guj",
    "ha": "hausa hau", "he": "hebrew heb עברית", "hi": "hindi hin हिन्दी", "hr": "croatian hrv hrvatski",
    "hu": "hungarian hun magyar", "hy": "armenian hye", "id": "indonesian ind", "ig": "igbo ibo", "is": "icelandic isl",
    "it": "italian ita italiano", "ja": "japanese jpn 日本語", "ka": "georgian kat", "kk": "kazakh kaz", "km": "khmer khm",
    "kn": "kannada kan", "ko": "korean kor 한국어", "la": "latin lat", "lo": "lao", "lt": "lithuanian lit", "lv": "latvian lav",
    "mk": "macedonian mkd", "ml": "malayalam mal", "mn": "mongolian mon", "mr": "marathi mar", "ms": "malay msa", "mt": "maltese",
    "my": "burmese mya", "nb": "bokmål nob", "ne": "nepali nep", "nl": "dutch nld nederlands", "nn": "nynorsk nno",
    "no": "norwegian nor norsk", "pa": "punjabi pan", "pl": "polish pol polski", "ps": "pashto pus",
    "pt": "portuguese por português", "ro": "romanian ron română", "ru": "russian rus русский", "sk": "slovak slk slovenčina",
    "sl": "slovenian slv slovenščina", "so": "somali som", "sq": "albanian sqi", "sr": "serbian srp српски",
    "sv": "swedish swe svenska", "sw": "swahili swa", "ta": "tamil tam", "te": "telugu tel", "th": "thai tha ไทย",
    "tl": "tagalog tgl", "tr": "turkish tur türkçe", "uk": "ukrainian ukr українська", "ur": "urdu urd", "uz": "uzbek uzb",
    "vi": "vietnamese vie", "xh": "xhosa xho", "yo": "yoruba yor", "zh": "chinese zho cmn 中文", "zu": "zulu zul",
}  # fmt: skip
_CODES = {name: code for code, names in LANGUAGES.items() for name in (code, *names.split())}
# Codes that are also words: two of them, such as "it" and "es", may be a pair of a dictionary.
ALSO_WORDS = {
    "am", "be", "ben", "bel", "cat", "da", "dan", "el", "es", "est", "et", "fin", "fra", "ha", "he", "hi", "hun",
    "id", "is", "it", "la", "lat", "lit", "lo", "mal", "mar", "mon", "my", "ne", "no", "nor", "pa", "pan", "pus",
    "ro", "so", "som", "swe", "ta", "te", "tel", "tur",
}  # fmt: skip
SENTENCE = 12  # characters of a mean cell in a column of sentences, not of words
_REGION = re.compile(r"[a-z]{2}|hans|hant|latn|cyrl|arab|\d{3}")


class Sides(NamedTuple):
    """A header; `columns` are the indices of source and target, None where more than two columns could be them."""

    columns: tuple[int, int] | None


def find_sides(first: Sequence[str], rows: Sequence[Sequence[str]], columns: SideNames, languages: SideNames) -> Sides | None:
    """Return the sides that a first row names; None if it is a pair, as far as its names and the other rows show."""
    names = [cell.strip() for cell in first]
    if columns and not (columns[0].isdigit() and columns[1].isdigit()):
        return Sides(None) if all(name in names or name.isdigit() for name in columns) else None
    if any(name.isdigit() for name in names):
        return None
    if languages and (chosen := _named(names, languages)):
        return Sides(chosen)
    roles = {index: role for index, name in enumerate(names) if (role := _role(name))}
    sources = [index for index, role in roles.items() if role == "source"]
    targets = [index for index, role in roles.items() if role == "target"]
    if sources and targets:
        return Sides((sources[0], targets[0]))
    # Columns of numbers are called id or no, which are codes of Indonesian and Norwegian too.
    spoken = {i: role for i, role in roles.items() if role not in ("source", "target") and not _has_numbers(rows, i)}
    if len(spoken) > 2 and spoken.get(0) == "id" and names[0].casefold() == "id":
        del spoken[0]
    if len(spoken) == 1 and (sources or targets) and not _may_be_words(names, rows, list(spoken)):
        (other,) = spoken
        return Sides((sources[0], other) if sources else (other, targets[0]))
    if len({*spoken.values()}) < 2 or _may_be_words(names, rows, list(spoken)):
        return None
    # With languages of other names, which of the two columns is meant is not known.
    return Sides((min(spoken), max(spoken)) if len(spoken) == 2 and not languages else None)


def _role(name: str) -> str | None:
    """Return "source", "target" or a language's code for the name of a column such as Source, text_en, English or de-AT."""
    words = [word for word in re.findall(r"[^\W_]+", name.casefold()) if word not in FILLERS]
    for role, known in (("source", SOURCE_NAMES), ("target", TARGET_NAMES)):
        if known & {*words[:1], *words[-1:]} and len(words) <= 2:
            return role
    if not words or len(words) > 2 or (len(words) == 2 and not _REGION.fullmatch(words[1])):
        return None
    return _CODES.get(words[0])


def _named(names: list[str], languages: tuple[str, str]) -> tuple[int, int] | None:
    """Return the columns that are called as the two sides, or by another name of their languages."""
    found = []
    for wanted in languages:
        exact = [index for index, name in enumerate(names) if name.casefold() == wanted.casefold()]
        code = _CODES.get(wanted.casefold(), wanted)
        near = [index for index, name in enumerate(names) if (role := _role(name)) and same_language(role, code)]
        found.extend((exact or near)[:1])
    return (found[0], found[1]) if len(found) == 2 and found[0] != found[1] else None


def _has_numbers(rows: Sequence[Sequence[str]], column: int) -> bool:
    cells = [row[column].strip() for row in rows if len(row) > column]
    return bool(cells) and all(cell.isdigit() for cell in cells)


def _may_be_words(names: list[str], rows: Sequence[Sequence[str]], columns: list[int]) -> bool:
    """Return whether a row of language codes may be a pair of words, in a table of words."""
    cells = [row[column] for row in rows for column in columns if len(row) > column]
    mean = sum(map(len, cells)) / max(1, len(cells))
    return all(names[column].casefold() in ALSO_WORDS for column in columns) and mean <= SENTENCE
