"""Languages: their names, and detection by script."""

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

# The scripts of languages; those not listed are taken to use Latin letters.
_HAN, _KANA = "\u3400-\u9fff", "\u3040-\u30ff"
_CYRILLIC, _ARABIC = "\u0400-\u04ff", "\u0600-\u06ff\u0750-\u077f"
_SCRIPTS = {
    "zh": _HAN, "ja": _HAN + _KANA, "ko": "\uac00-\ud7a3", "ru": _CYRILLIC, "uk": _CYRILLIC, "bg": _CYRILLIC, "sr": _CYRILLIC,
    "ar": _ARABIC, "fa": _ARABIC, "ur": _ARABIC, "he": "\u0590-\u05ff", "el": "\u0370-\u03ff", "th": "\u0e00-\u0e7f",
    "hi": "\u0900-\u097f", "bn": "\u0980-\u09ff",
}  # fmt: skip
_LATIN = "A-Za-z\u00c0-\u024f\u1e00-\u1eff"
UNNAMED = ("source", "target")  # codes for a run that does not name its languages


def language_name(code: str) -> str:
    """Return a language's English name, or its code if the name is not known."""
    return NAMES.get(_base(code), code)


def detect_language(text: str, candidates: Sequence[str]) -> list[tuple[str, float]]:
    """Rank languages that a text may be in, most probable first, with a confidence from 0 to 100.

    Only the script counts, so languages with the same script share the confidence.
    """
    letters = sum(character.isalpha() for character in text)
    shares = {}
    for code in candidates:
        script = _SCRIPTS.get(_base(code), _LATIN)
        shares[code] = len(re.findall(f"[{script}]", text)) / letters if letters else 0.0
    if not re.search(f"[{_KANA}]", text):  # Chinese characters without kana are not Japanese
        shares = {code: 0.0 if _base(code) == "ja" else share for code, share in shares.items()}
    total = sum(shares.values())
    best = max(shares.values(), default=0.0)
    found = [(code, 100 * best * share / total if total else 0.0) for code, share in shares.items()]
    return sorted(found, key=lambda one: -one[1])


def _base(code: str) -> str:
    """Return the language of a code, without its region."""
    return code.replace("_", "-").split("-")[0].lower()
