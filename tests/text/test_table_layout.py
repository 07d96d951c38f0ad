"""The layout of tables of pairs: delimiter, quotes, header, columns."""

from pathlib import Path

import pytest

from qkv.base.errors import DataError
from qkv.text.corpus import ParallelCorpusConfig, read_pairs, table_layouts

Pairs = list[tuple[str, str]]
TWO = [("Open the door", "Öffne die Tür"), ("Close it, please", "Mach es zu, bitte")]


def written(folder: Path, name: str, lines: list[str]) -> str:
    path = folder / name
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(path)


def read(path: str, languages: tuple[str, str] | None = None, **keys: object) -> Pairs:
    return [pair[:2] for pair in read_pairs(ParallelCorpusConfig(pairs=path, **keys), languages) if not pair.problem]


def described(path: str, languages: tuple[str, str] | None = None) -> str:
    (layout,) = table_layouts(ParallelCorpusConfig(pairs=path), languages).values()
    return str(layout)


@pytest.mark.parametrize(
    ("name", "lines", "says"),
    [
        ("a.csv", ["{0};{1}"], "columns 1 and 2 between semicolons, no header"),
        ("a.csv", ['"{0}";"{1}"'], "columns 1 and 2 between semicolons, no header"),
        ("a.csv", ['"{0}","{1}"'], "columns 1 and 2 between commas, no header"),
        ("a.csv", ["{0}\t{1}"], "columns 1 and 2 between tabs, no header"),
        ("a.csv", ["en;de", "{0};{1}"], "columns 1 (en) and 2 (de) between semicolons, header skipped"),
        ("a.csv", ["en|de", "{0}|{1}"], "columns 1 (en) and 2 (de) between vertical bars, header skipped"),
        ("a.csv", ["id,source,target", '7,"{0}","{1}"'], "columns 2 (source) and 3 (target) between commas, header skipped"),
        ("a.csv", ["id;en;de", "7;{0};{1}"], "columns 2 (en) and 3 (de) between semicolons, header skipped"),
        ("a.csv", ["id;en;de", "a-7;{0};{1}"], "columns 2 (en) and 3 (de) between semicolons, header skipped"),
        ("a.csv", ["Source;Note;Target", "{0};;{1}"], "columns 1 (Source) and 3 (Target) between semicolons, header skipped"),
        ("a.csv", ["{0};{1};", "{0};{1};"], "columns 1 and 2 between semicolons, no header"),
        ("a.tsv", ["{0}\t{1}"], "columns 1 and 2 between tabs, no header"),
        ("a.tsv", ["source\ttarget", "{0}\t{1}"], "columns 1 (source) and 2 (target) between tabs, header skipped"),
        ("a.tsv", ["target\tsource", "{1}\t{0}"], "columns 2 (source) and 1 (target) between tabs, header skipped"),
        ("a.tsv", ["no\tEnglish\tGerman", "1\t{0}\t{1}"], "columns 2 (English) and 3 (German) between tabs, header skipped"),
        ("a.tsv", ["text_en\ttext_de", "{0}\t{1}"], "columns 1 (text_en) and 2 (text_de) between tabs, header skipped"),
        ("a.tsv", ["en-US\tde_AT", "{0}\t{1}"], "columns 1 (en-US) and 2 (de_AT) between tabs, header skipped"),
        ("a.tsv", ["it\tes", "{0}\t{1}"], "columns 1 (it) and 2 (es) between tabs, header skipped"),
        ("a.tsv", ["en;de", "{0};{1}"], "columns 1 (en) and 2 (de) between semicolons, header skipped"),
        ("a.tsv", ['"source"\t"target"', '"{0}"\t"{1}"'], "columns 1 (source) and 2 (target) between tabs, header skipped"),
    ],
)
def test_layouts(tmp_path: Path, name: str, lines: list[str], says: str) -> None:
    *header, row = lines if "{" not in lines[0] else lines[:1]
    path = written(tmp_path, name, [*header, *(row.format(*pair) for pair in TWO)])
    assert read(path) == TWO
    assert described(path) == says


