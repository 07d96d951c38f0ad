"""Languages: their names, and detection by the profiles that runs learned from their training texts, else by script."""

import math
import re
from collections.abc import Mapping, Sequence

from qkv.text.language_profile import LanguageProfile, unknown_language_score

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
CAUTION = 2.0  # divides log-probabilities: the characters of a text are less independent than the profiles assume
UNNAMED = ("source", "target")  # codes for a run that does not name its languages


def language_name(code: str) -> str:
    """Return a language's English name, or its code if the name is not known."""
    return NAMES.get(_base(code), code)


def detect_language(text: str, candidates: Mapping[str, LanguageProfile | None]) -> list[tuple[str, float]]:
    """Rank languages that a text may be in, most probable first, with a confidence from 0 to 100.

    Languages with a profile are compared by it; a text that none of them makes likely may be in another language. Languages
    without one are recognised by their script alone: those of the same script share what is left.
    """
    scores = {code: profile.score(text) for code, profile in candidates.items() if profile is not None}
    letters = sum(character.isalpha() for character in text)
    best = max(scores.values(), default=0.0)
    weights = {code: math.exp((score - best) / CAUTION) for code, score in scores.items()}
    known = 1 / (1 + math.exp(min((unknown_language_score(text) - best) / CAUTION, 500.0))) if scores and letters else 0.0
    found = {code: known * weight / sum(weights.values()) for code, weight in weights.items()}
    shares = _script_shares(text, letters, [code for code in candidates if code not in scores])
    left, all_shares = 1 - sum(found.values()), sum(shares.values())
    for code, share in shares.items():
        found[code] = left * max(shares.values()) * share / all_shares if all_shares else 0.0
    return sorted(((code, 100 * value) for code, value in found.items()), key=lambda one: -one[1])


def _script_shares(text: str, letters: int, codes: Sequence[str]) -> dict[str, float]:
    """Return the share of a text's letters that are in the script of each language."""
    shares = {}
    for code in codes:
        script = _SCRIPTS.get(_base(code), _LATIN)
        shares[code] = len(re.findall(f"[{script}]", text)) / letters if letters else 0.0
    if not re.search(f"[{_KANA}]", text):  # Chinese characters without kana are not Japanese
        shares = {code: 0.0 if _base(code) == "ja" else share for code, share in shares.items()}
    return shares


def _base(code: str) -> str:
    """Return the language of a code, without its region."""
    return code.replace("_", "-").split("-")[0].lower()
