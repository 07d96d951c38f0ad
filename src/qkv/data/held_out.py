"""What of a text is held out to be scored: whole documents, or parts of them where there are too few."""

import numpy as np

from qkv.base.errors import DataError
from qkv.data.documents import Documents

FEWEST = 4  # documents, or parts of one, of which some can be held out
MOST_HELD_OUT = 500  # documents
ENOUGH_HELD_OUT = 20  # of them, which are taken whatever the share, as long as they are no more than
MUCH_HELD_OUT = 0.05  # of all
FOR_A_PAIR = 2  # documents, of which texts that do not belong together can be made
TOO_MUCH = 0.1  # of the text: whole documents are not held out that are more than this and more than twice what is asked for


def hold_out(documents: Documents, share: float) -> np.ndarray:
    """Numbers of some documents with all of their parts, evenly spread; of parts where there are too few documents for that."""
    numbers = np.unique(documents.document)
    if len(documents) < FEWEST:
        raise DataError(
            f"the text has {len(numbers)} documents, of which none can be held out; put blank lines between documents, "
            "or give data.dev"
        )
    for enough in (enough_of(len(numbers)), FOR_A_PAIR) if len(numbers) >= FEWEST else ():
        whole = np.flatnonzero(np.isin(documents.document, numbers[spread(len(numbers), share, enough)]))
        if documents.tokens.lengths(whole).sum() <= max(TOO_MUCH, 2 * share) * len(documents.tokens.ids):
            return whole
    return spread(len(documents), share, enough_of(len(documents)))


def enough_of(many: int) -> int:
    """Of so many documents those that scores must at least be of: a few sentences would tell nothing."""
    return max(FOR_A_PAIR, min(ENOUGH_HELD_OUT, int(many * MUCH_HELD_OUT)))


def spread(many: int, share: float, at_least: int) -> np.ndarray:
    """A share of so many numbers, evenly spread."""
    return np.linspace(0, many - 1, min(MOST_HELD_OUT, max(at_least, round(many * share))), dtype=np.int64)
