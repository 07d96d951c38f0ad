"""Greedy and sampling: what each step takes, and that a sample depends on its own input and seed alone."""

import math
from collections import Counter

import pytest
import torch
from decoding_toys import BOS, EOS, PAD, SPECIAL, HashModel, TableModel, row, sources

from qkv.decoding.config import DecodingConfig
from qkv.decoding.constraints import RepetitionPenalty
from qkv.decoding.hypothesis import Hypothesis
from qkv.decoding.logprobs import LogprobRecord, token_logprobs
from qkv.decoding.penalties import count_tokens, counts_of, penalise
from qkv.decoding.sampling import draw
from qkv.decoding.search import decode

GREEDY = DecodingConfig(beam=1)


def test_greedy_takes_the_most_probable_word_until_the_end() -> None:
    model = HashModel(11, end=0.5)
    ids, keep = sources([3, 6, 1])
    for i, (found,) in enumerate(decode(model, ids, keep, GREEDY, **SPECIAL)):
        tokens: tuple[int, ...] = ()
        total = 0.0
        while EOS not in tokens and len(tokens) < int(keep[i].sum()) + 50:
            scores = row(HashModel(11, end=0.5), ids[i][keep[i]], tokens)
            scores[[PAD, BOS]] = -math.inf
            tokens += (int(scores.argmax()),)
            total += float(scores.max())
        assert found.finished == (tokens[-1] == EOS)
        assert found.ids == [token for token in tokens if token != EOS]
        assert found.logprob == pytest.approx(total, abs=1e-4)
        assert found.score == pytest.approx(total / ((5 + len(tokens)) / 6) ** 0.6, abs=1e-4)


def test_greedy_takes_the_lower_id_of_equal_tokens() -> None:
    chain = {BOS: {5: 0.4, 4: 0.4, 6: 0.2}, 4: {6: 0.5, EOS: 0.5}}
    ids, keep = sources([1])
    assert decode(TableModel(chain, 7), ids, keep, GREEDY, **SPECIAL)[0][0].ids == [4]


def test_finished_rows_leave_greedy_and_sampling() -> None:
    for config in (GREEDY, DecodingConfig(sampling=True, n_best=3)):
        model = HashModel(9, end=1.5)
        ids, keep = sources([3, 9, 5, 6])
        decode(model, ids, keep, config, **SPECIAL)
        assert model.rows[0] == 4 * config.n_best
        assert model.rows == sorted(model.rows, reverse=True) and model.rows[-1] < model.rows[0]


def counts(found: list[Hypothesis]) -> dict[tuple[int, ...], float]:
    return {text: count / len(found) for text, count in Counter(tuple(one.ids) for one in found).items()}


def test_samples_have_the_model_s_frequencies() -> None:
    chain = {BOS: {4: 0.5, 5: 0.3, EOS: 0.2}, 4: {4: 0.25, EOS: 0.75}, 5: {EOS: 1.0}}
    ids, keep = sources([2])
    shares = counts(decode(TableModel(chain, 6), ids, keep, DecodingConfig(sampling=True, n_best=1000), **SPECIAL)[0])
    for text, share in {(): 0.2, (4,): 0.375, (5,): 0.3, (4, 4): 0.5 * 0.25 * 0.75}.items():
        assert shares[text] == pytest.approx(share, abs=0.05)  # more than 3 standard deviations


def test_temperature_top_k_and_top_p_shape_the_draw() -> None:
    scores = torch.tensor([0.1, 0.4, 0.2, 0.3]).log().expand(1000, 4)
    uniform = torch.arange(1000) / 1000

    def shares(**options: float) -> list[float]:
        tokens = draw(scores, uniform, DecodingConfig(sampling=True, **options))  # type: ignore[arg-type]
        return [float((tokens == token).float().mean()) for token in range(4)]

    assert shares() == pytest.approx([0.1, 0.4, 0.2, 0.3], abs=2e-3)
    assert shares(top_k=2) == pytest.approx([0, 4 / 7, 0, 3 / 7], abs=2e-3)
    assert shares(top_p=0.65) == pytest.approx([0, 4 / 7, 0, 3 / 7], abs=2e-3)
    assert shares(top_p=0.75) == pytest.approx([0, 4 / 9, 2 / 9, 3 / 9], abs=2e-3)
    assert shares(top_p=1e-6) == [0, 1, 0, 0]
    assert shares(top_k=3, top_p=0.7) == pytest.approx([0, 4 / 7, 0, 3 / 7], abs=2e-3)
    assert shares(temperature=0.5) == pytest.approx([1 / 30, 16 / 30, 4 / 30, 9 / 30], abs=2e-3)
    assert shares(top_k=9) == pytest.approx([0.1, 0.4, 0.2, 0.3], abs=2e-3)


