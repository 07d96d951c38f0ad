"""Protected spans and sentences: whatever a model does to its words, texts keep their spans."""

import random
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from qkv.base.errors import ConfigError
from qkv.data.corpora import SourceStatistics, Tokenizers
from qkv.decoding.hypothesis import Hypothesis
from qkv.inference.translator import Translator
from qkv.recipes import parse_recipe
from qkv.text.protected_text import ProtectedSpan, ProtectedText, compile_patterns, find_spans, keep_spans_apart
from qkv.text.tokenizer import Tokenizer, TokenizerConfig, train_tokenizer

SIGNS = [".", ",", "!", "(", ")"]
WORDS = ["the", "house", "is", "red", "and", "you", "see", "a", "small", "garden", "Press", "OK", "42", "你", "好", "我", *SIGNS]
ALONE = ["{name}", "{{ var }}", "%s", "%1$d", "%(n)s", "$VAR", "${x}", "&amp;", '<x id="1"/>', "https://a.org/b?c=1", "me@x.org",
         "{n, number}", "#{y}", "$(V)", "<%= z > 1 %>", "http://b.org/c_(d)"]  # fmt: skip
TAGS = [("<b>", "</b>"), ('<a href="x y">', "</a>"), ("<0>", "</0>")]
MODEL = {"width": 8, "feedforward": 8, "heads": 2, "encoder_layers": 1, "decoder_layers": 1}


class FakeEngine:
    """An engine whose outputs are made from the sources by a function, without constraints; it may show attention."""

    device, longest = torch.device("cpu"), None

    def takes_phrases(self, config: Any) -> bool:
        return True

    def __init__(self, change: Any, attention: Any = None):
        self.change, self.shown = change, attention
        self.phrases: list[Any] = []

    def decode(self, sources: Sequence[list[int]], *rest: Any) -> list[list[Hypothesis]]:
        self.phrases += rest[4]
        return [[Hypothesis(self.change(ids), -1.0, -1.0, True)] for ids in sources]

    def attention(self, source: list[int], target: list[int]) -> Tensor:
        if self.shown is None:
            raise ConfigError("no attention")
        return self.shown(source, target)


@pytest.fixture(scope="module", params=["bpe", "byte-bpe", "unigram", "wordpiece", "characters"])
def tokenizer(request: Any) -> Tokenizer:
    texts = [" ".join(WORDS), *WORDS, *ALONE, "".join(WORDS), *(tag for pair in TAGS for tag in pair)] * 2
    return train_tokenizer(TokenizerConfig(kind=request.param, vocab=1200, sentinels=4), texts)


def translator(tokenizer: Tokenizer, engine: FakeEngine, protect: bool = True, **data: Any) -> Translator:
    values = {"data": {"train": "x", "dev": "x", "max_tokens": 2000, "protect": protect, **data},
              "tokenizer": {"shared": {"file": "x"}}, "model": MODEL, "training": {"steps": 1}}  # fmt: skip
    return Translator(engine, Tokenizers(tokenizer, tokenizer), parse_recipe(values, "here"))


def random_text(rng: random.Random, depth: int = 0) -> str:
    """Return words, spans and nested tags with random single spaces, or none, between them."""
    made = ""
    for _ in range(rng.randint(1, 6)):
        kind = rng.random()
        if kind < 0.6:
            made += rng.choice(WORDS)
        elif kind < 0.8 or depth > 2:
            span = rng.choice(ALONE)
            made += f" {span} " if span[-1].isalpha() or span[-1].isdigit() else span  # these would go on in a letter
        else:
            opening, closing = rng.choice(TAGS)
            made += opening + rng.choice(["", " "]) + random_text(rng, depth + 1) + rng.choice(["", " "]) + closing
        made += rng.choice(["", " ", " ", " "])
    return made


