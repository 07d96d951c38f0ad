"""How words are spelled, as a model reads them that knows words by their letters: the bytes of UTF-8 between two marks.

As in the code of Jozefowicz et al. 2016 and Peters et al. 2018: bytes rather than characters, so that no letter of any script is
unknown; a control token is one symbol between the marks, which no text can spell.
"""

from collections.abc import Sequence

import numpy as np

PADDING, BEGIN, END, FIRST_BYTE = 0, 1, 2, 3  # what stands after the end, the two marks, and the byte 0
FIRST_CONTROL = FIRST_BYTE + 256
CONTROLS = 32  # with a symbol of their own; any more share the last
CHARACTERS = FIRST_CONTROL + CONTROLS
BOUNDARIES = 2  # around a word


def character_ids(words: Sequence[str | int], room: int) -> np.ndarray:
    """Symbols of words, and of control tokens by their numbers; what is longer than `room` loses its end. -> (words, room)."""
    found = np.full((len(words), room), PADDING, dtype=np.int16)
    for row, word in zip(found, words, strict=True):
        inside = _control(word) if isinstance(word, int) else [FIRST_BYTE + byte for byte in word.encode()[: room - BOUNDARIES]]
        row[: len(inside) + BOUNDARIES] = [BEGIN, *inside, END]
    return found


def _control(number: int) -> list[int]:
    return [FIRST_CONTROL + min(number, CONTROLS - 1)]
