"""Files of every format: what is translated, what stays, and that everything else comes out byte for byte the same."""

import json
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from qkv.base.errors import QkvError
from qkv.inference.file_translation import plan_files, translate_plan
from qkv.text.protected_text import compile_patterns, find_spans
from qkv.text.translatable import ReadOptions, read_translatable

EN_DE = ReadOptions(("en", "de"))

# Each with awkward details of real files, and with targets that equal their sources where it has targets.
FILES = {
    "crlf.po": '# Comment\r\nmsgid ""\r\nmsgstr ""\r\n"Language: de\\n"\r\n"Content-Type: text/plain; charset=UTF-8\\n"\r\n'
    '"Plural-Forms: nplurals=2; plural=(n != 1);\\n"\r\n\r\n#. note\r\n#: a.c:1\r\n#, c-format, fuzzy\r\n#| msgid "Old"\r\n'
    'msgctxt "menu"\r\nmsgid "Open %s"\r\nmsgstr "Open %s"\r\n\r\nmsgid ""\r\n"wrapped "\r\n"text\\n"\r\n'
    '"tab\\t\\"q\\" \\\\n"\r\nmsgstr ""\r\n"wrapped "\r\n"text\\n"\r\n'
    '"tab\\t\\"q\\" \\\\n"\r\n\r\nmsgid "%d file"\r\nmsgid_plural "%d files"\r\n'
    'msgstr[0] "%d file"\r\nmsgstr[1] "%d files"\r\n\r\n#, fuzzy\r\n#~ msgid "gone"\r\n#~ msgstr "weg"',
    "one.xlf": '\ufeff<?xml version="1.0"?>\n<!-- c --><xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2">\n'
    '<file source-language="en" target-language="de" original="x" datatype="html"><body>\n<group translate="no">'
    '<trans-unit id="0"><source>Not me</source></trans-unit></group>\n'
    '<trans-unit id="1"><source>A &amp; <g id="1">b</g> <x id="2"/> <ph id="3">&lt;br&gt;</ph>&#160;c</source>\n'
    '  <target state="final">A &amp; <g id="1">b</g> <x id="2"/> <ph id="3">&lt;br&gt;</ph>&#160;c</target>\n'
    "  <alt-trans><source>Other</source><target>Anders</target></alt-trans></trans-unit>\n"
    '<trans-unit id="2"><source><![CDATA[<b>bold</b> & co]]></source><target><![CDATA[<b>bold</b> & co]]></target></trans-unit>'
    "</body></file></xliff>\n",
    "two.xlf": '<xliff version="2.0" srcLang="en" trgLang="de" xmlns="urn:oasis:names:tc:xliff:document:2.0"><file id="f">\n'
    '<unit id="u"><originalData><data id="d">%s</data></originalData><segment state="final">\n'
    '<source>Hi <pc id="1">you <ph id="2" dataRef="d"/></pc> <mrk id="m" translate="no">Acme Works</mrk></source>\n'
    '<target>Hi <pc id="1">you <ph id="2" dataRef="d"/>'
    '</pc> <mrk id="m" translate="no">Acme Works</mrk></target></segment>\n'
    "<ignorable><source> </source></ignorable></unit></file></xliff>",
    "memory.tmx": '<?xml version="1.0" encoding="utf-8"?>\n<!DOCTYPE tmx SYSTEM "tmx14.dtd">\n'
    '<tmx version="1.4"><header srclang="en"/><body>\n'
    '<tu><tuv xml:lang="en-US"><seg>A <bpt i="1">&lt;b></bpt>b<ept i="1">&lt;/b></ept></seg></tuv>\n'
    '<tuv xml:lang="de"><seg>A <bpt i="1">&lt;b></bpt>b<ept i="1">&lt;/b></ept></seg></tuv></tu></body></tmx>',
    "nested.json": '{"a": {"b": "Hello \\u00fc \\"x\\" \\/ {{name}} $t(other)", "n": 1, '
    '"list": ["one", null, {"c": ""}]},\n\t"k" : "x\\ny"}',
    "app.arb": '{\n  "@@locale": "en",\n  "title": "Hello {name}",\n  "@title": {"description": "A title"},\n'
    '  "n": "{n, plural, =0{None} one{# file} other{# files}}"\n}\n',
    "table.csv": '\ufeffid;source;target\r\n1;"a; ""b""";"a; ""b"""\r\n2;"two\nlines";"two\nlines"\r\n3;plain;plain',
    "table.tsv": "a \"quoted\" word\ta \"quoted\" word\nsecond\tsecond\n",
    "film.srt": "\ufeff1\r\n00:00:01,000 --> 00:00:02,000 X1:0\r\n{\\an8}<i>Two lines\r\nof text</i>\r\n\r\n2\r\n"
    "00:00:03,000 --> 00:00:04,000\r\n- Yes.\r\n- No.\r\n",
    "film.vtt": "WEBVTT - title\n\nNOTE not me\n\nSTYLE\n::cue { color: red }\n\nintro\n00:01.000 --> 00:02.000 align:start\n"
    "<v Bob>Tom &amp; <c.loud>Jerry</c>\n\n00:03.000 --> 00:04.000\nLast",
    "page.html": '<!DOCTYPE html>\n<html lang="en"><head><title>A &amp; B</title><style>p > a {}</style>\n'
    '<meta name="description" content="What it is"><script>if (a < b) "text";</script></head>\n'
    '<body><p class=x>Click <a href="#" title="Go \'there\'">he&nbsp;re</a>,\n'
    '   then <code>run</code>.<br>Next<!-- c --> line\n<p>Open <b>paragraph</b>\n'
    '<ul><li>One<li>Two <span translate="no">Acme</span></ul><pre>code  here</pre>'
    "<img alt='pic' src=x><input type=submit value=Send><a href=y><div>Block in link</div></a></body></html>",
    "read.md": '---\ntitle: x\n---\n\n# Head *one* #\n\nA paragraph with **bold** and `code`\n'
    'over [two](http://x.y "t") lines.  \n' "Hard break\n\n- item _em_\n  goes on\n  1. nested\n- [ ] task\n\n"
    "> quote\n> more\n\n```py\nx = 1\n```\n\n    indented code\n\n"
    "| a | b |\n|---|:-:|\n| `x|y` | two \\| three |\n\n<div>\n"
    "Block <b>html</b>\n</div>\n\n![alt](p.png) and [ref] and [^1]\n\n"
    "[ref]: http://z\n[^1]: A note\n\nSet\n---\n\nlast",
    "plain.txt": "  One line \r\n\r\nAnother\ttab",
}  # fmt: skip


