"""Large answers as JSON."""

from collections.abc import Iterable
from typing import Any

from pydantic_core import to_json

from qkv.serving.fair_threads import giving_way


def write_with_list(fields: dict[str, Any], name: str, values: Iterable[Any]) -> bytes:
    """Return fields and a list of this name as JSON, value by value: no other thread can run while one is written.

    pydantic's writer is ten times as fast as Python's. JSON has no NaN and no infinity; they become null.
    """
    written = b",".join([to_json(value, inf_nan_mode="null") for value in giving_way(values)])
    return b"%b,%b:[%b]}" % (to_json(fields)[:-1], to_json(name), written)
