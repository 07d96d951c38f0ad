"""Catalogues and translation memories: PO, MO, JSON, TMX, XLIFF."""

import gzip
import itertools
import json
import struct
import tracemalloc

import pytest

from qkv.base.errors import DataError
from qkv.text.corpus import ParallelCorpusConfig, read_pairs
from qkv.text.message_catalogues import flatten_json
from qkv.text.translatable import read_translatable

HEADER = """msgid ""
msgstr ""
"Language: {language}\\n"
"Content-Type: text/plain; charset={charset}\\n"
"Plural-Forms: {plural};\\n"

"""
PO = """# a comment
#: file.c:12
msgctxt "menu"
msgid "Open \\"it\\""
msgstr "\\\\Öffnen\\tjetzt"

msgid ""
"Two "
"lines\\n"
msgstr "Zwei "
"Zeilen\\n"
msgid "close"
msgstr "zu"

#, c-format, fuzzy
#| msgid "Old"
msgid "Perhaps"
msgstr "Vielleicht"

msgid "Untranslated"
msgstr ""

msgid "%d file"
msgid_plural "%d files"
msgstr[0] "%d Datei"
msgstr[1] "%d Dateien"

#~ msgid "Gone"
#~ msgstr "Weg"
"""
TWO = "nplurals=2; plural=(n != 1)"


@pytest.fixture
def read(tmp_path):
    def read(name, content, languages=None, **keys):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return list(read_pairs(ParallelCorpusConfig(pairs=str(path), **keys), languages))

    return read


def texts(pairs):
    return [(p.source, p.target) for p in pairs if not p.problem]


def problems(pairs):
    return [(p.line, p.problem) for p in pairs if p.problem]


def po_header(language="de", charset="UTF-8", plural=TWO):
    return HEADER.format(language=language, charset=charset, plural=plural)


# gettext


def test_po_messages_plurals_and_marks(read):
    pairs = read("a.po", po_header() + PO)
    assert texts(pairs) == [
        ('Open "it"', "\\Öffnen\tjetzt"),
        ("Two lines\n", "Zwei Zeilen\n"),
        ("close", "zu"),
        ("Untranslated", ""),
        ("%d file", "%d Datei"),
        ("%d files", "%d Dateien"),
    ]
    assert problems(pairs) == [(23, "marked fuzzy")]
    assert [p.line for p in pairs] == [9, 13, 18, 23, 26, 29, 29]


@pytest.mark.parametrize(
    ("plural", "forms", "expected"),
    [
        ("nplurals=1; plural=0", ["文件"], [("files", "文件")]),
        (
            "nplurals=3; plural=(n%10==1 && n%100!=11 ? 0 : n%10>=2 && n%10<=4 && (n%100<10 || n%100>=20) ? 1 : 2)",
            ["файл", "файла", "файлов"],
            [("file", "файл"), ("files", "файлов")],
        ),
        (
            "nplurals=3; plural=(n==0 ? 0 : n==1 ? 1 : 2)",
            ["none", "one", "many"],
            [("file", "one"), ("files", "many")],
        ),
        ("nplurals=9; plural=n/0", ["one", "many"], [("file", "one"), ("files", "many")]),
        ("nonsense", ["one", "many"], [("file", "one"), ("files", "many")]),
    ],
)
def test_plural_forms_follow_the_language(read, plural, forms, expected):
    entry = 'msgid "file"\nmsgid_plural "files"\n'
    entry += "".join(f'msgstr[{place}] "{form}"\n' for place, form in enumerate(forms))
    assert texts(read("a.po", po_header(plural=plural) + entry)) == expected


def test_po_in_another_encoding(read):
    entry = '# Größe\nmsgid "size"\nmsgstr "Größe"\n'
    assert texts(read("a.po", (po_header(charset="ISO-8859-1") + entry).encode("latin-1"))) == [("size", "Größe")]
    assert texts(read("b.po", po_header(charset="CHARSET") + entry)) == [("size", "Größe")]


def test_undecodable_comments_do_no_harm_and_undecodable_messages_are_reported(read):
    content = (po_header() + "# Jörg\n" + PO).encode() + '#\nmsgid "size"\nmsgstr "Größe"\n'.encode("latin-1")
    content = content.replace("Jörg".encode(), b"J\xf6rg")
    pairs = read("a.po", content)
    assert problems(pairs)[-1][1] == "undecodable bytes" and len(texts(pairs)) == 6


def test_po_is_turned_round_when_the_languages_say_so(read):
    entry = 'msgid "one"\nmsgstr "eins"\n'
    assert texts(read("a.po", po_header() + entry, ("de", "en"))) == [("eins", "one")]
    assert texts(read("a.po", po_header("de_AT") + entry, ("en", "de"))) == [("one", "eins")]


