"""Activation patching: which heads and which states carry the answer (Vig et al. 2020; Meng et al. 2022).

Two texts differ in a word. The model reads the second one, and one activation of its pass over the first, the output of a head or
the state of a position after a layer, is put in place. The answer is a difference of two logits, and a cell says how much of it
the activation restores: 0 where it stays as for the second text, 1 where it becomes as for the first.

R rows of a pass, Q positions that a layer computes, T tokens of a text, X width of values.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from qkv.base.errors import ConfigError, DataError
from qkv.base.stepwise import Stepwise, complete
from qkv.lens.inspectors import CROSS, DECODER, ENCODER
from qkv.lens.page import notebook_frame, save_view
from qkv.lens.predictor import Predictor, Site, at_sites, read_sites, skipped
from qkv.lens.tokenized_text import TokenizedText
from qkv.lens.view import _rounded

PASS_TOKENS = 2048  # tokens of a pass over several copies of a text
MAX_TOKENS = 1_000_000  # computed for all cells; more would take minutes
LIKELY = 20  # tokens among which an alternative is looked for
LEAST_DIFFERENCE = 1e-4  # of logits: less is rounding


class PatchCell(NamedTuple):
    """One activation to put in place."""

    site: int
    head: int | None  # None: the state after a layer
    position: int | None  # None: all positions


class GridRow(NamedTuple):
    """The cells of one attention, a head each, or of one layer, a position each."""

    site: Site
    values: Tensor  # (H,) or (T,): the shares that are restored


@dataclass(frozen=True)
class Contrast:
    """A model with two texts, each predicting one token; the texts are equally long."""

    clean: Predictor
    other: Predictor
    answer: int | None = None  # the token for the first text; None: the most probable one
    instead: int | None = None  # the token for the second text; None: see `choose_tokens`


@dataclass(frozen=True, repr=False)
class PatchView:
    """How much of an answer each head and each state restores; `json()` returns plain values."""

    contrast: Contrast
    answer: int
    instead: int
    logits: dict[str, Tensor]  # of the clean and of the other text, (V,)
    heads: list[GridRow]
    states: list[GridRow]
    position: int | None  # at which heads were put in place; None: at all

    @property
    def differences(self) -> dict[str, float]:
        """The logit of the answer minus that of the alternative, for both texts."""
        return {name: float(logits[self.answer] - logits[self.instead]) for name, logits in self.logits.items()}

    def json(self) -> dict[str, Any]:
        """Return everything as lists, strings and numbers, rounded to four digits."""
        clean, other = self.contrast.clean, self.contrast.other
        tokens = clean.texts["source"].tokens
        read, names = clean.texts.get("read"), clean.tokenizer.pieces([self.answer, self.instead])
        runs = {
            name: {
                "difference": round(self.differences[name], 4),
                "answer": round(float(logits.softmax(-1)[self.answer]), 4),
                "instead": round(float(logits.softmax(-1)[self.instead]), 4),
            }
            for name, logits in self.logits.items()
        }
        return {
            "view": "patch",
            "kind": clean.kind,
            "model": clean.model,
            "source": tokens,
            "other": other.texts["source"].tokens,
            "differs": differing_positions(clean.texts["source"], other.texts["source"]),
            "read": read and read.tokens,
            "predicts_in": clean.predicts_in,
            "predicts_at": clean.positions[0],
            "answer": names[0],
            "instead": names[1],
            **runs,
            "position": self.position,
            "heads": [_grid_row(row) for row in self.heads],
            "states": [_grid_row(row) for row in self.states],
        }

    def save(self, path: str | Path) -> Path:
        """Write the page, one HTML file that works offline; or the values alone, if the name ends with .json."""
        return save_view(self.json(), path)

    def _repr_html_(self) -> str:
        """Return the page in a frame of its own, for notebooks."""
        return notebook_frame(self.json())

    def __repr__(self) -> str:
        """Return one line."""
        answer, instead = self.contrast.clean.tokenizer.pieces([self.answer, self.instead])
        texts = " / ".join(repr(" ".join(one.texts["source"].words)) for one in (self.contrast.clean, self.contrast.other))
        return f"PatchView({self.contrast.clean.model}: {texts}, {answer} and not {instead}; .json())"


def _grid_row(row: GridRow) -> dict[str, Any]:
    site = row.site
    return {"name": site.name, "part": site.part, "layer": site.layer, "text": site.text, "values": _rounded(row.values)}


def patch_contrast(contrast: Contrast, position: int | None = None) -> PatchView:
    """Compute both grids; with a `position`, heads are put in place only there, and only those over the source are."""
    return complete(patch_in_steps(contrast, position))


@torch.no_grad()
def patch_in_steps(contrast: Contrast, position: int | None = None, pass_tokens: int = PASS_TOKENS) -> Stepwise[PatchView]:
    """Compute both grids, a pass of at most about `pass_tokens` tokens in each step."""
    clean, other = contrast.clean, contrast.other
    check_texts(clean.texts["source"], other.texts["source"])
    if list(clean.positions) != list(other.positions):
        raise DataError("[MASK] is not at the same position in both texts; replace a word by another one, and leave the rest")
    length = len(clean.texts["source"].ids)
    if position is not None and not 0 <= position < length:
        raise ConfigError(f"no position {position + 1}; the text has {length} tokens")
    sites = [*other.layers, *other.attentions]
    if position is not None and not any(_cells_of(site, length, position) for site in other.attentions):
        raise ConfigError("no heads of this model are over the text, so that none has this position; leave position out")
    values, states = read_sites(clean, sites)
    own_values, own_states = read_sites(other, sites)
    logits = {"clean": clean.logits(states)[0], "corrupted": other.logits(own_states)[0]}
    answer, instead = choose_tokens(logits["clean"], logits["corrupted"], contrast.answer, contrast.instead)
    cells = [
        PatchCell(number, head, t)
        for number, site in enumerate(sites)
        for head, t in _cells_of(site, len(other.texts[site.text].ids), position)
    ]
    changed = [cell for cell in cells if not _equal(cell, sites, other, values, own_values)]
    tokens = sum(len(text.ids) for text in other.texts.values())
    if len(changed) * tokens > MAX_TOKENS:
        raise DataError(
            f"{len(changed):,} heads and states over texts of {tokens:,} tokens are more than {MAX_TOKENS:,} tokens to compute; "
            "shorten the texts"
        )
    shares = dict.fromkeys(cells, 0.0)
    before, after = (float(one[answer] - one[instead]) for one in (logits["corrupted"], logits["clean"]))
    if abs(after - before) < LEAST_DIFFERENCE:
        raise DataError("both texts give the answer the same advantage, so that there is nothing to restore; give other texts")
    for chunk in _chunks(changed, max(1, pass_tokens // tokens)):
        yield
        found = _patched_logits(other, sites, values, own_values, chunk)
        difference = (found[:, answer] - found[:, instead] - before) / (after - before)
        shares.update(zip(chunk, difference.tolist(), strict=True))
    rows = [
        GridRow(site, torch.tensor([shares[cell] for cell in cells if cell.site == number])) for number, site in enumerate(sites)
    ]
    heads = [row for row in rows if row.site.heads and len(row.values)]
    return PatchView(contrast, answer, instead, logits, heads, rows[: len(other.layers)], position)


def _cells_of(site: Site, length: int, position: int | None) -> list[tuple[int | None, int | None]]:
    """Return head and position of each cell of a site."""
    if not site.heads:
        return [(None, t) for t in range(length)]
    over_source = site.text == "source" or site.part == ENCODER  # a UniLM's layers have source and target
    return [(head, position) for head in range(site.heads) if position is None or over_source]


def _chunks(cells: list[PatchCell], size: int) -> list[list[PatchCell]]:
    return [cells[first : first + size] for first in range(0, len(cells), size)]


@torch.no_grad()
def _patched_logits(
    other: Predictor, sites: Sequence[Site], values: Sequence[Tensor], own: Sequence[Tensor], cells: Sequence[PatchCell]
) -> Tensor:
    """Return the logits of the other text, each row with one activation of the clean text in place. -> (cells, V).

    The values of sites are those of the clean text; the other text's own are known where no cell has changed them yet.
    """

    def put(number: int, found: Tensor) -> Tensor | None:
        rows = [(row, cell) for row, cell in enumerate(cells) if cell.site == number]
        if not rows:
            return None
        found = found.clone(memory_format=torch.contiguous_format)
        for row, cell in rows:
            _part(found[row], cell, sites, other).copy_(_part(values[number][0], cell, sites, other))
        return found

    known = min(_layers_before(sites[cell.site], other.layers) for cell in cells)
    with skipped(other.layers[:known], own[:known], len(cells)), at_sites(sites, put):
        return other.logits(other.run(len(cells)))[:, 0]


def _layers_before(site: Site, layers: Sequence[Site]) -> int:
    """Return how many layers are computed before a site is reached; the state after a layer needs that layer too."""
    part = DECODER if site.part == CROSS else site.part
    index = next(n for n, layer in enumerate(layers) if (layer.part, layer.layer) == (part, site.layer))
    return index if site.heads else index + 1


def _part(values: Tensor, cell: PatchCell, sites: Sequence[Site], predictor: Predictor) -> Tensor:
    """Return the part of a site's values (Q, X) that a cell is about."""
    site = sites[cell.site]
    if cell.position is not None:
        # An XLNet computes two streams side by side, so that a position comes once in each.
        values = values[cell.position :: len(predictor.texts[site.text].ids)]
    return values if cell.head is None else values.unflatten(-1, (site.heads, -1))[:, cell.head]


