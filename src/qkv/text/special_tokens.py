"""A tokenizer's special tokens and their roles.

In our tokenizers they have the first ids, always in the same order; those added to a trained tokenizer have later ones. Other
makers put them anywhere; see `pretrained_tokenizer`.
"""

import json
import re
from collections.abc import Iterable
from typing import Any, NamedTuple

from tokenizers import Regex, pre_tokenizers
from tokenizers import Tokenizer as Library

from qkv.base.errors import CheckpointError

SPECIAL_TOKENS = ("<pad>", "<unk>", "<s>", "</s>")  # those that every tokenizer of ours has
SENTINEL = "<extra_id_{}>"  # stands for a span that was dropped, numbered from 0; T5's names
TERM_TOKENS = ("<term>", "<translation>", "</term>")  # around a term of a glossary and its translation inside a source
MASK = "[MASK]"  # stands for a hidden token, also in a text to be filled in


class SpecialTokens(NamedTuple):
    """The ids of a tokenizer's special tokens."""

    pad: int
    unk: int
    bos: int
    eos: int
    mask: int | None
    names: dict[str, int]  # ids of these and of any others, in order of ids
    made_by_qkv: bool


def find_special_tokens(library: Library, values: dict[str, Any]) -> SpecialTokens:
    """Return the special tokens of a tokenizer.json; they must have the ids that ours have, or be listed by role."""
    known = (values["post_processor"] or {}).get("special_tokens", {})
    if {"pad", "unk", "bos", "eos"} <= known.keys():
        return _tokens_by_role(library, values, known)
    names = sorted(known, key=lambda name: known[name]["ids"])
    ids = [library.token_to_id(name) for name in names]
    listed = [known[name]["ids"][0] for name in names]
    first = tuple(zip(names, ids, strict=True))[: len(SPECIAL_TOKENS)]
    if first != tuple(zip(SPECIAL_TOKENS, range(len(SPECIAL_TOKENS)), strict=True)) or ids != listed or values["added_tokens"]:
        raise CheckpointError("not a tokenizer made by qkv; make one with qkv tokenizer train, or import")
    ids_by_name = dict(zip(names, ids, strict=True))
    return SpecialTokens(0, 1, 2, 3, ids_by_name.get(MASK), ids_by_name, made_by_qkv=True)


def _tokens_by_role(library: Library, values: dict[str, Any], known: dict[str, Any]) -> SpecialTokens:
    """Return another maker's special tokens: those with a role, and all that the library marks as special."""
    by_role = {role: (token["tokens"][0], token["ids"][0]) for role, token in known.items()}
    for name, number in by_role.values():
        if library.token_to_id(name) != number:
            raise CheckpointError(f"the special token {name} should have the id {number} but has {library.token_to_id(name)}")
    added = [(token["content"], token["id"]) for token in values["added_tokens"] if token["special"]]
    names = dict(sorted({*by_role.values(), *added}, key=lambda entry: entry[1]))
    pad, unk, bos, eos = (by_role[role][1] for role in ("pad", "unk", "bos", "eos"))
    return SpecialTokens(pad, unk, bos, eos, by_role.get("mask", (MASK, None))[1], names, made_by_qkv=False)


def add_special_tokens(library: Library, names: list[str], made_by_qkv: bool) -> Library:
    """Return a tokenizer with further special tokens, with the ids after all others; text that is spelled like one stays text."""
    values = json.loads(library.to_str())
    add_outside_tokens(values)
    first = len(values["model"]["vocab"])
    append_pieces(values["model"], names)
    for number, name in enumerate(names, first):
        if made_by_qkv:
            values["post_processor"]["special_tokens"][name] = {"id": name, "ids": [number], "tokens": [name]}
        else:
            flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
            values["added_tokens"].append({"id": number, "content": name, **flags})
    made = Library.from_str(json.dumps(values))
    if not (made_by_qkv and values["model"]["type"] == "WordLevel"):  # a word of ours begins with a space, and so is no name
        steps = [made.pre_tokenizer] if made.pre_tokenizer else []
        made.pre_tokenizer = pre_tokenizers.Sequence([*steps, split_inside(names)])
    return made


def append_pieces(model: dict[str, Any], names: list[str], scores: list[float] | None = None) -> None:
    """Add pieces to the vocabulary of a model; without scores, a unigram model gives them the lowest one that it has."""
    if model["type"] == "Unigram":
        lowest = min(score for _, score in model["vocab"])
        model["vocab"] += [[name, score] for name, score in zip(names, scores or [lowest] * len(names), strict=True)]
    else:
        model["vocab"] |= {name: number for number, name in enumerate(names, len(model["vocab"]))}


def piece_names(model: dict[str, Any]) -> list[str]:
    """Return the pieces of a model's vocabulary in order of their ids."""
    vocab = model["vocab"]
    return [name for name, _ in vocab] if model["type"] == "Unigram" else sorted(vocab, key=vocab.__getitem__)


def add_outside_tokens(values: dict[str, Any]) -> None:
    """Put the tokens that another maker added outside the model's vocabulary into it, so that the vocabulary can grow."""
    model, inside = values["model"], piece_names(values["model"])
    known = {*inside}
    outside = sorted((token["id"], token["content"]) for token in values["added_tokens"] if token["content"] not in known)
    numbers = range(len(inside)) if model["type"] == "Unigram" else sorted(model["vocab"].values())
    if [*numbers, *(number for number, _ in outside)] != list(range(len(inside) + len(outside))):
        raise CheckpointError("the ids of the tokenizer have gaps, so that it cannot get more of them; use it as it is")
    append_pieces(model, [name for _, name in outside])


def split_inside(names: Iterable[str]) -> pre_tokenizers.PreTokenizer:
    """Build a pre-tokenizer that splits text spelled like a special token after its first character, so that it stays text."""
    rests: dict[str, list[str]] = {}
    for name in names:
        rests.setdefault(re.escape(name[0]), []).append(re.escape(name[1:]))
    inside = "|".join(f"(?<={first})(?={'|'.join(rest)})" for first, rest in rests.items())
    return pre_tokenizers.Split(Regex(inside), "isolated")
