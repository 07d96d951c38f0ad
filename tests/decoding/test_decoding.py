"""What holds for every way of decoding: batches, order, odd models, odd shapes."""

import math
import random

import pytest
import torch
from decoding_toys import BOS, EOS, PAD, SPECIAL, HashModel, HashState, TableModel, sources
from torch import Tensor

from qkv.base.errors import DataError, TrainingError
from qkv.decoding.config import DecodingConfig
from qkv.decoding.search import batches_by_length, decode

WAYS = {
    "greedy": DecodingConfig(beam=1),
    "beam": DecodingConfig(beam=4, n_best=4),
    "wide": DecodingConfig(beam=30, n_best=3, length_penalty=1.0),
    "repeats": DecodingConfig(beam=3, no_repeat_ngram=2, min_length=2, max_extra=3),
    "sampling": DecodingConfig(sampling=True, n_best=2, top_k=5, top_p=0.9),
}
each_way = pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)


@each_way
@pytest.mark.parametrize("levels", [0, 3], ids=["", "ties"])
def test_results_do_not_depend_on_the_batch(way: DecodingConfig, levels: int) -> None:
    rng = random.Random(3)
    lengths = [rng.randrange(1, 12) for _ in range(13)]
    ids, keep = sources(lengths, width=14)
    together = decode(HashModel(9, levels=levels, end=0.5), ids, keep, way, **SPECIAL)
    assert len(together) == 13 and all(together)
    for size in (1, 5):
        order = rng.sample(range(13), 13)
        for start in range(0, 13, size):
            rows = order[start : start + size]
            width = max(lengths[i] for i in rows)
            model = HashModel(9, levels=levels, end=0.5)
            some = decode(model, ids[rows, :width], keep[rows, :width], way, **SPECIAL, index=rows)
            assert some == [together[i] for i in rows]


def test_coverage_does_not_depend_on_the_batch() -> None:
    ids, keep = sources([4, 9, 2], width=11)
    config = DecodingConfig(beam=4, n_best=2, coverage_penalty=0.4)
    together = decode(HashModel(9), ids, keep, config, **SPECIAL)
    for i, length in enumerate((4, 9, 2)):
        (single,) = decode(HashModel(9), ids[i : i + 1, :length], keep[i : i + 1, :length], config, **SPECIAL)
        assert [one.ids for one in single] == [one.ids for one in together[i]]
        assert [one.score for one in single] == pytest.approx([one.score for one in together[i]], abs=1e-5)


class RecomputingModel(HashModel):
    """Keeps all tokens of every hypothesis and begins anew at each step: what a cache must equal."""

    def start(self, ids: Tensor, keep: Tensor, max_length: int, attention: bool = False) -> "Tokens":
        return Tokens(super().start(ids, keep, max_length).number, keep, tokens=ids[:, :0])

    def step(self, tokens: Tensor, state: "Tokens") -> Tensor:  # type: ignore[override]
        state.tokens = torch.cat([state.tokens, tokens[:, None]], 1)
        fresh = HashState(state.number, state.keep)
        self.rows.clear()
        for position in range(state.tokens.size(1)):
            logits = super().step(state.tokens[:, position], fresh)
        return logits


class Tokens(HashState):
    def __init__(self, number: Tensor, keep: Tensor, tokens: Tensor):
        super().__init__(number, keep)
        self.tokens = tokens

    def select(self, rows: Tensor) -> None:
        super().select(rows)
        self.tokens = self.tokens[rows]


@each_way
def test_a_state_moved_by_select_equals_one_computed_anew(way: DecodingConfig) -> None:
    ids, keep = sources([3, 7, 5])
    cached = decode(HashModel(9), ids, keep, way, **SPECIAL)
    assert cached == decode(RecomputingModel(9), ids, keep, way, **SPECIAL)


@each_way
def test_pad_bos_and_eos_are_never_tokens(way: DecodingConfig) -> None:
    class Eager(HashModel):
        def logits(self, number: Tensor) -> Tensor:
            logits = super().logits(number)
            logits[:, [PAD, BOS]] += 20
            return logits

    ids, keep = sources([3, 7, 5])
    for found in decode(Eager(9), ids, keep, way, **SPECIAL):
        assert found
        for one in found:
            assert not {PAD, BOS, EOS} & set(one.ids)
            assert one.logprob < -15  # the model's own probability, not one shared out among what is left


@each_way
def test_one_id_for_bos_and_eos(way: DecodingConfig) -> None:
    ids, keep = sources([3, 7])
    found = decode(HashModel(9, end=2.0), ids, keep, way, bos=EOS, eos=EOS, pad=EOS)
    assert all(one.finished and EOS not in one.ids for n_best in found for one in n_best)


@each_way
def test_no_inputs_no_outputs(way: DecodingConfig) -> None:
    ids, keep = sources([], width=4)
    assert decode(HashModel(9), ids, keep, way, **SPECIAL) == []


