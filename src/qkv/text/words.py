"""Which word each token belongs to: words stand between spaces, and each Chinese or Japanese character is one."""

import re
from collections.abc import Callable

_WORDS = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]|[^\s\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]+")


def word_numbers(decode: Callable[[list[int]], str], ids: list[int]) -> list[int]:
    """For each token the number of the word, from 0, in which the text decoded so far ends."""
    return [max(0, len(_WORDS.findall(decode(ids[: i + 1]))) - 1) for i in range(len(ids))]