@pytest.mark.parametrize(
    "rows",
    [
        [("it", "es"), ("he", "er"), ("house", "casa")],  # words, though both are codes of languages
        [("German", "Deutsch"), ("French", "Französisch")],
        [("Input", "Eingabe"), ("Output", "Ausgabe")],
        [("Source", "Quelle der Daten"), ("Target", "Ziel der Daten")],
        [("English", "Englisch"), ("Open", "Öffnen")],
        [("no", "no"), ("yes", "sí")],
        [("1", "2"), ("eins", "zwei")],
        [('"Yes"', '"Ja"'), ('He said "no".', 'Er sagte "nein".'), ("a", "b")],  # quotes of the text
        [('"Yes," he said.', '"Ja", sagte er.'), ("a", "b")],
        [("a; b", "c; d"), ("e, f", "g, h")],
    ],
)
def test_real_pairs_of_a_tsv_stay_as_they_are(tmp_path: Path, rows: Pairs) -> None:
    assert read(written(tmp_path, "a.tsv", ["\t".join(row) for row in rows])) == rows


def test_quotes_of_the_format_in_a_tsv(tmp_path: Path) -> None:
    rows = ["plain\teinfach", '"He said ""no"""\t"Er sagte ""nein"""', '"a, b"\tc']
    wanted = [("plain", "einfach"), ('He said "no"', 'Er sagte "nein"'), ("a, b", "c")]
    assert read(written(tmp_path, "a.tsv", rows)) == wanted


def test_sentences_without_tabs_are_not_split_at_their_commas(tmp_path: Path) -> None:
    path = written(tmp_path, "a.tsv", ["Well, yes", "No, never", "I came, I saw", "Now, then", "One, two, three", "so"])
    assert read(path) == []


def test_a_csv_with_semicolons_in_its_text(tmp_path: Path) -> None:
    rows = ["yes;no,ja;nein", "this;that,dies;das"]
    assert read(written(tmp_path, "a.csv", rows)) == [("yes;no", "ja;nein"), ("this;that", "dies;das")]


def test_languages_choose_among_columns_by_any_of_their_names(tmp_path: Path) -> None:
    path = written(tmp_path, "a.csv", ["key;English;Deutsch;fr-FR", "k.1;one;eins;un", "k.2;two;zwei;deux"])
    assert read(path, ("en", "de")) == [("one", "eins"), ("two", "zwei")]
    assert read(path, ("fr", "en")) == [("un", "one"), ("deux", "two")]
    assert read(path, columns=("Deutsch", "key"))[0] == ("eins", "k.1")
    assert read(path, columns=(3, 4)) == [("eins", "un"), ("zwei", "deux")]


@pytest.mark.parametrize(
    ("lines", "has"),
    [
        (["1;one;eins", "2;two;zwei"], "1, one, eins"),
        (["id;Frage;Antwort", "1;one;eins"], "id, Frage, Antwort"),
        (["en;de;fr", "one;eins;un"], "en, de, fr"),
    ],
)
def test_more_than_two_columns_must_be_named(tmp_path: Path, lines: list[str], has: str) -> None:
    path = written(tmp_path, "a.csv", lines)
    with pytest.raises(DataError) as error:
        read(path)
    assert str(error.value) == (
        f"{path}: which of its 3 columns are source and target? its first row is {has}; give a file of two columns, "
        "or name two, by columns: [2, 3] in a recipe or --set columns=[2,3] for qkv translate"
    )
    assert read(path, columns=(2, 3))[-1] == tuple(lines[-1].split(";")[1:])


def test_a_header_of_other_languages_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="which of its 2 columns are source and target\\? its first row is en, de"):
        read(written(tmp_path, "a.tsv", ["en\tde", "one\teins"]), ("en", "fr"))


def test_an_empty_file_has_no_pairs(tmp_path: Path) -> None:
    for name in ("a.csv", "a.tsv"):
        (tmp_path / name).touch()
        assert read(str(tmp_path / name), columns=("en", "de")) == []