def test_the_ends_of_the_random_range_never_draw_an_impossible_word() -> None:
    scores = torch.tensor([[-math.inf, math.log(0.5), math.log(0.5), -math.inf]]).expand(2, 4)
    edges = torch.tensor([0.0, 1 - 2**-24])
    for config in (DecodingConfig(sampling=True), DecodingConfig(sampling=True, top_p=0.9)):
        assert draw(scores, edges, config).tolist() == [1, 2]


def test_a_sample_depends_on_seed_and_number_of_its_input_alone() -> None:
    ids, keep = sources([3, 8, 5])
    config = DecodingConfig(sampling=True, n_best=4, temperature=1.5)

    def samples(rows: list[int], seed: int = 0, number: list[int] | None = None, n: int = 4) -> list[list[Hypothesis]]:
        options = config.model_copy(update={"n_best": n})
        return decode(HashModel(9), ids[rows], keep[rows], options, **SPECIAL, seed=seed, index=number or rows)

    together = samples([0, 1, 2])
    assert samples([2, 0]) == [together[2], together[0]]
    assert samples([1]) == [together[1]]
    assert samples([1], seed=1) != [together[1]]
    assert samples([1], number=[7]) != [together[1]]
    assert {tuple(one.ids) for one in samples([0], n=2)[0]} <= {tuple(one.ids) for one in together[0]}
    assert len({tuple(one.ids) for one in together[0]}) > 1


def test_samples_come_best_first_with_the_model_s_own_log_probability() -> None:
    chain = {BOS: {4: 0.5, 5: 0.3, EOS: 0.2}, 4: {EOS: 1.0}, 5: {EOS: 1.0}}
    ids, keep = sources([2])
    config = DecodingConfig(sampling=True, n_best=50, temperature=3.0, length_penalty=0.0)
    found = decode(TableModel(chain, 6), ids, keep, config, **SPECIAL)[0]
    assert [one.score for one in found] == sorted((one.score for one in found), reverse=True)
    assert {round(math.exp(one.logprob), 4) for one in found} == {0.5, 0.3, 0.2}


CHAIN = {BOS: {4: 0.6, 5: 0.4}, 4: {4: 0.5, 5: 0.4, EOS: 0.1}, 5: {5: 0.5, 4: 0.4, EOS: 0.1}}


def test_an_output_goes_on_from_the_last_word_of_its_input() -> None:
    ids, keep = sources([2, 2, 2])
    way = DecodingConfig(beam=1, max_ratio=0, max_extra=9)
    for config in (way, way.model_copy(update={"beam": 2})):
        found = decode(TableModel(CHAIN, 6), ids, keep, config, **SPECIAL, last_tokens=[5, 4, 5], max_lengths=[3, 9, 1])
        assert [one[0].ids for one in found] == [[5, 5, 5], [4] * 9, [5]]


def test_on_token_gets_every_token_and_may_end_an_output() -> None:
    heard: dict[int, list[int]] = {0: [], 1: []}

    def listen(row: int, token: int) -> bool:
        heard[row].append(token)
        return len(heard[row]) == 3 + row

    ids, keep = sources([2, 2])
    found = decode(TableModel(CHAIN, 6), ids, keep, GREEDY, **SPECIAL, on_token=listen)
    assert [one.ids for (one,) in found] == [heard[0], heard[1]] == [[4] * 3, [4] * 4]
    assert not any(one.finished for (one,) in found)


