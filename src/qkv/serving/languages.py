"""Languages by their codes: names for people, and what the writing alone tells of a text."""

import re
from collections.abc import Sequence

NAMES = {
    "ar": "Arabic", "bg": "Bulgarian", "bn": "Bengali", "ca": "Catalan", "cs": "Czech", "da": "Danish", "de": "German",
    "el": "Greek", "en": "English", "eo": "Esperanto", "es": "Spanish", "et": "Estonian", "fa": "Persian", "fi": "Finnish",
    "fr": "French", "ga": "Irish", "he": "Hebrew", "hi": "Hindi", "hu": "Hungarian", "id": "Indonesian", "it": "Italian",
    "ja": "Japanese", "ko": "Korean", "lt": "Lithuanian", "lv": "Latvian", "ms": "Malay", "nb": "Norwegian", "nl": "Dutch",
    "no": "Norwegian", "pl": "Polish", "pt": "Portuguese", "ro": "Romanian", "ru": "Russian", "sk": "Slovak", "sl": "Slovenian",
    "sq": "Albanian", "sr": "Serbian", "sv": "Swedish", "th": "Thai", "tr": "Turkish", "uk": "Ukrainian", "ur": "Urdu",
    "vi": "Vietnamese", "zh": "Chinese",
}  # fmt: skip

# The letters in which a language is written; all others are taken to be written in Latin ones.
_HAN, _KANA = "\u3400-\u9fff", "\u3040-\u30ff"
_CYRILLIC, _ARABIC = "\u0400-\u04ff", "\u0600-\u06ff\u0750-\u077f"
_WRITING = {
    "zh": _HAN, "ja": _HAN + _KANA, "ko": "\uac00-\ud7a3", "ru": _CYRILLIC, "uk": _CYRILLIC, "bg": _CYRILLIC, "sr": _CYRILLIC,
    "ar": _ARABIC, "fa": _ARABIC, "ur": _ARABIC, "he": "\u0590-\u05ff", "el": "\u0370-\u03ff", "th": "\u0e00-\u0e7f",
    "hi": "\u0900-\u097f", "bn": "\u0980-\u09ff",
}  # fmt: skip
_LATIN = "A-Za-z\u00c0-\u024f\u1e00-\u1eff"
UNKNOWN = ("source", "target")  # codes for a run that does not name its languages


def name_of(code: str) -> str:
    """A language's English name, or its code where that is not known."""
    return NAMES.get(_base(code), code)


def detect(text: str, candidates: Sequence[str]) -> list[tuple[str, float]]:
    """Which of some languages a text may be in, most likely first, with a confidence from 0 to 100.

    Only the writing is looked at, so that languages that share theirs share the confidence.
    """
    letters = sum(sign.isalpha() for sign in text)
    shares = {code: _share(text, _base(code)) / letters if letters else 0.0 for code in candidates}
    if "ja" in map(_base, candidates) and not re.search(f"[{_KANA}]", text):
        shares = {code: 0.0 if _base(code) == "ja" and share else share for code, share in shares.items()}
    total = sum(shares.values())
    best = max(shares.values(), default=0.0)
    found = [(code, 100 * best * share / total if total else 0.0) for code, share in shares.items()]
    return sorted(found, key=lambda one: -one[1])


def _share(text: str, code: str) -> int:
    return len(re.findall(f"[{_WRITING.get(code, _LATIN)}]", text))


def _base(code: str) -> str:
    return code.replace("_", "-").split("-")[0].lower()
