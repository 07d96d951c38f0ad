"""Large answers as JSON."""

from collections.abc import Iterable
from typing import Any

from pydantic import TypeAdapter

from qkv.serving.fair_threads import giving_way

ANY = TypeAdapter[Any](Any)


def write_with_list(fields: dict[str, Any], name: str, values: Iterable[Any]) -> bytes:
    """Return fields and a list of this name as JSON, value by value: no other thread can run while one is written.

    pydantic's writer is ten times as fast as Python's. JSON has no NaN and no infinity; they become null.
    """
    written = b",".join([ANY.dump_json(value) for value in giving_way(values)])
    return b"%b,%b:[%b]}" % (ANY.dump_json(fields)[:-1], ANY.dump_json(name), written)