def test_messages_that_gettext_would_refuse_are_read_for_training_alone(read, tmp_path):
    broken = ['msgid "say "hi""\nmsgstr "sag "hallo""\n', 'msgid "gone"\n\nmsgid "b"\nmsgstr "B"\n', 'msgid "c"\n']
    expected = [[('say "hi"', 'sag "hallo"')], [("b", "B")], [("c", "")]]
    for number, entry in enumerate(broken):
        assert texts(read(f"{number}.po", po_header() + entry)) == expected[number]
        with pytest.raises(DataError, match=r"not gettext PO|occurs twice"):
            read_translatable(tmp_path / f"{number}.po")


def test_what_is_not_po_is_refused(read):
    with pytest.raises(DataError, match="line 2: not gettext PO: 'hello'"):
        read("a.po", "# comment\nhello\n")


@pytest.mark.parametrize(
    "obsolete", ['#~ msgid "Gone"\n#~ msgstr "Weg"\n', '#~| msgid "Old"\n#~ msgid "Gone"\n#~ msgstr "Weg"\n']
)
def test_the_flag_of_an_obsolete_message_is_not_the_next_ones(read, obsolete):
    content = po_header() + f'msgid "a"\nmsgstr "A"\n\n#, fuzzy\n{obsolete}\nmsgid "b"\nmsgstr "B"\n'
    assert texts(read("a.po", content)) == [("a", "A"), ("b", "B")]
    own = po_header() + f'#, fuzzy\n{obsolete}\n#, fuzzy\nmsgid "b"\nmsgstr "B"\n\nmsgid "c"\nmsgstr "C"\n'
    assert [p.problem for p in read("a.po", own)] == ["marked fuzzy", ""]


def compiled(messages, order="<"):
    """A gettext MO file."""
    sides = [sorted(messages.items()), 28, 28 + 8 * len(messages)]
    start, tables, body = 28 + 16 * len(messages), b"", b""
    for side in (0, 1):
        for couple in sides[0]:
            tables += struct.pack(order + "2I", len(couple[side]), start + len(body))
            body += couple[side] + b"\0"
    return struct.pack(order + "7I", 0x950412DE, 0, len(messages), sides[1], sides[2], 0, 0) + tables + body


@pytest.mark.parametrize("order", ["<", ">"])
def test_mo(read, order):
    messages = {
        b"": b"Language: de\nContent-Type: text/plain; charset=UTF-8\nPlural-Forms: nplurals=2; plural=(n != 1);\n",
        b"menu\x04Open": "Öffnen".encode(),
        b"file\0files": b"Datei\0Dateien",
        b"broken": b"\xff",
    }
    pairs = read("a.mo", compiled(messages, order))
    assert texts(pairs) == [("file", "Datei"), ("files", "Dateien"), ("Open", "Öffnen")]
    assert problems(pairs) == [(2, "undecodable bytes")]
    assert texts(read("a.mo", compiled(messages, order), ("de", "en")))[-1] == ("Öffnen", "Open")


@pytest.mark.parametrize("harm", [lambda whole: whole[:-20], lambda whole: b"text", lambda whole: whole[:10]])
def test_a_damaged_mo_is_refused(read, harm):
    with pytest.raises(DataError, match="not a compiled gettext catalogue"):
        read("a.mo", harm(compiled({b"one": b"eins" * 9})))


# JSON


@pytest.fixture
def catalogues(tmp_path):
    def catalogues(left, right):
        for name, values in (("en.json", left), ("de.json", right)):
            (tmp_path / name).write_text(values if isinstance(values, str) else json.dumps(values), encoding="utf-8")
        corpus = ParallelCorpusConfig(source=str(tmp_path / "en.json"), target=str(tmp_path / "de.json"))
        return list(read_pairs(corpus))

    return catalogues


def test_json_catalogues_are_joined_by_their_flattened_keys(catalogues, tmp_path):
    english = {"ui": {"open": "Open", "list": ["a", "b"], "count": 3}, "only": "here", "off": None}
    german = {"more": "x", "ui": {"list": ["A", "B"], "open": "Öffnen", "count": 3}}
    pairs = catalogues(english, german)
    assert texts(pairs) == [("Open", "Öffnen"), ("a", "A"), ("b", "B")]
    assert problems(pairs) == [(4, "key missing in target"), (1, "key missing in source")]
    assert flatten_json(tmp_path / "de.json") == {"more": "x", "ui.list.0": "A", "ui.list.1": "B", "ui.open": "Öffnen"}


