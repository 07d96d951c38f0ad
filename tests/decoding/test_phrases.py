"""Phrases that outputs must contain: against full enumeration, as properties of every output, and beside other constraints."""

import functools
import itertools
import math
import random

import numpy as np
import pytest
import torch
from decoding_toys import BOS, EOS, SPECIAL, HashModel, TableModel, all_texts, occurrences, sources

from qkv.base.errors import ConfigError, DataError
from qkv.decoding.config import DecodingConfig
from qkv.decoding.phrases import BEGIN, Phrase, PhraseTables, build_automaton
from qkv.decoding.scoring import score
from qkv.decoding.search import decode


def phrase(*forms: list[int], once: bool = False) -> Phrase:
    return Phrase(tuple(map(tuple, forms)), once)


def contains(ids: list[int], wanted: list[Phrase]) -> bool:
    """Whether an output contains all phrases, in the plainest words: each as often as it is given, or exactly so."""
    counts = {one: occurrences(ids, one) for one in wanted}
    return not missing(ids, wanted) and not any(one.once and counts[one] > wanted.count(one) for one in wanted)


def missing(ids: list[int], wanted: list[Phrase]) -> list[int]:
    """Return the numbers of the phrases that an output does not contain; one occurrence counts for one of several equal ones."""
    return [k for k, one in enumerate(wanted) if occurrences(ids, one) <= wanted[:k].count(one)]


WANTED = [
    [phrase([5])],
    [phrase([4, 5])],
    [phrase([4, 4, 5]), phrase([1])],
    [phrase([5, 1], [4])],
    [phrase([5], once=True), phrase([1])],
    [phrase([4]), phrase([4])],
    [phrase([5, 4]), phrase([4, 1])],  # which may overlap
    [phrase([1, 5], [4, 1], once=True)],
    [phrase([1], once=True), phrase([1], once=True)],
]


def short_outputs(penalty: float) -> DecodingConfig:
    # The limit grows by the phrases' tokens, which max_length takes back.
    return DecodingConfig(beam=400, n_best=10, length_penalty=penalty, max_ratio=0, max_extra=6, max_length=6)


@functools.cache
def enumerated(penalty: float) -> list[list[tuple[float, list[int]]]]:
    """Return every text for each of two sources, best first; phrases choose among them and do not change their scores."""
    return [all_texts(HashModel(6, end=1.0), source, short_outputs(penalty), 6) for source in sources([3, 3])[0]]


@pytest.mark.parametrize("wanted", WANTED, ids=str)
@pytest.mark.parametrize("penalty", [0.0, 1.0])
def test_a_beam_wide_enough_finds_what_enumeration_finds(wanted: list[Phrase], penalty: float) -> None:
    found = decode(HashModel(6, end=1.0), *sources([3, 3]), short_outputs(penalty), phrases=[wanted, wanted], **SPECIAL)
    for outputs, texts in zip(found, enumerated(penalty), strict=True):
        best = [one for one in texts if contains(one[1], wanted)][:10]
        assert [one.ids for one in outputs if one.finished] == [tokens for _, tokens in best]
        assert [one.score for one in outputs if one.finished] == pytest.approx([total for total, _ in best], abs=1e-5)


def random_phrases(rng: random.Random) -> list[Phrase]:
    def form() -> list[int]:
        return [rng.randrange(4, 20) for _ in range(rng.choice([1, 1, 2, 3]))]

    return [phrase(*[form() for _ in range(rng.choice([1, 1, 2]))], once=rng.random() < 0.3) for _ in range(rng.randrange(1, 5))]


@pytest.mark.parametrize("beam", [2, 5])
@pytest.mark.parametrize("end", [0.0, 4.0])
def test_every_output_contains_its_phrases_and_scores_as_the_model_scores(beam: int, end: float) -> None:
    rng = random.Random(beam)
    wanted = [random_phrases(rng) for _ in range(40)]
    # A phrase inside another that may occur once cannot be told apart, so these may contradict each other.
    wanted = [each for each in wanted if not any(one.once for one in each) or len(each) == 1]
    ids, keep = sources([rng.randrange(2, 9) for _ in wanted])
    results = decode(HashModel(20, end=end), ids, keep, DecodingConfig(beam=beam, n_best=2), phrases=wanted, **SPECIAL)
    for i, (found, each) in enumerate(zip(results, wanted, strict=True)):
        assert found and found[0].finished
        for one in found:
            assert contains(one.ids, each)
        done = [one for one in found if one.finished]
        again = score(
            HashModel(20, end=end), ids[[i] * len(done)], keep[[i] * len(done)], [one.ids for one in done], bos=BOS, eos=EOS
        )
        assert [one.logprob for one in done] == pytest.approx([one.logprob for one in again], abs=1e-4)


