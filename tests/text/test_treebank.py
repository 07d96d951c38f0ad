"""Trees in files: all of CoNLL-U, and JSON Lines with heads; every mistake is an error of one line with its file and line."""

import json
from pathlib import Path
from typing import Any

import pytest

from qkv.base.errors import ConfigError, QkvError
from qkv.objectives import OBJECTIVES
from qkv.text.examples import TAG_READERS, ExamplesConfig, read_examples

CONLLU = """\
# sent_id = 1
# text = I don't know.
1\tI\tI\tPRON\tPRP\t_\t4\tnsubj\t_\t_
2-3\tdon't\t_\t_\t_\t_\t_\t_\t_\t_
2\tdo\tdo\tAUX\tVBP\t_\t4\taux\t_\t_
3\tn't\tnot\tPART\tRB\t_\t4\tadvmod\t_\t_
4\tknow\tknow\tVERB\tVB\t_\t0\troot\t_\tSpaceAfter=No
5\t.\t.\tPUNCT\t.\t_\t4\tpunct\t_\t_

# sent_id = 2
1\tTea\ttea\tNOUN\tNN\t_\t0\troot\t_\t_
1.1\tis\tbe\tAUX\tVBZ\t_\t_\t_\t_\t_
2\tgood\tgood\tADJ\tJJ\t_\t1\tamod\t_\t_
"""


def read(kind: Any, path: Path, content: str, labelled: bool = True, **options: Any) -> list[Any]:
    path.write_text(content, encoding="utf-8")
    objective: Any = OBJECTIVES[kind]
    return read_examples(objective.readers, ExamplesConfig(files=str(path), trees=True, **options), labelled)


@pytest.mark.parametrize("ending", ["", "\n", "\n\n"])
def test_conllu(tmp_path: Path, ending: str) -> None:
    first, second = read("tagging", tmp_path / "a.conllu", CONLLU.rstrip("\n") + ending)
    assert first.words == ["I", "do", "n't", "know", "."] and first.tags == ["PRON", "AUX", "PART", "VERB", "PUNCT"]
    assert first.heads == [4, 4, 4, 0, 4] and [first.line_of(word).rpartition(" ")[2] for word in range(5)] == [*"35678"]
    assert (second.words, second.heads, second.line) == (["Tea", "good"], [0, 1], 11)
    assert second.line_of(1).endswith("line 13")


def test_conllu_with_other_tags_or_none_and_without_trees(tmp_path: Path) -> None:
    assert read("tagging", tmp_path / "a.conllu", CONLLU, column=5)[1].tags == ["NN", "JJ"]
    assert read("tagging", tmp_path / "a.conllu", CONLLU, labelled=False)[1].tags == []
    plain = read_examples(TAG_READERS, ExamplesConfig(files=str(tmp_path / "a.conllu")))
    assert [example.heads for example in plain] == [None, None]


def test_json_lines(tmp_path: Path) -> None:
    record = {"words": ["a", "b"], "tags": ["X", "Y"], "heads": [2, 0]}
    (example,) = read("tagging", tmp_path / "a.jsonl", json.dumps(record))
    assert (example.words, example.tags, example.heads) == (["a", "b"], ["X", "Y"], [2, 0])
    record = {"text": " one two\tthree ", "label": "x", "tree": [2, 0, 2]}
    (text,) = read("classification", tmp_path / "a.jsonl", json.dumps(record), heads="tree")
    assert (text.text, text.heads) == ("one two three", [[2, 0, 2]])
    record = {"text": "one two", "pair": "three", "label": 1, "heads": [[0, 0], [0]]}
    (pair,) = read("regression", tmp_path / "a.jsonl", json.dumps(record), pair="pair")
    assert pair.heads == [[0, 0], [0]]


def with_heads(*heads: Any) -> str:
    return json.dumps({"text": "one two three", "label": "x", "heads": list(heads)})


def conllu(*heads: Any) -> str:
    return "# a comment\n" + "".join(f"{n}\tw\tw\tX\tX\t_\t{head}\t_\t_\t_\n" for n, head in enumerate(heads, 1))


