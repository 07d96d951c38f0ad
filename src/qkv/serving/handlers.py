"""Handlers of translators, encoders and generators."""

import math
import warnings
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from torch import nn

from qkv.base.errors import CheckpointError, ConfigError, QkvWarning
from qkv.decoding.config import DecodingConfig
from qkv.decoding.sampling import without_sampling
from qkv.folder.language_profiles import ProfilePair, read_language_profiles
from qkv.inference.segmenter import SourcePart, TextOptions, TranslatedText
from qkv.inference.text_encoder import TextEncoder
from qkv.inference.text_generator import Prompt, TextGenerator
from qkv.inference.translator import Translator
from qkv.parts import kernels
from qkv.serving.base_handler import AttentionHandler, Handler
from qkv.serving.batching import BatchItem, OutputPlace, PreparedRequest, RunningItems
from qkv.serving.errors import invalid
from qkv.serving.fair_threads import giving_way
from qkv.serving.laboratory import available
from qkv.text.check import normalise
from qkv.text.glossary import Glossary
from qkv.text.tokenizer import MASK, Tokenizer

ROW_TOKENS = 16  # that a row of a batch costs beside its own tokens
MAX_MASKS = 64  # in one text


def _load_kernels(device: torch.device | None) -> None:
    """Load what many texts at once will need, so that the first of them do not wait for it; None: another program's engine."""
    if device is not None and device.type == "cpu":
        kernels.load_cpu_kernel()


class TranslationHandler(AttentionHandler):
    """Translates; an item is a line of a text, or a piece of a line that the translator splits."""

    kind = "translator"

    def __init__(self, translator: Translator):
        super().__init__(translator, translator.tokenizers.source, translator.tokenizers.target)
        self.translator = translator
        self.languages = translator.recipe.data.languages
        self.parameters = count_parameters(getattr(translator.engine, "model", None))
        if not self.reads_trees:  # requests carry heads for `look` alone
            self.abilities = ["translate", *self.abilities]
        self.profiles = ProfilePair(None, None)  # of its languages
        self.has_confidence = False
        try:
            self.profiles = read_language_profiles(translator.folder) if translator.folder else self.profiles
        except CheckpointError as error:
            warnings.warn(str(error), QkvWarning, stacklevel=2)
        try:
            self.has_confidence = translator.confidence_model is not None
        except CheckpointError as error:  # there is a calibration, and it cannot be used
            warnings.warn(str(error), QkvWarning, stacklevel=2)
        except ConfigError:
            pass

    def try_out(self) -> bool:
        if "translate" not in self.abilities:
            return True
        _load_kernels(getattr(self.translator.engine, "device", None))
        beams = [max(2, self.translator.recipe.decoding.beam), 1]  # many rows and a single one use different weights
        return all(math.isfinite(self.translator.n_best(["a"], beam=beam, max_length=4)[0][0].score) for beam in beams)

    def translate(
        self, texts: Sequence[str], alternatives: int, glossary: Glossary | None = None, soft: bool = False, whole: bool = False
    ) -> PreparedRequest:
        """Prepare the best translation of each text and a number of alternatives, best first.

        Each line of a text is translated by itself, unless the texts are `whole`, as those of documents.
        """
        recipe, segmenter, n_best = self.translator.recipe, self.translator.segmenter, alternatives + 1
        config = self.translator.decoding(n_best=n_best, beam=max(n_best, recipe.decoding.beam))
        try:
            options = TextOptions(glossary=glossary, soft=soft)
            self.translator.check_glossary(options, config)
        except ConfigError as error:
            raise invalid(error.message, "glossary", "unsupported") from None
        # Lines are translated one by one, unless a prefix at the text's beginning names the task for all of it.
        lines_of = [[text] if whole or recipe.data.prefixes else text.split("\n") for text in texts]
        parts = [[segmenter.cut(line, options) for line in giving_way(lines)] for lines in lines_of]
        # A text costs a row of logits for each hypothesis, however short it is.
        hypotheses = max(1.0, config.beam / 4)
        items = [
            BatchItem(
                part,
                len(part.ids),
                (len(part.ids) + ROW_TOKENS) * hypotheses,
                rows=config.beam,
                step_cost=hypotheses,
                lane=config if self.translator.can_begin(part, config) else None,
                count_generated=lambda translations: sum(len(each.hypothesis.ids) for each in translations),
            )
            for lines in parts
            for line in lines
            for part in line
        ]

        def answer(results: list[Any]) -> list[list[TranslatedText]]:
            each = iter(results)
            return [
                _join_lines([segmenter.join(line, [next(each) for _ in line]) for line in giving_way(lines)]) for lines in parts
            ]

        return PreparedRequest(("translate", config), items, answer, _output_places(parts))

    def confidences(self, outputs: list[list[TranslatedText]]) -> PreparedRequest:
        """Prepare the probability that each translation is good; an item is a translation of a text."""
        items = []
        for output in (output for each in outputs for output in each):
            tokens = sum(len(source) + len(target) for source, target in output.pieces)
            items.append(BatchItem(output.pieces, tokens, tokens + ROW_TOKENS))

        def answer(results: list[Any]) -> list[list[float | None]]:
            found = iter(results)
            return [[next(found) for _ in each] for each in outputs]

        return PreparedRequest(("confidence",), items, answer)

    def compute_task(self, key: Any, items: Sequence[BatchItem]) -> Sequence[Any]:
        if key[0] == "confidence":
            return self.translator.confidences([item.value for item in items])
        _, config = key
        parts: list[SourcePart] = [item.value for item in items]
        return self.translator.translate_parts(parts, config)

    def begin_task(self, items: Sequence[BatchItem], piece: int) -> RunningItems:
        config: Any = items[0].lane
        return self.translator.begin([item.value for item in items], config, items)