def translated(tmp_path: Path, name: str, content: str, translate: Callable[[str], str], **options: object) -> str:
    """Translate a file by a function of a text."""
    path = tmp_path / name
    path.write_bytes(content.encode())
    plan = plan_files([path], options=EN_DE, **options)  # type: ignore[arg-type]
    return translate_plan(plan, lambda texts: [translate(text) for text in texts]).content.decode()


def upper(text: str) -> str:
    """Translate to upper case, outside of protected spans."""
    spans = find_spans(text, compile_patterns())
    return "".join(char if any(s.start <= i < s.end for s in spans) else char.upper() for i, char in enumerate(text))


@pytest.mark.parametrize("name", FILES)
def test_the_identity_changes_no_byte(tmp_path: Path, name: str) -> None:
    assert translated(tmp_path, name, FILES[name], str, all_segments=True) == FILES[name]


@pytest.mark.parametrize("name", FILES)
def test_what_is_written_is_read_back(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(FILES[name].encode())
    parsed = read_translatable(path, options=EN_DE)
    wanted = [tuple(upper(text) + ' "é&<5' for text in segment.texts) for segment in parsed.segments]
    path.write_bytes(parsed.render(wanted))
    found = [segment.existing for segment in read_translatable(path, options=EN_DE).segments]
    # The title of a link inside a text is a segment of its own, and changes the tag in the text.
    attribute = "title=\"GO 'THERE' &quot;é&amp;&lt;5\""
    assert [tuple(text.replace(attribute, "title=\"Go 'there'\"") for text in texts or ()) for texts in found] == wanted


EXPECTED = {
    "crlf.po": [("Open %s",), ('wrapped text\ntab\t"q" \\n',), ("%d file", "%d files")],
    "one.xlf": [('A & <g id="1">b</g> <x id="2"/> <ph id="3">&lt;br&gt;</ph>\u00a0c',), ("<b>bold</b> & co",)],
    "two.xlf": [('Hi <pc id="1">you <ph id="2" dataRef="d"/></pc> <mrk id="m" translate="no">Acme Works</mrk>',)],
    "memory.tmx": [('A <bpt i="1">&lt;b></bpt>b<ept i="1">&lt;/b></ept>',)],
    "nested.json": [('Hello ü "x" / {{name}} $t(other)',), ("one",), ("x\ny",)],
    "app.arb": [("Hello {name}",), ("None", "# file", "# files")],
    "table.csv": [('a; "b"',), ("two\nlines",), ("plain",)],
    "table.tsv": [('a "quoted" word',), ("second",)],
    "film.srt": [("<i>Two lines of text</i>",), ("Yes.",), ("No.",)],
    "film.vtt": [("Tom & <c.loud>Jerry</c>",), ("Last",)],
    "page.html": [
        ("A & B",), ("What it is",), ("Go 'there'",),
        ("Click <a href=\"#\" title=\"Go 'there'\">he\u00a0re</a>, then <code>run</code>.",), ("Next<!-- c --> line",),
        ("Open <b>paragraph</b>",), ("One",), ("Two",), ("pic",), ("Send",), ("Block in link",),
    ],
    "read.md": [
        ("Head *one*",), ('A paragraph with **bold** and `code` over [two](http://x.y "t") lines.',), ("Hard break",),
        ("item _em_ goes on",), ("nested",), ("task",), ("quote more",), ("a",), ("b",), ("two \\| three",),
        ("Block <b>html</b>",), ("![alt](p.png) and [ref] and [^1]",), ("A note",), ("Set",), ("last",),
    ],
    "plain.txt": [("  One line ",), ("Another\ttab",)],
}  # fmt: skip


@pytest.mark.parametrize("name", FILES)
def test_texts_that_people_read_are_translated_and_no_others(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(FILES[name].encode())
    assert [segment.texts for segment in read_translatable(path, options=EN_DE).segments] == EXPECTED[name]


def test_po_marks_what_it_fills_in_and_leaves_the_rest(tmp_path: Path) -> None:
    content = (
        'msgid ""\nmsgstr "Content-Type: text/plain; charset=CHARSET\\n"\n"Language: \\n"\n\n'
        '#, fuzzy\nmsgid "old"\nmsgstr "alt"\n\nmsgid "done"\nmsgstr "fertig"\n\n'
        '#: a.c\n#, c-format\nmsgid "new %s"\nmsgstr ""\n\n# note\nmsgid "two\\n"\n"lines\\n"\nmsgstr ""\n\n'
        '#~ msgid "x"\n#~ msgstr ""\n'
    )
    found = translated(tmp_path, "m.po", content, upper)
    wanted = content.replace("charset=CHARSET", "charset=UTF-8").replace("Language: \\n", "Language: de\\n")
    wanted = wanted.replace('#, c-format\nmsgid "new %s"\nmsgstr ""', '#, fuzzy, c-format\nmsgid "new %s"\nmsgstr "NEW %s"')
    wanted = wanted.replace('msgid "two\\n"', '#, fuzzy\nmsgid "two\\n"')
    wanted = wanted.replace('"lines\\n"\nmsgstr ""', '"lines\\n"\nmsgstr ""\n"TWO\\n"\n"LINES\\n"')
    assert found == wanted


PLURAL = 'msgid ""\nmsgstr "Language: {}\\n"\n\nmsgid "{}"\nmsgid_plural "%d files"\nmsgstr[0] ""\nmsgstr[1] ""\n'


@pytest.mark.parametrize(
    ("language", "one", "forms"),
    [
        ("de", "%d file", ["%d FILE", "%d FILES"]),
        ("ja", "%d file", ["%d FILES"]),
        ("ru", "%d file", ["%d FILE", "%d FILES", "%d FILES"]),  # the first form is also that of 21
        ("ru", "a file", ["%d FILES", "%d FILES", "%d FILES"]),
        ("ar", "a file", ["%d FILES", "A FILE", *["%d FILES"] * 4]),
    ],
)
def test_plural_forms_are_those_of_the_target_language(tmp_path: Path, language: str, one: str, forms: list[str]) -> None:
    path = tmp_path / "m.po"
    path.write_text(PLURAL.format(language, one), encoding="utf-8")
    plan = plan_files([path], options=ReadOptions(("en", language)))
    found = translate_plan(plan, lambda texts: [upper(text) for text in texts]).content.decode()
    assert found.split('files"\n')[1].splitlines() == [f'msgstr[{i}] "{form}"' for i, form in enumerate(forms)]
    assert f"Plural-Forms: nplurals={len(forms)};" in found and "#, fuzzy\nmsgid" in found


def test_xliff_gets_targets_in_a_state_that_asks_for_review(tmp_path: Path) -> None:
    unit = '<trans-unit id="{}"><source>one <x id="1"/></source>{}</trans-unit>'
    content = '<xliff version="1.2"><file source-language="en">\n  ' + "".join(
        unit.format(i, target)
        for i, target in enumerate(("", '<target state="new"/>', "<target></target>", "<target>eins</target>"))
    )
    found = translated(tmp_path, "a.xlf", content + "</file></xliff>", upper)
    state = 'state="needs-review-translation" state-qualifier="mt-suggestion"'
    assert found.startswith('<xliff version="1.2"><file source-language="en" target-language="de">')
    assert found.count(f'</source><target {state}>ONE <x id="1"/></target>') == 3 and found.count("<target>eins</target>") == 1


def test_xliff_2_gets_a_state_and_a_language(tmp_path: Path) -> None:
    content = '<xliff version="2.0" srcLang="en">\n <unit><segment>\n  <source>one</source>\n </segment></unit></xliff>'
    found = translated(tmp_path, "a.xliff", content, upper)
    wanted = content.replace('"en"', '"en" trgLang="de"').replace("</source>", "</source>\n  <target>ONE</target>")
    assert found == wanted.replace("<segment>", '<segment state="translated" subState="qkv:machine-translation">')


def test_tmx_gets_variants_and_csv_cells(tmp_path: Path) -> None:
    unit = '<tu>\n <tuv xml:lang="en"><seg>a &lt; b</seg></tuv>{}\n</tu>'
    found = translated(tmp_path, "a.tmx", f"<tmx><body>{unit.format('')}</body></tmx>", upper)
    added = '\n <tuv xml:lang="de"><seg>A &lt; B</seg></tuv>'
    assert found == f"<tmx><body>{unit.format(added)}</body></tmx>"
    for others, tag in ((["de-DE"], "de-DE"), (["DE"], "DE"), (["de-DE", "de-AT"], "de"), (["fr-FR"], "de")):
        done = "".join(
            f'<tu><tuv xml:lang="en"><seg>b</seg></tuv><tuv xml:lang="{each}"><seg>c</seg></tuv></tu>' for each in others
        )
        found = translated(tmp_path, "a.tmx", f"<tmx><body>{unit.format('')}{done}</body></tmx>", upper)
        assert f'\n <tuv xml:lang="{tag}"><seg>A &lt; B</seg></tuv>' in found
    table = 'en,note,de\none,x,\n"a, b",y\nthree,z,drei\n'
    assert translated(tmp_path, "a.csv", table, upper) == 'en,note,de\none,x,ONE\n"a, b",y,"A, B"\nthree,z,drei\n'


@pytest.mark.parametrize(("columns", "missing"), [(("2", "9"), 9), (("9", "2"), 9), (("0", "2"), 0), (("2", "4"), 4)])
def test_columns_that_a_table_lacks_are_refused(tmp_path: Path, columns: tuple[str, str], missing: int) -> None:
    for name, table in (("a.csv", "id,text,other\n1,one,\n"), ("a.tsv", "1\tone\t\n2\ttwo\n")):
        path = tmp_path / name
        path.write_text(table, encoding="utf-8")
        with pytest.raises(QkvError, match=rf"{name}: no column {missing}; it has 3; give a file of two columns, or name two"):
            plan_files([path], options=ReadOptions(columns=columns))
    assert translated(tmp_path, "one.tsv", "one\ntwo\n", upper) == "one\tONE\ntwo\tTWO\n"


def test_icu_branches_are_whole_sentences_and_nested_choices_are_left(tmp_path: Path) -> None:
    one = "You have {n, plural, one {# file} other {# files}} left"
    nested = "{a, select, x {{n, plural, other {#}}} other {b}}"
    path = tmp_path / "a.json"
    path.write_text(f'{{"one": "{one}", "nested": "{nested}"}}', encoding="utf-8")
    report = translate_plan(plan_files([path]), lambda texts: [upper(text) for text in texts])
    assert (
        report.content.decode()
        == f'{{"one": "{{n, plural, one {{YOU HAVE # FILE LEFT}} other {{YOU HAVE # FILES LEFT}}}}", "nested": "{nested}"}}'
    )
    assert report.translated == 1 and report.left == 1 and "more than one choice: '{a, select" in report.problems[0]


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ("{n, plural, one {x} other {y}", "whose plural is not closed"),
        ("{n, plural, one {x} other {y", "a branch that is not closed"),
        ("{n, plural, one {x}}", "has no branch 'other'"),
        ("{n, plural, other {it's 'x'}}", "quotes"),
        ("{n, plural, other {y}} {m, select, other {z}}", "more than one choice"),
        ("No # {n, plural, other {y}}", "# outside"),
    ],
)
def test_icu_messages_that_are_left_say_why(tmp_path: Path, message: str, reason: str) -> None:
    path = tmp_path / "a.json"
    path.write_text(f'{{"a": "text",\n"b": "{message}"}}', encoding="utf-8")
    [problem] = translate_plan(plan_files([path]), list).problems
    assert problem.startswith(f"{path}, line 2: left as it was: an ICU message") and reason in problem


