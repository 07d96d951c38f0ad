"""The search of step 6 as a picture: the beginnings that were kept in each step, and the way of the output."""

import math
from typing import Any

from qkv.lens.lesson.texts import LessonText, bare, picture, say
from qkv.lens.steps import Node, SearchView

COLUMNS = 4  # beginnings that are drawn side by side; the output's is always among them


def written_tokens(search: SearchView) -> list[tuple[str, float]]:
    """Return the tokens of the output, each with its probability after those before it."""
    nodes = [node for node in search.nodes if node.best][1:]
    return [(_name(search, node), math.exp(node.logprob)) for node in nodes]


def search_picture(search: SearchView, says: LessonText, after: str) -> dict[str, Any]:
    """Return the picture: a row for each step, with tokens best first, each below the one that it continues."""
    rows = _kept(search) if search.search == "beam" else _considered(search)
    return picture("search", "search", say("The search, step by step"), [says], rows=rows, after=after)


def _kept(search: SearchView) -> list[list[dict[str, Any]]]:
    """Return the tokens that a beam kept in each step."""
    rows: list[list[dict[str, Any]]] = []
    shown: dict[int, tuple[int, int]] = {0: (-1, 0)}
    for number in range(len(search.steps)):
        kept = sorted((node for node in search.nodes if node.step == number and node.kept), key=lambda node: -node.score)
        kept = [node for node in kept if node.parent in shown]
        chosen = sorted(kept, key=lambda node: not node.best)[:COLUMNS]
        row = [node for node in kept if node in chosen]
        shown.update({node.id: (number, column) for column, node in enumerate(row)})
        rows.append([_node(search, node, shown[node.parent or 0][1]) for node in row])
        if any(node.best and node.status == "ended" for node in row):
            break
    return [row for row in rows if row]


def _considered(search: SearchView) -> list[list[dict[str, Any]]]:
    """Return the token that was taken in each step, with the most probable others."""
    rows: list[list[dict[str, Any]]] = []
    above, size = 0, len(search.writing.tokenizer)  # the model's vocabulary may be rounded up
    for node, step in zip([node for node in search.nodes if node.best][1:], search.writing.trace.steps, strict=False):
        others = [(token, p) for token, p in step.top[0] if token != node.token and token < size][: COLUMNS - 1]
        pairs = sorted([(node.token, math.exp(node.logprob)), *others], key=lambda pair: -pair[1])
        names = search.writing.tokenizer.pieces([token for token, _ in pairs])
        rows.append(
            [
                {
                    "token": bare(name),
                    "parent": above,
                    "best": token == node.token,
                    "ended": token == node.token and node.status == "ended",
                    "probability": round(p, 4),
                }
                for name, (token, p) in zip(names, pairs, strict=True)
            ]
        )
        above = [token for token, _ in pairs].index(node.token)
    return rows


def _node(search: SearchView, node: Node, parent: int) -> dict[str, Any]:
    return {
        "token": _name(search, node),
        "parent": parent,  # its column in the row above
        "best": node.best,
        "ended": node.status == "ended",
        "probability": round(math.exp(node.logprob), 4),
    }


def _name(search: SearchView, node: Node) -> str:
    return bare(search.writing.tokenizer.pieces([node.token])[0])
