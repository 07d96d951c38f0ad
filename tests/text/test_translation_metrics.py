"""Scores agree with sacreBLEU, with a plain table of distances, and with what can be counted by hand."""

import random

import pytest
import sacrebleu

from qkv.base.errors import ConfigError, DataError
from qkv.text.translation_metrics import METRICS, Score, compare_systems, edit_distance, gather_references, score_corpus

REFERENCES = ["the cat sat on the mat", "a dog ran in the park", "it rains today again", "we read old books"] * 10
OUTPUTS = ["the cat sat on a mat", "a dog ran in the park", "it is raining again", "we read books"] * 10


def distance_by_table(a, b):
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        before, row = row, [i]
        for j, y in enumerate(b, 1):
            row.append(min(before[j] + 1, row[-1] + 1, before[j - 1] + (x != y)))
    return row[-1]


def test_edit_distance_equals_the_table():
    rng = random.Random(1)
    for _ in range(500):
        a = [rng.choice("abcd") for _ in range(rng.randrange(12))]
        b = [rng.choice("abcd") for _ in range(rng.randrange(12))]
        assert edit_distance(a, b) == distance_by_table(a, b)


def test_edit_distance_beyond_a_machine_word():
    rng = random.Random(2)
    a = [rng.choice("abc") for _ in range(150)]
    b = [rng.choice("abc") for _ in range(130)]
    assert edit_distance(a, b) == edit_distance(b, a) == distance_by_table(a, b)


def test_bleu_chrf_ter_are_sacrebleus():
    bleu, chrf, ter = score_corpus(OUTPUTS, REFERENCES, ("bleu", "chrf", "ter"))
    assert bleu.value == sacrebleu.corpus_bleu(OUTPUTS, [REFERENCES]).score
    assert chrf.value == sacrebleu.corpus_chrf(OUTPUTS, [REFERENCES]).score
    assert ter.value == sacrebleu.corpus_ter(OUTPUTS, [REFERENCES]).score
    assert bleu.signature.startswith("nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:")
    assert "nc:6|nw:0" in chrf.signature
    assert (bleu.low, bleu.high) == (None, None)


def test_confidence_is_sacrebleus_bootstrap():
    (bleu,) = score_corpus(OUTPUTS, REFERENCES, ("bleu",), confidence=True)
    metric = sacrebleu.BLEU()
    theirs = metric.corpus_score(OUTPUTS, [REFERENCES], n_bootstrap=1000)
    assert bleu.value == theirs.score
    assert bleu.high - bleu.low == pytest.approx(2 * theirs._ci, abs=1e-4)
    assert bleu.low < bleu.value < bleu.high
    assert bleu.signature == str(metric.get_signature())
    assert "bs:1000|seed:12345" in bleu.signature


def test_confidence_of_our_own_metrics():
    for score in score_corpus(OUTPUTS, REFERENCES, ("token_errors", "exact"), confidence=True):
        assert score.low < score.value < score.high
        assert "bs:1000|seed:12345" in score.signature


@pytest.mark.parametrize(
    ("language", "tokenizer"),
    [(None, "13a"), ("de", "13a"), ("zh", "zh"), ("zh-Hans", "zh"), ("zho_Hant", "zh"), ("th", "char")],
)
def test_bleu_tokenizer_follows_the_target_language(language, tokenizer):
    (bleu,) = score_corpus(["关闭 灯"], ["关闭灯"], ("bleu",), language)
    assert f"tok:{tokenizer}" in bleu.signature


@pytest.mark.parametrize("language", ["ja", "ko"])
def test_without_mecab_characters_stand_in(language):
    (bleu,) = score_corpus(["電気を消す"], ["電気を消す"], ("bleu",), language)
    assert "tok:char" in bleu.signature or f"tok:{language}-mecab" in bleu.signature
    assert bleu.value == pytest.approx(100)


def test_ter_of_chinese_counts_characters():
    (ter,) = score_corpus(["我们读旧书吧"], ["我们读旧书啊"], ("ter",), "zh")
    assert ter.value == pytest.approx(100 / 6)


def test_token_errors_count_the_nearest_reference():
    outputs = ["R IY1 D", "K AE1 T", ""]
    references = [["R EH1 D", "R IY1 D"], ["K AH1 T S"], ["B IY1"]]
    (errors,) = score_corpus(outputs, references, ("token_errors",))
    assert errors.value == pytest.approx(100 * (0 + 2 + 2) / (3 + 4 + 2))
    assert "nrefs:var" in errors.signature
    assert "tok:whitespace" in errors.signature


def test_exact_accepts_any_reference():
    (exact,) = score_corpus(["a  b", "c", "d"], [["x", "a b"], ["C"], ["d"]], ("exact",))
    assert exact.value == pytest.approx(200 / 3)


def test_empty_reference_and_output():
    assert score_corpus([""], [""], ("token_errors",))[0].value == 0
    assert score_corpus(["a"], [""], ("token_errors",))[0].value == 100


def test_several_references_reach_bleu():
    one = score_corpus(["the cat sat on the mat"], ["a cat is on the mat"], ("bleu",))[0]
    two = score_corpus(["the cat sat on the mat"], [["a cat is on the mat", "the cat sat on the mat"]], ("bleu",))[0]
    assert one.value < two.value == pytest.approx(100)


def test_paired_test_tells_a_difference_from_none():
    worse = ["a cat sat", "dog in the park", "it rains", "we read books"] * 10
    for metric in METRICS:
        (clear,) = compare_systems(worse, REFERENCES, REFERENCES, (metric,))
        (none,) = compare_systems(OUTPUTS, OUTPUTS, REFERENCES, (metric,))
        assert clear.p_value < 0.01 and clear.baseline != clear.system
        assert none.p_value == 1 and none.baseline == none.system
        assert (clear.system > clear.baseline) == METRICS[metric].higher_is_better


def test_gather_references():
    pairs = [("read", "R EH1 D"), ("cat", "K AE1 T"), ("read", "R IY1 D")]
    assert gather_references(pairs) == {"read": ["R EH1 D", "R IY1 D"], "cat": ["K AE1 T"]}


def test_score_as_text():
    assert str(Score("bleu", 25.04, 24.0, 26.06, "sig")) == "BLEU 25.0 [24.0, 26.1]"
    assert str(Score("token_errors", 8.0, None, None, "sig")) == "token errors 8.0"


@pytest.mark.parametrize(
    ("outputs", "references", "metrics", "error", "words"),
    [
        (["a"], ["a", "b"], ("bleu",), DataError, "1 outputs but references for 2"),
        ([], [], ("bleu",), DataError, "nothing to score"),
        (["a", "b"], [["a"], []], ("bleu",), DataError, "output 2 has no reference"),
        (["a"], ["a"], ("blue",), ConfigError, "did you mean 'bleu'"),
        (["a"], ["a"], ("xyzzy",), ConfigError, "choose from bleu, chrf, ter"),
    ],
)
def test_bad_input(outputs, references, metrics, error, words):
    with pytest.raises(error, match=words):
        score_corpus(outputs, references, metrics)