def test_icu_branches_are_translated_in_catalogues_of_all_formats(tmp_path: Path) -> None:
    message, done = "{n, plural, one {# file} other {# files}}", "{n, plural, one {# FILE} other {# FILES}}"
    po = f'msgid "{message}"\nmsgstr ""\n'
    assert translated(tmp_path, "a.po", po, upper) == f'#, fuzzy\nmsgid "{message}"\nmsgstr "{done}"\n'
    unit = '<xliff version="1.2"><file source-language="en"><trans-unit><source>{}</source></trans-unit></file></xliff>'
    assert f">{done}</target>" in translated(tmp_path, "a.xlf", unit.format(message), upper)
    tmx = f'<tmx><body><tu><tuv xml:lang="en"><seg>{message}</seg></tuv></tu></body></tmx>'
    assert f"<seg>{done}</seg>" in translated(tmp_path, "a.tmx", tmx, upper)
    assert translated(tmp_path, "a.csv", f'en,de\n"{message}",\n', upper) == f'en,de\n"{message}","{done}"\n'
    shown = f'Sent <x id="ICU" equiv-text="{message}"/>'  # the choice is a unit of its own
    assert f">SENT {shown[5:]}</target>" in translated(tmp_path, "a.xlf", unit.format(shown), upper)


@pytest.mark.parametrize(
    ("branch", "translation", "written"),
    [
        ("Tom", "Hans'", "{n, plural, other {Hans\u2019}}"),  # '} would quote the brace
        ("Tom", "l'eau", "{n, plural, other {l'eau}}"),
        ("one", "ein {", ""),
        ("one", "ein }", ""),
        ("one", "Nr. #", ""),
        ("one", "a} few {b", ""),
        ("one {x}", "{x} eins", "{n, plural, other {{x} eins}}"),
    ],
)
def test_branches_that_would_break_an_icu_message_are_not_written(
    tmp_path: Path, branch: str, translation: str, written: str
) -> None:
    path = tmp_path / "a.json"
    path.write_text(f'["{{n, plural, other {{{branch}}}}}"]', encoding="utf-8")
    report = translate_plan(plan_files([path]), lambda _: [translation])
    assert report.content.decode() == (f'["{written}"]' if written else path.read_text(encoding="utf-8"))
    assert (report.translated, len(report.problems)) == ((1, 0) if written else (0, 1))


