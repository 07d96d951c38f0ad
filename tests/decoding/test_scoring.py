"""A model's score of given targets, and the penalties, against numbers worked out by hand."""

import math

import pytest
import torch
from decoding_toys import BOS, EOS, HashModel, TableModel, row, sources

from qkv.base.errors import DataError, TrainingError
from qkv.decoding.scoring import TokenStatistics, coverage_penalty, length_penalty, score


def test_score_is_the_sum_of_log_probabilities_with_the_end() -> None:
    chain = {BOS: {4: 0.5, EOS: 0.5}, 4: {5: 0.25, EOS: 0.75}, 5: {EOS: 1.0}}
    ids, keep = sources([1, 2, 3, 4])
    found = score(TableModel(chain, 6), ids, keep, [[4, 5], [], [4], [5]], bos=BOS, eos=EOS)
    assert [one.logprob for one in found] == pytest.approx([math.log(0.125), math.log(0.5), math.log(0.375), -math.inf])


def test_score_does_not_depend_on_the_batch_and_rows_leave() -> None:
    ids, keep = sources([4, 2, 6])
    targets = [[4, 5, 6, 4], [], [5, 1]]
    model = HashModel()
    together = score(model, ids, keep, targets, bos=BOS, eos=EOS)
    assert model.rows == [3, 2, 2, 1, 1]
    for i, target in enumerate(targets):
        tokens = (*target, EOS)
        single = sum(row(HashModel(), ids[i][keep[i]], tokens[:position])[token] for position, token in enumerate(tokens))
        assert together[i].logprob == pytest.approx(single, abs=1e-5)


def test_statistics_by_hand() -> None:
    chain = {BOS: {4: 0.5, EOS: 0.5}, 4: {5: 0.25, EOS: 0.75}, 5: {EOS: 1.0}}
    attention = torch.zeros(6, 3)
    attention[BOS], attention[4], attention[5] = (torch.tensor(row) for row in ([0.9, 0.1, 0], [0.5, 0.5, 0], [0.0, 0.25, 0.75]))
    ids, keep = sources([3, 2])
    long, short = score(TableModel(chain, 6, attention), ids, keep, [[4, 5], [4]], bos=BOS, eos=EOS)
    quarter = -0.25 * math.log(0.25) - 0.75 * math.log(0.75)
    logs = [math.log(0.5), math.log(0.25), 0.0]
    assert long == pytest.approx((3, 3, sum(logs), logs[1], math.log(2) + quarter, 0.0, 1.0 + 0.85 + 0.75, 0))
    # The third column is padding of the second source.
    assert short == pytest.approx((2, 2, math.log(0.375), math.log(0.5), math.log(2) + quarter, math.log(0.75), 1.0 + 0.6, 0))
    whole = TokenStatistics.pooled([long, short._replace(unknown=2)])
    assert whole == pytest.approx(
        (5, 5, long.logprob + short.logprob, logs[1], long.entropy + short.entropy, math.log(0.75), 2.6 + 1.6, 2)
    )
    bare = score(TableModel(chain, 6), ids, keep, [[4], [4]], bos=BOS, eos=EOS)[0]
    assert bare.covered is None and TokenStatistics.pooled([long, bare]).covered is None


def test_scores_of_everything_sum_to_one() -> None:
    chain = {BOS: {4: 0.5, 5: 0.5}, 4: {5: 0.1, EOS: 0.9}, 5: {EOS: 1.0}}
    ids, keep = sources([1] * 3)
    found = score(TableModel(chain, 6), ids, keep, [[4, 5], [4], [5]], bos=BOS, eos=EOS)
    assert sum(math.exp(one.logprob) for one in found) == pytest.approx(1)


def test_nothing_to_score() -> None:
    assert score(HashModel(), *sources([]), [], bos=BOS, eos=EOS) == []


def test_wrong_targets_are_named() -> None:
    ids, keep = sources([2])
    with pytest.raises(DataError, match="got 2 targets for 1 inputs"):
        score(HashModel(7), ids, keep, [[4], [5]], bos=BOS, eos=EOS)
    with pytest.raises(DataError, match="target id 7 is not in the model's vocabulary of 7"):
        score(HashModel(7), ids, keep, [[4, 7]], bos=BOS, eos=EOS)
    with pytest.raises(TrainingError, match="input 0: the model's logits are no probabilities"):
        score(HashModel(7, spread=math.nan), ids, keep, [[4]], bos=BOS, eos=EOS)


def test_penalties_by_hand() -> None:
    assert length_penalty(torch.tensor([1, 7, 13]), 0.5).tolist() == pytest.approx([1, math.sqrt(2), math.sqrt(3)])
    covered = torch.tensor([[0.5, 3.0, 0.25, 0.0]])
    keep = torch.tensor([[True, True, True, False]])
    assert coverage_penalty(covered, keep, 2.0).tolist() == pytest.approx([2 * (math.log(0.5) + math.log(0.25))])
