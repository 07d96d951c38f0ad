"""Hold out text for scoring: whole documents, or parts of them where there are too few."""

import numpy as np

from qkv.base.errors import DataError
from qkv.data.documents import Documents

MIN_DOCUMENTS = 4  # or parts of one, so that some can be held out
MAX_HELD_OUT = 500  # documents
ENOUGH_HELD_OUT = 20  # documents, taken even where the share is smaller, unless they are more than
ENOUGH_SHARE = 0.05  # of all documents
FOR_A_PAIR = 2  # documents, for pairs of texts that do not belong together
MAX_SHARE = 0.1  # of the text: whole documents beyond it and beyond twice the requested share are not held out


def hold_out(documents: Documents, share: float) -> np.ndarray:
    """Return the numbers of all parts of evenly spread documents; of evenly spread parts where there are too few documents."""
    numbers = documents.document[documents.first]
    if len(documents) < MIN_DOCUMENTS:
        raise DataError(
            f"the text has {len(numbers)} documents, of which none can be held out; put blank lines between documents, "
            "or give data.dev"
        )
    for enough in (enough_of(len(numbers)), FOR_A_PAIR) if len(numbers) >= MIN_DOCUMENTS else ():
        whole = np.flatnonzero(np.isin(documents.document, numbers[spread(len(numbers), share, enough)]))
        if documents.tokens.lengths(whole).sum() <= max(MAX_SHARE, 2 * share) * documents.tokens.tokens:
            return whole
    return spread(len(documents), share, enough_of(len(documents)))


def enough_of(many: int) -> int:
    """Return how many documents must be held out at least: scores of a few sentences mean nothing."""
    return max(FOR_A_PAIR, min(ENOUGH_HELD_OUT, int(many * ENOUGH_SHARE)))


def spread(many: int, share: float, at_least: int) -> np.ndarray:
    """Return a share of the numbers below `many`, evenly spread."""
    return np.linspace(0, many - 1, min(MAX_HELD_OUT, max(at_least, round(many * share))), dtype=np.int64)
