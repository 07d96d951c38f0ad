"""Log-probabilities of texts, and the accuracy on minimal pairs: two sentences of which one is right (BLiMP)."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

import torch

from qkv.base.errors import ConfigError, DataError
from qkv.base.rows import padded_rows
from qkv.decoding.search import batches_by_length
from qkv.folder.networks import NetworkRun
from qkv.inference.arguments import require_texts
from qkv.inference.engines import pad
from qkv.inference.spelling import add_unseen_words, tokenizer_for
from qkv.models import FAMILIES
from qkv.parts.heads import ModelWithHeads
from qkv.parts.token_scores import ControlTokens, ScoreTokens, ScoringMode
from qkv.text.check import normalise
from qkv.text.examples import TEXT_READERS, ExampleColumns, ExamplesConfig, read_examples
from qkv.text.tokenizer import Tokenizer

BATCH_TOKENS = 16_384  # computed at once


def control_tokens(tokenizer: Tokenizer) -> ControlTokens:
    """Return the ids of a tokenizer's control tokens that scoring needs."""
    special = (tokenizer.pad, tokenizer.bos, tokenizer.eos)
    return ControlTokens(tokenizer.mask if tokenizer.has_mask else None, tokenizer.unk, special)


def scorer_for(kind: str, how: ScoringMode | None) -> ScoreTokens:
    """Return the function of a family that scores tokens in a direction; by default its first one."""
    scores = FAMILIES[kind].token_scores
    if not scores or (how is not None and how not in scores):
        known = f"set how={' or how='.join(scores)}" if scores else "it has no probabilities of texts"
        raise ConfigError(f"a {kind} cannot score a text by how={how}; {known}")
    return next(iter(scores.values())) if how is None else scores[how]


@torch.no_grad()
def score_texts(run: NetworkRun, model: ModelWithHeads, texts: Iterable[str], how: ScoringMode | None) -> list[float]:
    """Return the sum of the log-probabilities of each text's tokens, in nats."""
    texts = require_texts(texts, "score")
    kind = run.recipe.model.kind
    score_tokens = scorer_for(kind, how)
    if (head := FAMILIES[kind].scoring_head) is not None:
        run.with_head(head, "scoring texts")
    encoded, control = _encode(run, model, texts), control_tokens(run.tokenizer)
    device, found = next(model.parameters()).device, torch.zeros(len(texts))
    for numbers in batches_by_length([len(ids) for ids in encoded], BATCH_TOKENS):
        rows = padded_rows(*pad([encoded[number] for number in numbers], device))
        found[numbers] = score_tokens(model, rows, control).logs.sum(1).cpu()
    return found.tolist()


def _encode(run: NetworkRun, model: ModelWithHeads, texts: Sequence[str]) -> list[list[int]]:
    """Return token ids between bos and eos; without eos for a GPT, which does not score the end."""
    tokenizer, longest = tokenizer_for(model.encoder.config, run.tokenizer), model.encoder.longest
    end = [] if model.encoder.config.causal else [tokenizer.eos]
    encoded = [[tokenizer.bos, *ids, *end] for ids in tokenizer.encode_batch([normalise(text) for text in texts])]
    add_unseen_words(model, tokenizer)
    for number, ids in enumerate(encoded, 1):
        if longest is not None and len(ids) > longest:
            raise DataError(
                f"text {number} has {len(ids):,} tokens, and this model reads {longest:,} at most; split it into shorter ones"
            )
    return encoded


# Minimal pairs


class PairsConfig(ExampleColumns):
    """The columns of a file of minimal pairs, and how texts are scored; the names are BLiMP's."""

    text: str = "sentence_good"  # the right sentence
    pair: str = "sentence_bad"  # the wrong one
    label: str | None = "linguistics_term"  # type: ignore[assignment]  # accuracy is also reported by this label; null: not
    how: ScoringMode | None = None  # left or each; null: the family's default


class Scorer(Protocol):
    """A loaded encoder or GPT."""

    def score(self, texts: Sequence[str], how: ScoringMode | None = None) -> list[float]: ...


class PairAccuracy(NamedTuple):
    """How often the right text of a pair has the higher score."""

    accuracy: float
    pairs: int
    groups: dict[str, tuple[float, int]]  # accuracy and number of pairs, by label


def score_pairs(model: Scorer, file: str, config: PairsConfig | None = None) -> PairAccuracy:
    """Score both texts of each pair in a file; equal scores count as wrong."""
    config = config or PairsConfig()
    columns = {key: value for key, value in config.model_dump(exclude={"how"}).items() if value is not None}
    pairs = read_examples(TEXT_READERS, ExamplesConfig(files=(file,), **columns), labelled=config.label is not None)
    scores = model.score([text for pair in pairs for text in (pair.text, pair.pair or "")], config.how)
    groups: dict[str, list[bool]] = defaultdict(list)
    for pair, good, bad in zip(pairs, scores[::2], scores[1::2], strict=True):
        groups[pair.label or ""].append(good > bad)
    right = sum(map(sum, groups.values()))
    by_label = {name: (sum(found) / len(found), len(found)) for name, found in sorted(groups.items())} if config.label else {}
    return PairAccuracy(right / len(pairs), len(pairs), by_label)
