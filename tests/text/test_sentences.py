"""Sentences and pieces: nothing is lost, every piece fits, and a million characters take no longer than they should."""

import random

import pytest

from qkv.text.sentences import split_long, split_sentences


@pytest.mark.parametrize(
    "sentences",
    [
        ["Mr. Smith met Dr. Jones. ", "They paid 3.14 dollars, e.g. for No. 500. ", "Was it dear? ", "No. ", "Good!"],
        ['"Really?" he asked. ', '"Yes." ', "(See below.) ", "She left... ", "Nothing... at all. ", "The end"],
        [
            "Das ist z.B. ein Haus. ",
            "Am 3. Oktober kam Dr. Müller. ",
            "„Gut.“ ",
            "Er ging. ",
            "Nr. 7 blieb, z. B. hier.",
        ],
        ["他来了。", "她走了！", "“你好。”，他说。", "真的吗（是吧！）。", "“是的。”", "“好……好吧。”"],
        ["「はい。」と言った。", "そうです。", "本当？！", "はい"],
        ["¿Qué tal? ", "¡Bien! ", "J. S. Bach came from the U.S. to us. ", "Version 2.0 is out."],
        ["यह है। ", "वह है।"],
        ["هل أنت هنا؟ ", "نعم."],
        ["A title\n", "A text.\n\n", "More"],
    ],
)
def test_sentences(sentences):
    assert split_sentences("".join(sentences)) == sentences


def test_no_text_no_sentences():
    assert split_sentences("") == []
    assert split_sentences("   ") == ["   "]


def shorter_than(limit):
    return lambda text: len(text) < limit


def test_a_text_that_fits_stays_whole():
    assert split_long("One. Two. Three.", shorter_than(100)) == ["One. Two. Three."]
    assert split_long("", shorter_than(5)) == [""]


def test_the_coarsest_cut_that_serves_is_taken():
    assert split_long("One here. Two there.", shorter_than(15)) == ["One here. ", "Two there."]
    clauses = ["Short. ", "First, second, ", "third, ", "1,000 more"]
    assert split_long("".join(clauses), shorter_than(16)) == clauses
    assert split_long("one two three four", shorter_than(10)) == ["one two ", "three ", "four"]
    assert split_long("你好，世界，再见", shorter_than(6)) == ["你好，", "世界，再见"]
    assert split_long("abcdefgh", shorter_than(4)) == ["abc", "def", "gh"]


def test_a_single_character_that_does_not_fit_is_left_as_it_is():
    assert split_long("a bc", lambda text: False) == ["a", " ", "b", "c"]


def random_text(rng):
    signs = [
        "a",
        "Be",
        "Mr",
        "3.1",
        "中",
        "文",
        ".",
        "!",
        "?",
        "…",
        "。",
        "！",
        "，",
        ",",
        ";",
        " ",
        "  ",
        "\n",
        '"',
        "“",
        "”",
        ")",
    ]
    return "".join(rng.choices(signs, k=rng.randrange(60)))


def test_joined_pieces_are_the_text_and_each_fits():
    rng = random.Random(7)
    for _ in range(1500):
        text = random_text(rng)
        assert "".join(split_sentences(text)) == text
        limit = rng.randrange(1, 40)
        pieces = split_long(text, lambda piece, limit=limit: len(piece.encode()) <= 3 + limit)
        assert "".join(pieces) == text
        assert all(len(piece.encode()) <= 3 + limit for piece in pieces)
        assert all(pieces) or text == ""


MILLION = {
    "letters": "a" * 1_000_000,
    "words": "word " * 200_000,
    "stops": "." * 1_000_000,
    "stops and brackets": ".)" * 500_000,
    "closing": "." + ")" * 1_000_000,
    "spaces": " " * 1_000_000,
    "commas": "ab, " * 250_000,
    "Chinese": "中" * 1_000_000,
    "sentences": "This is it. " * 83_333,
}


@pytest.mark.parametrize("kind", MILLION)
def test_a_million_characters(kind):
    text = MILLION[kind]
    asked = 0

    def fits(piece):
        nonlocal asked
        asked += len(piece)
        return len(piece) <= 200

    pieces = split_long(text, fits)
    assert "".join(pieces) == text and max(map(len, pieces)) <= 200
    # What a tokenizer would have to read: a small multiple of the text.
    assert asked < 12 * len(text)
