"""The script of texts, where it shows a language whose words sacreBLEU's default tokenizer cannot split."""

import re
from collections import Counter
from collections.abc import Iterable
from itertools import islice

SAMPLED = 2000  # texts, to find the script
KANA_SHARE = 0.1  # of kana among kana and Han characters: Japanese has far more, Chinese almost none

# A name for messages, and the characters of the script.
SCRIPTS = {
    "zh": ("Chinese", "\u3005-\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"),
    "ja": ("Japanese", "\u3041-\u3096\u30a1-\u30fa\u31f0-\u31ff\uff66-\uff9d"),
    "ko": ("Korean", "\u1100-\u11ff\u3130-\u318f\uac00-\ud7a3"),
    "th": ("Thai", "\u0e01-\u0e3a\u0e40-\u0e5b"),
    "lo": ("Lao", "\u0e80-\u0eff"),
    "km": ("Khmer", "\u1780-\u17ff"),
    "my": ("Burmese", "\u1000-\u109f"),
}
# Other languages that are written in a script, and other codes of the same language.
ALSO_WRITTEN = {
    "zh": {"zho", "chi", "cmn", "yue", "wuu", "nan", "hak", "lzh", "ja", "jpn"},
    "ja": {"jpn"},
    "ko": {"kor"},
    "th": {"tha"},
    "lo": {"lao"},
    "km": {"khm"},
    "my": {"mya", "bur", "shn", "mnw", "ksw"},
}
_CHARACTER = re.compile("|".join(f"(?P<{code}>[{signs}])" for code, (_, signs) in SCRIPTS.items()))
_OTHER_WORD = re.compile(rf"(?:(?![{''.join(signs for _, signs in SCRIPTS.values())}])[^\W\d_])+")


def detect_language(texts: Iterable[str]) -> str | None:
    """Return zh, ja, ko, th, lo, km or my where most of the texts' units are characters of its script; None for other scripts.

    A unit is a character of these scripts, or a word of any other: product names in Latin letters do not outweigh the text.
    """
    found: Counter[str] = Counter()
    other = 0
    for text in islice(texts, SAMPLED):
        if text.isascii():
            other += len(_OTHER_WORD.findall(text))
            continue
        found.update(match.lastgroup for match in _CHARACTER.finditer(text) if match.lastgroup)
        other += len(_OTHER_WORD.findall(text))
    if found["ja"] >= KANA_SHARE * (found["ja"] + found["zh"]):
        found["ja"] += found.pop("zh", 0)
    code, count = found.most_common(1)[0] if found else ("", 0)
    return code if count > (found.total() + other) / 2 else None


def script_contradicts(language: str, texts: Iterable[str]) -> bool:
    """Return whether texts cannot be in a language: most of them are in another one's script, or none is in its own."""
    code, found = language.replace("_", "-").split("-")[0].lower(), list(islice(texts, SAMPLED))
    detected = detect_language(found)
    if not 2 <= len(code) <= 3:  # a name such as "target", which says nothing of a script
        return False
    if detected is not None:
        return code not in {detected, *ALSO_WRITTEN[detected]}
    own = next((name for name, others in ALSO_WRITTEN.items() if code in {name, *others}), None)
    joined = " ".join(found)
    return own is not None and not _CHARACTER.search(joined) and bool(_OTHER_WORD.search(joined))


def language_name(code: str) -> str:
    """Return the English name of a language that `detect_language` finds."""
    return SCRIPTS[code][0]
