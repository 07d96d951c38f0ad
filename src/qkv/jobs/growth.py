"""Larger vocabularies for a translator that starts from another run: its tokenizers learn new pieces from the training text."""

from collections.abc import Callable, Iterator
from itertools import islice

from qkv.data.corpora import Tokenizers
from qkv.text.sentinels import COUNT
from qkv.text.special_tokens import SENTINEL, TERM_TOKENS
from qkv.text.vocabulary_growth import add_pieces, learn_pieces
from qkv.training.progress import Progress

COUNTED = 10_000  # texts whose tokens are counted before and after
Texts = Callable[[tuple[int, ...]], Iterator[str]]  # the training texts of some sides: 0 is the source, 1 the target


def grow_tokenizers(start: Tokenizers, texts: Texts, most: int, progress: Progress) -> Tokenizers:
    """Return tokenizers with up to `most` new pieces: those of a shared vocabulary, or of each side from its own texts."""
    if start.shared:
        new = learn_pieces(start.source, texts((0, 1)), most)
        source = target = add_pieces(start.source, new, list(new.scores))
    else:
        one = start.source.same_vocabulary(start.target)  # as Marian's two often are; their model may have one embedding
        found = [learn_pieces(side, texts((number,)), most // 2 if one else most) for number, side in enumerate(start)]
        names = [list(dict.fromkeys([*found[0].scores, *found[1].scores])) if one else list(new.scores) for new in found]
        source, target = (add_pieces(*each) for each in zip(start, found, names, strict=True))
    grown = Tokenizers(source, target)
    for number, side in enumerate(("source", "target")):
        old, new_one = start[number], grown[number]
        encoded = [tokenizer.encode_batch(list(islice(texts((number,)), COUNTED))) for tokenizer in (old, new_one)]
        before, after = (sum(map(len, ids)) / max(1, len(ids)) for ids in encoded)
        progress.say(
            f"tokenizer of the {side}: {len(new_one) - len(old):,} pieces added to {len(old):,}; "
            f"{before:.1f} tokens a text before, {after:.1f} after"
        )
    return grown


def add_sentinels(tokenizers: Tokenizers) -> Tokenizers:
    """Return tokenizers that have the special tokens which stand for placeholders: the same ones where they have some."""
    names = list(map(SENTINEL.format, range(COUNT)))
    source, target = (side if side.sentinels else side.with_special_tokens(names) for side in tokenizers)
    return Tokenizers(source, source if tokenizers.shared else target)


def add_term_tokens(tokenizers: Tokenizers) -> Tokenizers:
    """Return tokenizers that have the separators of annotated terms: both, as they may have one vocabulary."""
    source, target = (side.with_special_tokens(TERM_TOKENS) for side in tokenizers)
    return Tokenizers(source, source if tokenizers.shared else target)
