"""Which of a tokenizer's tokens are control tokens, and what each of them does.

Ours have the first ids, in an order that is always the same. Another maker's lie anywhere; see `foreign`.
"""

from typing import Any, NamedTuple

from tokenizers import Tokenizer as Library

from qkv.base.errors import CheckpointError

SPECIAL_TOKENS = ("<pad>", "<unk>", "<s>", "</s>")
SENTINEL = "<extra_id_{}>"  # stands for a span that was dropped out, numbered from 0; T5's names
MASK = "[MASK]"  # stands for a hidden token, in a text that is to be filled in too


class SpecialTokens(NamedTuple):
    """A tokenizer's control tokens."""

    pad: int
    unk: int
    bos: int
    eos: int
    mask: int | None
    names: dict[str, int]  # of these and of any others, in order of ids
    made_by_qkv: bool


def find_special_tokens(library: Library, values: dict[str, Any]) -> SpecialTokens:
    """The control tokens; refused unless they lie as ours do, or are named by what they do."""
    known = (values["post_processor"] or {}).get("special_tokens", {})
    if {"pad", "unk", "bos", "eos"} <= known.keys():
        return _named_control(library, values, known)
    names = sorted(known, key=lambda name: known[name]["ids"])
    ids = [library.token_to_id(name) for name in names]
    if tuple(names[: len(SPECIAL_TOKENS)]) != SPECIAL_TOKENS or ids != list(range(len(names))) or values["added_tokens"]:
        raise CheckpointError("not a tokenizer made by qkv; make one with qkv tokenizer train, or import")
    found = dict(zip(names, ids, strict=True))
    return SpecialTokens(0, 1, 2, 3, found.get(MASK), found, made_by_qkv=True)


def _named_control(library: Library, values: dict[str, Any], known: dict[str, Any]) -> SpecialTokens:
    """Another maker's control tokens: those that are named, and what else the library is told never to decode."""
    named = {role: (token["tokens"][0], token["ids"][0]) for role, token in known.items()}
    for name, number in named.values():
        if library.token_to_id(name) != number:
            raise CheckpointError(f"the control token {name} should have the id {number} but has {library.token_to_id(name)}")
    added = [(token["content"], token["id"]) for token in values["added_tokens"] if token["special"]]
    names = dict(sorted({*named.values(), *added}, key=lambda entry: entry[1]))
    pad, unk, bos, eos = (named[role][1] for role in ("pad", "unk", "bos", "eos"))
    return SpecialTokens(pad, unk, bos, eos, named.get("mask", (MASK, None))[1], names, made_by_qkv=False)


def longest_stretch(special: frozenset[int], size: int) -> int:
    """Where the longest stretch of ids without a special token begins."""
    edges = [-1, *sorted(special), size]
    return 1 + max(edges[:-1], key=lambda edge: edges[edges.index(edge) + 1] - edge)
