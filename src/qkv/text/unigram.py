"""Training of a unigram vocabulary (Kudo 2018, section 3.2): many candidates, pruned to the wanted number.

We depart from the paper in two ways. Candidates are the pieces of a larger BPE vocabulary instead of all frequent
substrings, and the counts of a round come from the best segmentation instead of a weighted sum over all (hard EM). So the
library can segment, which is fast, and the counts are integers, the same in every run. The library's own trainer sums in
the order of a randomly seeded hash table, and considers a word only if a longer one begins with it. With
8,000 pieces learned from the 371,000 sentences of Tatoeba en-de, its test set has 93,200 tokens with this trainer, 94,100 with
SentencePiece and 104,400 with the library's trainer.
"""

import itertools
import math
from collections import Counter
from collections.abc import Iterable

from tokenizers import Tokenizer, models

CANDIDATES = 2  # times the wanted size; with more, whole rare words displace their parts
SHRINK = 0.75  # share of the candidates kept in each round
LONGEST_PIECE = 16  # characters
UNSEEN = 0.1  # count given to a character that no best segmentation needs
LEARN_FROM = 10_000_000  # characters of the most frequent pre-tokens; more changes little
AT_ONCE = 50_000  # pre-tokens segmented at once
Scores = dict[str, float]


def train_unigram(size: int, candidates: Iterable[str], pre_tokens: Counter[str]) -> list[tuple[str, float]]:
    """Return at most `size` of the candidates with their log-probabilities; all single characters stay."""
    common = common_pre_tokens(pre_tokens)
    scores = _log_probabilities(_occurrences(set(candidates), common))
    while True:
        for _ in range(2):
            counts = _segment(scores, common)
            scores = _log_probabilities({p: counts[p] or UNSEEN for p in scores if counts[p] or len(p) == 1})
        if len(scores) <= size:
            return sorted(scores.items(), key=lambda item: (-item[1], item[0]))
        scores = _prune(size, scores, counts)


def common_pre_tokens(counts: Counter[str]) -> dict[str, int]:
    """Return the most frequent pre-tokens with their counts, as many as are learned from."""
    ranked = sorted(counts, key=lambda pre_token: (-counts[pre_token], pre_token))
    ends = itertools.accumulate(map(len, ranked))
    return {pre_token: counts[pre_token] for pre_token, end in zip(ranked, ends, strict=True) if end <= LEARN_FROM}


def _occurrences(candidates: set[str], pre_tokens: dict[str, int]) -> dict[str, float]:
    """Count how often each candidate occurs anywhere in the text."""
    found = Counter[str]()
    for pre_token, count in pre_tokens.items():
        for start in range(len(pre_token)):
            for end in range(start + 1, min(len(pre_token), start + LONGEST_PIECE) + 1):
                if pre_token[start:end] in candidates:
                    found[pre_token[start:end]] += count
    return {piece: found[piece] or UNSEEN for piece in sorted(candidates)}


def _log_probabilities(counts: dict[str, float]) -> Scores:
    total = math.fsum(counts.values())
    return {piece: math.log(count / total) for piece, count in counts.items()}


def _segment(scores: Scores, pre_tokens: dict[str, int]) -> Counter[str]:
    """Count how often each piece is used in the most probable segmentation of every pre-token."""
    pieces = list(scores)
    tokenizer = Tokenizer(models.Unigram([*scores.items(), ("", 0.0)], len(pieces), False))
    counts = Counter[str]()
    todo = iter(pre_tokens.items())
    while batch := list(itertools.islice(todo, AT_ONCE)):
        for (_, count), encoding in zip(batch, tokenizer.encode_batch_fast([text for text, _ in batch]), strict=True):
            for number in encoding.ids:
                counts[pieces[number]] += count
    return counts


def _prune(size: int, scores: Scores, counts: Counter[str]) -> Scores:
    """Drop the pieces without which the text loses the least probability, a quarter at most."""
    single = [piece for piece in scores if len(piece) == 1]
    longer = [piece for piece in scores if len(piece) > 1]
    cost = {piece: counts[piece] * (scores[piece] - _score_from_others(piece, scores)) for piece in longer}
    room = max(size - len(single), int(len(longer) * SHRINK))
    kept = {*single, *sorted(longer, key=lambda piece: (-cost[piece], piece))[:room]}
    return {piece: score for piece, score in scores.items() if piece in kept}


def _score_from_others(piece: str, scores: Scores) -> float:
    """Return the log-probability of the best segmentation of a piece into others."""
    best = [0.0] + [-math.inf] * len(piece)
    for end in range(1, len(piece) + 1):
        for start in range(1 if end == len(piece) else 0, end):
            score = scores.get(piece[start:end], -math.inf)
            best[end] = max(best[end], best[start] + score)
    return best[-1]
