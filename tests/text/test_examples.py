"""Examples: every format gives the same ones, and every mistake is an error of one line with its file and line."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from qkv.base.errors import ConfigError, DataError, QkvError
from qkv.objectives import OBJECTIVES
from qkv.text.examples import (
    TEXT_READERS,
    ExamplesConfig,
    Question,
    TaggedExample,
    TextExample,
    check_labels,
    count_labels,
    find_headers,
    find_labels,
    read_examples,
)

ROWS = [("A plane takes off.", 'It flies, says "he".', "yes"), ("Two\u2028lines", "one", "no")]


def read(kind: Any, path: Path, content: str, labelled: bool = True, **options: Any) -> list[Any]:
    path.write_text(content, encoding="utf-8")
    objective: Any = OBJECTIVES[kind]
    return read_examples(objective.readers, ExamplesConfig(files=str(path), **options), labelled)


def told(examples: list[TextExample]) -> list[tuple[str | None, ...]]:
    return [(example.text, example.pair, example.label) for example in examples]


def test_all_tables_say_the_same(tmp_path: Path) -> None:
    names = {"text": "first", "pair": "second", "label": "same"}
    header = ("first", "second", "same")
    quoted = [",".join('"' + cell.replace('"', '""') + '"' for cell in row) for row in (header, *ROWS)]
    contents = {
        "a.tsv": "\n".join("\t".join(row) for row in (header, *ROWS)),
        "b.csv": "\n".join(quoted),
        "c.jsonl": "\n".join(json.dumps(dict(zip(header, row, strict=True))) for row in ROWS),
    }
    for name, content in contents.items():
        assert told(read("classification", tmp_path / name, content + "\n", **names)) == ROWS
    by_number = read("classification", tmp_path / "d.tsv", "\n".join("\t".join(row) for row in ROWS), text=1, pair="2", label=3)
    assert told(by_number) == ROWS and [example.line for example in by_number] == [1, 2]
    assert by_number[1].where == f"{tmp_path / 'd.tsv'}, line 2"


def test_files_are_found_and_unpacked(tmp_path: Path) -> None:
    for number in range(2):
        (tmp_path / f"{number}.tsv.gz").write_bytes(gzip.compress(f"\ufefftext\tlabel\r\na {number}\t{number}\r\n\r\n".encode()))
    examples = read_examples(TEXT_READERS, ExamplesConfig(files=str(tmp_path / "*.gz")))
    assert told(examples) == [("a 0", None, "0"), ("a 1", None, "1")]
    assert examples == read_examples(TEXT_READERS, ExamplesConfig(files=(str(tmp_path / "*.gz"), str(tmp_path / "0*"))))


def test_a_csv_cell_may_span_lines(tmp_path: Path) -> None:
    examples = read("classification", tmp_path / "a.csv", 'text,label\n"a\nb",x\nc,y\n')
    assert told(examples) == [("a b", None, "x"), ("c", None, "y")]
    assert [example.line for example in examples] == [2, 4]


def test_labels_of_json_may_be_numbers_and_truths(tmp_path: Path) -> None:
    lines = [json.dumps({"text": "a", "label": label}) for label in (1, 2.5, True)]
    assert [e.label for e in read("classification", tmp_path / "a.jsonl", "\n".join(lines))] == ["1", "2.5", "true"]


def test_what_is_to_be_predicted_needs_no_labels(tmp_path: Path) -> None:
    assert told(read("classification", tmp_path / "a.tsv", "text\na\n", labelled=False)) == [("a", None, None)]
    assert told(read("regression", tmp_path / "b.jsonl", '{"text": "a"}', labelled=False)) == [("a", None, None)]
    (sentence,) = read("tagging", tmp_path / "c.conll", "a\nb\n", labelled=False)
    assert (sentence.words, sentence.tags) == (["a", "b"], [])


def test_lines_are_texts_to_be_predicted(tmp_path: Path) -> None:
    assert told(read("classification", tmp_path / "a.txt", "a\tb\nc\n", labelled=False)) == [
        ("a b", None, None),
        ("c", None, None),
    ]
    assert told(read("regression", tmp_path / "b", "a\n", labelled=False, format="lines")) == [("a", None, None)]
    with pytest.raises(
        ConfigError, match=r"the suffix '.txt' is not one that this objective reads; say --set data.format=tsv or"
    ):
        read("classification", tmp_path / "a.txt", "a\n")
    with pytest.raises(ConfigError, match="a line holds one text, and pairs are wanted"):
        read("classification", tmp_path / "a.txt", "a\n", labelled=False, pair="2")


def test_lines_of_words_are_texts_to_be_tagged(tmp_path: Path) -> None:
    found = read("tagging", tmp_path / "a.txt", "The dog  barks.\nPeter\n", labelled=False)
    assert [(e.words, e.tags, e.where) for e in found] == [
        (["The", "dog", "barks."], [], f"{tmp_path / 'a.txt'}, line 1"),
        (["Peter"], [], f"{tmp_path / 'a.txt'}, line 2"),
    ]
    assert found == read("tagging", tmp_path / "a.txt", "The dog  barks.\nPeter\n", labelled=False, format="lines")
    with pytest.raises(DataError, match=r"line 2: it is blank, .*, if the file has one word per line, say --set format=conll"):
        read("tagging", tmp_path / "a.txt", "The\n\ndog\n", labelled=False)
    with pytest.raises(DataError, match=r"line 3: 1 columns, the first line has 2; .* say --set format=lines"):
        read("tagging", tmp_path / "a.conll", "The dog\n\nPeter\n", labelled=False)
    with pytest.raises(ConfigError, match="the format lines is not one that this objective reads"):
        read("tagging", tmp_path / "a.txt", "The dog\n", format="lines")


@pytest.mark.parametrize(
    ("name", "content"), [("a.tsv", "text\na\n\nb\n"), ("a.csv", "text\na\n\nb\n"), ("a.txt", "x\na\n \nb\n")]
)
def test_a_blank_line_would_have_no_prediction(tmp_path: Path, name: str, content: str) -> None:
    with pytest.raises(DataError, match=f"{name}, line 3: it is blank, and every line needs a text to predict on"):
        read("classification", tmp_path / name, content, labelled=False)
    with pytest.raises(DataError, match="line 2: it is blank"):
        read("regression", tmp_path / "b.jsonl", '{"text": "a"}\n\n', labelled=False)
    labelled = "text\tlabel\na\tx\n\nb\ty\n"
    assert len(read("classification", tmp_path / "c.tsv", labelled)) == 2


CONLL = "-DOCSTART- -X- O O\n\nEU NNP B-NP B-ORG\nrejects VBZ B-VP O\n\n\nPeter NNP B-NP B-PER\n"


def test_conll(tmp_path: Path) -> None:
    path = tmp_path / "a.conll"
    wanted = [TaggedExample(["EU", "rejects"], ["B-ORG", "O"], str(path), 3), TaggedExample(["Peter"], ["B-PER"], str(path), 7)]
    assert read("tagging", path, CONLL) == wanted
    assert [example.tags for example in read("tagging", path, CONLL, column=2)] == [["NNP", "VBZ"], ["NNP"]]
    tabbed = read("tagging", tmp_path / "b.txt", "New York\tB-x\nis\tO\n\t\nbig\tO")  # a line of a tab alone is blank
    assert [(example.words, example.tags) for example in tabbed] == [(["New York", "is"], ["B-x", "O"]), (["big"], ["O"])]


def squad(context: str, *questions: tuple[str, list[tuple[int, str]]]) -> str:
    asked = [
        {"id": str(number), "question": text, "answers": [{"answer_start": start, "text": said} for start, said in answers]}
        for number, (text, answers) in enumerate(questions)
    ]
    return json.dumps({"data": [{"title": "t", "paragraphs": [{"context": context, "qas": asked}]}]})


def test_squad(tmp_path: Path) -> None:
    content = squad("In 1912, it sank.", ("When?", [(3, "1912"), (0, "In 1912")]), ("Why?", []))
    first, second = read("answering", tmp_path / "a.json", content)
    context = "In 1912, it sank."
    assert first == Question("0", "When?", context, [(3, "1912"), (0, "In 1912")], str(tmp_path / "a.json"), 1, 1)
    assert second.answers == []
    assert second.where == f"{tmp_path / 'a.json'}, article 1, paragraph 1, question 1"
    twice = json.loads(content)
    twice["data"].append(twice["data"][0])
    says = "article 2, paragraph 1, question 0: a question in article 1, paragraph 1 has the same id"
    with pytest.raises(DataError, match=says):
        read("answering", tmp_path / "b.json", json.dumps(twice))


def test_labels_have_an_order(tmp_path: Path) -> None:
    examples = read("classification", tmp_path / "a.tsv", "".join(f"a\t{label}\n" for label in (10, 9, -1, 9)), text=1, label=2)
    assert find_labels(examples) == ("-1", "9", "10")
    tagged = read("tagging", tmp_path / "b.conll", "a B-x\nb O\nc I-y\n")
    assert find_labels(tagged) == ("O", "B-x", "I-y")
    assert find_labels(tagged, {"I-x"}) == ("O", "B-x", "I-x", "I-y")


def test_nothing_behind_the_last_column_is_no_column(tmp_path: Path) -> None:
    examples = read("classification", tmp_path / "a.tsv", "text\tlabel\na\t1\t\n")
    assert [(example.text, example.label) for example in examples] == [("a", "1")]


MISTAKES = [
    (
        "classification",
        "a.tsv",
        "sentence\tclass\na\t1\n",
        "line 1: no column 'text' for the text; there are: sentence, class; say --set data.text= and",
    ),
    ("classification", "a.tsv", "text\tclass\na\t1\n", "line 1: no column 'label' for the label; there are: text, class"),
    ("classification", "a.tsv", "text\tlabel\na\t1\nb\n", "line 3: 1 columns, at least 2 are wanted"),
    (
        "classification",
        "a.tsv",
        "a\t1\n",
        "say --set data.text= and one of them; or, if this line is no header, the column's number",
    ),
    (
        "classification",
        "a.tsv",
        "text\tlabel\na\tb\t1\n",
        "line 2: 3 columns, the first line has 2; does a text contain the separator?",
    ),
    ("classification", "a.csv", "text,label\na,1\nwell, b,1\n", "line 3: 3 columns, the first line has 2; does a text contain"),
    ("classification", "a.tsv", "text\tlabel\na\t1\n \t1\n", "line 3: the text is empty"),
    ("classification", "a.tsv", "text\tlabel\na\t1\nb\t\n", "line 3: the label is empty"),
    ("classification", "a.tsv", "text\tlabel\n", "no examples"),
    ("classification", "a.tsv", "", "no examples"),
    ("classification", "a.csv", 'text,label\na,1\n"b,2\n', "line 3: not valid CSV"),
    ("classification", "a.jsonl", '{"text": "a", "label": 1}\n{"text": \n', "line 2: not valid JSON"),
    ("classification", "a.jsonl", '{"text": "a", "label": 1}\n{"text": "b"}\n', "line 2: no column 'label'"),
    ("classification", "a.jsonl", '{"text": "\\ud800", "label": 1}', "line 1: the text holds half a character"),
    ("classification", "a.jsonl", "[1, 2]\n", "line 1: a JSON list; an object"),
    (
        "classification",
        "a.conll",
        "a O\n",
        "the suffix '.conll' is not one that this objective reads; say --set data.format=tsv or",
    ),
    ("regression", "a.tsv", "text\tlabel\na\t1.5\nb\tgood\n", "line 3: the label 'good' is not a number"),
    ("regression", "a.tsv", "text\tlabel\na\tnan\n", "line 2: the label 'nan' is not a number"),
    ("tagging", "a.conll", "a O\nb\n", "line 2: 1 columns, 2 are wanted"),
    ("tagging", "a.conll", "a\tO\n\tO\n", "line 2: 1 columns, 2 are wanted"),
    ("tagging", "a.conll", "a\n", "line 1: 1 columns, 2 are wanted"),
    ("tagging", "a.conll", "\n\n", "no examples"),
    ("tagging", "a.tsv", "a\tO\n", "say --set data.format=conll"),
    ("answering", "a.json", '{"data": [}', "line 1: not valid JSON"),
    ("answering", "a.json", "[]", "top: not SQuAD's JSON: no list 'data'"),
    ("answering", "a.json", '{"data": [{"title": "t"}]}', "article 1: not SQuAD's JSON: no list 'paragraphs'"),
    (
        "answering",
        "a.json",
        '{"data": [{"paragraphs": [{"qas": [{}]}]}]}',
        "paragraph 1: not SQuAD's JSON: no 'context'",
    ),
    ("answering", "a.json", '{"data": []}', "no examples"),
    ("answering", "a.json", squad("abc", ("", [])), "paragraph 1, question 0: the question is empty"),
    ("answering", "a.json", squad("abc", ("q", [(2, "cd")])), "'cd' from character 2 to 4 is outside its context of 3"),
    ("answering", "a.json", squad("abc", ("q", [(-1, "c")])), "question 0: the answer 'c' from character -1 to 0 is outside"),
    ("answering", "a.json", squad("abc", ("q", [(0, "b")])), "question 0: at character 0 stands 'a', not the answer 'b'"),
    ("answering", "a.json", squad("abc", ("q", [(0, "")])), "question 0: an answer needs"),
]


@pytest.mark.parametrize(("kind", "name", "content", "says"), MISTAKES)
def test_mistakes(tmp_path: Path, kind: Any, name: str, content: str, says: str) -> None:
    with pytest.raises(QkvError) as caught:
        read(kind, tmp_path / name, content)
    message = str(caught.value)
    assert says in message and message.startswith(str(tmp_path / name)) and "\n" not in message


def test_a_line_that_is_not_utf8(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_bytes(b"text\tlabel\ngood\t1\n" + b"long enough " * 9 + b"\xff\t1\n")
    with pytest.raises(DataError, match="line 3: not UTF-8"):
        read_examples(TEXT_READERS, ExamplesConfig(files=str(tmp_path / "a.tsv")))


def test_one_class_is_refused(tmp_path: Path) -> None:
    for kind, name, content in (
        ("classification", "a.tsv", "text\tlabel\na\t1\nb\t1\n"),
        ("tagging", "b.conll", "a O\n\nb O\n"),
    ):
        examples = read(kind, tmp_path / name, content)
        with pytest.raises(DataError, match=rf"{name}: only one label \([1O]\) in all 2 training examples"):
            find_labels(examples)


def test_labels_are_counted_and_headers_suspected(tmp_path: Path) -> None:
    columns = {"text": "1", "label": "2"}
    read_as_rows = read("classification", tmp_path / "a.tsv", "text\tlabel\na\tx\nb\ty\nc\tx\n", **columns)
    assert count_labels(read_as_rows) == {"label": 1, "x": 2, "y": 1}
    assert [example.text for example in find_headers(read_as_rows)] == ["text"]
    twice = [*read_as_rows, *read("classification", tmp_path / "b.tsv", "text\tlabel\na\tx\n", **columns)]
    assert [example.file for example in find_headers(twice)] == [str(tmp_path / name) for name in ("a.tsv", "b.tsv")]
    assert not find_headers(read("classification", tmp_path / "c.tsv", "a\tx\nb\ty\nc\tx\n", **columns))


def test_labels_that_training_does_not_have(tmp_path: Path) -> None:
    examples = read("classification", tmp_path / "a.tsv", "text\tlabel\na\tyes\nb\tyess\n")
    check_labels(examples[:1], ("no", "yes"))
    with pytest.raises(DataError, match=r"a.tsv, line 3: the label 'yess' is not in the training .*; did you mean 'yes'\?"):
        check_labels(examples, ("no", "yes"))
    with pytest.raises(DataError, match="known are 0, 1"):
        check_labels(examples, ("0", "1"))
    tagged = read("tagging", tmp_path / "b.conll", "a O\n\nb O\nc B-x\n")
    with pytest.raises(DataError, match=r"b.conll, line 4: the label 'B-x' is not"):
        check_labels(tagged, ("O", "B-y"))


def test_columns_are_counted_from_one() -> None:
    with pytest.raises(ValueError, match="counted from 1"):
        ExamplesConfig(files="a.tsv", text=0)


def test_no_such_file(tmp_path: Path) -> None:
    with pytest.raises(QkvError, match="no such file"):
        read_examples(TEXT_READERS, ExamplesConfig(files=str(tmp_path / "a.tsv")))
    with pytest.raises(ConfigError, match="the format tsv is not one that this objective reads"):
        read("answering", tmp_path / "a.json", "{}", format="tsv")
