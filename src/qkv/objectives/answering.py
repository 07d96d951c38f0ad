"""Question answering: where in a context the answer begins and ends (Devlin et al. 2019, BERT, sections 4.2 and 4.3).

A text is a question and a window of its context. What does not answer the question, as in SQuAD 2.0 or in a window without the
answer, begins and ends at the first token. Otherwise only places of the context can be answers.
R rows of width W, M texts of a row.
"""

from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from qkv.base.rows import IGNORE_INDEX
from qkv.data.inputs import Labelled
from qkv.objectives.objective import FinetuningConfig, Objective, ObjectiveConfig
from qkv.parts.heads import ModelWithHeads

NEVER = float("-inf")


class AnsweringConfig(FinetuningConfig):
    kind: Literal["answering"] = "answering"
    longest_answer: int = Field(default=30, gt=0)  # tokens of a predicted answer
    all_answerable: bool = True  # every question has an answer in its context, as in SQuAD 1.1; in 2.0 some have none

    @property
    def heads(self) -> tuple[str, ...]:
        return ("span",)

    def check_model(self, model: Any) -> None:
        if model.reads_trees:
            raise ValueError(
                f"model.positions={model.positions} is for texts with heads, and questions of SQuAD have none; "
                "choose other positions"
            )
        if model.causal and not self.all_answerable:
            raise ValueError(
                f"the first token of a {model.kind}, which would say that there is no answer, sees nothing; "
                "say objective.all_answerable=true"
            )


class Answering(Objective):
    """The mean of the cross-entropies of an answer's first and last place, summed over questions."""

    config_class: ClassVar[type[ObjectiveConfig]] = AnsweringConfig

    def __init__(self, config: AnsweringConfig):
        self.config = config

    def loss(self, model: ModelWithHeads, labelled: Labelled) -> Tensor:
        begin, end = self._scores(model, labelled)  # (R, W) each
        own = same_text(labelled) & in_context(labelled)[:, None]  # (R, M, W)
        # Where there is no text, `first` is 0, so that there too one place is left: a softmax over nothing is not a number.
        may = own.scatter(2, labelled.first[:, :, None], True)
        losses = [
            F.cross_entropy(_over(scores, may), answer.flatten(), ignore_index=IGNORE_INDEX, reduction="sum")
            for scores, answer in zip((begin, end), labelled.answer.unbind(-1), strict=True)
        ]
        return (losses[0] + losses[1]) / 2

    def outputs(self, model: ModelWithHeads, labelled: Labelled) -> Tensor:
        """The best answer's first and last place within its text, and its odds against no answer as a logarithm. -> (R, M, 3).

        The odds are -inf where a text has no context, or there is no text.
        """
        begin, end = self._scores(model, labelled)
        none = (begin + end).gather(1, labelled.first)  # (R, M)
        best, radius = self._best_from_each(begin, end, labelled)  # (R, W) each
        score, first = best[:, None].masked_fill(~same_text(labelled), NEVER).max(-1)  # (R, M)
        last = first + radius.gather(1, first)
        found = torch.stack([first - labelled.first, last - labelled.first], -1)
        found = found.masked_fill((score == NEVER)[..., None], 0)
        return torch.cat([found.float(), (score - none)[..., None]], -1)

    def _best_from_each(self, begin: Tensor, end: Tensor, labelled: Labelled) -> tuple[Tensor, Tensor]:
        """Of the answers that begin at a place the best one's score, and how many places further it ends. -> (R, W) each."""
        context = in_context(labelled)
        begin, end = begin.masked_fill(~context, NEVER), end.masked_fill(~context, NEVER)
        best, radius = begin + end, torch.zeros_like(labelled.ids)
        for step in range(1, min(self.config.longest_answer, end.size(1))):
            further = F.pad(end[:, step:], (0, step), value=NEVER)
            same = F.pad(labelled.text[:, step:], (0, step)) == labelled.text
            score = (begin + further).masked_fill(~same, NEVER)
            radius = torch.where(score > best, step, radius)
            best = torch.maximum(score, best)
        return best, radius

    def _scores(self, model: ModelWithHeads, labelled: Labelled) -> tuple[Tensor, Tensor]:
        begin, end = model.heads["span"](model.encoder(labelled.rows, labelled.segment))
        return begin.float(), end.float()


def same_text(labelled: Labelled) -> Tensor:
    """Which places each text of a row has. -> (R, M, W)."""
    numbers = torch.arange(1, labelled.first.size(1) + 1, device=labelled.text.device)
    return labelled.text[:, None] == numbers[:, None]


def in_context(labelled: Labelled) -> Tensor:
    """Which places hold a token of a context: those of a second part, but for the eos at the end of a text. -> (R, W)."""
    goes_on = F.pad(labelled.text[:, 1:], (0, 1)) == labelled.text
    return (labelled.segment == 1) & goes_on


def _over(scores: Tensor, may: Tensor) -> Tensor:
    """The scores of a row as each of its texts sees them. (R, W), (R, M, W) -> (R M, W)."""
    return scores[:, None].masked_fill(~may, NEVER).flatten(0, 1)
