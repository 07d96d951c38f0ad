"""Spans that both sides of a pair share become sentinels, and come back as they were."""

import random

import pytest

from qkv.text.coded_text import extract_codes, insert_codes
from qkv.text.protected_text import ProtectedSpan, ProtectedText, compile_patterns, find_spans
from qkv.text.sentinels import decode_pieces, encode_pieces, mask_pair, token_starts
from qkv.text.tokenizer import TokenizerConfig, train_tokenizer


def found(text: str, *expressions: str) -> list[str]:
    return [text[span.start : span.end] for span in find_spans(text, compile_patterns(expressions))]


@pytest.mark.parametrize(
    ("text", "spans"),
    [
        ("Hi {name}, {{ user.x }} has %d of %1$s: %(n)05.2f%%", ["{name}", "{{ user.x }}", "%d", "%1$s", "%(n)05.2f", "%%"]),
        ("$VAR ${var} $5 {0} {} {x:y}", ["$VAR", "${var}", "{0}", "{}", "{x:y}"]),
        ("A &amp; B &#8230; AT&T &c", ["&amp;", "&#8230;"]),
        ('<a href="x>y">b</a><br><x id="1"/><!--c--> <3, 5 > 4', ['<a href="x>y">', "</a>", "<br>", '<x id="1"/>', "<!--c-->"]),
        ("See https://a.org/b_(c)?d=1. www.b.org/ö, me.you@x.co.uk! 见http://a.cn/页", ["https://a.org/b_(c)?d=1", "www.b.org/ö",
         "me.you@x.co.uk", "http://a.cn/"]),
        ("100% sure, 5%d off, 50 % des, a{b c}d, {a, b}", []),
        ("{n, number} {d, date, short} {0:,.2f} {0,5} {0,-9:d MMM} {name!r:>10}", ["{n, number}", "{d, date, short}", "{0:,.2f}",
         "{0,5}", "{0,-9:d MMM}", "{name!r:>10}"]),
        ("You have {n, plural, =0 {none} one {# item of {name}} other {# items}}!", [
         "{n, plural, =0 {none} one {# item of {name}} other {# items}}"]),
        ("<%= x > 1 %> $(VAR) %{name} #{x} $(5)", ["<%= x > 1 %>", "$(VAR)", "%{name}", "#{x}"]),
        ("%1 of %2, %L3; 100 %1 5%1 %50 %1,5 %1a", ["%1", "%2", "%L3"]),
        ("Loading %1%, %12% of %2%. 100 %1% 5%1% %1%%", ["%1%", "%12%", "%2%", "%%"]),
        ("Hi { name }, ${ a.b } { 0 } {name } { a b } {   a }", ["{ name }", "${ a.b }", "{ 0 }", "{name }"]),
        ("(http://x.org/a_(b)) (see www.x.org/a). [x](http://x.org/a)", ["http://x.org/a_(b)", "www.x.org/a", "http://x.org/a"]),
        ("i<b and c>d, i<b && c>d, <input disabled> <a {x}> <a b = 'c>d' e=f/>", [
         "<input disabled>", "<a {x}>", "<a b = 'c>d' e=f/>"]),
    ],
)  # fmt: skip
def test_patterns(text: str, spans: list[str]) -> None:
    assert found(text) == spans


def test_own_expressions_and_given_spans_go_first() -> None:
    assert found("see #12 and {a#3}", r"#\d+") == ["#12", "#3"]
    text = ProtectedText("see {a} b", [ProtectedSpan(4, 9)])
    assert find_spans(text, compile_patterns()) == [ProtectedSpan(4, 9)]


def test_tags_in_pairs_are_open_and_close_and_others_are_alone() -> None:
    text = "<b>x<br><i>y</b></i> <p>"
    assert [span.kind for span in find_spans(text, compile_patterns())] == ["open", "alone", "alone", "close", "alone", "alone"]
    for text in ("<a href='x>y'>t</a>", '<a href="x>y">t</a>', "<a b='/'>t</a>"):
        assert [span.kind for span in find_spans(text, compile_patterns())] == ["open", "close"]


@pytest.mark.parametrize(
    "sign",
    [
        "<",
        "{",
        "{{",
        "<a ",
        '<a "',
        "%",
        "&",
        "a",
        "a.",
        "http://",
        "www.",
        "<!--",
        "$",
        "x@",
        "{%",
        "http://(",
        "www.(a",
        "<a b=",
        "<a b='",
        "{a,plural,",
        "{a,plural,{b}",
        "<a :",
        "<%",
        "{0:",
        "%1",
        "%1%",
        "{ ",
        "{ a ",
    ],
)
def test_hostile_texts_take_no_time(sign: str) -> None:
    assert len(find_spans(sign * 20_000, compile_patterns())) <= 20_000  # a quadratic pattern would take minutes


