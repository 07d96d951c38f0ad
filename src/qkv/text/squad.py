"""Questions about paragraphs in SQuAD's JSON (Rajpurkar et al. 2016; 2018 for unanswerable questions)."""

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from qkv.base.errors import DataError
from qkv.text.files import read_text
from qkv.text.input_files import InputFile
from qkv.text.pair import is_decodable

SHOWN = 60  # characters of an answer in an error


class Question(NamedTuple):
    """A question, the context that answers it, and all answers that annotators gave."""

    id: str
    question: str
    context: str
    answers: list[tuple[int, str]]  # first character and text; empty if the question is unanswerable
    file: str
    article: int  # from 1, like `paragraph`; JSON has no line numbers
    paragraph: int

    @property
    def where(self) -> str:
        return f"{self.file}, article {self.article}, paragraph {self.paragraph}, question {self.id}"

    @property
    def texts(self) -> list[str]:
        return [self.question, self.context]

    @property
    def labels(self) -> list[str]:
        return []  # answers are no names


def read_squad(path: InputFile, labelled: bool) -> Iterator[Question]:
    """Yield the questions; with `labelled`, each must have a list of answers, which may be empty."""
    try:
        content = json.loads(read_text(path))
    except (ValueError, RecursionError) as error:
        line = f", line {error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
        raise DataError(f"{path}{line}: not valid JSON ({str(error)[:100]}); SQuAD's is wanted") from None
    seen: dict[str, Question] = {}
    for number, article in enumerate(_list_in(path, "top", content, "data"), 1):
        for index, paragraph in enumerate(_list_in(path, f"article {number}", article, "paragraphs"), 1):
            where = f"article {number}, paragraph {index}"
            for record in _list_in(path, where, paragraph, "qas"):
                question = _question(record, paragraph, path, number, index, labelled)
                if (other := seen.setdefault(question.id, question)) is not question:
                    raise DataError(
                        f"{question.where}: a question in article {other.article}, paragraph {other.paragraph} has the same id; "
                        "give each its own"
                    )
                yield question


def _list_in(path: InputFile, where: str, record: Any, key: str) -> list[Any]:
    if not isinstance(record, dict) or not isinstance(record.get(key), list):
        raise DataError(f"{path}, {where}: not SQuAD's JSON: no list {key!r}")
    return record[key]


def _question(record: Any, paragraph: dict[str, Any], path: InputFile, number: int, index: int, labelled: bool) -> Question:
    where = f"{path}, article {number}, paragraph {index}"
    try:
        context, text = paragraph["context"], record["question"]
        answers = [(answer["answer_start"], answer["text"]) for answer in record["answers"]] if labelled else []
        question = Question(str(record["id"]), text, context, answers, str(path), number, index)
    except (KeyError, TypeError, AttributeError) as error:
        missing = f"no {error.args[0]!r}" if isinstance(error, KeyError) else "a value has the wrong type"
        raise DataError(f"{where}: not SQuAD's JSON: {missing}; a context, and questions with id, question, answers") from None
    for key, found in (("context", context), ("question", text)):
        if not isinstance(found, str) or not found.strip() or not is_decodable(found):
            raise DataError(f"{question.where}: the {key} is empty or not text; fill it in, or leave it out")
    for start, answer in answers:
        _check_answer(question, start, answer)
    return question


def _check_answer(question: Question, start: Any, answer: Any) -> None:
    """Refuse an answer that is not part of the context."""
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