def test_icu_messages_with_elements_inside_are_left_and_listed(tmp_path: Path) -> None:
    message = '{VAR_PLURAL, plural, =1 {one file} other {<x id="INTERPOLATION"/> files}}'
    path = tmp_path / "a.xlf"
    head = '<xliff version="1.2"><file source-language="en" target-language="de"><body>'
    units = f"<trans-unit><source>{message}</source></trans-unit>\n<trans-unit><source>{message}</source>"
    path.write_text(f"{head}{units}<target>{message}</target></trans-unit></body></file></xliff>", encoding="utf-8")
    for all_segments, problems in ((False, 1), (True, 2)):
        report = translate_plan(plan_files([path], all_segments=all_segments), lambda texts: [upper(text) for text in texts])
        assert report.content == path.read_bytes() and (report.translated, report.left) == (0, 2)
        assert len(report.problems) == problems
        assert report.problems[0].startswith(f"{path}, line 1: left as it was: an ICU message with inline elements")
    po = tmp_path / "a.po"
    po.write_text('msgid "{n, plural, other {a}}"\nmsgid_plural "b"\nmsgstr[0] ""\nmsgstr[1] ""\n', encoding="utf-8")
    report = translate_plan(plan_files([po], options=EN_DE), list)
    assert report.content == po.read_bytes() and "plural forms of its format too" in report.problems[0]


