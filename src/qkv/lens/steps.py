"""How a text is written: the most probable tokens in each step of decoding, and the search as a tree.

A node is a token after the tokens on its way from the root. Beam search has a node for each continuation that it considered;
greedy search and sampling have one path. The figures are those of the search itself (decoding/trace.py).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from qkv.decoding.config import DecodingConfig
from qkv.decoding.hypothesis import Hypothesis
from qkv.decoding.trace import Likely, SearchTrace
from qkv.lens.page import notebook_frame, save_view
from qkv.lens.tokenized_text import TokenizedText
from qkv.text.tokenizer import Tokenizer

Status = Literal["alive", "ended", "dropped"]
OPTIONS = ("beam", "length_penalty", "coverage_penalty")  # that people want to see of beam search
SAMPLING_OPTIONS = ("temperature", "top_k", "top_p", "seed")


@dataclass(frozen=True)
class Node:
    """A token that a search considered."""

    id: int
    parent: int | None
    step: int  # from 0; -1 for the root
    token: int
    logprob: float  # of this token after those before it
    total: float  # log-probability of all tokens up to it
    score: float  # the same with the penalties of its length
    kept: bool  # whether the search went on with it
    # ended: a complete text. alive: in the beam when the search ended, or a text that ended goes through it. dropped: neither.
    status: Status = "dropped"
    best: bool = False  # on the way of the output


@dataclass(frozen=True)
class Writing:
    """A search for one output, and what it found."""

    kind: str
    model: str
    source: TokenizedText
    tokenizer: Tokenizer  # of the output
    prompt: list[int]  # the tokens that the output continues; none in a translation
    config: DecodingConfig
    trace: SearchTrace
    hypotheses: Sequence[Hypothesis]  # best first

    def decode(self, ids: list[int]) -> str:
        """Return the text of output tokens, with the space before it where it has one."""
        return self.tokenizer.decode([*self.prompt, *ids])[len(self.tokenizer.decode(self.prompt)) :]


@dataclass(frozen=True, repr=False)
class SearchView:
    """The steps of a search and its tree; `json()` returns plain values."""

    writing: Writing
    nodes: list[Node]
    steps: list[list[int]]  # the node of each hypothesis that a step continues

    @property
    def search(self) -> str:
        """The kind of search: beam, greedy or sampling."""
        config = self.writing.config
        return "sampling" if config.sampling else "beam" if config.searches else "greedy"

    @property
    def output(self) -> str:
        """The text that was written."""
        return self.writing.decode(self.writing.hypotheses[0].ids)

    def tokens_to(self, node: int) -> list[int]:
        """Return the tokens on the way to a node."""
        tokens: list[int] = []
        here: int | None = node
        while here:  # the root is 0
            tokens.append(self.nodes[here].token)
            here = self.nodes[here].parent
        return tokens[::-1]

    def json(self) -> dict[str, Any]:
        """Return everything as lists, strings and numbers, rounded to four digits."""
        writing, best = self.writing, self.writing.hypotheses[0]
        shown = {"beam": OPTIONS, "sampling": SAMPLING_OPTIONS, "greedy": ()}[self.search]
        return {
            "view": "steps",
            "kind": writing.kind,
            "model": writing.model,
            "search": self.search,
            "options": {name: getattr(writing.config, name) for name in shown},
            "source": writing.source.tokens,
            "output": self.output,
            "logprob": round(best.logprob, 4),
            "score": round(best.score, 4),
            "finished": best.finished,
            "steps": [
                {
                    "hypotheses": [
                        {"node": node, "text": self.writing.decode(self.tokens_to(node)), "top": self._named(top)}
                        for node, top in zip(live, step.top, strict=False)
                    ],
                    "draw": step.draw
                    and {
                        "top": self._named(step.draw.top),
                        "choices": step.draw.choices,
                        "probability": round(step.draw.probability, 4),
                    },
                }
                for live, step in zip(self.steps, writing.trace.steps, strict=True)
            ],
            "nodes": [
                {
                    "id": node.id,
                    "parent": node.parent,
                    "step": node.step,
                    "token": None if node.parent is None else writing.tokenizer.pieces([node.token])[0],
                    "logprob": round(node.logprob, 4),
                    "total": round(node.total, 4),
                    "score": round(node.score, 4),
                    "kept": node.kept,
                    "status": node.status,
                    "best": node.best,
                }
                for node in self.nodes
            ],
        }

    def save(self, path: str | Path) -> Path:
        """Write the page, one HTML file that works offline; or the values alone, if the name ends with .json."""
        return save_view(self.json(), path)

    def _repr_html_(self) -> str:
        """Return the page in a frame of its own, for notebooks."""
        return notebook_frame(self.json())

    def __repr__(self) -> str:
        """Return one line."""
        text = " ".join(self.writing.source.words)
        return f"SearchView({self.search}, {self.writing.model}: {text!r} -> {self.output!r}; {len(self.steps)} steps, .json())"

    def _named(self, likely: Likely) -> list[list[Any]]:
        """Return tokens as texts; the model's vocabulary may be rounded up, and ids beyond the tokenizer's have none."""
        tokenizer = self.writing.tokenizer
        return [[tokenizer.pieces([token])[0], round(value, 4)] for token, value in likely if token < len(tokenizer)]


def view_search(writing: Writing) -> SearchView:
    """Build the tree of a search."""
    nodes = [Node(0, None, -1, -1, 0.0, 0.0, 0.0, True)]
    steps, live = [], [0]
    for number, step in enumerate(writing.trace.steps):
        steps.append(live)
        first = len(nodes)
        for one in step.candidates:
            parent = nodes[live[one.parent]]
            logprob = one.logprob - parent.total
            nodes.append(Node(len(nodes), parent.id, number, one.token, logprob, one.logprob, one.score, one.kept))
        live = [first + candidate for candidate in step.hypotheses]
    eos, best = writing.tokenizer.eos, _path(nodes, writing.hypotheses[0], writing.tokenizer.eos)
    ended = {node.id for node in nodes if node.kept and node.token == eos and node.parent is not None}
    survived = {one for node in (*live, *ended) for one in _ancestors(nodes, node)}

    def status(node: Node) -> Status:
        return "ended" if node.id in ended else "alive" if node.id in survived else "dropped"

    return SearchView(writing, [replace(node, status=status(node), best=node.id in best) for node in nodes], steps)


def _ancestors(nodes: Sequence[Node], node: int | None) -> list[int]:
    """Return a node and those before it."""
    found = []
    while node is not None:
        found.append(node)
        node = nodes[node].parent
    return found


def _path(nodes: Sequence[Node], hypothesis: Hypothesis, eos: int) -> set[int]:
    """Return the nodes of a hypothesis."""
    children = {(node.parent, node.token): node.id for node in nodes if node.kept}
    path, here = {0}, 0
    for token in [*hypothesis.ids, *([eos] if hypothesis.finished else [])]:
        here = children[here, token]
        path.add(here)
    return path