@each_way
def test_a_model_that_ends_at_once(way: DecodingConfig) -> None:
    ids, keep = sources([3, 7])
    config = way.model_copy(update={"min_length": 0})
    for found in decode(TableModel({BOS: {EOS: 1.0}}, 9), ids, keep, config, **SPECIAL):
        assert len(found) == (2 if way.sampling else 1)
        assert (found[0].ids, found[0].logprob, found[0].score, found[0].finished) == ([], 0.0, 0.0, True)


@each_way
def test_a_model_that_never_ends(way: DecodingConfig) -> None:
    ids, keep = sources([3, 7])
    results = decode(HashModel(9, end=-math.inf), ids, keep, way, **SPECIAL)
    for length, found in zip((3, 7), results, strict=True):
        assert len(found) == way.n_best
        for one in found:
            assert not one.finished and len(one.ids) == length + way.max_extra
            assert one.score == pytest.approx(one.logprob / ((5 + len(one.ids)) / 6) ** way.length_penalty)


def test_finished_hypotheses_come_before_unfinished_ones() -> None:
    chain = {BOS: {EOS: 0.01, 4: 0.99}, 4: {4: 1.0}}
    ids, keep = sources([2])
    ended, endless = decode(TableModel(chain, 5), ids, keep, DecodingConfig(beam=2, n_best=2), **SPECIAL)[0]
    assert ended.finished and ended.ids == []
    assert not endless.finished and endless.ids == [4] * 52 and endless.score > ended.score


def test_a_beam_wider_than_the_vocabulary_and_all_it_can_say() -> None:
    chain = {BOS: {4: 0.7, EOS: 0.3}, 4: {EOS: 1.0}}
    ids, keep = sources([2, 3])
    for found in decode(TableModel(chain, 5), ids, keep, DecodingConfig(beam=50, n_best=50), **SPECIAL):
        assert [(one.ids, one.finished) for one in found] == [([4], True), ([], True)]


class SpoiltModel(HashModel):
    """Gives one bad row: in its third step, for the last of its rows."""

    def __init__(self, bad: float, whole: bool):
        super().__init__(9, end=-2.0)
        self.bad, self.whole = bad, whole

    def logits(self, number: Tensor) -> Tensor:
        logits = super().logits(number)
        if len(self.rows) == 3:
            logits[-1, slice(None) if self.whole else 5] = self.bad
        return logits


@each_way
@pytest.mark.parametrize(("bad", "whole"), [(math.nan, False), (math.nan, True), (math.inf, False), (-math.inf, True)])
def test_numbers_that_are_no_probabilities_are_an_error(way: DecodingConfig, bad: float, whole: bool) -> None:
    ids, keep = sources([3, 7])
    config = way.model_copy(update={"min_length": 5})  # nobody has left before
    with pytest.raises(TrainingError, match="input 11, token 3: the model's logits are no probabilities"):
        decode(SpoiltModel(bad, whole), ids, keep, config, **SPECIAL, index=[10, 11])


@each_way
def test_some_impossible_tokens_are_no_error(way: DecodingConfig) -> None:
    ids, keep = sources([3, 7])
    found = decode(SpoiltModel(-math.inf, whole=False), ids, keep, way, **SPECIAL)
    assert all(math.isfinite(one.score) for n_best in found for one in n_best)


def test_shapes_that_do_not_fit_are_named() -> None:
    ids, keep = sources([3, 7])
    with pytest.raises(DataError, match=r"ids \(2, 7\) and keep \(2, 6\) must both be"):
        decode(HashModel(), ids, keep[:, :6], DecodingConfig(), **SPECIAL)


def test_decoding_leaves_no_gradients_and_does_not_touch_the_model_s_tables() -> None:
    model = TableModel({BOS: {4: 0.7, EOS: 0.3}, 4: {EOS: 1.0}}, 5)
    before = model.table.clone().requires_grad_()
    model.table = before
    model.step = lambda tokens, state: before[:1].expand(len(tokens), -1)  # type: ignore[method-assign]
    before.data[0] = torch.tensor([0.0, 1.0, 0.0, 0.5, 2.0])
    copy = before.detach().clone()
    ids, keep = sources([2, 3])
    assert decode(model, ids, keep, DecodingConfig(), **SPECIAL)[0]
    assert torch.equal(before, copy) and before.grad is None


def test_batches_by_length_hold_everything_once_within_budget() -> None:
    rng = random.Random(1)
    lengths = [rng.randrange(0, 40) for _ in range(200)] + [500]
    batches = batches_by_length(lengths, 100)
    assert sorted(position for batch in batches for position in batch) == list(range(201))
    assert batches[0] == [200]
    for batch in batches[1:]:
        assert max(1, *(lengths[i] for i in batch), 1) * len(batch) <= 100
    flat = [lengths[i] for batch in batches for i in batch]
    assert flat == sorted(lengths, reverse=True)
    assert batches_by_length([3, 3, 3], 6) == [[0, 1], [2]]
    assert batches_by_length([0, 0, 0], 2) == [[0, 1], [2]]
    assert batches_by_length([], 10) == []
