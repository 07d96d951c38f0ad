"""A smaller vocabulary for a trained tokenizer: pieces that some texts do not need are dropped.

A text that needs only kept pieces keeps its tokens. BPE: all pieces that merges join towards a kept piece are kept too, so that
every merge that such a text makes is there, in the old order. Unigram: its most probable segmentation is among fewer, with the
same scores, and the piece of the lowest score is kept, as the score of an unknown character depends on it. WordPiece: the longest
piece that fits is still there. Other texts are tokenised into smaller pieces: single characters and bytes are kept.
"""

import json
from typing import Any

from tokenizers import Tokenizer as Library

from qkv.text.special_tokens import add_outside_tokens, piece_names
from qkv.text.tokenizer import Tokenizer
from qkv.text.vocabulary import BYTES, ModelSettings


def needed_pieces(tokenizer: Tokenizer, used: set[int]) -> set[int]:
    """Return the ids to keep for texts that use these: with special tokens, bytes, characters and the parts of kept pieces."""
    values = json.loads(tokenizer.to_json())
    add_outside_tokens(values)
    model, names = values["model"], piece_names(values["model"])
    kept = used | tokenizer.special_ids | {token["id"] for token in values["added_tokens"]}
    kept |= {number for number, name in enumerate(names) if len(name) == 1 or name in BYTES}
    if model["type"] == "Unigram":
        kept.add(min(range(len(names)), key=lambda number: model["vocab"][number][1]))
    return kept | _parts_of_merges(model, kept) if model["type"] == "BPE" else kept


def _parts_of_merges(model: ModelSettings, kept: set[int]) -> set[int]:
    """Return the ids of all pieces that merges join on the way to kept pieces."""
    ids, parts = model["vocab"], dict[str, set[str]]()
    for left, right in model["merges"]:
        parts.setdefault(left + right, set()).update((left, right))
    names = piece_names(model)
    todo, found = [names[number] for number in kept], set[str]()
    while todo:
        new = parts.get(todo.pop(), set()) - found
        found |= new
        todo += new
    return {ids[name] for name in found}


def keep_pieces(tokenizer: Tokenizer, kept: list[int]) -> Tokenizer:
    """Return a tokenizer with these pieces only, numbered in this order."""
    values: dict[str, Any] = json.loads(tokenizer.to_json())
    add_outside_tokens(values)
    model, names = values["model"], piece_names(values["model"])
    new_ids = {old: new for new, old in enumerate(kept)}
    if model["type"] == "Unigram":
        model["vocab"] = [model["vocab"][old] for old in kept]
        model["unk_id"] = new_ids[model["unk_id"]]
    else:
        model["vocab"] = {names[old]: new for old, new in new_ids.items()}
    if model["type"] == "BPE":
        there = model["vocab"].keys()
        model["merges"] = [[left, right] for left, right in model["merges"] if {left, right, left + right} <= there]
    for token in values["added_tokens"]:
        token["id"] = new_ids[token["id"]]
    for token in values["post_processor"]["special_tokens"].values():
        token["ids"] = [new_ids[old] for old in token["ids"]]
    return Tokenizer(Library.from_str(json.dumps(values)))