def test_inputs_without_phrases_are_searched_as_ever() -> None:
    ids, keep = sources([5, 9, 4, 7, 3])
    for levels, config in itertools.product(
        (0, 3), (DecodingConfig(beam=5, n_best=5), DecodingConfig(beam=2, coverage_penalty=0.3))
    ):
        free = decode(HashModel(9, levels=levels), ids, keep, config, **SPECIAL)
        wanted = [[], [phrase([5, 6]), phrase([4])], [], [phrase([8, 8])], []]
        mixed = decode(HashModel(9, levels=levels), ids, keep, config, phrases=wanted, **SPECIAL)
        assert [mixed[i] for i in (0, 2, 4)] == [free[i] for i in (0, 2, 4)]
        assert mixed[1] != free[1] and contains(mixed[1][0].ids, wanted[1])
    assert decode(HashModel(9), ids, keep, config, phrases=[[]] * 5, **SPECIAL) == decode(
        HashModel(9), ids, keep, config, **SPECIAL
    )


def test_phrases_come_where_they_are_likeliest() -> None:
    # 4 5 6 7 is what the model writes; 8 fits only after 5, and anywhere else costs far more.
    chain = {BOS: {4: 1.0}, 4: {5: 1.0}, 5: {6: 0.9, 8: 0.1}, 8: {6: 1.0}, 6: {7: 1.0}, 7: {EOS: 0.99, 8: 0.01}}
    ids, keep = sources([4])
    model = TableModel({token: {**dict.fromkeys(range(4, 9), 1e-6), **row} for token, row in chain.items()}, 9)
    for wanted in ([phrase([8])], [phrase([8, 6])], [phrase([8, 6]), phrase([5]), phrase([7])]):
        assert decode(model, ids, keep, DecodingConfig(beam=3), phrases=[wanted], **SPECIAL)[0][0].ids == [4, 5, 8, 6, 7]


def test_beside_other_constraints() -> None:
    ids, keep = sources([5, 9])
    wanted = [[phrase([6, 6, 6])], [phrase([7]), phrase([8, 7])]]
    config = DecodingConfig(beam=5, n_best=3, no_repeat_ngram=1, min_length=6)
    for i, found in enumerate(decode(HashModel(12), ids, keep, config, prefix=[[5], [8]], phrases=wanted, **SPECIAL)):
        assert found and all(contains(one.ids, wanted[i]) and len(one.ids) >= 6 and one.ids[0] == [5, 8][i] for one in found)
        for one in found:  # a phrase may repeat tokens, nothing else
            assert all(one.ids.count(token) == 1 for token in set(one.ids) - {6, 7, 8})
    allowed = [torch.tensor([4, 5])] * 2
    results = decode(HashModel(12), ids, keep, DecodingConfig(), allowed=allowed, phrases=wanted, **SPECIAL)
    for found, each in zip(results, wanted, strict=True):
        assert contains(found[0].ids, each) and set(found[0].ids) <= {4, 5, 6, 7, 8}


def test_a_prefix_counts() -> None:
    ids, keep = sources([5])
    free = decode(HashModel(12), ids, keep, DecodingConfig(), prefix=[[6, 7]], **SPECIAL)[0][0]
    held = decode(HashModel(12), ids, keep, DecodingConfig(), prefix=[[6, 7]], phrases=[[phrase([6, 7])]], **SPECIAL)[0][0]
    assert held.ids == free.ids and held.ids[:2] == [6, 7]


def test_tokens_that_never_come_come_in_phrases_alone() -> None:
    ids, keep = sources([5, 9])
    options = {**SPECIAL, "never": [4, 5, 6]}
    wanted = [[phrase([4], once=True), phrase([6], once=True)], []]
    first, second = decode(HashModel(8, end=-3.0), ids, keep, DecodingConfig(beam=4, n_best=4), phrases=wanted, **options)
    for one in first:
        assert (one.ids.count(4), one.ids.count(5), one.ids.count(6)) == (1, 0, 1)
    assert all(set(one.ids) <= {1, 7} for one in second)