def test_quotes_of_icu_are_kept_and_none_is_added(tmp_path: Path) -> None:
    french = {
        "A '{literal}' here": "Ici l'{literal}",
        "A {name} x": "L'{name} d'x",
        "# of {x}": "# d'{x}",
        "An {{x}} y": "l'{{x}} y",
    }
    choice = "{n, plural, other {# of {x}}}"
    content = f"""["A '{{literal}}' here", "A {{name}} x", "{choice}", "An {{{{x}}}} y"]"""
    found = translated(tmp_path, "a.json", content, french.__getitem__)
    assert found == """["A '{literal}' here", "L’{name} d'x", "{n, plural, other {# d’{x}}}", "l'{{x}} y"]"""
    kept = translated(tmp_path, "a.json", content, lambda text: text.replace("here", "ici"))
    assert kept == content.replace("here", "ici")


def test_identifiers_in_json_stay(tmp_path: Path) -> None:
    codes = ["#ff0000", "/a/b", "mdi:home", "user_id", "getName", "v2", "https://x.y/z", "{{count}}", "a.b", "$t(common.save)"]
    texts = ["Name:", "Done.", "text", "Hello,{{user.name}}!", "第1章", "Is it a/b?"]
    path = tmp_path / "a.json"
    path.write_text(json.dumps([*codes, *texts]), encoding="utf-8")
    report = translate_plan(plan_files([path]), lambda asked: [upper(text) for text in asked])
    assert json.loads(report.content) == [*codes, *map(upper, texts)]
    assert (report.codes, report.translated) == (len(codes), len(texts))


def test_wrapped_markdown_and_subtitles_keep_their_lines(tmp_path: Path) -> None:
    content = "> one two three four\n> five - six seven\n"
    assert (
        translated(tmp_path, "a.md", content, lambda text: text + " 1. eight")
        == "> one two three four\n> five - six seven 1.\n> eight\n"
    )
    cue = "1\n00:00:01,000 --> 00:00:02,000\n<i>aaaa bbbb\ncccc dddd</i>\n"
    assert translated(tmp_path, "a.srt", cue, upper) == cue.replace("aaaa bbbb\ncccc dddd", "AAAA BBBB\nCCCC DDDD")


def test_a_translator_of_subtitles_reads_words_without_what_is_around_them(tmp_path: Path) -> None:
    cues = [
        "{\\an8}<i>Two lines\nof text</i>",
        "- Who are you?\n-<b>Tom</b> here.",
        "First.\n\n<i>- After</i>\n \n2 more.",
        "-5 degrees",
        "<i>a</i> <b>b</b>",
    ]
    content = "".join(f"{number}\n00:00:01,000 --> 00:00:02,000\n{cue}\n\n" for number, cue in enumerate(cues, 1))
    asked: list[str] = []
    found = translated(tmp_path, "a.srt", content, lambda text: asked.append(text) or upper(text))  # type: ignore[func-returns-value]
    assert asked == [
        *("Two lines of text", "Who are you?", "<b>Tom</b> here.", "First.", "After", "2 more.", "-5 degrees"),
        "<i>a</i> <b>b</b>",
    ]
    for words in ("Two lines\nof text", "Who are you?", "Tom", "here.", "First.", "After", "2 more.", "degrees", ">a<", ">b<"):
        content = content.replace(words, words.upper())
    assert found == content


def test_an_unclosed_voice_of_webvtt_stays_at_the_beginning_of_its_cue(tmp_path: Path) -> None:
    cues = [
        "<v Roger Bingham>In <i>New</i> York",
        "<v.loud Ann>Here\nthere",
        "<v A>Yes\n<v B>No",
        "<v A>So</v> <v B>What</v>",
    ]
    read = []

    def translate(text: str) -> str:
        read.append(str(text))
        return upper(text)

    times = "\n\n00:01.000 --> 00:02.000\n"
    found = translated(tmp_path, "a.vtt", times.join(["WEBVTT", *cues]), translate)
    assert read == ["In <i>New</i> York", "Here there", "Yes", "No", "<v A>So</v> <v B>What</v>"]
    assert found.split(times)[1:4] == [
        "<v Roger Bingham>IN <i>NEW</i> YORK",
        "<v.loud Ann>HERE\nTHERE",
        "<v A>YES\n<v B>NO",
    ]


def test_tags_around_a_whole_text_stay_outside_of_what_is_read(tmp_path: Path) -> None:
    unit = '<trans-unit><source><g id="1"><g id="2">One</g> two</g></source></trans-unit>'
    asked: list[str] = []
    translated(tmp_path, "a.xlf", f'<xliff version="1.2">{unit}</xliff>', lambda text: asked.append(text) or text)  # type: ignore[func-returns-value]
    assert asked == ['<g id="2">One</g> two']


def test_emphasis_and_links_are_paired(tmp_path: Path) -> None:
    path = tmp_path / "a.md"
    path.write_text("a **b *c* [d](e)** f_g_h \\* `x` 2 * 3 ***z***", encoding="utf-8")
    [text] = read_translatable(path).segments[0].texts
    spans = [(text[span.start : span.end], span.kind) for span in text.spans]  # type: ignore[attr-defined]
    opened, alone = [("**", "open"), ("*", "open"), ("*", "close")], [("\\*", "alone"), ("`x`", "alone")]
    assert spans == [
        *opened,
        ("[", "open"),
        ("](e)", "close"),
        ("**", "close"),
        *alone,
        *[("*", "open"), ("**", "open")],
        ("**", "close"),
        ("*", "close"),
    ]


