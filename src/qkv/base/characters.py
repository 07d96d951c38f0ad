"""Words as characters: the UTF-8 bytes of a word between two boundary symbols, as a character CNN reads them.

The bytes follow the code of Jozefowicz et al. 2016 and Peters et al. 2018: with bytes instead of characters, no letter of any
script is unknown. A special token is one symbol between the boundaries, which no text can spell.
"""

from collections.abc import Sequence

import numpy as np

PADDING, BEGIN, END, FIRST_BYTE = 0, 1, 2, 3
FIRST_SPECIAL = FIRST_BYTE + 256
SPECIALS = 32  # special tokens with a symbol of their own; any more share the last
CHARACTERS = FIRST_SPECIAL + SPECIALS  # size of the alphabet
BOUNDARIES = 2  # symbols around a word


def character_ids(words: Sequence[str | int], max_characters: int) -> np.ndarray:
    """Return the symbols of words, and of special tokens given by id; longer words lose their end. -> (words, max_characters)."""
    ids = np.full((len(words), max_characters), PADDING, dtype=np.int16)
    for row, word in zip(ids, words, strict=True):
        if isinstance(word, int):
            symbols = [FIRST_SPECIAL + min(word, SPECIALS - 1)]
        else:
            symbols = [FIRST_BYTE + byte for byte in word.encode()[: max_characters - BOUNDARIES]]
        row[: len(symbols) + BOUNDARIES] = [BEGIN, *symbols, END]
    return ids
