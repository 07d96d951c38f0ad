"""Protected spans and sentences: whatever a model does to its words, texts keep their spans."""

import random
import re
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from qkv.base.errors import ConfigError
from qkv.data.corpora import Tokenizers
from qkv.decoding.hypothesis import Hypothesis
from qkv.inference.translator import Translator
from qkv.recipes import parse_recipe
from qkv.text.tokenizer import Tokenizer, TokenizerConfig, train_tokenizer

SIGNS = [".", ",", "!", "(", ")"]
WORDS = ["the", "house", "is", "red", "and", "you", "see", "a", "small", "garden", "Press", "OK", "42", "你", "好", "我", *SIGNS]
ALONE = ["{name}", "{{ var }}", "%s", "%1$d", "%(n)s", "$VAR", "${x}", "&amp;", '<x id="1"/>', "https://a.org/b?c=1", "me@x.org"]
TAGS = [("<b>", "</b>"), ('<a href="x y">', "</a>"), ("<0>", "</0>")]
MODEL = {"width": 8, "feedforward": 8, "heads": 2, "encoder_layers": 1, "decoder_layers": 1}


class FakeEngine:
    """An engine whose outputs are made from the sources by a function, without constraints; it may show attention."""

    device, longest = torch.device("cpu"), None

    def takes_phrases(self, config: Any) -> bool:
        return True

    def __init__(self, change: Any, attention: Any = None):
        self.change, self.shown = change, attention
        self.phrases: list[Any] = []

    def decode(self, sources: Sequence[list[int]], *rest: Any) -> list[list[Hypothesis]]:
        self.phrases += rest[4]
        return [[Hypothesis(self.change(ids), -1.0, -1.0, True)] for ids in sources]

    def attention(self, source: list[int], target: list[int]) -> Tensor:
        if self.shown is None:
            raise ConfigError("no attention")
        return self.shown(source, target)


@pytest.fixture(scope="module", params=["bpe", "byte-bpe", "unigram", "wordpiece", "characters"])
def tokenizer(request: Any) -> Tokenizer:
    texts = [" ".join(WORDS), *WORDS, *ALONE, "".join(WORDS), *(tag for pair in TAGS for tag in pair)] * 2
    return train_tokenizer(TokenizerConfig(kind=request.param, vocab=1200, sentinels=4), texts)


def translator(tokenizer: Tokenizer, engine: FakeEngine, protect: bool = True, **data: Any) -> Translator:
    values = {"data": {"train": "x", "dev": "x", "max_tokens": 2000, "protect": protect, **data},
              "tokenizer": {"shared": {"file": "x"}}, "model": MODEL, "training": {"steps": 1}}  # fmt: skip
    return Translator(engine, Tokenizers(tokenizer, tokenizer), parse_recipe(values, "here"))


def random_text(rng: random.Random, depth: int = 0) -> str:
    """Return words, spans and nested tags with random single spaces, or none, between them."""
    made = ""
    for _ in range(rng.randint(1, 6)):
        kind = rng.random()
        if kind < 0.6:
            made += rng.choice(WORDS)
        elif kind < 0.8 or depth > 2:
            span = rng.choice(ALONE)
            made += f" {span} " if span[-1].isalpha() or span[-1].isdigit() else span  # these would go on in a letter
        else:
            opening, closing = rng.choice(TAGS)
            made += opening + rng.choice(["", " "]) + random_text(rng, depth + 1) + rng.choice(["", " "]) + closing
        made += rng.choice(["", " ", " ", " "])
    return made


def nested(text: str) -> bool:
    """Return whether all tags of TAGS are nested."""
    stack = []
    for tag in re.findall(r"</?(?:b|a|0)\b[^>]*>", text):
        name = re.findall(r"\w+", tag)[0]
        if not tag.startswith("</"):
            stack.append(name)
        elif not stack or stack.pop() != name:
            return False
    return not stack


def spans_of(text: str) -> dict[str, int]:
    found = [*ALONE, *(tag for pair in TAGS for tag in pair)]
    return {span: text.count(span) for span in found if span in text}


@pytest.mark.parametrize("protect", [True, False])
def test_a_model_that_copies_gives_back_the_text(tokenizer: Tokenizer, protect: bool) -> None:
    rng = random.Random(3)
    texts = [random_text(rng).strip() for _ in range(150)]
    same = translator(tokenizer, FakeEngine(list), protect)
    for split in ("sentences", "never"):
        assert same.translate(texts, split=split) == texts


@pytest.mark.parametrize("protect", [True, False])
@pytest.mark.parametrize("name", ["reversed", "half", "twice", "nothing", "shuffled"])
def test_every_span_survives_once_and_nested_whatever_the_model_does(tokenizer: Tokenizer, name: str, protect: bool) -> None:
    rng = random.Random(5)
    changes = {
        "reversed": lambda ids: ids[::-1],
        "half": lambda ids: ids[: len(ids) // 2],
        "twice": lambda ids: [*ids, *ids],
        "nothing": lambda ids: [],
        "shuffled": lambda ids: rng.sample(ids, len(ids)),
    }
    noise = torch.Generator().manual_seed(1)
    shown = lambda source, target: torch.rand(len(target) + 1, len(source), generator=noise)  # noqa: E731
    texts = [random_text(rng).strip() for _ in range(80)]
    for attention in (None, shown):
        outputs = translator(tokenizer, FakeEngine(changes[name], attention), protect).translate(texts)
        for text, output in zip(texts, outputs, strict=True):
            assert {span: output.count(span) for span in spans_of(text)} == spans_of(text), (text, output)
            assert nested(output), (text, output)
