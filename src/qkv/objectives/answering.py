"""Question answering: predict where in a context the answer begins and ends (Devlin et al. 2019, BERT, sections 4.2 and 4.3).

A text is a question and a window of its context. In a window without the answer, and for a question without one (SQuAD 2.0),
the first token is the label of both ends. Otherwise only tokens of the context can be answers.
R rows of width W, M texts in a row.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from qkv.base.errors import DataError
from qkv.base.rows import IGNORE_INDEX
from qkv.data.encoded import EncodedQuestions
from qkv.data.encoding import EncodingConfig, encode_questions
from qkv.data.inputs import LabelledTexts
from qkv.data.labelled import by_text
from qkv.objectives.finetuning import FinetuningConfig, FinetuningObjective, Metric, Outputs, require_str
from qkv.objectives.objective import ObjectiveConfig
from qkv.parts.heads import ModelWithHeads
from qkv.text.examples import QUESTION_READERS
from qkv.text.metrics import answer_f1, exact_match
from qkv.text.squad import Question
from qkv.text.tokenizer import Tokenizer
from qkv.text.word_boundaries import extend_to_words

NEVER = float("-inf")


class Answer(NamedTuple):
    """An answer to a question, from its context."""

    text: str
    score: float  # log-odds against there being no answer


class AnsweringConfig(FinetuningConfig):
    always_pairs: ClassVar[bool] = True

    kind: Literal["answering"] = "answering"
    longest_answer: int = Field(default=30, gt=0)  # tokens of a predicted answer
    all_answerable: bool = True  # every question has an answer in its context, as in SQuAD 1.1; in 2.0 some have none

    @property
    def heads(self) -> tuple[str, ...]:
        return ("span",)

    def check_model(self, model: Any) -> None:
        if model.reads_trees:
            raise ValueError(
                f"model.positions={model.positions} needs texts with dependency heads, and SQuAD's questions have none; "
                "choose other positions"
            )
        if model.causal and not self.all_answerable:
            raise ValueError(
                f"a {model.kind} sees nothing at the first token, which would stand for no answer; "
                "set objective.all_answerable=true"
            )


class QuestionAnswering(FinetuningObjective):
    """The mean of the cross-entropies of an answer's first and last token, summed over questions."""

    config_class: ClassVar[type[ObjectiveConfig]] = AnsweringConfig
    readers = QUESTION_READERS
    prediction_types: ClassVar[Mapping[str, Any]] = {"text": str, "score": float}
    metrics: ClassVar[Mapping[str, Metric]] = {"answer_f1": answer_f1, "exact_match": exact_match}
    input_format = "question"
    text_names = ("question", "context")

    def loss(self, model: ModelWithHeads, labelled: LabelledTexts) -> Tensor:
        """Return the sum of losses over questions, in nats."""
        allowed = same_text(labelled) & in_context(labelled)[:, None]  # (R, M, W)
        # Where there is no text, `first` is 0: one column stays allowed there too, because a softmax over nothing is NaN.
        allowed = allowed.scatter(2, labelled.first[:, :, None], True)
        losses = [
            F.cross_entropy(
                logits[:, None].masked_fill(~allowed, NEVER).flatten(0, 1),  # (R M, W)
                labels.flatten(),
                ignore_index=IGNORE_INDEX,
                reduction="sum",
            )
            for logits, labels in zip(self._logits(model, labelled), labelled.labels.unbind(-1), strict=True)
        ]
        return (losses[0] + losses[1]) / 2

    def outputs(self, model: ModelWithHeads, labelled: LabelledTexts) -> Tensor:
        """Return the best answer's first and last token within its text, and its log-odds against no answer. -> (R, M, 3).

        The log-odds are -inf where a text has no context, or there is no text.
        """
        begin, end = self._logits(model, labelled)
        no_answer = (begin + end).gather(1, labelled.first)  # (R, M)
        best, distance = self._best_from_each(begin, end, labelled)  # (R, W) each
        score, first = best[:, None].masked_fill(~same_text(labelled), NEVER).max(-1)  # (R, M)
        last = first + distance.gather(1, first)
        found = torch.stack([first - labelled.first, last - labelled.first], -1)
        found = found.masked_fill((score == NEVER)[..., None], 0)
        return torch.cat([found.float(), (score - no_answer)[..., None]], -1)

    def _best_from_each(self, begin: Tensor, end: Tensor, labelled: LabelledTexts) -> tuple[Tensor, Tensor]:
        """Return the score of the best answer that begins at each token, and its length minus 1. -> (R, W) each."""
        context = in_context(labelled)
        begin, end = begin.masked_fill(~context, NEVER), end.masked_fill(~context, NEVER)
        best, distance = begin + end, torch.zeros_like(labelled.ids)
        for step in range(1, min(self.config.longest_answer, end.size(1))):
            further = F.pad(end[:, step:], (0, step), value=NEVER)
            same = F.pad(labelled.text[:, step:], (0, step)) == labelled.text
            score = (begin + further).masked_fill(~same, NEVER)
            distance = torch.where(score > best, step, distance)
            best = torch.maximum(score, best)
        return best, distance

    def _logits(self, model: ModelWithHeads, labelled: LabelledTexts) -> tuple[Tensor, Tensor]:
        """Return the logits of the first and of the last token, in float32. -> (R, W) each."""
        begin, end = model.heads["span"](model.encoder(labelled.rows, labelled.segment))
        return begin.float(), end.float()

    def example_format(self, texts: int) -> str:
        return "a question and its context"

    def parse_example(self, given: Any) -> Question:
        if isinstance(given, Question):
            return given
        if type(given) not in (list, tuple):
            raise ValueError(f"is {type(given).__name__}")
        if len(given) != 2:
            raise ValueError(f"is a {type(given).__name__} of {len(given)}")
        question, context = given
        require_str(question, "question")
        require_str(context, "context")  # not normalised: answers are parts of it
        return Question("", question, context, [], "", 0, 0)

    def is_labelled(self, example: Question) -> bool:
        return True  # a question without answers is one that cannot be answered

    def check_examples(self, examples: Sequence[Question]) -> None:
        """Refuse a question without an answer if all are said to have one."""
        for question in examples if self.config.all_answerable else ():
            if not question.answers:
                raise DataError(f"{question.where}: it has no answer; set objective.all_answerable=false if some have none")

    def encode(
        self,
        examples: Sequence[Question],
        tokenizer: Tokenizer,
        config: EncodingConfig,
        label_names: Sequence[str] = (),
    ) -> EncodedQuestions:
        """Encode each question with windows of its context, which begin `config.stride` tokens apart."""
        return encode_questions(examples, tokenizer, config.length, config.stride)

    def outputs_by_example(self, encoded: EncodedQuestions, examples: Sequence[Question], outputs: Outputs) -> list[Answer]:
        return extract_answers(encoded, examples, by_text(encoded, outputs), all_answerable=self.config.all_answerable)

    def predictions(self, outputs: Sequence[Answer], label_names: Sequence[str]) -> list[Answer]:
        return list(outputs)

    def score(self, metric: Metric, outputs: Sequence[Answer], examples: Sequence[Question], label_names: Sequence[str]) -> float:
        return metric([answer.text for answer in outputs], [[text for _, text in example.answers] for example in examples])

    def lines(self, examples: Sequence[Question], predictions: Sequence[Answer]) -> Iterator[str]:
        """Yield one JSON object that maps ids to answers, which SQuAD's own script reads."""
        answers = {example.id: answer.text for example, answer in zip(examples, predictions, strict=True)}
        yield json.dumps(answers, ensure_ascii=False, indent=1)

    def to_json(self, prediction: Answer) -> dict[str, Any]:
        return prediction._asdict()


