"""Beam search against full enumeration and against a plain, slow beam search; n-best, ties, stopping, coverage."""

import math

import pytest
import torch
from decoding_toys import BOS, EOS, SPECIAL, HashModel, HashState, TableModel, all_texts, slow_beam, sources

from qkv.base.errors import ConfigError
from qkv.decoding.beam import expand
from qkv.decoding.config import DecodingConfig
from qkv.decoding.scoring import score
from qkv.decoding.search import decode


@pytest.mark.parametrize("penalty", [0.0, 0.6, 2.0])
@pytest.mark.parametrize("end", [-1.0, 2.0])
def test_a_beam_wide_enough_finds_what_enumeration_finds(penalty: float, end: float) -> None:
    model, max_length = HashModel(6, end=end), 5
    config = DecodingConfig(beam=400, n_best=20, length_penalty=penalty, max_ratio=0, max_extra=max_length)
    ids, keep = sources([3, 3])
    for source, found in zip(ids, decode(model, ids, keep, config, **SPECIAL), strict=True):
        wanted = all_texts(HashModel(6, end=end), source, config, max_length)[:20]
        assert [one.ids for one in found] == [tokens for _, tokens in wanted]
        assert [one.score for one in found] == pytest.approx([total for total, _ in wanted], abs=1e-5)
        assert all(one.finished for one in found)


@pytest.mark.parametrize("beam", [2, 3, 5])
@pytest.mark.parametrize("levels", [0, 3])
@pytest.mark.parametrize("penalty", [0.0, 0.6, 1.5])
def test_equals_a_plain_beam_search_that_never_stops_early(beam: int, levels: int, penalty: float) -> None:
    vocabulary = 6 if levels else 12  # with ties: a beam that sees every token, so that the order of ties is told in full
    beam = max(beam, 5) if levels else beam
    config = DecodingConfig(beam=beam, n_best=2, length_penalty=penalty, max_ratio=0, max_extra=9)
    ids, keep = sources([2, 4, 6, 4])
    model = HashModel(vocabulary, levels=levels, end=1.0)
    for i, found in enumerate(decode(model, ids, keep, config, **SPECIAL)):
        wanted = slow_beam(HashModel(vocabulary, levels=levels, end=1.0), ids[i][keep[i]], config, 9)
        assert [(one.score, one.ids) for one in found if one.finished] == wanted


def test_a_late_winner_under_a_strong_length_penalty_is_waited_for() -> None:
    # An early end, or a less probable walk of ten tokens, with no more cost: its length alone makes it win in the end.
    chain = {BOS: {EOS: 0.55, 4: 0.45}, **{token: {token + 1: 1.0} for token in range(4, 13)}, 13: {EOS: 1.0}}
    model = TableModel(chain, 14)
    ids, keep = sources([1])
    found = decode(model, ids, keep, DecodingConfig(beam=2, length_penalty=1.0), **SPECIAL)[0][0]
    assert found.ids == list(range(4, 14))
    assert found.score == pytest.approx(math.log(0.45) / ((5 + 11) / 6))
    short = decode(model, ids, keep, DecodingConfig(beam=2, length_penalty=0.0), **SPECIAL)[0][0]
    assert short.ids == [] and short.logprob == pytest.approx(math.log(0.55))


def test_search_stops_as_soon_as_nothing_can_overtake() -> None:
    model = HashModel(8, end=6.0)
    ids, keep = sources([5, 5, 5])
    decode(model, ids, keep, DecodingConfig(beam=3, length_penalty=0.0), **SPECIAL)
    assert len(model.rows) < 8 and model.room == 55


def test_n_best_is_in_order_without_repeats_and_scored_as_the_model_scores() -> None:
    ids, keep = sources([4, 7])
    config = DecodingConfig(beam=6, n_best=6, length_penalty=0.6)
    for i, found in enumerate(decode(HashModel(9, end=1.5), ids, keep, config, **SPECIAL)):
        assert len(found) == 6
        assert [one.score for one in found] == sorted((one.score for one in found), reverse=True)
        assert len({tuple(one.ids) for one in found}) == 6
        texts = [one.ids for one in found]
        again = score(HashModel(9, end=1.5), ids[[i] * 6], keep[[i] * 6], texts, bos=BOS, eos=EOS)
        assert [one.logprob for one in found] == pytest.approx([one.logprob for one in again], abs=1e-5)
        for one in found:
            assert one.score == pytest.approx(one.logprob / ((5 + len(one.ids) + 1) / 6) ** 0.6)


def test_one_best_is_the_first_of_n_best() -> None:
    ids, keep = sources([4, 7, 2])
    many = decode(HashModel(9), ids, keep, DecodingConfig(beam=5, n_best=5), **SPECIAL)
    one = decode(HashModel(9), ids, keep, DecodingConfig(beam=5), **SPECIAL)
    assert [found[0] for found in many] == [found[0] for found in one]