class EncoderHandler(AttentionHandler):
    """Predicts masked words, embeds texts, and does the task of a fine-tuned model; an item is a text."""

    kind = "encoder"
    reads_pairs = True

    def __init__(self, encoder: TextEncoder):
        super().__init__(encoder, encoder.tokenizer, encoder.tokenizer)
        self.encoder, self.tokenizer = encoder, encoder.tokenizer
        self.parameters = count_parameters(encoder.model)
        if self.reads_trees:  # requests carry heads for `look` alone
            return
        tasks = available({"fill": lambda: encoder.fill_model, "predict": encoder.finetuned})
        self.abilities = ["embed", *tasks, *self.abilities]
        if "predict" in tasks:
            self.input_format = "pair" if encoder.finetuned().data.pair else encoder.task.input_format

    def try_out(self) -> bool:
        return "embed" not in self.abilities or bool(np.isfinite(self.encoder.embed(["a"])).all())

    def embed(self, texts: Sequence[str | list[int]]) -> PreparedRequest:
        """Prepare a vector for each text, or list of a text's ids, together with its number of tokens."""
        longest = self.encoder.model.encoder.longest
        encoded = iter(self.tokenizer.encode_batch([normalise(text) for text in texts if isinstance(text, str)]))
        lengths = [len(next(encoded) if isinstance(text, str) else self.encoder.check_ids(text)) + 2 for text in texts]
        for index, length in enumerate(lengths):
            if longest is not None and length > longest:
                raise invalid(
                    f"text {index} has {length:,} tokens, and this model reads {longest:,} at most", "input", "text_too_long"
                )
        items = [BatchItem(text, length, length) for text, length in zip(texts, lengths, strict=True)]
        return PreparedRequest(("embed",), items, lambda results: list(zip(results, lengths, strict=True)))

    def fill(self, text: str, top: int) -> PreparedRequest:
        """Prepare the most probable words for each [MASK]."""
        check_masks(text)
        length = len(self.encoder.masked(text))
        return PreparedRequest(("fill", top), [BatchItem(text, length, length)], lambda results: results[0])

    def predict(self, examples: Sequence[Any]) -> PreparedRequest:
        """Prepare a fine-tuned model's prediction for each example."""
        task, texts = self.encoder.task, self.encoder.finetuned().texts_per_example
        items = []
        for index, given in enumerate(examples):
            try:
                example = task.parse_example(given)
            except ValueError as error:
                raise invalid(f"text {index} must be {task.example_format(texts)}, and it {error}", "texts") from None
            characters = sum(map(len, example.texts))
            tokens = max(1, characters // 3)  # an estimate; the encoder truncates long texts
            items.append(BatchItem(example, tokens, tokens))
        return PreparedRequest(("predict",), items, lambda results: [task.to_json(one) for one in results])

    def compute_task(self, key: Any, items: Sequence[BatchItem]) -> Sequence[Any]:
        values = [item.value for item in items]
        if key[0] == "embed":
            return list(self.encoder.embed(values, normalise=True))
        return self.encoder.fill(values, key[1]) if key[0] == "fill" else self.encoder.predict(values)


class CompletionHandler(Handler):
    """A handler of a model that completes texts; an item is one completion."""

    tokenizer: Tokenizer
    has_logprobs: ClassVar[bool]
    grows: ClassVar[bool] = False  # whether completions grow step by step, so that others can join them

    @abstractmethod
    def prompt(self, given: str | list[int], suffix: str | None) -> list[int]:
        """Return the ids that the model reads for a prompt, a text or token ids, and what shall follow its completion."""

    @abstractmethod
    def decoding(self, max_new_tokens: int, **options: Any) -> DecodingConfig:
        """Return the config of decoding with these options."""

    def complete(self, prompts: Sequence[Prompt], config: DecodingConfig) -> PreparedRequest:
        """Prepare the completion of each prompt."""
        lane = without_sampling(config) if self.grows else None
        items = [
            BatchItem(
                prompt,
                len(prompt.ids),
                len(prompt.ids) + (prompt.max_new_tokens or 0),
                lane=lane,
                streamed=prompt.on_text is not None or prompt.on_token is not None,
                count_generated=lambda generated: len(generated.ids),
            )
            for prompt in prompts
        ]
        return PreparedRequest(("complete", config), items, lambda results: results)


class GenerationHandler(AttentionHandler, CompletionHandler):
    """Continues texts, and passes on each piece as it is generated."""

    kind = "generator"
    has_logprobs = True
    grows = True

    def __init__(self, generator: TextGenerator):
        super().__init__(generator, generator.tokenizer, generator.tokenizer)
        self.generator, self.tokenizer = generator, generator.tokenizer
        self.parameters = count_parameters(generator.causal_lm)
        self.abilities = ["complete", *self.abilities]

    def try_out(self) -> bool:
        _load_kernels(self.generator.device)
        for prompts in (["a"], ["a", "b"]):  # one row and several use different weights
            self.generator.generate(prompts, max_new_tokens=2)
        return math.isfinite(self.generator.score(["a a"])[0])

    def prompt(self, given: str | list[int], suffix: str | None) -> list[int]:
        if suffix is not None:
            raise invalid("a GPT continues texts; only a T5 writes what stands before a suffix", "suffix", "unsupported")
        return self.generator.prompt(given) if isinstance(given, str) else self.generator.check_prompt(given)

    def decoding(self, max_new_tokens: int, **options: Any) -> DecodingConfig:
        return self.generator.decoding(max_new_tokens, **options)

    def begin_task(self, items: Sequence[BatchItem], piece: int) -> RunningItems:
        by_options: dict[Any, list[BatchItem]] = {}
        for item in items:
            by_options.setdefault(item.key, []).append(item)
        first, *others = [
            self.generator.begin([item.value for item in some], config, some, piece) for (_, config), some in by_options.items()
        ]
        for other in others:
            first.join(other)
        return first

    def compute_task(self, key: Any, items: Sequence[BatchItem]) -> Sequence[Any]:
        raise AssertionError("continuations are generated step by step")


def check_masks(text: str) -> None:
    """Refuse a text with too many words to predict."""
    masks = text.count(MASK)
    if masks > MAX_MASKS:
        raise invalid(f"the text has {masks:,} {MASK}; {MAX_MASKS} can be filled at once", "text", "too_many_masks")


def count_parameters(network: Any) -> int | None:
    """Return the number of a network's weights; None for the model of another program's engine."""
    return sum(weight.numel() for weight in network.parameters()) if isinstance(network, nn.Module) else None


def _output_places(texts: Sequence[Sequence[Sequence[SourcePart]]]) -> list[OutputPlace]:
    """Return where the translation of each part stands in its text, so that all of a text joined are its translation."""
    places = []
    for number, lines in enumerate(texts):
        breaks = ""  # since the last part of the text
        for index, line in enumerate(lines):
            breaks += "\n" if index else ""
            for part in line:
                places.append(OutputPlace(number, breaks + part.before, part.after))
                breaks = ""
        if breaks and places and places[-1].text == number:
            places[-1] = places[-1]._replace(after=places[-1].after + breaks)
    return places


def _join_lines(lines: list[list[TranslatedText]]) -> list[TranslatedText]:
    """Join the translations of a text's lines: the k-th best of the text has the k-th best of each line."""
    ranks = max(len(outputs) for outputs in lines)
    chosen = [[outputs[min(rank, len(outputs) - 1)] for outputs in lines] for rank in range(ranks)]
    return [
        TranslatedText(
            "\n".join(one.text for one in each),
            sum(one.score for one in each),
            tuple(piece for one in each for piece in one.pieces),
            terms=tuple(term for one in each for term in one.terms),
            missing_terms=tuple(term for one in each for term in one.missing_terms),
        )
        for each in chosen
    ]
