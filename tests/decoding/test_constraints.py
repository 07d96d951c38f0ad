"""Constraints on outputs: repeats, vocabulary, prefix, minimum and maximum length."""

import math
import random

import numpy as np
import pytest
import torch
from decoding_toys import BOS, EOS, PAD, SPECIAL, HashModel, TableModel, slow_beam, sources

from qkv.base.errors import DataError
from qkv.decoding.config import DecodingConfig
from qkv.decoding.constraints import Constraints, ban_repeats
from qkv.decoding.search import decode

WAYS = {
    "greedy": DecodingConfig(beam=1, max_extra=12),
    "beam": DecodingConfig(beam=3, n_best=3, max_extra=12),
    "sampling": DecodingConfig(sampling=True, n_best=3, max_extra=12),
}
each_way = pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)


def repeated(tokens: list[int], size: int) -> bool:
    runs = [tuple(tokens[i : i + size]) for i in range(len(tokens) - size + 1)]
    return len(set(runs)) < len(runs)


def test_ban_repeats_forbids_exactly_the_tokens_that_would_repeat() -> None:
    rng = random.Random(5)
    for size in (1, 2, 3):
        tokens = [[rng.randrange(3) for _ in range(8)] for _ in range(50)]
        scores = torch.zeros(50, 4)
        ban_repeats(scores, torch.tensor(tokens), size)
        for text, banned in zip(tokens, scores == -math.inf, strict=True):
            past = {tuple(text[i : i + size]) for i in range(len(text) - size + 1)}
            assert banned.tolist() == [(*text[len(text) - size + 1 :], token) in past for token in range(4)]


def test_ban_repeats_leaves_short_texts_alone() -> None:
    scores = torch.zeros(2, 4)
    ban_repeats(scores, torch.tensor([[1], [1]]), 2)
    assert not scores.any()


@each_way
@pytest.mark.parametrize("size", [1, 2])
def test_no_run_of_tokens_comes_twice(way: DecodingConfig, size: int) -> None:
    ids, keep = sources([5, 9])
    free = decode(HashModel(7, end=-3), ids, keep, way, **SPECIAL)
    assert any(repeated(one.ids, size) for found in free for one in found)
    limited = way.model_copy(update={"no_repeat_ngram": size})
    for found in decode(HashModel(7, end=-3), ids, keep, limited, **SPECIAL):
        assert found and not any(repeated(one.ids, size) for one in found)


@each_way
def test_a_prefix_is_where_outputs_begin_and_counts_in_their_log_probability(way: DecodingConfig) -> None:
    ids, keep = sources([5, 9, 4])
    begin = [[6, 6, 1], [], [4]]
    config = way.model_copy(update={"no_repeat_ngram": 1, "min_length": 2})
    for i, found in enumerate(decode(HashModel(9), ids, keep, config, prefix=begin, **SPECIAL)):
        assert found and all(one.ids[: len(begin[i])] == begin[i] for one in found)
    tensor = torch.tensor([[6, 6, 1], [PAD] * 3, [4, PAD, PAD]])
    same = decode(HashModel(9), ids, keep, config, prefix=tensor, **SPECIAL)
    assert same == decode(HashModel(9), ids, keep, config, prefix=begin, **SPECIAL)
    chain = {BOS: {4: 0.25, 5: 0.75}, 4: {EOS: 1.0}, 5: {EOS: 1.0}}
    forced = decode(TableModel(chain, 6), ids[:1], keep[:1], way, prefix=[[4]], **SPECIAL)[0][0]
    assert forced.ids == [4] and forced.logprob == pytest.approx(math.log(0.25))


def test_a_prefix_longer_than_the_limit_stretches_it() -> None:
    ids, keep = sources([1])
    config = DecodingConfig(beam=2, max_ratio=0, max_extra=0)
    assert decode(HashModel(7, end=9), ids, keep, config, prefix=[[4, 5, 6]], **SPECIAL)[0][0].ids == [4, 5, 6]


@each_way
def test_only_allowed_tokens_and_the_end_come(way: DecodingConfig) -> None:
    ids, keep = sources([5, 9])
    allowed = [torch.tensor([4, 6]), torch.tensor([1, 5, 8])]
    results = decode(HashModel(9, end=-4), ids, keep, way, allowed=allowed, **SPECIAL)
    for found, tokens in zip(results, allowed, strict=True):
        assert any(one.ids for one in found)
        assert all(set(one.ids) <= set(tokens.tolist()) for one in found)


