"""Questions about paragraphs in SQuAD's JSON (Rajpurkar et al. 2016; 2018 for questions without an answer)."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from qkv.base.errors import DataError
from qkv.text.files import read_text
from qkv.text.pair import is_decodable

SHOWN = 60  # characters of an answer in an error


class Question(NamedTuple):
    """A question, the text in which the answer is to be found, and where: every answer that people gave."""

    id: str
    question: str
    context: str
    answers: list[tuple[int, str]]  # first character and text; none where the context does not answer the question
    file: str
    article: int  # from 1, as the paragraph within it: JSON knows no lines
    paragraph: int

    @property
    def where(self) -> str:
        return f"{self.file}, article {self.article}, paragraph {self.paragraph}, question {self.id}"


def read_squad(path: Path, labelled: bool) -> Iterator[Question]:
    """Question by question; with `labelled`, each must say its answers, even if there are none."""
    try:
        content = json.loads(read_text(path))
    except (ValueError, RecursionError) as error:
        line = f", line {error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
        raise DataError(f"{path}{line}: not valid JSON ({str(error)[:100]}); SQuAD's is wanted") from None
    for number, article in enumerate(_inside(path, "top", content, "data"), 1):
        for place, paragraph in enumerate(_inside(path, f"article {number}", article, "paragraphs"), 1):
            where = f"article {number}, paragraph {place}"
            for asked in _inside(path, where, paragraph, "qas"):
                yield _question(asked, paragraph, path, number, place, labelled)


def _inside(path: Path, where: str, record: Any, key: str) -> list[Any]:
    if not isinstance(record, dict) or not isinstance(record.get(key), list):
        raise DataError(f"{path}, {where}: not SQuAD's JSON: no list {key!r}")
    return record[key]


def _question(asked: Any, paragraph: dict[str, Any], path: Path, number: int, place: int, labelled: bool) -> Question:
    where = f"{path}, article {number}, paragraph {place}"
    try:
        context, text = paragraph["context"], asked["question"]
        answers = [(answer["answer_start"], answer["text"]) for answer in asked["answers"]] if labelled else []
        question = Question(str(asked["id"]), text, context, answers, str(path), number, place)
    except (KeyError, TypeError, AttributeError) as error:
        missing = f"no {error.args[0]!r}" if isinstance(error, KeyError) else "something of another kind is there"
        raise DataError(f"{where}: not SQuAD's JSON: {missing}; a context, and questions with id, question, answers") from None
    for key, found in (("context", context), ("question", text)):
        if not isinstance(found, str) or not found.strip() or not is_decodable(found):
            raise DataError(f"{question.where}: the {key} is empty or not text; fill it in, or leave it out")
    for start, answer in answers:
        _check_answer(question, start, answer)
    return question


def _check_answer(question: Question, start: Any, answer: Any) -> None:
    """An answer must be a part of the context."""
    if type(start) is not int or not isinstance(answer, str) or not answer.strip():
        raise DataError(f"{question.where}: an answer needs an answer_start that is a number and a text that is not empty")
    shown, end = repr(answer[:SHOWN]), start + len(answer)
    if start < 0 or end > len(question.context):
        raise DataError(
            f"{question.where}: the answer {shown} from character {start} to {end} is outside its context "
            f"of {len(question.context)}; correct answer_start"
        )
    if (there := question.context[start:end]) != answer:
        raise DataError(f"{question.where}: at character {start} stands {there[:SHOWN]!r}, not the answer {shown}; correct it")
