"""Fine-tuning learns, from files to a score above chance, with a plain loop."""

import itertools
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from qkv.data.batches import START
from qkv.data.encoded import EncodedTaggedTexts
from qkv.data.encoding import EncodingConfig
from qkv.data.labelled import BatchShape, LabelledBatches, by_text, in_order
from qkv.models.bert import Bert, BertConfig
from qkv.models.gpt import Gpt, GptConfig
from qkv.models.t5 import T5Config, T5Encoder
from qkv.objectives.classification import Classification, ClassificationConfig
from qkv.objectives.tagging import Tagging, TaggingConfig, by_word
from qkv.parts.encoder import Encoder
from qkv.parts.heads import ModelWithHeads
from qkv.text.examples import ExamplesConfig, read_examples
from qkv.text.metrics import accuracy, entity_f1
from qkv.text.tokenizer import TokenizerConfig, train_tokenizer

SIZE: dict[str, Any] = {"width": 32, "feedforward": 64, "heads": 4, "layers": 2, "max_positions": 32, "dropout": 0.0}
WORDS = [a + b for a in "bdfgklm" for b in ("ano", "eri", "osti", "ul")]


def texts(count: int) -> str:
    """Return labelled texts; half of them have a word with b."""
    rng = random.Random(1)
    lines = ["text\tlabel"]
    for number in range(count):
        words = rng.choices(WORDS[4:], k=rng.randrange(2, 8)) + rng.choices(WORDS[:4] if number % 2 else WORDS[4:])
        rng.shuffle(words)
        lines.append(" ".join(words) + "\t" + ("yes" if number % 2 else "no"))
    return "\n".join(lines)


def sentences(count: int) -> str:
    """Return tagged sentences: a word with b and one with d are a name, a person's after `who`, else a place's."""
    rng = random.Random(2)
    lines = []
    for number in range(count):
        kind = "person" if number % 2 else "place"
        lines.append("who O" if number % 2 else "where O")
        for word in rng.choices([*WORDS[8:], "b", "b", "b"], k=rng.randrange(3, 9)):
            name = [f"{rng.choice(WORDS[:4])} B-{kind}", f"{rng.choice(WORDS[4:8])} I-{kind}"]
            lines += name if word == "b" else [f"{word} O"]
        lines.append("")
    return "\n".join(lines)


def make_bert(words: int) -> Encoder:
    return Bert(BertConfig(**SIZE), words)


def learned(
    path: Path, objective: Any, steps: int, reduced: Callable[[Tensor], Tensor],
    make: Callable[[int], Encoder] = make_bert,
) -> Any:  # fmt: skip
    """Train, and return training examples, held-out examples, labels, and the predictions for each held-out batch."""
    examples = read_examples(objective.readers, ExamplesConfig(files=str(path)))
    labels = objective.label_names(examples)
    tokenizer = train_tokenizer(TokenizerConfig(kind="wordpiece", vocab=60), [*WORDS, "who", "where"])
    held_out = examples[:100]
    known, asked = (objective.encode(part, tokenizer, EncodingConfig(length=32), labels) for part in (examples[100:], held_out))
    shape = BatchShape(rows=12, width=64, texts=8, pad=tokenizer.pad)
    torch.manual_seed(0)
    model = ModelWithHeads(make(len(tokenizer)), objective.config.heads, labels=len(labels))
    optimiser = torch.optim.Adam(model.parameters(), lr=5e-3)
    for batch in itertools.islice(LabelledBatches(known, 1, shape).starting(START), steps):
        optimiser.zero_grad()
        (objective.loss(model, *batch.inputs) / batch.labels).backward()
        optimiser.step()
    model.eval()
    with torch.no_grad():
        pages = in_order(asked, shape)
        said = [(numbers, reduced(objective.outputs(model, *batch.inputs)).numpy()) for batch, numbers in pages]
    return held_out, labels, asked, said


def best(probabilities: Tensor) -> Tensor:
    return probabilities.argmax(-1)


def test_classification(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text(texts(800))
    objective = Classification(ClassificationConfig())
    _, _, asked, said = learned(tmp_path / "a.tsv", objective, 60, best)
    assert accuracy(by_text(asked, said).tolist(), asked.labels.tolist()) > 0.9


def test_a_gpt_classifies_by_its_last_token(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text(texts(800))
    objective = Classification(ClassificationConfig())
    _, _, asked, said = learned(tmp_path / "a.tsv", objective, 80, best, lambda words: Gpt(GptConfig(**SIZE), words))
    assert accuracy(by_text(asked, said).tolist(), asked.labels.tolist()) > 0.9


def test_a_t5s_encoder_classifies_by_the_mean_over_tokens(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text(texts(800))
    shape = T5Config(width=32, feedforward=64, heads=4, head_width=8, encoder_layers=2, dropout=0.0)
    objective = Classification(ClassificationConfig())
    _, _, asked, said = learned(tmp_path / "a.tsv", objective, 60, best, lambda words: T5Encoder(shape, words))
    assert accuracy(by_text(asked, said).tolist(), asked.labels.tolist()) > 0.9


def test_tagging(tmp_path: Path) -> None:
    (tmp_path / "a.conll").write_text(sentences(800))
    held_out, labels, asked, said = learned(tmp_path / "a.conll", Tagging(TaggingConfig()), 150, best)
    assert isinstance(asked, EncodedTaggedTexts)
    predicted = [np.array(labels)[tags].tolist() for tags in by_word(asked, said)]
    assert entity_f1(predicted, [example.tags for example in held_out]) > 0.9