def test_a_translation_that_loses_markup_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "a.html"
    path.write_text("<p>one <b>two</b></p>\n<p>three <b>four</b></p>\n<p>five</p>", encoding="utf-8")
    broken = {"one <b>two</b>": "eins zwei", "three <b>four</b>": "</b>drei<b> vier", "five": "fünf"}
    report = translate_plan(plan_files([path]), lambda texts: [broken[text] for text in texts])
    assert report.content.decode() == path.read_text(encoding="utf-8").replace("five", "fünf")
    assert [problem.partition(": ")[0][-6:] for problem in report.problems] == ["line 1", "line 2"]


@pytest.mark.parametrize(
    ("source", "translation", "problem"),
    [
        ("%d of %s", "%s von %d", "the translation has '%s' before '%d'"),
        ("%1$d of %2$s", "%2$s von %1$d", ""),
        ("%(a)d of %(b)s", "%(b)s von %(a)d", ""),
        ("{:d} of {:s}", "{:s} von {:d}", "the translation has '{:s}' before '{:d}'"),
        (
            "{% if a %}x{% endif %}",
            "{% endif %}x{% if a %}",
            "the translation has '{% endif %}' before '{% if a %}'",
        ),
        (
            "{{#if a}}x{{/if}}",
            "{{/if}}x{{#if a}}",
            "the translation has '{{/if}}' before '{{#if a}}'",
        ),
        ("{{a}} of {{b}}", "{{b}} von {{a}}", ""),
        ("%d%% of %s", "%d % von %s", "the translation lacks '%%' and adds '%'"),
        ("%s files", "Dateien", "the translation lacks '%s'"),
        ("a file", "eine %s Datei", "the translation adds '%s'"),
        ("half", "50 %", ""),
        ("%s is half", "%s ist 50 %", "the translation adds '%'"),
        ("Hello {name}", "Hallo {Name}", "the translation lacks '{name}' and adds '{Name}'"),
        ("see https://a.b", "siehe https://a.b", ""),
        ("words", " ", "the translation is empty"),
    ],
)
def test_a_translation_with_other_placeholders_or_none_at_all_is_not_written(
    tmp_path: Path, source: str, translation: str, problem: str
) -> None:
    path = tmp_path / "a.po"
    path.write_text(f'msgid "{source}"\nmsgstr ""\n', encoding="utf-8")
    report = translate_plan(plan_files([path]), lambda _: [translation])
    assert report.problems == ([f"{path}, line 1: left as it was: {problem}"] if problem else [])
    assert (report.translated, report.left) == ((0, 1) if problem else (1, 0))
    assert (report.content == path.read_bytes()) == bool(problem)
    assert translate_plan(plan_files([path]), lambda _: ["x"], protect=None).translated == 1


def test_arguments_and_commands_that_are_markup_keep_their_order_too(tmp_path: Path) -> None:
    exchange = {
        'A <ph id="1">%d</ph> b <ph id="2">%s</ph>': 'A <ph id="2">%s</ph> b <ph id="1">%d</ph>',
        "Hi {% if a %}you{% endif %} all": "Hi {% endif %}you{% if a %} all",
    }
    for name, content in (
        ("a.xlf", '<xliff version="1.2"><file source-language="en"><trans-unit><source>{}</source></trans-unit></file></xliff>'),
        ("a.html", "<p>{}</p>"),
    ):
        source = list(exchange)[name == "a.html"]
        path = tmp_path / name
        path.write_text(content.replace("{}", source), encoding="utf-8")
        report = translate_plan(plan_files([path]), lambda texts: [exchange[text] for text in texts])
        assert report.content == path.read_bytes() and "before" in report.problems[0]


def test_a_translation_adds_no_white_space_around_a_text(tmp_path: Path) -> None:
    content = "one\n  two \n- three\n"
    assert translated(tmp_path, "a.txt", content, lambda text: f" {text.upper()} \n") == content.upper()
    page = "<p>one <b>two</b></p>"
    assert translated(tmp_path, "a.html", page, lambda text: f"{upper(text)}\u00a0 ") == "<p>ONE <b>TWO</b></p>"


def test_lines_of_a_message_stay_lines(tmp_path: Path) -> None:
    long = "This is a long line that was broken in the middle\\nof a sentence."
    asked: list[str] = []
    found = translated(
        tmp_path,
        "a.json",
        f'["  One\\n\\n - Two\\n", "{long}"]',
        lambda text: asked.append(text) or " ".join(text.upper().split()),
    )  # type: ignore[func-returns-value]
    assert asked == ["One", "Two", long.replace("\\n", "\n")]
    assert found == f'["  ONE\\n\\n - TWO\\n", "{long.upper().replace(chr(92) + "N", chr(92) + "n")}"]'


def markdown_structure(text: str) -> list[tuple[str, ...]]:
    """Return the blocks and inline elements that another parser sees, with their code and targets, and without their texts."""
    found: list[tuple[str, ...]] = []
    for block in pytest.importorskip("markdown_it").MarkdownIt("commonmark").enable("table").parse(text.partition("---\n\n")[2]):
        found.append((block.type, block.content if block.type in ("fence", "code_block") else ""))
        inner = [token for token in block.children or [] if token.type not in ("text", "softbreak")]
        found += [(token.type, str(token.attrs), token.content if token.type == "code_inline" else "") for token in inner]
    return found


def test_another_parser_sees_the_same_markdown(tmp_path: Path) -> None:
    content = FILES["read.md"] + "\n\ntext <commandname>\n<commandname> `a  b`\n\n[x y]:\n  http://q\n\n***a** b* __c__d\n"
    content += "\nTable:\n| a *b* |\n|---|\n| c [x y] |\n"
    assert markdown_structure(translated(tmp_path, "a.md", content, upper)) == markdown_structure(content)