def test_rows_leave_the_batch_as_inputs_are_done() -> None:
    model = HashModel(9, end=1.0)
    ids, keep = sources([3, 9, 5, 6])
    decode(model, ids, keep, DecodingConfig(beam=3), **SPECIAL)
    assert model.rows[0] == 4 and model.rows[1] == 12  # one hypothesis for each input, then the beam
    assert model.rows[1:] == sorted(model.rows[1:], reverse=True)
    assert model.rows[-1] < 12


def test_coverage_penalty_by_hand() -> None:
    # Two one-token texts of probability 0.6 and 0.4; the likelier leaves the second source token unattended.
    chain = {BOS: {4: 0.6, 5: 0.4}, 4: {EOS: 1.0}, 5: {EOS: 1.0}}
    look = torch.zeros(6, 3)
    look[BOS] = torch.tensor([0.5, 0.1, 0.0])
    look[4] = torch.tensor([0.9, 0.1, 0.0])
    look[5] = torch.tensor([0.5, 0.8, 0.0])
    ids, keep = sources([2], width=3)
    config = DecodingConfig(beam=2, n_best=2, length_penalty=1.0, coverage_penalty=0.5)
    first, second = decode(TableModel(chain, 6, look), ids, keep, config, **SPECIAL)[0]
    assert (first.ids, second.ids) == ([5], [4])
    assert first.score == pytest.approx(math.log(0.4) / (7 / 6) + 0.5 * (math.log(1.0) + math.log(0.9)))
    assert second.score == pytest.approx(math.log(0.6) / (7 / 6) + 0.5 * (math.log(1.0) + math.log(0.2)))
    assert first.logprob == pytest.approx(math.log(0.4))


def test_coverage_follows_each_hypothesis_through_the_search() -> None:
    ids, keep = sources([5])
    config = DecodingConfig(beam=6, n_best=6, coverage_penalty=0.7, length_penalty=0.5)
    for one in decode(HashModel(9, end=1.0), ids, keep, config, **SPECIAL)[0]:
        model = HashModel(9, end=1.0)
        state = model.start(ids, keep, 60, attention=True)
        covered = torch.zeros(5)
        for token in (BOS, *one.ids):
            model.step(torch.tensor([token]), state)
            assert state.attention is not None
            covered += state.attention[0]
        wanted = one.logprob / ((6 + len(one.ids)) / 6) ** 0.5 + 0.7 * covered.clamp(max=1).log().sum()
        assert one.score == pytest.approx(float(wanted), abs=1e-5)


def test_of_equal_continuations_the_earlier_hypothesis_and_the_lower_id_go_first() -> None:
    torch.manual_seed(1)
    order = torch.stack([torch.randperm(40) for _ in range(20)])
    scores = torch.full((20, 40), -5.0).scatter(1, order[:, :4], -1.0)  # four best of each, all equal
    found = expand(torch.zeros(10, 2), scores, beam=3)
    assert found.parent.tolist() == [[0] * 4 + [1] * 2] * 10
    assert found.token.tolist() == order[:, :4].sort(-1).values.view(10, 8)[:, :6].tolist()


def test_places_that_hold_no_hypothesis_may_have_any_logits() -> None:
    class Nervous(HashModel):
        def step(self, tokens: torch.Tensor, state: HashState) -> torch.Tensor:
            logits = super().step(tokens, state)
            return logits if len(self.rows) == 1 else logits.masked_fill((tokens == BOS)[:, None], math.nan)

    ids, keep = sources([2, 4])
    config = DecodingConfig(beam=20, n_best=20, max_extra=2)  # with two tokens, most of the beam is vacant at first
    found = decode(Nervous(5), ids, keep, config, **SPECIAL)
    assert found == decode(HashModel(5), ids, keep, config, **SPECIAL)
    assert len(found[0]) == 20 and found[0][-1].logprob > -math.inf


def test_coverage_penalty_needs_attention() -> None:
    ids, keep = sources([2])
    with pytest.raises(ConfigError, match="coverage_penalty needs a model that returns its attention"):
        decode(TableModel({BOS: {EOS: 1.0}}, 4), ids, keep, DecodingConfig(coverage_penalty=0.2), **SPECIAL)


def test_a_word_never_looked_at_costs_much_but_keeps_its_text() -> None:
    look = torch.tensor([[1.0, 0.0]]).expand(5, 2)
    ids, keep = sources([2])
    chain = {BOS: {4: 1.0}, 4: {EOS: 1.0}}
    found = decode(TableModel(chain, 5, look), ids, keep, DecodingConfig(coverage_penalty=0.2), **SPECIAL)[0]
    assert found[0].ids == [4] and -20 < found[0].score < -10
