"""From checked pairs to token ids: one shard for each piece of a corpus, and an index of them.

A shard is a function of its piece, the rows dropped from it, the tokenizers and the options below.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from qkv.data.cache import cache_folder, cache_key, lock_folder
from qkv.data.checked_pieces import PAIRS
from qkv.data.corpora import CheckedCorpus, CheckedPiece, Tokenizers
from qkv.data.store import Part, find_metas, find_missing
from qkv.data.token_shards import INDEX, SHARDS, TokenShards, known_shards, save_tokenizer
from qkv.data.tokens import TokenPairs, chunks, write_texts
from qkv.data.trees import PLAIN, SourceFormat, TokensWithHeads, encode_sources
from qkv.data.workers import Work
from qkv.text.annotated_terms import TermAnnotator, annotate
from qkv.text.check import CheckReport
from qkv.text.protected_text import PATTERNS
from qkv.text.sentinels import encode_pieces, mask_pair
from qkv.text.tokenizer import Tokenizer

TOO_LONG, TERMS = "too long", "terms"  # counts of pairs with too many tokens, and of annotated terms
CHUNK = 10_000  # pairs tokenised together
SAMPLED_SHARDS, SAMPLED_PAIRS = 4, 4_000_000  # that counts of tokens are taken from, at most
ANY_SPAN = "\ufffc"  # stands for a sentinel where terms are looked for: no letter, so that a word ends at it


class PairFormat(NamedTuple):
    """How pairs become token ids."""

    max_tokens: int
    source_format: SourceFormat = PLAIN
    protect: bool = False  # whether sentinels stand for placeholders
    annotator: TermAnnotator | None = None  # puts translations after terms of sources

    def key(self) -> list[Any]:
        """Return what decides the tokens, for keys of the cache."""
        content: list[Any] = [self.max_tokens]
        content += [name for name, there in self.source_format._asdict().items() if there]
        content += ["protect", PATTERNS] if self.protect else []
        return content + (["glossary", self.annotator.key] if self.annotator else [])


class TokenisedCorpus(NamedTuple):
    """The token ids of a corpus, mapped into memory, and counts."""

    pairs: TokenPairs
    too_long: int  # pairs that were left out
    terms: int  # annotated
    longest: tuple[int, int]  # tokens of the longest source and target
    shards: list[int]  # pairs in each

    def sample(self) -> np.ndarray:
        """Return the numbers of all pairs; of a large corpus, those of some pairs in some of its shards."""
        bounds = np.cumsum([0, *self.shards])
        numbers = range(0, len(self.shards), -(-len(self.shards) // SAMPLED_SHARDS))
        step = 1 + sum(self.shards[number] for number in numbers) // SAMPLED_PAIRS
        return np.concatenate([np.arange(bounds[number], bounds[number + 1], step) for number in numbers])


def tokenise_corpus(corpus: CheckedCorpus, tokenizers: Tokenizers, how: PairFormat, work: Work) -> TokenisedCorpus:
    """Return a corpus as token ids."""
    entries = known_shards(index := _index(corpus, tokenizers, how))
    if entries is None:
        make_shards(corpus, tokenizers, how, work)
        entries = known_shards(index)
        assert entries is not None
    longest = [max(entry["longest"][name] for entry in entries) for name in ("source", "target")]
    too_long, terms = (sum(entry["counts"][name] for entry in entries) for name in (TOO_LONG, TERMS))
    shards = TokenShards(entries)
    return TokenisedCorpus(TokenPairs(**shards.columns()), too_long, terms, (longest[0], longest[1]), shards.texts)


def _index(corpus: CheckedCorpus, tokenizers: Tokenizers, how: PairFormat) -> Part:
    return Part("tokens", cache_key([corpus.key, *(t.fingerprint() for t in tokenizers), *how.key()]), INDEX)


def make_shards(
    corpus: CheckedCorpus,
    tokenizers: Tokenizers,
    how: PairFormat,
    work: Work,
    share: slice = slice(None),
    thorough: bool = False,
) -> int:
    """Make the shards of a share of the pieces that are not there; return how many of all are missing then.

    When none is, the index is written. Thorough work reads those that are there, and makes damaged ones again.
    """
    index = _index(corpus, tokenizers, how)
    fingerprints = [t.fingerprint() for t in tokenizers]
    parts = [Part(SHARDS, cache_key([piece.key, piece.drops_key, *fingerprints, *how.key()])) for piece in corpus.pieces]
    own = range(len(parts))[share]
    absent = {own[number] for number in find_missing([parts[number] for number in own], thorough)}
    if how.annotator is None:
        names = [save_tokenizer(tokenizer) for tokenizer in tokenizers]
        shared = {
            "part": corpus.key,
            "trees": corpus.trees,
            "tokenizers": names,
            "how": [how.max_tokens, how.source_format, how.protect],
        }
        tasks = [
            {"key": parts[n].key, "piece": piece, "size": piece.files[PAIRS][0]}
            for n, piece in enumerate(corpus.pieces)
            if n in absent
        ]
        work.run(PairTokeniser, shared, tasks, "tokenising", "pairs")
    else:  # a glossary does not travel to other processes
        for number in sorted(absent):
            write_shard(parts[number], corpus, corpus.pieces[number], tokenizers, how)
    metas = find_metas(parts)
    missing = sum(meta is None for meta in metas)
    if not missing:
        with lock_folder(cache_folder() / "tokens" / index.key):
            shards = [{"key": part.key, **(meta or {})} for part, meta in zip(parts, metas, strict=True)]
            index.make(lambda folder: {"shards": shards})
    return missing


class PairTokeniser:
    """Makes shards of token ids, in this process or a worker."""

    def __init__(self, part: str, trees: bool, tokenizers: list[str], how: list[Any]):
        max_tokens, source_format, protect = how
        source = Tokenizer.load(Path(tokenizers[0]))
        self.tokenizers = Tokenizers(source, source if tokenizers[0] == tokenizers[1] else Tokenizer.load(Path(tokenizers[1])))
        self.how = PairFormat(max_tokens, SourceFormat(*source_format), protect)
        self.corpus = CheckedCorpus(Part("checked", part, INDEX), [], CheckReport(), trees)

    def __call__(self, task: dict[str, Any]) -> dict[str, Any]:
        part, piece = Part(SHARDS, task["key"]), CheckedPiece(*task["piece"])
        with lock_folder(cache_folder() / SHARDS / part.key):
            if find_missing([part]):
                write_shard(part, self.corpus, piece, self.tokenizers, self.how)
        return {"items": piece.rows}


def write_shard(part: Part, corpus: CheckedCorpus, piece: CheckedPiece, tokenizers: Tokenizers, how: PairFormat) -> None:
    """Write the pairs of a piece that are short enough as token ids."""
    counts = {TOO_LONG: 0, TERMS: 0}
    term = tokenizers.source.term_tokens[0] if how.annotator else None

    def short_pairs() -> Iterator[tuple[list[int], ...]]:
        for chunk in chunks(corpus.read(piece), CHUNK):
            for source, target in encode_pairs(chunk, tokenizers, how):
                # The target also needs a position for its eos.
                if len(source) <= how.max_tokens and len(target) < how.max_tokens:
                    counts[TERMS] += source.count(term) if term is not None else 0
                    yield (source, target, source.head) if isinstance(source, TokensWithHeads) else (source, target)
                else:
                    counts[TOO_LONG] += 1

    vocabularies = {"source": len(tokenizers.source), "target": len(tokenizers.target)}
    if corpus.trees:
        vocabularies["head"] = 2 * how.max_tokens
    part.make(lambda folder: write_texts(folder, short_pairs(), vocabularies, counts))


def encode_pairs(pairs: Sequence[tuple[str, str]], tokenizers: Tokenizers, how: PairFormat) -> list[tuple[list[int], list[int]]]:
    """Return the token ids of each pair.

    With `protect`, spans that both sides share are sentinels. An annotator makes no source longer than `max_tokens`.
    """
    max_tokens, source_format, protect, annotator = how
    sources = encode_sources(tokenizers.source, [source for source, _ in pairs], source_format)
    targets = tokenizers.target.encode_batch([target for _, target in pairs])
    most = min(len(tokenizer.sentinels) for tokenizer in tokenizers)
    for index, (source, target) in enumerate(pairs) if protect or annotator else ():
        masked = mask_pair(source, target, most) if protect else None
        pieces = masked or ([source], [target])
        plain = ("".join(piece if isinstance(piece, str) else ANY_SPAN for piece in side) for side in pieces)
        terms = annotator.choose(*plain) if annotator else []
        if masked is None and not terms:
            continue
        ids, starts = encode_pieces(tokenizers.source, pieces[0], [ANY_SPAN] * most)
        if terms:
            ids, _ = annotate(tokenizers.source, ids, starts, terms, max_tokens - sum(source_format))
        sources[index] = source_format.apply(ids, tokenizers.source)
        targets[index] = encode_pieces(tokenizers.target, pieces[1])[0]
    return list(zip(sources, targets, strict=True))
