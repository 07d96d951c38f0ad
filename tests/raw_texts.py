"""Raw texts for tests of tokenizers: white space of every kind, accents in both normal forms, control characters, any script."""

import random
import unicodedata

from qkv.text.special_tokens import MASK

WHITE_SPACE = [chr(code) for code in range(0x110000) if chr(code).isspace()]
FORMAT_CHARACTERS = list("\x00\x01\x07\x7f\x80\u00ad\u200b\u200c\u200d\u200e\u2060\ufeff\ufffd")
LETTERS = [*"abcXYZ.,-1é設置ก가ß👩", "e\u0301", "a\u0323\u0302", "\u1100\u1161\u11a8", "\u212b", "\u0344"]
FOUND = [
    "", " ", "\t", " \n ", "  two  spaces  ", "\ttab\tinside\t", "line\nbreak\r\n", "\u00a0hard\u00a0space\u00a0", "\ufeffmark",
    "zero\u200bwidth", "cafe\u0301 café", "\x1cunit\x1f", "ideographic\u3000space\u3000", "\u2028separator\u2029", "设置\t重启",
    "The quick\tbrown fox .\n", " \x00control\x01 ", "one\u0085next",
]  # fmt: skip


def raw_texts(count: int, seed: int, masks: bool = False) -> list[str]:
    """Draw texts; `masks` puts [MASK] into them, but not before a combining mark, which would join the token."""
    rng = random.Random(seed)
    return [*FOUND, *(_text(rng, masks) for _ in range(count))]


def _text(rng: random.Random, masks: bool) -> str:
    text = ""
    for _ in range(rng.randrange(14)):
        kinds = [WHITE_SPACE, [" "], FORMAT_CHARACTERS, LETTERS, LETTERS, [_any(rng)], *([[MASK]] if masks else [])]
        drawn = rng.choice(rng.choice(kinds))
        if not (text.endswith(MASK) and unicodedata.category(drawn[0])[0] == "M"):
            text += drawn
    return text


def _any(rng: random.Random) -> str:
    """Draw a character; a combining mark only if it is old enough for the library's table of Unicode."""
    while True:
        one = chr(rng.choice([rng.randrange(0x3000), rng.randrange(0xD800), rng.randrange(0xE000, 0x110000)]))
        if unicodedata.category(one)[0] != "M" or unicodedata.ucd_3_2_0.category(one) != "Cn":
            return one
