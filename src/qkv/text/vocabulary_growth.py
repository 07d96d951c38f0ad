"""New pieces for a trained tokenizer, learned from new text; all pieces that it has keep their ids.

New single characters come first. The other pieces are learned as in BPE (Sennrich et al. 2016), but over the tokens that the
tokenizer gives now instead of characters. A BPE model merges in order of rank, and new merges have the last ranks: so a text is
tokenised as before, and then new merges apply. WordPiece takes the longest piece and unigram the most probable segmentation, and
the scores of old unigram pieces stay. So with every kind, a text whose tokens are all old ones has the same tokens as before.
"""

import itertools
import json
import math
import re
from collections import Counter
from collections.abc import Iterable
from typing import Any, NamedTuple

from tokenizers import Tokenizer as Library
from tokenizers import models, trainers

from qkv.base.errors import ConfigError
from qkv.text.marian import unknown_class, with_unknown_class
from qkv.text.special_tokens import add_outside_tokens, append_pieces, piece_names
from qkv.text.tokenizer import Tokenizer, check_encodable
from qkv.text.unigram import AT_ONCE, LONGEST_PIECE, common_pre_tokens
from qkv.text.vocabulary import BYTES, ModelSettings, drop_rare

MIN_COUNT = 2  # rarer pieces are not added
MARGIN = 0.1  # by which a new unigram piece is more probable than the two pieces that it joins, at least
FIRST_CODE = 0xE000  # the code point that stands for token 0 while merges are learned
MORE = 1.2  # times the wanted number of merges, as some give pieces that the vocabulary has
NOTHING = r"[^\s\S]"  # a regular expression for no character
PreTokens = dict[str, int]  # how often each occurs


class NewPieces(NamedTuple):
    """New pieces for a tokenizer: pieces with the scores of a unigram model, and the merges of BPE that make them."""

    scores: dict[str, float]
    merges: list[tuple[str, str]]


def check_growable(tokenizer: Tokenizer) -> None:
    """Refuse a tokenizer that cannot get new pieces."""
    values = json.loads(tokenizer.to_json())
    model = values["model"]
    if model["type"] not in ("BPE", "Unigram", "WordPiece", "WordLevel"):
        raise ConfigError(f"a tokenizer of type {model['type']} cannot grow; leave tokenizer.grow out")
    if marked := model.get("continuing_subword_prefix") or model.get("end_of_word_suffix"):
        raise ConfigError(f"a tokenizer that marks parts of words with {marked!r} cannot grow; leave tokenizer.grow out")
    add_outside_tokens(values)  # refuses ids with gaps


def learn_pieces(tokenizer: Tokenizer, texts: Iterable[str], most: int) -> NewPieces:
    """Learn at most `most` new pieces from texts, which are read once."""
    values = json.loads(tokenizer.to_json())
    add_outside_tokens(values)
    model = values["model"]
    pre_tokens = _count_pre_tokens(values, texts)
    if model["type"] == "WordLevel":
        words = sorted(pre_tokens.keys() - model["vocab"].keys(), key=lambda word: (-pre_tokens[word], word))
        return NewPieces({word: 0.0 for word in words[:most] if pre_tokens[word] >= MIN_COUNT}, [])
    characters = _new_characters(model, pre_tokens, most)
    byte_level = '"type": "ByteLevel"' in json.dumps(values["decoder"])
    if model["type"] == "BPE" and not model["merges"] and not byte_level:
        return NewPieces(characters, [])  # a tokenizer of kind characters
    append_pieces(model, list(characters), list(characters.values()))
    apart = tokenizer.special_ids | {number for number, name in enumerate(piece_names(model)) if name in BYTES}
    joined = _learn_merges(model, pre_tokens, apart, most - len(characters))
    return NewPieces(characters | joined.scores, joined.merges)


def add_pieces(tokenizer: Tokenizer, new: NewPieces, names: list[str]) -> Tokenizer:
    """Return the tokenizer with new pieces, with the next free ids in the order of `names`.

    Some names may not be among the new pieces: they get an id, so that two tokenizers can share a vocabulary.
    """
    values = json.loads(tokenizer.to_json())
    add_outside_tokens(values)
    model = values["model"]
    if model["type"] == "Unigram":
        lowest = min(score for _, score in model["vocab"])
        append_pieces(model, names, [max(lowest, new.scores.get(name, lowest)) for name in names])
    else:
        append_pieces(model, names)
    if model["type"] == "BPE":
        model["merges"] += [list(pair) for pair in new.merges]
    if known := unknown_class(values):
        characters = "".join(re.escape(name) for name in new.scores if len(name) == 1)
        values = with_unknown_class(values, known, f"{known[:-1]}{characters}]")
    return Tokenizer(Library.from_str(json.dumps(values)))