@pytest.mark.parametrize(
    ("left", "words"), [("{broken", "not valid JSON"), ("[" * 100_000, "not valid JSON"), ("3", "no texts in it")]
)
def test_what_is_no_json_catalogue(catalogues, left, words):
    with pytest.raises(DataError, match=words):
        catalogues(left, {"a": "b"})


def test_catalogues_without_a_common_key(catalogues):
    with pytest.raises(DataError, match="share no key"):
        catalogues({"a": "b"}, {"c": "d"})
    assert catalogues({}, {}) == []


def test_metadata_of_arb_are_not_texts(tmp_path):
    for language, text in (("en", "Hello {name}"), ("de", "Hallo {name}")):
        about = {"description": f"A greeting in {language}", "placeholders": {"name": {"example": f"Bob {language}"}}}
        values = {"@@locale": language, "@@x-template": "t", "hello": text, "@hello": about, "@alone": about}
        (tmp_path / f"{language}.arb").write_text(json.dumps(values), encoding="utf-8")
    corpus = ParallelCorpusConfig(source=str(tmp_path / "en.arb"), target=str(tmp_path / "de.arb"))
    assert [p[:2] for p in read_pairs(corpus)] == [("Hello {name}", "Hallo {name}")]


def test_a_key_with_an_at_sign_in_plain_json_is_a_key(catalogues):
    english = {"@user": "User", "hello": "Hello", "@hello": {"description": "a greeting"}}
    assert texts(catalogues(english, {"@user": "Benutzer", "hello": "Hallo"})) == [("User", "Benutzer"), ("Hello", "Hallo")]


# TMX


def tmx(*units, declarations="", srclang="en"):
    return (
        f'<?xml version="1.0" encoding="UTF-8"?>\n{declarations}<tmx version="1.4"><header srclang="{srclang}"/><body>'
        + "\n".join(units)
        + "</body></tmx>"
    )


def unit(**segments):
    variants = (
        f'<tuv xml:lang="{tag.replace("_", "-")}"><prop>p</prop><seg>{text}</seg></tuv>' for tag, text in segments.items()
    )
    return f"<tu><note>n</note>{''.join(variants)}</tu>"


DOCTYPE = '<!DOCTYPE tmx SYSTEM "tmx14.dtd">'


def test_tmx_with_inline_codes(read):
    content = tmx(
        unit(en="one &amp; <hi>all</hi> of", de="eins"),
        unit(de="zwei", en='<bpt i="1">&lt;b&gt;</bpt>two<ept i="1">&lt;/b&gt;</ept><ph/> more'),
        unit(en="three"),
        declarations=DOCTYPE,
    )
    pairs = read("a.tmx.gz", gzip.compress(content.encode()))
    assert texts(pairs) == [("one & all of", "eins"), ("two more", "zwei")]
    assert problems(pairs) == [(3, "language missing")]


def test_tmx_languages(read):
    content = tmx(unit(de_DE="eins", en_US="one", fr="un"), unit(en_GB="two", en="2", de="zwei"))
    assert texts(read("a.tmx", content, ("en", "de"))) == [("one", "eins"), ("2", "zwei")]
    assert texts(read("a.tmx", content, ("x", "y"), columns=("fr", "en-US"))) == [("un", "one")]
    with pytest.raises(DataError, match="which languages\\? it has de-DE, en-US, fr; name two in columns:"):
        read("a.tmx", content)
    with pytest.raises(DataError, match="no unit has both 'en' and 'es'; it has de-DE, en-US, fr"):
        read("a.tmx", content, ("en", "es"))


def test_tmx_says_itself_which_side_is_the_source(read):
    assert texts(read("a.tmx", tmx(unit(de="eins", en="one")))) == [("one", "eins")]
    assert texts(read("a.tmx", tmx(unit(de="eins", en="one"), srclang="*all*"))) == [("eins", "one")]


def test_tmx_in_utf16(read):
    content = tmx(unit(en="one", de="größer")).replace("UTF-8", "UTF-16").encode("utf-16")
    assert texts(read("a.tmx", content)) == [("one", "größer")]


def test_entities_are_refused_before_they_can_grow(read):
    laughs = "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, 12))
    bomb = f'<!DOCTYPE tmx [<!ENTITY l0 "lol">{laughs}]>'
    with pytest.raises(DataError, match="declares XML entities"):
        read("a.tmx", tmx(unit(en="&l11;", de="x"), declarations=bomb))
    with pytest.raises(DataError, match="declares XML entities"):
        read("a.xlf", f'<!DOCTYPE xliff [<!ENTITY file SYSTEM "file:///etc/hostname">]>{XLIFF1}')


