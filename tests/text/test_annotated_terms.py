"""Annotated terms: translations between the tokens of a source, in a share of the pairs that is always the same."""

import pytest

from qkv.text.annotated_terms import NO_PLACE, TermAnnotator, annotate, own_tokens
from qkv.text.glossary import Glossary, count_translations, missing_terms
from qkv.text.special_tokens import TERM_TOKENS
from qkv.text.tokenizer import Tokenizer, TokenizerConfig, train_tokenizer

TEXTS = ["Press the switch now.", "Der Schalter ist im Parkhaus.", "the car park and the switch", "请重启设备吗 restart device"]
GLOSSARY = Glossary({"switch": ["Schalter", "Taster"], "car park": "Parkhaus", "重启": "restart"})


def tokenizer_of(kind: str) -> Tokenizer:
    config = TokenizerConfig(kind=kind, vocab=1200)  # type: ignore[arg-type]
    return train_tokenizer(config, TEXTS * 3).with_special_tokens(TERM_TOKENS)


@pytest.mark.parametrize("kind", ["bpe", "byte-bpe", "unigram", "wordpiece", "words", "characters"])
def test_translations_stand_after_terms_and_the_rest_stays(kind: str) -> None:
    tokenizer = tokenizer_of(kind)
    for text in TEXTS:
        ((ids, spans),) = tokenizer.encode_with_offsets([text])
        matches = GLOSSARY.find(text)
        made, places = annotate(tokenizer, ids, [start for start, _ in spans], matches, 100)
        own = own_tokens(tokenizer, made)
        assert [made[index] for index in own] == ids and len(places) == len(made)
        assert [place != NO_PLACE for place in places] == [index in own for index in range(len(made))]
        term, translation, end = tokenizer.term_tokens
        assert [made.count(separator) for separator in (term, translation, end)] == [made.count(term)] * 3
        if kind != "words":  # whose words have signs, and no Chinese ones
            assert made.count(term) == len(matches)
        start = 0
        for match in matches if made.count(term) == len(matches) else ():
            first, middle, last = (made.index(separator, start) for separator in (term, translation, end))
            assert match.term.source in tokenizer.decode(made[first:middle])
            assert tokenizer.decode(made[middle:last]).strip() == match.targets[0]
            start = last + 1


def test_annotations_leave_out_what_has_no_room_or_cannot_be_spelled() -> None:
    tokenizer, text = tokenizer_of("words"), "the switch and the switch"
    ids, starts = tokenizer.encode(text), [0, 4, 11, 15, 19]
    both = GLOSSARY.find(text)
    assert len(annotate(tokenizer, ids, starts, both, 13)[0]) == 13
    assert len(annotate(tokenizer, ids, starts, both, 12)[0]) == 9
    assert annotate(tokenizer, ids, starts, both, 8) == (ids, starts)
    unknown = Glossary({"switch": "Xyzzy"}).find(text)
    assert annotate(tokenizer, ids, starts, unknown, 100) == (ids, starts)
    untaught = train_tokenizer(TokenizerConfig(kind="words", vocab=50), TEXTS)
    assert untaught.term_tokens == [] and own_tokens(untaught, [5, 6]) == [0, 1]


def test_pairs_are_chosen_by_seed_and_text() -> None:
    pairs = [(f"the switch {n}", f"der Schalter {n}") for n in range(400)]
    chosen = [[bool(TermAnnotator(GLOSSARY, share, seed).choose(*pair)) for pair in pairs]
              for share, seed in ((0.3, 1), (0.3, 1), (0.3, 2), (1.0, 1))]  # fmt: skip
    assert chosen[0] == chosen[1] != chosen[2] and sum(chosen[3]) == 400
    assert all(80 < sum(each) < 160 for each in chosen[:3])
    keys = [TermAnnotator(*each).key for each in ((GLOSSARY, 0.3, 1), (GLOSSARY, 0.4, 1), (GLOSSARY, 0.3, 2))]
    keys += [TermAnnotator(Glossary({"switch": "Schalter"}), 0.3, 1).key]
    assert len({str(key) for key in keys}) == 4


def test_only_terms_whose_translation_is_in_the_target_are_chosen() -> None:
    annotator = TermAnnotator(GLOSSARY, 1.0, 1)
    assert annotator.choose("the switch", "das Licht") == annotator.choose("the light", "der Schalter") == []
    (found,) = annotator.choose("the switch in the car park", "die Tastern im Haus")
    assert found.targets == ("Taster",) and found.start == 4
    first, second = annotator.choose("switch, car park, switch", "Schalter im Parkhaus")  # one Schalter is for one switch
    assert (first.targets, second.targets) == (("Schalter",), ("Parkhaus",))
    (longest,) = TermAnnotator(Glossary({"device*": "Gerät|Geräte"}), 1.0, 1).choose("devices", "Geräte")
    assert longest.targets == ("Geräte",)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("Der Schalter und (Schalter), \u201eSchalter\u201c.", 3),
        ("Schalters, Schaltern, des Schalterchen", 3),
        ("die Schalterleiste, ein Lichtschalter, AusSchalter", 0),
        ("WLAN-Schalter/Schalter", 2),
    ],
)
def test_a_translation_begins_a_word_and_may_have_an_ending(text: str, count: int) -> None:
    assert count_translations(text, ["Schalter"]) == count
    assert count_translations(text.replace("Schalter", "schalten"), ["schalten", "schalte"]) == count
    assert count_translations("Schalten", ["schalten"]) == 1 and count_translations("schalter", ["Schalter"]) == 0


def test_a_term_that_occurs_twice_is_missing_once() -> None:
    matches = GLOSSARY.find("switch, car park, switch")
    assert [match.start for match in missing_terms(matches, "ein Taster")] == [8, 18]
    assert missing_terms(matches, "Parkhaus, Schalter, Taster") == []
    assert count_translations("请重启设备", ["重启"]) == 1