def tokens_of_pieces(old: Tokenizer, new: Tokenizer) -> list[list[int]]:
    """Return, for each id of a grown tokenizer, the old ids that it consists of.

    New special tokens, and pieces of characters that were unknown, consist of none: they get all.
    """
    values = json.loads(old.to_json())
    add_outside_tokens(values)
    names = piece_names(json.loads(new.to_json())["model"])[len(old) :]
    found = [encoding.ids for encoding in _model_alone(values["model"]).encode_batch_fast(names, add_special_tokens=False)]
    everything = list(range(len(old)))
    rows = [[number] for number in everything]
    for number, ids in enumerate(found, len(old)):
        known = [] if number in new.special_ids else [part for part in ids if part != old.unk]
        rows.append(known or everything)
    return rows


def _model_alone(model: ModelSettings) -> Library:
    """Build a tokenizer for which a pre-token is a whole text."""
    return Library.from_str(json.dumps({"version": "1.0", "added_tokens": [], "model": model}))


def _count_pre_tokens(values: dict[str, Any], texts: Iterable[str]) -> PreTokens:
    """Count the pre-tokens of texts: the spans that no piece may cross."""
    if known := unknown_class(values):  # else the normalizer would replace characters that are new
        values = with_unknown_class(values, known, NOTHING)
    library = Library.from_str(json.dumps(values))
    added = [re.escape(token["content"]) for token in values["added_tokens"] if not token["special"]]
    cut = re.compile("|".join(added)) if added else None  # the library finds these first, such as >>de<<
    counts = Counter[str]()
    for text in texts:
        for part in cut.split(check_encodable(text)) if cut else [check_encodable(text)]:
            normalised = library.normalizer.normalize_str(part) if library.normalizer else part
            counts.update([pre_token for pre_token, _ in library.pre_tokenizer.pre_tokenize_str(normalised)])
    return common_pre_tokens(counts)


def _new_characters(model: ModelSettings, pre_tokens: PreTokens, most: int) -> dict[str, float]:
    """Return new characters with their log-probabilities, the most frequent first; bytes spell rare ones, if there are bytes."""
    counts = Counter[str]()
    for pre_token, count in pre_tokens.items():
        for character in pre_token:
            counts[character] += count
    ranked = sorted(counts, key=lambda character: (-counts[character], character))
    if model.get("byte_fallback"):
        ranked, most = drop_rare(ranked, counts), most * 3 // 4  # the other pieces need room too
    known, total = {*piece_names(model)}, counts.total()
    new = [character for character in ranked if character not in known and counts[character] >= MIN_COUNT]
    return {character: math.log(counts[character] / total) for character in new[:most]}


def _learn_merges(model: ModelSettings, pre_tokens: PreTokens, apart: frozenset[int], most: int) -> NewPieces:
    """Learn to join tokens that are often neighbours; those in `apart` are never joined.

    Each token becomes one character, so that the library's trainer joins tokens as it usually joins characters.
    """
    names = piece_names(model)
    words = _tokens_as_characters(_model_alone(model), pre_tokens, apart)
    trainer = trainers.BpeTrainer(
        vocab_size=len({*"".join(words)}) + int(MORE * most), min_frequency=MIN_COUNT, show_progress=False
    )
    joined = Library(models.BPE())
    joined.train_from_iterator((word for word, count in words.items() for _ in range(count)), trainer)
    found = json.loads(joined.to_str())["model"]["merges"]
    used = Counter[str]()
    for word, encoding in zip(words, joined.encode_batch_fast(list(words)), strict=True):
        for token in encoding.tokens:
            used[token] += words[word]

    def spell(token: str) -> str:
        return "".join(names[ord(character) - FIRST_CODE] for character in token)

    longest = LONGEST_PIECE if model["type"] == "Unigram" else math.inf
    scores = dict(model["vocab"]) if model["type"] == "Unigram" else dict.fromkeys(names, 0.0)
    old, total, new, merges = {*names}, used.total(), dict[str, float](), list[tuple[str, str]]()
    for first, second in found:
        left, right, whole = spell(first), spell(second), spell(first + second)
        # A merge that makes an old piece would change texts without new pieces.
        if whole in old or len(whole) > longest or not {left, right} <= scores.keys():
            continue
        if whole not in new and len(new) == most:
            break
        merges.append((left, right))
        if whole not in new:
            frequency = used[first + second] / total
            scores[whole] = max(math.log(frequency) if frequency else -math.inf, scores[left] + scores[right] + MARGIN)
            new[whole] = scores[whole]
    return NewPieces(new, merges)


def _tokens_as_characters(model: Library, pre_tokens: PreTokens, apart: frozenset[int]) -> dict[str, int]:
    """Return words with a character for each token of the pre-tokens, and how often each word occurs."""
    words = Counter[str]()
    todo = iter(pre_tokens.items())
    while batch := list(itertools.islice(todo, AT_ONCE)):
        encodings = model.encode_batch_fast([text for text, _ in batch], add_special_tokens=False)
        for (_, count), encoding in zip(batch, encodings, strict=True):
            for joinable, ids in itertools.groupby(encoding.ids, key=lambda number: number not in apart):
                if joinable:
                    words["".join(chr(FIRST_CODE + number) for number in ids)] += count
    return dict(sorted(words.items()))