def test_shared_spans_become_sentinels_numbered_by_the_source() -> None:
    assert mask_pair("Mode {a} of %s", "%s hat {a}", 16) == (["Mode ", 0, " of ", 1, ""], ["", 1, " hat ", 0, ""])
    assert mask_pair("{a} {b} {a}", "{b}{a} {a}", 16) == (["", 0, " ", 1, " ", 2, ""], ["", 1, "", 0, " ", 2, ""])
    assert mask_pair("{a} {b}", "{a} b", 16) == (["", 0, " {b}"], ["", 0, " b"])  # what differs stays text
    assert mask_pair("{a} {b}", "{b} {a}", 1) == (["", 0, " {b}"], ["{b} ", 0, ""])  # and so do too many
    assert mask_pair("a <b>c</b> {d}", "<b>x</b> {d}", 16) == (["a c ", 0, ""], ["x ", 0, ""])  # tags around words are left out
    assert mask_pair("a <b>c</b>", "a c", 16) is None
    assert mask_pair("no spans", "keine", 16) is None


@pytest.mark.parametrize("kind", ["bpe", "byte-bpe", "unigram", "wordpiece", "characters"])
def test_pieces_keep_their_white_space(kind: str) -> None:
    rng = random.Random(2)
    parts = ["the house", "(", ")", " ", "  ", "red.", "is 42", "你好", "。", "don't"]
    tokenizer = train_tokenizer(TokenizerConfig(kind=kind, vocab=400, sentinels=5), ["".join(parts), " ".join(parts)] * 4)
    for _ in range(200):
        pieces: list[str | int] = [rng.choice(["", *parts]).strip()]
        for number in rng.sample(range(5), rng.randint(0, 4)):
            pieces += [number, "".join(rng.choices(["", *parts], k=2))]
        ids, starts = encode_pieces(tokenizer, pieces)
        assert decode_pieces(tokenizer, ids) == pieces
        assert len(starts) == len(ids) and starts == sorted(starts)


def test_a_text_with_its_inline_codes_inserted_again_is_the_text() -> None:
    text = "<b> a</b>b <x/> c<i> d <u>e </u> f</i><x/> g<x/>h <x/>"
    for out in (True, False):
        coded = extract_codes(text, find_spans(text, compile_patterns()), lambda span, out=out: out and "x" in span)
        assert insert_codes(coded.text, [(code.start, code.end, code) for code in coded.codes]) == text
        assert "<" not in "".join(coded.around_placeholders())


@pytest.mark.parametrize("kind", ["bpe", "byte-bpe", "unigram", "wordpiece", "characters", "words"])
def test_ids_begin_where_the_text_of_those_before_them_ends(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = ["the red house is here", "a  b (c) don't", "我们 好\u00e9", "<unk> x", "."]
    tokenizer = train_tokenizer(TokenizerConfig(kind=kind, vocab=1100, sentinels=3), lines * 3)  # type: ignore[arg-type]
    spans, rng = ["{first}", "%s"], random.Random(4)

    def length(ids: list[int]) -> int:
        pieces = decode_pieces(tokenizer, ids)
        return sum(len(piece if isinstance(piece, str) else [*spans, ""][piece]) for piece in pieces)

    for _ in range(150):
        # Ids of texts, of which some have bytes, among any others: broken characters, special tokens, spaces.
        texts = [rng.choice([rng.choice(lines), "ü😀𝄞", "\ufffd a"]) for _ in range(3)]
        ids = [number for text in texts for number in [*tokenizer.encode(text), *rng.choices(range(len(tokenizer)), k=2)]]
        for at in rng.sample(range(len(ids)), min(len(ids), rng.randint(0, 6))):
            ids[at] = rng.choice([*tokenizer.sentinels, rng.randrange(len(tokenizer))])
        assert token_starts(tokenizer, ids, spans) == [length(ids[:count]) for count in range(len(ids))]
    decoded: list[int] = []
    decode = tokenizer.decode_batch
    monkeypatch.setattr(tokenizer, "decode_batch", lambda batch: decode([decoded.extend(ids) or ids for ids in map(list, batch)]))
    ids = tokenizer.encode(" ".join([lines[0]] * 200))
    assert len(token_starts(tokenizer, ids, spans)) == len(ids) and len(decoded) <= 4 * len(ids)  # not its square
