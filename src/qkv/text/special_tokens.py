"""A tokenizer's special tokens and their roles.

In our tokenizers they have the first ids, always in the same order. Other makers put them anywhere; see `pretrained_tokenizer`.
"""

from typing import Any, NamedTuple

from tokenizers import Tokenizer as Library

from qkv.base.errors import CheckpointError

SPECIAL_TOKENS = ("<pad>", "<unk>", "<s>", "</s>")  # those that every tokenizer of ours has
SENTINEL = "<extra_id_{}>"  # stands for a span that was dropped, numbered from 0; T5's names
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
    if tuple(names[: len(SPECIAL_TOKENS)]) != SPECIAL_TOKENS or ids != list(range(len(names))) or values["added_tokens"]:
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