def test_the_limit_makes_room_and_is_kept() -> None:
    ids, keep = sources([2, 2])
    config = DecodingConfig(beam=3, max_ratio=0, max_extra=2)
    long = [phrase([4, 5, 6, 7, 8]), phrase([9, 9])]
    found = decode(HashModel(12), ids, keep, config, phrases=[long, []], **SPECIAL)
    assert contains(found[0][0].ids, long) and len(found[0][0].ids) <= 9 and len(found[1][0].ids) <= 2
    # Even an end that never comes by itself leaves the phrases their room.
    endless = decode(HashModel(12, end=-60), ids, keep, config, phrases=[long, []], **SPECIAL)
    assert contains(endless[0][0].ids, long) and len(endless[0][0].ids) <= 9


def test_what_cannot_be_met_is_left_out() -> None:
    ids, keep = sources([4])
    long, short = phrase([4, 5, 6, 7, 8, 9]), phrase([10])
    found = decode(HashModel(12), ids, keep, DecodingConfig(max_length=5), phrases=[[long, short]], **SPECIAL)[0]
    assert found and all(missing(one.ids, [long, short]) == [0] for one in found)
    impossible = TableModel({BOS: {4: 1.0}, 4: {5: 0.5, EOS: 0.5}, 5: {4: 1.0}}, 8)
    found = decode(impossible, ids, keep, DecodingConfig(max_extra=5), phrases=[[phrase([7]), phrase([5])]], **SPECIAL)[0]
    assert found and 7 not in found[0].ids and 5 in found[0].ids and math.isfinite(found[0].score)


def test_forms_for_the_beginning_stand_there_alone() -> None:
    ids, keep = sources([4])
    # 4 would come second in every text; after BEGIN it is one form of the phrase, and 5 6 is the other.
    chain = {token: {4: 0.4, 5: 0.1, 6: 0.1, 7: 0.2, EOS: 0.2} for token in range(4, 8)}
    wanted = [Phrase(((BEGIN, 4), (5, 6)))]
    late = decode(TableModel({BOS: {7: 1.0}, **chain}, 8), ids, keep, DecodingConfig(), phrases=[wanted], **SPECIAL)[0][0]
    assert (5, 6) in itertools.pairwise(late.ids)
    early = decode(TableModel({BOS: {7: 0.9, 4: 0.1}, **chain}, 8), ids, keep, DecodingConfig(), phrases=[wanted], **SPECIAL)[0][
        0
    ]
    assert early.ids[0] == 4 and (5, 6) not in itertools.pairwise(early.ids)


def test_wrong_phrases_are_refused() -> None:
    ids, keep = sources([4])
    for config in (DecodingConfig(beam=1), DecodingConfig(sampling=True)):
        with pytest.raises(ConfigError, match="only beam search finds outputs that contain phrases"):
            decode(HashModel(), ids, keep, config, phrases=[[phrase([4])]], **SPECIAL)
    with pytest.raises(DataError, match="phrases has 2 entries for 1 inputs"):
        decode(HashModel(), ids, keep, DecodingConfig(), phrases=[[], []], **SPECIAL)
    with pytest.raises(DataError, match="the id 99, but the model knows 7"):
        decode(HashModel(), ids, keep, DecodingConfig(), phrases=[[phrase([99])]], **SPECIAL)
    for forms in ((), ((),), ((BEGIN, 4),)):
        with pytest.raises(DataError, match="a phrase has no tokens"):
            Phrase(forms)


def test_the_automaton_follows_every_text_as_a_search_of_the_text_does() -> None:
    rng = random.Random(3)
    for _ in range(30):
        wanted = [
            phrase(*[[rng.randrange(3) for _ in range(rng.randrange(1, 4))] for _ in range(rng.randrange(1, 3))])
            for _ in range(3)
        ]
        assert build_automaton(tuple(wanted)).goto.shape[1] <= 3
        progress = PhraseTables([wanted], EOS).begin()
        text: list[int] = []
        for _ in range(12):
            text.append(rng.randrange(4))
            progress = progress.advance(np.zeros((1, 1), dtype=np.int64), np.array([[text[-1]]]))
            assert [k for k, met in enumerate(progress.met[0, 0].tolist()) if not met] == missing(text, wanted)
            assert (int(progress.left[0, 0]) == 0) == contains(text, wanted)