@pytest.mark.parametrize("name", ["a.tmx", "a.xlf"])
@pytest.mark.parametrize(
    "content",
    [tmx(unit(en="a", de="b"))[:-20], "plain text", "", b"\0\1\2\3", '<?xml version="1.0" encoding="no"?><a/>'],
)
def test_bad_xml_is_one_line(read, name, content):
    with pytest.raises(DataError, match="not well-formed XML") as error:
        read(name, content)
    assert "\n" not in str(error.value)


def test_tmx_streams(tmp_path):
    path = tmp_path / "big.tmx"
    path.write_text(tmx(*(unit(en=f"text number {n} " * 4, de=f"Text Nummer {n} " * 4) for n in range(5000))))
    tracemalloc.start()
    pairs = read_pairs(ParallelCorpusConfig(pairs=str(path)))
    assert len(list(itertools.islice(pairs, 10))) == 10
    assert sum(1 for _ in pairs) == 4990
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < path.stat().st_size / 2


# XLIFF

XLIFF1 = """<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2">
<file original="a" source-language="en" target-language="de-DE" datatype="x"><header><note>x</note></header><body>
<trans-unit id="1"><source>one <g id="1">two</g><x id="2"/></source><target>eins <g id="1">zwei</g></target>
<alt-trans><source>wrong</source><target>falsch</target></alt-trans></trans-unit>
<group><trans-unit id="2"><source>deep</source><target state="translated">tief</target></trans-unit></group>
<trans-unit id="3"><source>new</source><target state="needs-translation">new</target></trans-unit>
<trans-unit id="4"><source>none</source></trans-unit>
</body></file></xliff>"""
XLIFF2 = """<xliff version="2.0" xmlns="urn:oasis:names:tc:xliff:document:2.0" srcLang="en" trgLang="de"><file id="f">
<unit id="1"><notes><note>x</note></notes><originalData><data id="d">code</data></originalData>
<segment><source>one <pc id="1">two</pc></source><target>eins <pc id="1">zwei</pc></target></segment>
<ignorable><source> </source></ignorable>
<segment state="initial"><source>new</source><target>new</target></segment></unit></file></xliff>"""


def test_xliff_1(read):
    pairs = read("a.xlf", XLIFF1, ("en", "de"))
    assert texts(pairs) == [("one two", "eins zwei"), ("deep", "tief")]
    assert problems(pairs) == [(3, "not translated yet"), (4, "not translated yet")]


def test_xliff_2(read):
    pairs = read("a.xliff", XLIFF2)
    assert texts(pairs) == [("one two", "eins zwei")]
    assert problems(pairs) == [(2, "not translated yet")]


@pytest.mark.parametrize("content", [XLIFF1, XLIFF2])
def test_xliff_languages(read, content):
    assert texts(read("a.xlf", content, ("de", "en")))[0] == ("eins zwei", "one two")
    assert texts(read("a.xlf", content, ("letters", "phones"), columns=("en", "de")))[0] == ("one two", "eins zwei")
    with pytest.raises(DataError, match=r"holds en -> de.*, not en -> fr"):
        read("a.xlf", content, ("en", "fr"))


MARKED1 = """<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2"><file source-language="en" target-language="de">
<body><trans-unit id="1"><source>a</source><target>A</target></trans-unit>
<trans-unit id="2" translate="no"><source>b</source><target>B</target></trans-unit>
<group translate="no"><group><trans-unit id="3"><source>c</source><target>C</target></trans-unit></group>
<trans-unit id="4" translate="yes"><source>d</source><target>D</target></trans-unit></group>
<trans-unit id="5"><source>e</source><target>E</target></trans-unit></body></file></xliff>"""
MARKED2 = """<xliff version="2.0" xmlns="urn:oasis:names:tc:xliff:document:2.0" srcLang="en" trgLang="de">
<file id="f" translate="no"><unit id="1" translate="yes"><segment><source>a</source><target>A</target></segment></unit>
<unit id="2"><segment><source>b</source><target>B</target></segment></unit>
<group id="g" translate="no"><unit id="3"><segment><source>c</source><target>C</target></segment></unit></group>
<group id="h" translate="yes"><unit id="4"><segment><source>d</source><target>D</target></segment></unit></group></file>
<file id="g"><unit id="5"><segment><source>e</source><target>E</target></segment></unit></file></xliff>"""


@pytest.mark.parametrize("content", [MARKED1, MARKED2])
def test_xliff_units_that_are_not_to_be_translated(read, content):
    pairs = read("a.xlf", content)
    assert texts(pairs) == [("a", "A"), ("d", "D"), ("e", "E")]
    assert problems(pairs) == [(2, 'marked translate="no"'), (3, 'marked translate="no"')]
