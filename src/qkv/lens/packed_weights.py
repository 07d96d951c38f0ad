"""Attention weights in the short form in which pages hold them.

A head's weights have four digits and lie between 0 and 6.5535, so that each is a multiple of 1e-4 that fits into 16 bits:
{"packed": base64 of little-endian uint16 by rows, "columns": S}. viewer/packed.js reads a head when it is drawn first.
"""

import base64
from typing import Any

import numpy as np

DIGITS = 1e4


def pack_weights(values: Any) -> Any:
    """Return JSON values in which each list of heads, wherever it is named `heads`, has the short form."""
    if isinstance(values, dict):
        return {name: _pack_heads(one) if name == "heads" else pack_weights(one) for name, one in values.items()}
    return [pack_weights(one) for one in values] if isinstance(values, list) else values


def unpack_weights(values: Any) -> Any:
    """Return JSON values without short forms: the inverse of `pack_weights`."""
    if isinstance(values, dict):
        if values.keys() == {"packed", "columns"}:
            numbers = np.frombuffer(base64.b64decode(values["packed"]), "<u2").reshape(-1, values["columns"])
            return (numbers / DIGITS).tolist()
        return {name: unpack_weights(one) for name, one in values.items()}
    return [unpack_weights(one) for one in values] if isinstance(values, list) else values


def _pack_heads(heads: Any) -> Any:
    """Return heads in the short form; anything else that has this name is left as it is."""
    try:
        numbers = [np.array(head, np.float64) * DIGITS for head in heads]
    except (TypeError, ValueError):
        return pack_weights(heads)
    whole = [one.round() for one in numbers]
    if not all(
        one.ndim == 2 and one.size and one.min() >= 0 and one.max() < 2**16 and np.allclose(one, exact, 0, 1e-6)
        for one, exact in zip(whole, numbers, strict=True)
    ):
        return pack_weights(heads)
    return [{"packed": base64.b64encode(one.astype("<u2").tobytes()).decode(), "columns": one.shape[1]} for one in whole]