def extract_answers(
    examples: EncodedQuestions, questions: Sequence[Question], found: np.ndarray, all_answerable: bool
) -> list[Answer]:
    """Return the best answer to each question over all of its windows; "" where no answer is likelier, unless all have one.

    An answer has whole words, also where the model points at a piece of one.
    found (N, 3): first and last position within the text, and the score, as `QuestionAnswering.outputs` returns them.
    """
    order = np.lexsort((found[:, 2], examples.example))
    best = order[np.searchsorted(examples.example[order], np.arange(len(questions)), side="right") - 1]
    first, last = (examples.starts[best] + found[best, side].astype(np.int64) for side in (0, 1))
    starts, stops, scores = examples.spans[first, 0], examples.spans[last, 1], found[best, 2]
    spans = [extend_to_words(q.context, a, b) for q, a, b in zip(questions, starts.tolist(), stops.tolist(), strict=True)]
    texts = [question.context[a:b] for question, (a, b) in zip(questions, spans, strict=True)]
    return [Answer(text if all_answerable or s > 0 else "", s) for text, s in zip(texts, scores.tolist(), strict=True)]


def same_text(labelled: LabelledTexts) -> Tensor:
    """Return the columns that belong to each text of a row. -> (R, M, W)."""
    numbers = torch.arange(1, labelled.first.size(1) + 1, device=labelled.text.device)
    return labelled.text[:, None] == numbers[:, None]


def in_context(labelled: LabelledTexts) -> Tensor:
    """Return the columns that hold a token of a context: the second part of a text without its final eos. -> (R, W)."""
    before_another = F.pad(labelled.text[:, 1:], (0, 1)) == labelled.text
    return (labelled.segment == 1) & before_another