def _equal(cell: PatchCell, sites: Sequence[Site], other: Predictor, values: Sequence[Tensor], own: Sequence[Tensor]) -> bool:
    """Return whether both texts have the same activation there, as a GPT has before the words that differ."""
    first, second = (_part(each[cell.site][0], cell, sites, other) for each in (values, own))
    return torch.equal(first, second)


def choose_tokens(clean: Tensor, other: Tensor, answer: int | None, instead: int | None) -> tuple[int, int]:
    """Return the answer and its alternative, from the logits (V,) for both texts where they are not given.

    The answer is the clean text's most probable token, the alternative the other's. Where these are one token, the alternative
    is that likely token of the other text which gains most on the answer.
    """
    answer = int(clean.argmax()) if answer is None else answer
    if instead is None:
        likely = other.topk(min(LIKELY, len(other))).indices
        likely = likely[likely != answer]
        gain = (other - clean)[likely]
        instead = int(likely[0] if int(other.argmax()) != answer else likely[gain.argmax()])
    if answer == instead:
        raise DataError("the answer and its alternative begin with the same token; give words that begin with different ones")
    return answer, instead


def differing_positions(first: TokenizedText, second: TokenizedText) -> list[int]:
    """Return the positions at which two texts have different tokens."""
    return [n for n, (one, two) in enumerate(zip(first.ids, second.ids, strict=True)) if one != two]


def check_texts(first: TokenizedText, second: TokenizedText) -> None:
    """Raise DataError unless two texts have different tokens, and equally many."""
    if first.ids == second.ids:
        raise DataError("both texts are the same; give two that differ in a word")
    if len(first.ids) != len(second.ids):
        matcher = SequenceMatcher(None, first.words, second.words, autojunk=False)
        spans = [
            f"“{' '.join(first.words[a:b])}” / “{' '.join(second.words[c:d])}”"
            for kind, a, b, c, d in matcher.get_opcodes()
            if kind != "equal"
        ]
        raise DataError(
            f"the texts have {len(first.ids)} and {len(second.ids)} tokens, and differ in {', '.join(spans)}; "
            "an activation can be put in place only where both have equally many: choose words with the same number of tokens"
        )