def test_tokens_that_were_there_are_less_likely() -> None:
    ids, keep = sources([2, 2])
    way = DecodingConfig(beam=1, max_ratio=0, max_extra=3, repetition_penalty=3.0)
    # log-probabilities are negative, so that a penalty multiplies them: log 0.6 and log 0.5 fall below log 0.4.
    assert decode(TableModel(CHAIN, 6), ids, keep, way, **SPECIAL)[0][0].ids[:2] == [4, 5]
    ids = torch.full_like(ids, 4)
    assert decode(TableModel(CHAIN, 6), ids, keep, way, **SPECIAL, last_tokens=[4, 5])[0][0].ids[:1] == [5]


def test_a_penalty_divides_what_is_above_zero_and_multiplies_what_is_below() -> None:
    repeats = RepetitionPenalty(2.0, [[0, 2], []], 3, torch.device("cpu"))
    logits = torch.tensor([[3.0, 1.0, -1.0]] * 2)
    assert repeats.apply(logits).tolist() == [[1.5, 1.0, -2.0], [3.0, 1.0, -1.0]]
    repeats.add(torch.tensor([1, 0]))
    repeats.select(torch.tensor([1, 0]))
    assert repeats.apply(logits).tolist() == [[1.5, 1.0, -1.0], [1.5, 0.5, -2.0]]


def test_each_row_has_penalties_of_its_own() -> None:
    counts = counts_of([[1], [1], [1]], 4, torch.device("cpu"))
    count_tokens(counts, torch.tensor([1, 2, 1]))
    assert counts.tolist() == counts_of([[1, 1], [1, 2], [1, 1]], 4, torch.device("cpu")).tolist()
    found = penalise(torch.zeros(3, 4), counts, torch.tensor([0.5, 0.5, 0.0]), torch.tensor([0.0, 0.25, -2.0]))
    assert found.tolist() == [[0, -1.0, 0, 0], [0, -0.75, -0.75, 0], [0, 2.0, 0, 0]]


def test_penalties_change_the_choice_and_leave_other_rows_alone() -> None:
    ids, keep = sources([2, 2])
    way = {"beam": 1, "max_ratio": 0, "max_extra": 4}
    # log 0.5 - log 0.4 = 0.22: one time costs more than the difference, and the counts then alternate.
    for penalty in ({"frequency_penalty": 0.3}, {"presence_penalty": 0.3, "min_length": 2}):
        found = decode(TableModel(CHAIN, 6), ids, keep, DecodingConfig(**way, **penalty), **SPECIAL, last_tokens=[4, 5])
        assert found[0][0].ids[:2] == [4, 5] and found[1][0].ids[:2] == [5, 4]
    with pytest.raises(ValueError, match="presence_penalty acts in greedy search and in sampling"):
        DecodingConfig(presence_penalty=1.0)


def test_log_probabilities_are_the_model_s_own_whatever_is_taken() -> None:
    ids, keep = sources([2, 2, 2])
    config = DecodingConfig(sampling=True, top_k=1, temperature=0.5, frequency_penalty=0.5, max_ratio=0, max_extra=3)
    records = [LogprobRecord(2), None, LogprobRecord(0)]
    found = decode(
        TableModel(CHAIN, 6), ids, keep, config, **SPECIAL, records=records, last_tokens=[4, 4, 5], max_lengths=[3, 3, 1]
    )
    first = records[0]
    assert first is not None and [one.token for one in first.tokens] == found[0][0].ids == [4, 5, 5]
    assert [math.exp(one.logprob) for one in first.tokens] == pytest.approx([0.5, 0.4, 0.5], abs=1e-4)
    assert [token for token, _ in first.tokens[1].top] == [4, 5] and math.exp(first.tokens[1].top[0][1]) == pytest.approx(
        0.5, abs=1e-4
    )
    assert records[2] is not None and len(records[2].tokens) == 1 and records[2].tokens[0].top == ()
    assert token_logprobs(torch.zeros(2, 3), torch.tensor([0, 1]), [None, None]) == [None, None]