def test_text_that_looks_like_markup_is_text(tmp_path: Path) -> None:
    assert translated(tmp_path, "a.md", "2 * 3 is *six*", lambda text: text.replace("is", "ist")) == "2 * 3 ist *six*"


@pytest.mark.parametrize(
    ("content", "wanted"),
    [
        ("> [!NOTE]\n> one\n> two\n", "> [!NOTE]\n> ONE\n> TWO\n"),
        ("> [!tip]- a title\n> one\n", "> [!tip]- A TITLE\n> ONE\n"),
        ("# title {#intro}\n", "# TITLE {#intro}\n"),
        ("## title {#intro .wide} ##\n", "## TITLE {#intro .wide} ##\n"),
        ("title {.class}\n===\n", "TITLE {.class}\n===\n"),
        ("a ![b](c.png){width=50} d", "A ![B](c.png){width=50} D"),
        ("a [b](c){.external target=_blank} d", "A [B](c){.external target=_blank} D"),
        ("a [b]{.smallcaps} `x`{.py} d", "A [B]{.smallcaps} `x`{.py} D"),
        ("term\n: first line\n  goes on\n: second\n", "TERM\n: FIRST LINE\n  GOES ON\n: SECOND\n"),
        ("term\n\n:   text\n", "TERM\n\n:   TEXT\n"),
    ],
)
def test_extensions_of_markdown(tmp_path: Path, content: str, wanted: str) -> None:
    assert translated(tmp_path, "a.md", content, upper) == wanted


def test_no_wrapped_line_begins_a_definition(tmp_path: Path) -> None:
    assert translated(tmp_path, "a.md", "one two\nthree\n", lambda _: "one two : three") == "one two :\nthree\n"


def test_codes_that_touch_are_translated(tmp_path: Path) -> None:
    for content in ("A ***bold italic*** word", "***a** b* word", "*a **b*** word"):
        assert translated(tmp_path, "a.md", content, lambda text: text.replace("word", "Wort")) == content.replace("word", "Wort")


def test_marks_around_segments_of_xliff_are_carried_over(tmp_path: Path) -> None:
    marks = '<mrk mtype="seg" mid="0">One.</mrk> <mrk mtype="seg" mid="1">Two.</mrk>'
    content = f'<xliff version="1.2"><trans-unit><source>One. Two.</source><seg-source>{marks}</seg-source></trans-unit></xliff>'
    found = translated(tmp_path, "a.xlf", content, upper)
    assert found.endswith(f">{marks.replace('One', 'ONE').replace('Two', 'TWO')}</target></trans-unit></xliff>")


