"""Tagging: predict a label for each word, at its first piece (Devlin et al. 2019, BERT, section 5.3).

R rows of width W, C tags.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar, Literal

import numpy as np
import torch.nn.functional as F
from torch import Tensor

from qkv.base.rows import IGNORE_INDEX
from qkv.data.encoded import EncodedTaggedTexts
from qkv.data.encoding import STRIDE, encode_tagged
from qkv.data.inputs import LabelledTexts
from qkv.data.labelled import by_word
from qkv.objectives.finetuning import FinetuningObjective, Outputs
from qkv.objectives.objective import FinetuningConfig, ObjectiveConfig
from qkv.parts.heads import ModelWithHeads
from qkv.text.conll import TaggedExample, tag_type
from qkv.text.examples import find_labels
from qkv.text.tokenizer import Tokenizer


class TaggingConfig(FinetuningConfig):
    kind: Literal["tagging"] = "tagging"

    @property
    def heads(self) -> tuple[str, ...]:
        return ("tags",)


class Tagging(FinetuningObjective):
    """The cross-entropy of each word's tag, summed over words."""

    config_class: ClassVar[type[ObjectiveConfig]] = TaggingConfig
    input_format = "words"
    example_format = "a list of words, or a text with spaces between them"

    def loss(self, model: ModelWithHeads, labelled: LabelledTexts) -> Tensor:
        """Return the sum of losses over words, in nats."""
        logits = self._logits(model, labelled).flatten(0, 1)
        return F.cross_entropy(logits, labelled.labels.flatten(), ignore_index=IGNORE_INDEX, reduction="sum")

    def outputs(self, model: ModelWithHeads, labelled: LabelledTexts) -> Tensor:
        """Return the probability of each tag at every token. -> (R, W, C)."""
        return self._logits(model, labelled).softmax(-1)

    def _logits(self, model: ModelWithHeads, labelled: LabelledTexts) -> Tensor:
        hidden = model.encoder(labelled.rows, labelled.segment)
        return model.heads["tags"](hidden.flatten(0, 1)).float().unflatten(0, hidden.shape[:2])

    def parse_example(self, given: Any) -> TaggedExample | None:
        if isinstance(given, TaggedExample):
            return given
        words = given.split() if isinstance(given, str) else given
        if not isinstance(words, Sequence) or not words or not all(isinstance(word, str) and word.strip() for word in words):
            return None
        return TaggedExample(list(words), [], "", 0)

    def label_names(self, train: Sequence[TaggedExample]) -> tuple[str, ...]:
        """Return all tags; for every B-TYPE, I-TYPE is included even if no example has it."""
        tags = find_labels(train)
        return find_labels(train, {f"I-{tag_type(tag)}" for tag in tags if tag.startswith("B-")})

    def encode(
        self,
        examples: Sequence[TaggedExample],
        tokenizer: Tokenizer,
        length: int,
        label_names: Sequence[str] = (),
        stride: int = STRIDE,
    ) -> EncodedTaggedTexts:
        return encode_tagged(examples, tokenizer, length, label_names)

    def outputs_by_example(
        self, encoded: EncodedTaggedTexts, examples: Sequence[TaggedExample], outputs: Outputs
    ) -> list[np.ndarray]:
        return by_word(encoded, outputs)

    def predictions(self, outputs: Sequence[np.ndarray], label_names: Sequence[str]) -> list[list[str]]:
        return [[label_names[number] for number in output.argmax(-1)] for output in outputs]

    def score(
        self,
        metric: Callable[..., float],
        outputs: Sequence[np.ndarray],
        examples: Sequence[TaggedExample],
        label_names: Sequence[str],
    ) -> float:
        return metric(self.predictions(outputs, label_names), [example.tags for example in examples])

    def lines(self, examples: Sequence[TaggedExample], predictions: Sequence[list[str]]) -> Iterator[str]:
        """Yield a word and its tag per line, and an empty line after each text."""
        for example, tags in zip(examples, predictions, strict=True):
            yield from (f"{word}\t{tag}" for word, tag in zip(example.words, tags, strict=True))
            yield ""

    def to_json(self, prediction: list[str]) -> dict[str, Any]:
        return {"tags": prediction}