def nested(text: str) -> bool:
    """Return whether all tags of TAGS are nested."""
    stack = []
    for tag in re.findall(r"</?(?:b|a|0)\b[^>]*>", text):
        name = re.findall(r"\w+", tag)[0]
        if not tag.startswith("</"):
            stack.append(name)
        elif not stack or stack.pop() != name:
            return False
    return not stack


def spans_of(text: str) -> dict[str, int]:
    found = [*ALONE, *(tag for pair in TAGS for tag in pair)]
    return {span: text.count(span) for span in found if span in text}


def found_in(text: str) -> Counter[str]:
    return Counter(text[span.start : span.end] for span in find_spans(text, compile_patterns()))


@pytest.mark.parametrize("protect", [True, False])
def test_a_model_that_copies_gives_back_the_text(tokenizer: Tokenizer, protect: bool) -> None:
    rng = random.Random(3)
    texts = [random_text(rng).strip() for _ in range(150)]
    same = translator(tokenizer, FakeEngine(list), protect)
    for split in ("sentences", "never"):
        assert same.translate(texts, split=split) == texts


@pytest.mark.parametrize("protect", [True, False])
@pytest.mark.parametrize("name", ["reversed", "half", "twice", "nothing", "shuffled"])
def test_every_span_survives_once_and_nested_whatever_the_model_does(tokenizer: Tokenizer, name: str, protect: bool) -> None:
    rng = random.Random(5)
    changes = {
        "reversed": lambda ids: ids[::-1],
        "half": lambda ids: ids[: len(ids) // 2],
        "twice": lambda ids: [*ids, *ids],
        "nothing": lambda ids: [],
        "shuffled": lambda ids: rng.sample(ids, len(ids)),
    }
    noise = torch.Generator().manual_seed(1)
    shown = lambda source, target: torch.rand(len(target) + 1, len(source), generator=noise)  # noqa: E731
    texts = [random_text(rng).strip() for _ in range(80)]
    for attention in (None, shown):
        outputs = translator(tokenizer, FakeEngine(changes[name], attention), protect).translate(texts)
        for text, output in zip(texts, outputs, strict=True):
            assert {span: output.count(span) for span in spans_of(text)} == spans_of(text), (text, output)
            assert nested(output), (text, output)
            assert found_in(output) == found_in(text), (text, output)


def test_long_texts_are_cut_outside_spans_and_stay_well_formed(tokenizer: Tokenizer) -> None:
    rng = random.Random(6)
    texts = ["".join(random_text(rng) for _ in range(12)).strip() for _ in range(10)]
    short = translator(tokenizer, FakeEngine(list), max_tokens=40)
    for text, output in zip(texts, short.translate(texts), strict=True):
        assert spans_of(output) == spans_of(text) and nested(output), (text, output)
        assert len(short.segmenter.cut(text)) > 1


# One tokenizer is enough for what follows.


@pytest.fixture(scope="module")
def pieces() -> Tokenizer:
    texts = [" ".join(WORDS), *WORDS, *ALONE, "I am here. You are there. He is nowhere.", "<>{}/。"] * 3
    return train_tokenizer(TokenizerConfig(kind="bpe", vocab=400, sentinels=4), texts)


def word_engine(tokenizer: Tokenizer, order: str = "reversed") -> FakeEngine:
    """Return an engine that reverses or keeps the tokens, with attention to the token that each one came from."""
    change = (lambda ids: ids[::-1]) if order == "reversed" else list
    flip = torch.flip if order == "reversed" else lambda eye, _: eye
    return FakeEngine(change, lambda source, target: torch.cat([flip(torch.eye(len(source)), [0]), torch.zeros(1, len(source))]))


@pytest.mark.parametrize("protect", [True, False])
def test_tags_go_with_the_words_that_move(pieces: Tokenizer, protect: bool) -> None:
    backwards = translator(pieces, word_engine(pieces), protect)
    assert backwards.translate(["the <b>house</b> is red"]) == ["red is <b>house</b> the"]
    assert backwards.translate(["the <b>house is</b> red"]) == ["red <b>is house</b> the"]
    assert backwards.translate(["the <b>house <0>is</0></b> red"]) == ["red <b><0>is</0> house</b> the"]
    assert backwards.translate(["<b>the</b> house <0>is red</0>"]) == ["<0>red is</0> house <b>the</b>"]


def test_tags_without_words_that_attend_to_them_take_the_word_of_their_first(pieces: Tokenizer) -> None:
    def attention(source: list[int], target: list[int]) -> Tensor:
        table = torch.zeros(len(target) + 1, len(source))
        table[:, 0] = 1.0  # all words attend most to the first one
        table[1, 1] = 0.5
        return table

    shy = translator(pieces, FakeEngine(lambda ids: pieces.encode("you see it"), attention))
    assert shy.translate(["the <b>house</b> is"]) == ["you <b>see</b> it"]
    assert shy.translate(["the <b>.</b> is"]) == ["you <b>see</b> it"]


def test_a_link_is_never_without_a_word_while_there_is_one(pieces: Tokenizer) -> None:
    first = FakeEngine(lambda ids: pieces.encode("you see it"), lambda s, t: torch.eye(1, len(s)).expand(len(t) + 1, -1))
    assert translator(pieces, first).translate(["the <b>house</b> <0>is</0>"]) == ["<b>you</b> <0>see</0> it"]


def test_tags_around_a_whole_text_are_not_read(pieces: Tokenizer) -> None:
    for text in ("<b>the house</b>", "<0><b> the house </b></0>"):
        assert sentences(pieces, text) == ["the house"]


@pytest.mark.parametrize(
    "text",
    [
        "", "   ", "{name}", "{a} - {b}", "<b></b>", "<b>{x}</b>", "<b>the house", "the house</b>", "<b><0>the</b> house</0>",
        "Press<b> OK</b>.", "the<b/>house", "you see <extra_id_0> and <extra_id_3>", "<pad> the </s>", "a {a}{b}{c}{d}{e} house",
        "%s %s %s and %s, %s", "你好{name}我<b>好</b>", "你<x id=\"1\"/>好", "<b>the</b><b>house</b>",
    ],
)  # fmt: skip
@pytest.mark.parametrize("protect", [True, False])
def test_odd_texts_come_back_as_they_are(pieces: Tokenizer, text: str, protect: bool) -> None:
    assert translator(pieces, FakeEngine(list), protect).translate([text]) == [text.strip()]


def test_spans_are_given_to_the_engine_as_phrases(pieces: Tokenizer) -> None:
    engine = FakeEngine(list)
    taught = translator(pieces, engine)
    taught.translate(["a {x} house %s", "the house"])
    assert [[phrase.forms for phrase in each] for each in engine.phrases] == [[((token,),) for token in pieces.sentinels[:2]], []]


def test_a_model_without_sentinels_reads_spans_and_where_it_loses_one_a_text_without_them(pieces: Tokenizer) -> None:
    read: list[str] = []

    def lose_placeholders(ids: list[int]) -> list[int]:
        read.append(pieces.decode(ids))
        return pieces.encode(read[-1].replace("%s", "is").upper() if "%" in read[-1] else read[-1])

    untaught = translator(pieces, FakeEngine(lose_placeholders), protect=False)
    assert untaught.translate(["the house %s, the red %s house <x/>"]) == ["the house %s, the red %s house <x/>"]
    assert read == ["the house %s, the red %s house", "the house, the red house"]
    read.clear()
    assert untaught.translate(["see https://a.org and https://a.org/b?c=1"]) == ["see https://a.org and https://a.org/b?c=1"]
    assert len(read) == 1  # one of them begins the other, and both are there
    assert untaught.translate(["the house", "the house %s."]) == ["the house", "the house %s."]


def test_more_spans_than_sentinels_are_spelled_out(pieces: Tokenizer) -> None:
    (part,) = translator(pieces, FakeEngine(list)).segmenter.cut("see {a} {b} {c} {d} {e} house")
    assert part.sentinels == 4 and len(part.span_phrases) == 4 and part.fallback is not None
    for read, spelled in ((part, "{e}"), (part.fallback, "")):
        assert sum(token in pieces.sentinels for token in read.ids) == 4
        assert pieces.decode(read.ids).split() == ["see", *([spelled] if spelled else []), "house"]


def test_given_spans_and_expressions_are_protected_too(pieces: Tokenizer) -> None:
    lossy = translator(pieces, FakeEngine(lambda ids: []))
    assert lossy.translate(["the house 42 is red"], protect=[r"\d+"]) == ["42"]
    text = ProtectedText("see __it__ and OK", [ProtectedSpan(4, 6, "open"), ProtectedSpan(8, 10, "close"), ProtectedSpan(15, 17)])
    (output,) = lossy.translate([text])
    assert output.replace(" ", "") in ("____OK", "OK____")
    assert translator(pieces, FakeEngine(list)).translate([text]) == [str(text)]
    assert lossy.translate(["see {x}"], protect=None) == [""]


@pytest.mark.parametrize(
    ("source", "output", "wanted"),
    [
        ("bob@x.org or https://x.org", "bob@x.orghttps://x.org", "bob@x.org https://x.org"),
        ("see bob@x.org now", "xbob@x.orgy", "x bob@x.org y"),
        ("$VAR and %s, {x}", "$VARund5%s{x}", "$VAR und5 %s{x}"),
        ("see #12, #3", "#12#3", "#12#3"),
        ("see #12 of 3", "#123", "#12 3"),
        ("www.a.org is {x}", "见www.a.org。{x}y", "见www.a.org。{x}y"),  # nothing to mend
    ],
)
def test_spans_that_would_read_differently_get_a_space(source: str, output: str, wanted: str) -> None:
    patterns = compile_patterns((r"#\d+",))
    spans = [source[span.start : span.end] for span in find_spans(source, patterns)]
    assert keep_spans_apart(output, source, spans, patterns) == wanted


@pytest.mark.parametrize(
    ("source", "output", "wanted"),
    [
        ("the %s house", "% the % %s house %", "the %s house"),
        ("you see {name} and %s", "5 % you see {name} and %s, {name} %", "5 % you see {name} and %s,"),
        ("you see {x}", "you see {x} % 5%, %5", "you see {x} % 5%, %5"),
        ("a {x} house", "a {x} house %d https://a.org/b?c=1 \ufffdred", "a {x} house red"),
        ("42% of %s", "42 % %s %", "42 % %s %"),
    ],
)
def test_signs_and_spans_that_the_source_does_not_have_are_dropped(source: str, output: str, wanted: str) -> None:
    letters = train_tokenizer(TokenizerConfig(kind="characters", vocab=400), [source, output, "\ufffd"] * 2)
    made = translator(letters, FakeEngine(lambda ids: letters.encode(output)), protect=False)
    assert made.translate([source]) == [wanted]
    if "%d" in output:
        assert "%d" in made.translate([source], glossary={"house": "house %d"})[0]
    assert made.translate(["\ufffd house"]) == [output] and made.translate(["the house"]) == [output.replace("\ufffd", "")]


@pytest.mark.parametrize("protect", [["("], ["a", "*"], "abc", 3])
def test_bad_expressions_are_one_line(pieces: Tokenizer, protect: Any) -> None:
    with pytest.raises(ConfigError, match=r"protect takes|is not a valid regular expression"):
        translator(pieces, FakeEngine(list)).translate(["a"], protect=protect)


def test_a_wrong_way_to_split_is_one_line(pieces: Tokenizer) -> None:
    with pytest.raises(ConfigError, match="split is sentences or never, got 'words'"):
        translator(pieces, FakeEngine(list)).translate(["a"], split="words")


# Sentences


def sentences(pieces: Tokenizer, text: str, **options: Any) -> list[str]:
    """Return the sources that a text is cut into."""
    read: list[str] = []

    def note(ids: list[int]) -> list[int]:
        read.append(pieces.decode(ids))
        return ids

    data = options.pop("data", {})
    assert translator(pieces, FakeEngine(note), **data).translate([text], **options) == [text]
    return read


def test_texts_are_cut_at_sentence_ends_and_joined_as_they_were(pieces: Tokenizer) -> None:
    text = "I am here.  You are there. He is nowhere."
    assert sentences(pieces, text) == ["I am here.", "You are there.", "He is nowhere."]
    assert sentences(pieces, text, split="never") == [text]
    assert sentences(pieces, "I see. {x} is red. OK") == ["I see.", "is red.", "OK"]
    assert sentences(pieces, "<b>I am. You are.</b>") == ["I am.", "You are."]  # around all of it
    assert sentences(pieces, "I <b>am. You</b> are. OK.") == ["I am. You are.", "OK."]
    assert sentences(pieces, "see https://a.org/b?c=1! OK? {{ a. B }} is.") == ["see !", "OK?", "is."]


def test_target_languages_decide_the_space_between_sentences(pieces: Tokenizer) -> None:
    to_chinese = translator(pieces, FakeEngine(list), languages=["en", "zh"])
    assert to_chinese.translate(["I am. You are."]) == ["I am.You are."]
    to_english = translator(pieces, FakeEngine(list), languages=["zh", "en"])
    assert to_english.translate(["我好。你好。"]) == ["我好。 你好。"]


def test_every_sentence_has_the_task_prefix_and_only_the_first_the_forced_one(pieces: Tokenizer) -> None:
    corpus = {"pairs": "x", "prefix": "see it:"}
    engine = FakeEngine(list)
    tasks = translator(pieces, engine, train=[corpus], dev=[corpus])
    assert tasks.segmenter.split == "never"  # not known how long the texts of the task are
    assert tasks.translate(["see it: I am. You {x} are."], split="sentences") == ["see it: I am. see it: You {x} are."]


@pytest.mark.parametrize(("share", "split"), [(0.02, "sentences"), (0.5, "never"), (None, "sentences")])
def test_training_data_decide_whether_texts_are_cut(pieces: Tokenizer, share: float | None, split: str) -> None:
    made = translator(pieces, FakeEngine(list))
    statistics = SourceStatistics(several_sentences=share)
    assert Translator(made.engine, made.tokenizers, made.recipe, sources=statistics).segmenter.split == split


def test_texts_without_letters_are_copied_and_not_read(pieces: Tokenizer) -> None:
    engine = FakeEngine(lambda ids: pytest.fail("the model was asked"))
    texts = ["42", "---", "%d %%", "1,000.5 (7)", "<b>42</b> & {x}", "…", "42. 43!"]
    assert translator(pieces, engine).translate(texts) == texts
    assert translator(pieces, engine, protect=False).translate(texts) == texts
    read: list[str] = []
    backwards = translator(pieces, FakeEngine(lambda ids: read.append(pieces.decode(ids)) or ids[::-1]))
    assert backwards.translate(["see 42. 42! you"]) != ["see 42. 42! you"]
    assert backwards.translate(["I am here. 42! You are there."])[0].split(" ").index("42!") and "42!" not in read


def test_texts_without_letters_are_read_if_the_model_learned_them_or_the_user_wants_it(pieces: Tokenizer) -> None:
    made = translator(pieces, FakeEngine(lambda ids: [*ids, *ids]))
    assert made.translate(["42"]) == ["42"] and made.translate(["42"], protect=None) == ["42 42"]
    assert made.translate(["42"], glossary={"42": "you"}) == ["42 42"]
    for share, output in ((None, "42"), (0.02, "42"), (0.5, "42 42")):
        sources = SourceStatistics(without_letters=share)
        assert Translator(made.engine, made.tokenizers, made.recipe, sources=sources).translate(["42"]) == [output]
