"""What each kind of model does for a service: how a request becomes units, how units are computed, what is made of them.

Methods named for an endpoint's work are called in the event loop's thread pool, `compute` by the model's worker alone.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from qkv.decoding.config import DecodingConfig
from qkv.inference.text_encoder import TextEncoder
from qkv.inference.text_generator import STOP, Prompt, TextGenerator, Written
from qkv.inference.translator import Output, Translator
from qkv.serving.engine import Asked, Unit
from qkv.serving.looks import Looking, able
from qkv.serving.refusals import wrong
from qkv.text.check import normalise
from qkv.text.tokenizer import MASK
from qkv.vectors.plot import pca_2d
from qkv.vectors.word_vectors import WordVectors

ROW = 16  # tokens that a row of a batch counts for beside its own


class TranslatorWork(Looking):
    """Translates: lines of texts, and of long lines the pieces that the translator cuts them into, are units."""

    def __init__(self, translator: Translator):
        self.translator, sides = translator, translator.tokenizers
        super().__init__(translator, sides.source, sides.target)
        self.can = [*([] if translator.trees else ["translate"]), *self.lookable]

    def translate(self, texts: Sequence[str], alternatives: int) -> Asked:
        """The best translations of each text and so many more, best first."""
        config = self._decoding(alternatives + 1)
        lines = [[self.translator.parts(line) for line in self._lines(text)] for text in texts]
        parts = [ids for text in lines for line in text for ids in line]

        def answer(found: list[Any]) -> list[list[Output]]:
            each = iter(found)
            return [_together([self.translator.join(line, [next(each) for _ in line]) for line in text]) for text in lines]

        return Asked(("translate", config), [Unit(ids, len(ids), _cost(ids, config)) for ids in parts], answer)

    def _decoding(self, n_best: int) -> DecodingConfig:
        beam = max(n_best, self.translator.recipe.decoding.beam)
        return self.translator.decoding(n_best=n_best, beam=beam)

    def _lines(self, text: str) -> list[str]:
        """Lines are translated by themselves, unless a text's beginning tells the task for all of it."""
        return [text] if self.translator.recipe.data.prefixes else text.split("\n")

    def work(self, key: Any, units: Sequence[Unit]) -> Sequence[Any]:
        _, config = key
        return self.translator.engine.decode([unit.value for unit in units], config)


class ReaderWork(Looking):
    """Guesses hidden words, makes vectors, predicts: a text is a unit."""

    pairs = True

    def __init__(self, reader: TextEncoder):
        self.reader, self.tokenizer = reader, reader.tokenizer
        super().__init__(reader, reader.tokenizer, reader.tokenizer)
        others = ["embed", *able("fill", lambda: reader.guesser), *able("predict", reader.finetuned)]
        self.can = [*([] if reader.trees else others), *self.lookable]  # requests have heads where they look alone

    @property
    def takes(self) -> str | None:
        """What a fine-tuned model is asked about: a text, a pair of texts, words, or a question and a passage."""
        if "predict" not in self.can:
            return None
        recipe = self.reader.finetuned()
        one_or_two = "pair" if recipe.data.pair else "text"
        return {"tagging": "words", "answering": "question"}.get(recipe.objective.kind, one_or_two)

    def embed(self, texts: Sequence[str]) -> Asked:
        """A vector of each text, and how many tokens it has."""
        longest = self.reader.model.encoder.longest
        lengths = [len(ids) + 2 for ids in self.tokenizer.encode_batch([normalise(text) for text in texts])]
        for place, length in enumerate(lengths):
            if longest is not None and length > longest:
                raise wrong(
                    f"text {place} has {length:,} tokens, and this model reads {longest:,} at most", "input", "text_too_long"
                )
        units = [Unit(text, length, length) for text, length in zip(texts, lengths, strict=True)]
        return Asked(("embed",), units, lambda found: list(zip(found, lengths, strict=True)))

    def fill(self, text: str, top: int) -> Asked:
        """For each [MASK] the likeliest words."""
        if text.count(MASK) > 64:
            raise wrong(f"the text has {text.count(MASK):,} {MASK}; 64 can be filled at once", "text", "too_many_masks")
        length = len(self.reader.masked(text))
        return Asked(("fill", top), [Unit(text, length, length)], lambda found: found[0])

    def predict(self, examples: Sequence[Any]) -> Asked:
        """What the model was fine-tuned to say of each example."""
        kind = self.reader.finetuned().objective.kind
        given = [_example(kind, example, place) for place, example in enumerate(examples)]
        units = [Unit(example, size, size) for example, size in zip(given, map(_size, given), strict=True)]
        return Asked(("predict",), units, lambda found: [_plain(kind, one) for one in found])

    def work(self, key: Any, units: Sequence[Unit]) -> Sequence[Any]:
        values = [unit.value for unit in units]
        if key[0] == "embed":
            return list(self.reader.embed(values))
        return self.reader.fill_all(values, key[1]) if key[0] == "fill" else self.reader.predict(values)


