"""A model's score of given targets, and the penalties, against numbers worked out by hand."""

import math

import pytest
import torch
from decoding_toys import BOS, EOS, HashModel, TableModel, row, sources

from qkv.base.errors import DataError, TrainingError
from qkv.decoding.scoring import coverage_penalty, length_penalty, score


def test_score_is_the_sum_of_log_probabilities_with_the_end() -> None:
    chain = {BOS: {4: 0.5, EOS: 0.5}, 4: {5: 0.25, EOS: 0.75}, 5: {EOS: 1.0}}
    ids, keep = sources([1, 2, 3, 4])
    found = score(TableModel(chain, 6), ids, keep, [[4, 5], [], [4], [5]], bos=BOS, eos=EOS)
    assert found == pytest.approx([math.log(0.125), math.log(0.5), math.log(0.375), -math.inf])


def test_score_does_not_depend_on_the_batch_and_rows_leave() -> None:
    ids, keep = sources([4, 2, 6])
    targets = [[4, 5, 6, 4], [], [5, 1]]
    model = HashModel()
    together = score(model, ids, keep, targets, bos=BOS, eos=EOS)
    assert model.rows == [3, 2, 2, 1, 1]
    for i, target in enumerate(targets):
        tokens = (*target, EOS)
        single = sum(row(HashModel(), ids[i][keep[i]], tokens[:position])[token] for position, token in enumerate(tokens))
        assert together[i] == pytest.approx(single, abs=1e-5)


def test_scores_of_everything_sum_to_one() -> None:
    chain = {BOS: {4: 0.5, 5: 0.5}, 4: {5: 0.1, EOS: 0.9}, 5: {EOS: 1.0}}
    ids, keep = sources([1] * 3)
    found = score(TableModel(chain, 6), ids, keep, [[4, 5], [4], [5]], bos=BOS, eos=EOS)
    assert sum(map(math.exp, found)) == pytest.approx(1)


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