MISTAKES = [
    ("a.jsonl", with_heads(2, 0), "line 1: 2 heads for 3 words (separated by white space); give each word one"),
    ("a.jsonl", with_heads(2, 0, 4), "line 1: word 3 has the head 4; give the number of a word, 1 to 3, or 0 for a root"),
    ("a.jsonl", with_heads(2, 0, -1), "line 1: word 3 has the head -1"),
    ("a.jsonl", with_heads(2, 0, 1.0), "line 1: word 3 has the head 1.0"),
    ("a.jsonl", with_heads(2, 0, True), "line 1: word 3 has the head True"),
    ("a.jsonl", with_heads(0, 3, 2), "line 1: the heads form a cycle over the words 2, 3; each must lead to a root, 0"),
    ("a.jsonl", with_heads(1, 0, 2), "line 1: the heads form a cycle over the words 1; each"),
    ("a.jsonl", with_heads(2, 3, 1), "line 1: the heads form a cycle over the words 1, 2, 3"),
    (
        "a.jsonl",
        '{"text": "one", "label": "x"}',
        "line 1: no 'heads', a list of heads, one for each word; this model's structural positions",
    ),
    ("a.jsonl", '{"text": "one", "label": "x", "heads": "0"}', "line 1: no 'heads', a list of heads"),
    ("a.conllu", conllu(0, 1, 9), "line 4: word 3 has the head 9; give the number of a word, 1 to 3"),
    ("a.conllu", conllu(0, "_"), "line 3: word 2 has the head '_'"),
    ("a.conllu", conllu(0, 3, 2), "line 3: the heads form a cycle over the words 2, 3"),
    ("a.conllu", conllu(*range(2, 12), 1), "over the words 1, 2, 3, 4, 5, 6, 7, 8, ...; each"),
    ("a.conllu", "1\tone\tX\n", "line 1: 3 columns between tabs, 7 are wanted; is this CoNLL-U?"),
    ("a.conllu", conllu(0).replace("1\tw", "2\tw"), "line 2: the word has the number '2' instead of 1"),
    ("a.conll", "one\tX\n", "conll has no heads, which this model's structural positions need; give conllu or jsonl"),
    ("a.tsv", "text\tlabel\none\tx\n", "tsv has no heads, which this model's structural positions need; give jsonl"),
]


@pytest.mark.parametrize(("name", "content", "says"), MISTAKES)
def test_mistakes_in_trees(tmp_path: Path, name: str, content: str, says: str) -> None:
    kind = "tagging" if "conll" in name else "classification"
    with pytest.raises(QkvError) as refused:
        read(kind, tmp_path / name, content)
    assert says in str(refused.value) and "\n" not in str(refused.value)
    assert str(refused.value).startswith(str(tmp_path / name))


@pytest.mark.parametrize(
    ("record", "says"),
    [
        ({"words": ["a", "b"], "tags": ["X"], "heads": [0, 0]}, "line 1: 1 tags for 2 words; give each word one"),
        ({"words": "a b", "tags": ["X"]}, "line 1: no list of words under 'words'"),
        ({"words": ["a", " "], "tags": ["X", "Y"]}, "line 1: no list of words under 'words', or one of them is empty"),
        ({"words": ["a"], "tags": [1]}, "line 1: no list of words under 'tags'"),
        ({"words": ["\ud800"], "tags": ["X"]}, "line 1: the words hold half a character"),
        ({"words": ["a", "b"], "tags": ["X", "Y"], "heads": [0]}, "line 1: 1 heads for 2 words"),
    ],
)
def test_mistakes_in_records_with_tags(tmp_path: Path, record: dict[str, Any], says: str) -> None:
    with pytest.raises(QkvError, match=r"a\.jsonl, ") as refused:
        read("tagging", tmp_path / "a.jsonl", json.dumps(record))
    assert says in str(refused.value)


def test_a_pair_has_two_trees(tmp_path: Path) -> None:
    record = {"text": "one two", "pair": "three", "label": "x", "heads": [0, 1, 0]}
    with pytest.raises(QkvError, match="line 1: no 'heads', 2 lists of heads, one for each text"):
        read("classification", tmp_path / "a.jsonl", json.dumps(record), pair="pair")


def test_plain_text_to_be_predicted_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="lines has no heads, which this model's structural positions need; give jsonl"):
        read("classification", tmp_path / "a.txt", "one two\n", labelled=False)