class GeneratorWork(Looking):
    """Goes on with texts: each text to be made is a unit, told as it is made to whoever listens."""

    def __init__(self, generator: TextGenerator):
        self.generator = generator
        super().__init__(generator, generator.tokenizer, generator.tokenizer)
        self.can = ["complete", *self.lookable]

    def complete(self, prompts: Sequence[Prompt], config: DecodingConfig) -> Asked:
        """What comes after each prompt."""
        units = [Unit(prompt, len(prompt.ids), len(prompt.ids) + (prompt.longest or 0)) for prompt in prompts]
        return Asked(("complete", config), units, lambda found: found)

    def work(self, key: Any, units: Sequence[Unit]) -> Sequence[Written]:
        _, config = key
        found = self.generator.go_on([_stoppable(unit) for unit in units], config)
        for unit, (written,) in zip(units, found, strict=True):
            unit.tokens += len(written.ids)
        return [written for (written,) in found]


class VectorsWork:
    """Neighbours and a map of words: a question is a unit."""

    can = ("neighbours", "map")

    def __init__(self, vectors: WordVectors):
        self.vectors = vectors

    def neighbours(self, word: str, top: int) -> Asked:
        """The words most like a word, and how alike they are."""
        return Asked(("neighbours", top), [Unit(word, 1, 1)], lambda found: found[0])

    def map(self, words: Sequence[str]) -> Asked:
        """Points of words in the plane in which they differ the most, and the words that have none."""
        return Asked(("map",), [Unit(list(words), len(words), len(words))], lambda found: found[0])

    def compute(self, key: Any, units: Sequence[Unit]) -> Sequence[Any]:
        if key[0] == "neighbours":
            return [self.vectors.most_similar(unit.value, topn=key[1]) for unit in units]
        return [self._points(unit.value) for unit in units]

    def _points(self, words: list[str]) -> tuple[list[tuple[str, float, float]], list[str]]:
        known = [word for word in dict.fromkeys(words) if word in self.vectors]
        missing = [word for word in dict.fromkeys(words) if word not in self.vectors]
        points = pca_2d(self.vectors[known]).tolist() if known else []
        return [(word, x, y) for word, (x, y) in zip(known, points, strict=True)], missing


AnyWork = TranslatorWork | ReaderWork | GeneratorWork | VectorsWork


def _together(lines: list[list[Output]]) -> list[Output]:
    """Outputs of a text from those of its lines: the k-th best from the k-th best of each."""
    ranks = max(len(outputs) for outputs in lines)
    chosen = [[outputs[min(rank, len(outputs) - 1)] for outputs in lines] for rank in range(ranks)]
    return [Output("\n".join(one.text for one in each), sum(one.score for one in each)) for each in chosen]


def _cost(ids: list[int], config: DecodingConfig) -> float:
    """What a text takes of a batch: a row of scores for each hypothesis, however short it is."""
    return (len(ids) + ROW) * max(1.0, config.beam / 4)


def _stoppable(unit: Unit) -> Prompt:
    """A prompt whose text ends when nobody waits for it any more."""
    prompt: Prompt = unit.value

    def tell(piece: str) -> str | None:
        if unit.ticket.gone:
            return STOP
        if prompt.tell is not None:
            prompt.tell(piece)
        return None

    return replace(prompt, tell=tell)


def _example(kind: str, given: Any, place: int) -> Any:
    """An example as the reader takes it: a text, a pair of texts, or words."""
    if kind == "tagging":
        words = given.split() if isinstance(given, str) else given
        if not words or not all(word.strip() for word in words):
            raise wrong(f"text {place} has no words, or an empty one; give words to be tagged", "texts")
        return words
    if isinstance(given, str) and kind != "answering":
        return given
    if isinstance(given, str) or len(given) != 2:
        wanted = "a question and its context" if kind == "answering" else "a text, or a pair of texts"
        raise wrong(f"text {place} is not {wanted}; give a list of two texts", "texts")
    return given


def _size(example: Any) -> int:
    """About how many tokens an example has; what is long is cut by the reader."""
    return max(1, sum(map(len, [example] if isinstance(example, str) else example)) // 3)


def _plain(kind: str, said: Any) -> Any:
    """A prediction as JSON has it."""
    if kind == "classification":
        return {"label": said.label, "probability": said.probability}
    if kind == "answering":
        return {"text": said.text, "score": said.score}
    return {"tags": said} if kind == "tagging" else {"value": said}