def test_allowing_every_word_changes_nothing() -> None:
    ids, keep = sources([5, 9])
    free = decode(HashModel(9), ids, keep, WAYS["beam"], **SPECIAL)
    assert decode(HashModel(9), ids, keep, WAYS["beam"], allowed=[torch.arange(9)] * 2, **SPECIAL) == free


@each_way
def test_nothing_allowed_gives_an_empty_text(way: DecodingConfig) -> None:
    ids, keep = sources([5])
    nothing = [torch.tensor([], dtype=torch.long)]
    (found,) = decode(HashModel(9), ids, keep, way, allowed=nothing, **SPECIAL)
    assert [one.ids for one in found] == [[]] * (3 if way.sampling else 1) and found[0].finished


@each_way
def test_minimum_and_maximum_length(way: DecodingConfig) -> None:
    ids, keep = sources([2, 6])
    least = decode(HashModel(7, end=9), ids, keep, way.model_copy(update={"min_length": 5}), **SPECIAL)
    assert all(len(one.ids) >= 5 for found in least for one in found)
    most = way.model_copy(update={"max_ratio": 1.5, "max_extra": 1})
    for length, found in zip((2, 6), decode(HashModel(7, end=-50), ids, keep, most, **SPECIAL), strict=True):
        assert [len(one.ids) for one in found] == [int(1.5 * length) + 1] * way.n_best
        assert not any(one.finished for one in found)
    capped = decode(HashModel(7, end=-50), ids, keep, most.model_copy(update={"max_length": 3}), **SPECIAL)
    assert {len(one.ids) for found in capped for one in found} == {3}


@each_way
def test_where_limits_leave_no_word_the_text_so_far_is_returned_unfinished(way: DecodingConfig) -> None:
    ids, keep = sources([5])
    config = way.model_copy(update={"no_repeat_ngram": 1, "min_length": 9})  # four tokens, none of them twice
    (found,) = decode(HashModel(7), ids, keep, config, **SPECIAL)
    assert found and all(sorted(one.ids) == [1, 4, 5, 6] and not one.finished for one in found)
    assert all(math.isfinite(one.score) for one in found)


def test_limits_that_bind_nothing_leave_the_search_as_it_was() -> None:
    ids, keep = sources([4, 3])
    config = DecodingConfig(beam=3, n_best=2, max_extra=4, no_repeat_ngram=20, min_length=0, max_length=100)
    for i, found in enumerate(decode(HashModel(7), ids, keep, config, prefix=[[], []], **SPECIAL)):
        max_length = int(keep[i].sum()) + 4
        wanted = slow_beam(HashModel(7), ids[i][keep[i]], config, max_length)
        assert [(one.score, one.ids) for one in found if one.finished] == wanted


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"prefix": [[4], [EOS]]}, "a prefix holds the id 3"),
        ({"prefix": [[4], [-1]]}, "a prefix holds the id -1"),
        ({"prefix": [[4]]}, "prefix has 1 entries for 2 inputs"),
        ({"prefix": [[4], [70]]}, "a prefix has the id 70, but the model knows 7 tokens"),
        ({"allowed": [torch.tensor([4])]}, "allowed has 1 entries for 2 inputs"),
        ({"allowed": [torch.tensor([4]), torch.tensor([7])]}, "the allowed vocabulary has the id 7"),
        ({"index": [1, 2, 3]}, "index has 3 entries for 2 inputs"),
    ],
)
def test_wrong_limits_are_named(options: dict, message: str) -> None:
    ids, keep = sources([2, 3])
    with pytest.raises(DataError, match=message):
        decode(HashModel(7), ids, keep, DecodingConfig(), **SPECIAL, **options)


def test_a_prefix_that_cannot_fit_is_refused() -> None:
    ids, keep = sources([2])
    with pytest.raises(DataError, match="a prefix of 3 tokens does not fit within max_length 3"):
        decode(HashModel(7), ids, keep, DecodingConfig(max_length=3), prefix=[[4, 4, 4]], **SPECIAL)


def test_other_inputs_share_the_tensors_that_a_recorded_step_reads() -> None:
    """A CUDA graph reads them at their address: it must hold as long as the search goes on, whoever joins or leaves it."""
    first, second = (Constraints(DecodingConfig(), [[], [4]], None, EOS, [BOS, PAD], torch.device("cpu")) for _ in range(2))
    for others in (first.pick(np.array([1])), first.join(second), first.join(second).pick(np.array([3, 0]))):
        assert others.never is first.never and others.not_yet is first.not_yet
    assert first.join(second).pick(np.array([3, 0])).prefix_length.tolist() == [1, 0]
