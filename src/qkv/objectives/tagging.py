"""Tagging: predict a label for each word, at its first piece (Devlin et al. 2019, BERT, section 5.3).

R rows of width W, C tags.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal

import numpy as np
import torch.nn.functional as F
from torch import Tensor

from qkv.base.rows import IGNORE_INDEX
from qkv.data.encoded import EncodedTaggedTexts
from qkv.data.encoding import EncodingConfig, encode_tagged
from qkv.data.inputs import LabelledTexts
from qkv.objectives.finetuning import FinetuningConfig, FinetuningObjective, Metric, Outputs, require_str
from qkv.objectives.objective import ObjectiveConfig
from qkv.parts.heads import ModelWithHeads
from qkv.text.conll import TaggedExample, tag_type
from qkv.text.examples import TAG_READERS, find_labels
from qkv.text.metrics import entity_f1, tag_accuracy
from qkv.text.tokenizer import Tokenizer


class TaggingConfig(FinetuningConfig):
    kind: Literal["tagging"] = "tagging"

    @property
    def heads(self) -> tuple[str, ...]:
        return ("tags",)


class Tagging(FinetuningObjective):
    """The cross-entropy of each word's tag, summed over words."""

    config_class: ClassVar[type[ObjectiveConfig]] = TaggingConfig
    readers = TAG_READERS
    prediction_types: ClassVar[Mapping[str, Any]] = {"tags": [str]}
    metrics: ClassVar[Mapping[str, Metric]] = {"entity_f1": entity_f1, "tag_accuracy": tag_accuracy}
    input_format = "words"

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

    def example_format(self, texts: int) -> str:
        return "a list of words, or a text with spaces between them"

    def parse_example(self, given: Any) -> TaggedExample:
        if isinstance(given, TaggedExample):
            return given
        if type(given) not in (str, list, tuple):
            raise ValueError(f"is {type(given).__name__}")
        words = given.split() if isinstance(given, str) else given
        if not words:
            raise ValueError("has no words")
        words = [require_str(word, f"word {n}") for n, word in enumerate(words, 1)]
        for n, word in enumerate(words, 1):
            if not word:
                raise ValueError(f"has an empty word {n}")
        return TaggedExample(words, [], "", 0)

    def is_labelled(self, example: TaggedExample) -> bool:
        return len(example.tags) == len(example.words)

    def label_names(self, train: Sequence[TaggedExample]) -> tuple[str, ...]:
        """Return all tags; for every B-TYPE, I-TYPE is included even if no example has it."""
        tags = find_labels(train)
        return find_labels(train, {f"I-{tag_type(tag)}" for tag in tags if tag.startswith("B-")})

    def encode(
        self,
        examples: Sequence[TaggedExample],
        tokenizer: Tokenizer,
        config: EncodingConfig,
        label_names: Sequence[str] = (),
    ) -> EncodedTaggedTexts:
        return encode_tagged(examples, tokenizer, config.length, label_names)

    def outputs_by_example(
        self, encoded: EncodedTaggedTexts, examples: Sequence[TaggedExample], outputs: Outputs
    ) -> list[np.ndarray]:
        return by_word(encoded, outputs)

    def predictions(self, outputs: Sequence[np.ndarray], label_names: Sequence[str]) -> list[list[str]]:
        return [[label_names[number] for number in output.argmax(-1)] for output in outputs]

    def score(
        self,
        metric: Metric,
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


def by_word(examples: EncodedTaggedTexts, outputs_of_batches: Outputs) -> list[np.ndarray]:
    """Sort outputs at the first pieces of words by example. (R, M), (R, W, ...) each -> (words, ...) each."""
    found: np.ndarray | None = None
    for numbers, outputs in outputs_of_batches:
        found = np.zeros((len(examples.ids), *outputs.shape[2:]), dtype=outputs.dtype) if found is None else found
        for row, members in enumerate(numbers):
            inside = members[members >= 0]
            token = np.concatenate([np.arange(examples.starts[n], examples.ends[n]) for n in inside]) if len(inside) else inside
            found[token] = outputs[row, : len(token)]
    assert found is not None
    example = examples.example[np.searchsorted(examples.ends, examples.words, side="right")]
    return np.split(found[examples.words], np.cumsum(np.bincount(example))[:-1])