BAD = {
    "broken.xlf": (b"<xliff version='1.2'>\n<file><source>", "line 2: not well-formed XML"),
    "bomb.xlf": (b'<!DOCTYPE x [<!ENTITY a "b">]><xliff version="1.2"/>', "entities"),
    "deep.xlf": (b"<a>" * 300 + b"</a>" * 300, "nested more than 200 deep"),
    "mark.csv": (b"\xef\xbb\xbf", "no text to translate"),
    "quote.csv": (b'source,target\none,\n"two,\n', "line 3: the quote of a cell is not closed"),
    "other.xlf": (b"<html/>", "not XLIFF; its root element is <html>"),
    "language.xlf": (b'<xliff version="2.0" srcLang="fr"/>', "is fr -> ?, not en -> de"),
    "syntax.po": (b'msgid "a"\nmsgstr "b\n', "line 2: not gettext PO"),
    "half.po": (b'msgid "a"\n\nmsgid "b"\nmsgstr ""\n', "line 3: msgid occurs twice"),
    "language.po": (b'msgid ""\nmsgstr "Language: fr\\n"\n\nmsgid "a"\nmsgstr ""', "its language is fr"),
    "unclosed.html": (b"<p>x</p>\n<p>Hello <b>world</p>", "line 2: <b> is not closed"),
    "closes.html": (b"<p>Hello</b></p>", "</b> closes nothing"),
    "broken.json": (b'{"a": "b",\n}', "line 2: not valid JSON"),
    "none.json": (b'{"a": 1}', "no text to translate"),
    "done.po": (b'msgid "a"\nmsgstr "b"\n', "everything has a translation; --all"),
    "binary.md": (b"\x89PNG\0\0", "binary"),
    "latin.md": (b"ok\nno\xfc", "line 2: not UTF-8"),
    "empty.vtt": (b" \n", "is empty"),
    "head.vtt": (b"00:01.000 --> 00:02.000\nx", "WEBVTT"),
    "times.srt": (b"1\nHello", "not SubRip"),
    "arrow.srt": (b"1\n00:00:01,000 --> 00:00:02,000\na\n\n2\n00:00:03 -> 00:00:04\nb", "line 5: not SubRip"),
    "none.tmx": (b'<tmx><body><tu><tuv xml:lang="fr"><seg>a</seg></tuv></tu></body></tmx>', "no unit has a text in en"),
    "what.xyz": (b"text", "cannot tell the format from the suffix; give --format"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_files_that_cannot_be_read_are_one_line(tmp_path: Path, name: str) -> None:
    content, reason = BAD[name]
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(QkvError) as caught:
        plan_files([path], options=EN_DE)
    assert reason in str(caught.value) and name in str(caught.value) and "\n" not in str(caught.value)


def test_other_encodings_stay_where_they_have_all_characters(tmp_path: Path) -> None:
    path = tmp_path / "a.po"
    header = 'msgid ""\nmsgstr "Content-Type: text/plain; charset=ISO-8859-1\\n"\n\nmsgid "\xe9"\nmsgstr ""\n'
    path.write_bytes(header.encode("latin-1"))
    assert translate_plan(plan_files([path]), lambda texts: ["\xc9"]).content.endswith(b'#, fuzzy\nmsgid "\xe9"\nmsgstr "\xc9"\n')
    written = translate_plan(plan_files([path]), lambda texts: ["日"]).content.decode()  # ISO-8859-1 has no such character
    assert written == header.replace("ISO-8859-1", "UTF-8").replace('msgid "é"\nmsgstr ""', '#, fuzzy\nmsgid "é"\nmsgstr "日"')
    srt = tmp_path / "a.srt"
    srt.write_bytes("\ufeff1\n00:00:01,000 --> 00:00:02,000\nhi\n".encode("utf-16-le"))
    written = translate_plan(plan_files([srt]), lambda texts: ["日"]).content
    assert written == srt.read_bytes().replace("hi".encode("utf-16-le"), "日".encode("utf-16-le"))


@pytest.mark.parametrize(
    "declaration",
    [
        '<meta charset="iso-8859-1">',
        "<!-- <meta charset=utf-8> --><META content='text/html; charset=ISO-8859-1' http-equiv=Content-Type>",
        '<?xml version="1.0" encoding="latin1"?>',
    ],
)
def test_pages_are_read_in_the_encoding_that_they_declare(tmp_path: Path, declaration: str) -> None:
    path = tmp_path / "a.html"
    path.write_bytes(f"{declaration}<p title='caf\xe9'>Caf\xe9</p>".encode("latin-1"))
    plan = plan_files([path])
    assert [segment.texts for segment in plan.files[0].parsed.segments] == [("café",), ("Café",)]
    written = translate_plan(plan, lambda texts: [f"“{text}” 日" for text in texts]).content
    assert written == f"{declaration}<p title='&#8220;caf\xe9&#8221; &#26085;'>&#8220;Caf\xe9&#8221; &#26085;</p>".encode(
        "latin-1"
    )
    path.write_bytes(f"{declaration}<p>A \x93b\x94</p>".encode("latin-1"))
    assert plan_files([path]).files[0].parsed.segments[0].texts == ("A “b”",)
    assert translate_plan(plan_files([path]), lambda _: ["“b”"]).content.endswith(b"<p>\x93b\x94</p>")


def docx(path: Path, body: str) -> Path:
    """Write a document with these paragraphs."""
    names = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("[Content_Types].xml", "<Types/>")
        archive.writestr("word/document.xml", f'<?xml version="1.0"?>\n<w:document {names}><w:body>{body}</w:body></w:document>')
        archive.writestr("word/media/picture.png", b"\0\1")
    return path


def test_docx_keeps_formatting_links_fields_and_everything_else(tmp_path: Path) -> None:
    bold, run = "<w:rPr><w:b/></w:rPr>", '<w:r>{}<w:t xml:space="preserve">{}</w:t></w:r>'
    field = '<w:r><w:fldChar w:fldCharType="begin"/></w:r><w:r><w:t>7</w:t></w:r><w:r><w:fldChar w:fldCharType="end"/></w:r>'
    link = '<w:hyperlink r="1">{}</w:hyperlink>'
    body = (
        "<w:p><w:pPr><w:jc/></w:pPr><w:r><w:t>one t</w:t></w:r><w:proofErr/><w:r><w:t>wo &amp; </w:t><w:tab/></w:r>"
        f"{run.format(bold, 'three')}{link.format(run.format(bold, 'link'))}{field}</w:p><w:p><w:r><w:t>7</w:t></w:r></w:p>"
    )
    path = docx(tmp_path / "a.docx", body)
    plan = plan_files([path])
    assert [segment.texts for segment in plan.files[0].parsed.segments] == [("one two & <x1/><g2>three</g2><g4>link</g4><x6/>",)]
    assert translate_plan(plan, list).content == path.read_bytes()  # the identity
    path.with_name("b.docx").write_bytes(translate_plan(plan, lambda texts: [upper(text) for text in texts]).content)
    tab = "<w:r><w:tab/></w:r>"
    with zipfile.ZipFile(path.with_name("b.docx")) as archive:
        assert archive.read("word/media/picture.png") == b"\0\1"
        found = archive.read("word/document.xml").decode()
    runs = f"{run.format('', 'ONE TWO &amp; ')}{tab}{run.format(bold, 'THREE')}{link.format(run.format(bold, 'LINK'))}{field}"
    assert f"<w:p><w:pPr><w:jc/></w:pPr>{runs}</w:p><w:p><w:r><w:t>7</w:t></w:r></w:p>" in found


def test_docx_joins_runs_that_only_the_spelling_checker_tells_apart(tmp_path: Path) -> None:
    run = "<w:r><w:rPr>{}</w:rPr><w:t>{}</w:t></w:r>"
    american, bold = '<w:lang w:val="en-US"/>', '<w:b/><w:lang w:val="en-GB"/>'
    runs = f"{run.format(american, 'The de')}{run.format('<w:noProof/>', 'vice is ')}{run.format(bold, 'off')}"
    path = docx(tmp_path / "a.docx", f"<w:p>{runs}</w:p>")
    plan = plan_files([path])
    assert [segment.texts for segment in plan.files[0].parsed.segments] == [("The device is <g1>off</g1>",)]
    assert translate_plan(plan, list).content == path.read_bytes()  # the identity


def test_what_is_no_docx_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.docx"
    path.write_bytes(b"PK\3\4 damaged")
    with pytest.raises(QkvError, match=r"not a \.docx document"):
        plan_files([path])
