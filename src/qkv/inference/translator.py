"""A loaded translator: an engine with its tokenizers."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from qkv.base.config import parse
from qkv.base.errors import ConfigError, DataError
from qkv.data.corpora import SourceStatistics, Tokenizers
from qkv.data.tokenised_pairs import PairFormat, encode_pairs
from qkv.decoding.config import DecodingConfig
from qkv.decoding.hypothesis import Hypothesis
from qkv.decoding.scoring import TokenStatistics
from qkv.inference.arguments import require_list, require_pairs, require_texts
from qkv.inference.confidence import CALIBRATE, ConfidenceModel, read_confidence
from qkv.inference.engines import Engine, OwnEngine
from qkv.inference.file_translation import FileReport, plan_files, translate_plan
from qkv.inference.growing import GrowingOutput, GrowingOutputs
from qkv.inference.head_effects import known_effects
from qkv.inference.restoring import keeps_spans, restore
from qkv.inference.segmenter import UNKNOWN, Segmenter, SourcePart, TextOptions, TranslatedPart, TranslatedText
from qkv.lens.capture import align_words
from qkv.lens.head_effects import HeadEffects
from qkv.lens.inspectors import Inspector
from qkv.recipes import TranslationRecipe
from qkv.text.annotated_terms import own_tokens
from qkv.text.check import normalise
from qkv.text.pair import as_side_names
from qkv.text.sentinels import BROKEN, decode_with_names
from qkv.text.translatable import ReadOptions
from qkv.text.treebank import TextWithHeads
from qkv.text.word_boundaries import word_ids

Pieces = Sequence[tuple[list[int], list[int]]]  # source and target ids of each part of a text


class Translator:
    """A translator's run, or its exported copy: `translate` texts, or take the `n_best` translations of each.

    >>> translator = qkv.load("runs/mine")
    >>> translator.translate(["How are you?"])
    ['Wie geht es dir?']
    """

    loads_as: ClassVar[Literal["translator"]] = "translator"

    def __init__(
        self,
        engine: Engine,
        tokenizers: Tokenizers,
        recipe: TranslationRecipe[Any, Any],
        folder: Path | None = None,
        sources: SourceStatistics = UNKNOWN,
    ):
        """`sources` are the statistics of its training sources."""
        self.engine, self.tokenizers, self.recipe = engine, tokenizers, recipe
        self.folder = folder  # None while it is in training
        self.segmenter = Segmenter(tokenizers, recipe, sources)

    def __repr__(self) -> str:
        languages = self.recipe.data.languages
        pair = f", {languages[0]} to {languages[1]}" if languages else ""
        where = "" if self.folder is None else f"{str(self.folder)!r}: "
        return f"Translator({where}{self.recipe.model.kind}{pair}, {type(self.engine).__name__} on {self.engine.device})"

    @property
    def trees(self) -> bool:
        """Whether it reads only texts with heads."""
        return self.recipe.model.reads_trees

    def translate(self, texts: Iterable[str], **options: Any) -> list[str]:
        """Return the best translation of each text. Options are the keys of `decoding` in a recipe, and those of TextOptions.

        >>> translator.translate(["How are you?"], beam=8)
        ['Wie geht es dir?']
        >>> translator.translate(["Save #1 now. Then stop."], split="never", protect=[r"#\\d+"])
        ['Speichere #1 jetzt. Dann halt an.']
        >>> translator.translate(["The car is here."], glossary={"car": "Wagen"})
        ['Der Wagen ist hier.']
        >>> translator.translate(["The car is here."], glossary={"car": "Wagen"}, soft=True)  # a run with data.glossary
        ['Der Wagen ist hier.']
        """
        if options.get("n_best", 1) != 1:
            raise ConfigError("translate returns one translation of each text; call the method n_best for more")
        return [outputs[0].text for outputs in self.n_best(require_texts(texts, "translate"), **options)]

    def n_best(
        self,
        texts: Iterable[str],
        prefixes: Sequence[str] | None = None,
        words: Sequence[str] | None = None,
        first: int = 0,
        confidence: bool = False,
        **options: Any,
    ) -> list[list[TranslatedText]]:
        """Return the best translations of each text, best first; an empty text has an empty one.

        `prefixes` are the beginnings of the translations, one for each text. `words` limits the translations to the tokens of
        these words. `first` is the number of the first text in a larger job: samples depend on it and on the seed.
        `confidence` adds the probability that each translation is good, which takes another pass over it.

        >>> translator.n_best(["How are you?"], n_best=2, beam=4)[0][1]
        TranslatedText(text='Wie geht es Ihnen?', score=-0.41, pieces=...)
        """
        texts = require_texts(texts, "n_best")
        text_options, options = TextOptions.take_from(options)
        config = self.decoding(**options)
        self.check_glossary(text_options, config)
        if confidence:
            _ = self.confidence_model  # refuses a run without a calibration before the work
        self.segmenter.warn_of_missing_prefixes(texts)
        parts = [self.segmenter.cut(text, text_options) for text in texts]
        flat = [part for text in parts for part in text]
        forced = None
        if prefixes is not None:
            begin = require_texts(prefixes, "n_best", "prefix")
            if len(begin) != len(parts):
                raise ConfigError(f"{len(begin)} prefixes for {len(parts)} texts; give one for each, empty for none")
            forced = []
            for prefix, text in zip(begin, parts, strict=True):
                # Only the first part of a text that is translated has a prefix.
                first_part = next((i for i, part in enumerate(text) if part.ids), 0)
                forced += [self.segmenter.encode_prefix(prefix, p) if i == first_part else [] for i, p in enumerate(text)]
        allowed = None
        if words is not None:
            known = {i for word in require_texts(words, "n_best", "word") for i in self.tokenizers.target.encode(word)}
            allowed = torch.tensor(sorted(known))
        found = iter(self.translate_parts(flat, config, forced, allowed, first))
        outputs = [self.segmenter.join(text, [next(found) for _ in text]) for text in parts]
        if not confidence:
            return outputs
        values = iter(self.confidences([output.pieces for each in outputs for output in each]))
        return [[replace(output, confidence=next(values)) for output in each] for each in outputs]

    def score(self, pairs: Iterable[tuple[str, str]]) -> list[float]:
        """Return the log-probability of each target given its source, in nats: the sum over its tokens and its end.

        Pairs are encoded as in training, in one part.

        >>> translator.score([("How are you?", "Wie geht es dir?"), ("How are you?", "Nein.")])
        [-1.3, -24.9]
        """
        found = [(normalise(source), normalise(target)) for source, target in require_pairs(pairs, "score")]
        if self.trees:
            raise ConfigError("this model reads texts with heads, and pairs to score have none; use another run")
        how = PairFormat(self.recipe.data.max_tokens, self.recipe.source_format, self.recipe.data.protect)
        encoded = encode_pairs(found, self.tokenizers, how)
        longest = self.engine.longest
        for number, (source, target) in enumerate(encoded, 1):
            if longest is not None and max(len(source), len(target) + 1) > longest:
                raise DataError(f"pair {number} has more than {longest:,} tokens, the most that this model reads; shorten it")
        sources, targets = [source for source, _ in encoded], [target for _, target in encoded]
        return [one.logprob for one in self.engine.statistics(sources, targets, self.decoding())]

    @cached_property
    def confidence_model(self) -> ConfidenceModel:
        """The calibration that gives the confidence of translations; a run without one is refused."""
        if self.folder is None:
            raise ConfigError(f"this translator has no calibration of confidence; {CALIBRATE}")
        self.engine.statistics([], [], self.decoding())  # refuses an engine that has no probabilities of tokens
        return read_confidence(self.folder)

    def confidences(self, texts: Sequence[Pieces]) -> list[float | None]:
        """Return the probability that each translation is good, from its pieces; None for that of an empty text."""
        found = iter(self.confidence_model.predict(self.statistics([pieces for pieces in texts if pieces])))
        return [next(found) if pieces else None for pieces in texts]

    def statistics(self, texts: Sequence[Pieces]) -> list[TokenStatistics]:
        """Return the probabilities of each translation's tokens, from its pieces."""
        sources, targets = ([piece[side] for pieces in texts for piece in pieces] for side in (0, 1))
        first, second = self.tokenizers.source.unk, self.tokenizers.target.unk
        unknown = [source.count(first) + target.count(second) for source, target in zip(sources, targets, strict=True)]
        scored = self.engine.statistics(sources, targets, self.decoding())
        found = iter([one._replace(unknown=count) for one, count in zip(scored, unknown, strict=True)])
        return [TokenStatistics.pooled([next(found) for _ in pieces]) for pieces in texts]

    def check_glossary(self, options: TextOptions, config: DecodingConfig) -> None:
        """Refuse a glossary that this translator cannot keep to with these options of decoding."""
        if options.soft and not self.tokenizers.source.term_tokens:
            raise ConfigError(
                "this model has not learned to copy translations out of its source, as a soft glossary needs; leave soft out",
                "or train one with data.glossary",
            )
        if options.glossary is not None and not options.soft and (self.trees or not self.engine.takes_phrases(config)):
            raise ConfigError(
                "a glossary needs beam search by qkv's own engine or onnx, without sampling and penalties of repeated tokens, "
                "and a model that reads no trees; leave the glossary or the other out"
            )

    def translate_parts(
        self,
        parts: Sequence[SourcePart],
        config: DecodingConfig,
        prefixes: Sequence[list[int]] | None = None,
        allowed: Tensor | None = None,
        first: int = 0,
    ) -> list[list[TranslatedPart]]:
        """Return the best translations of each part of a text, with its protected spans; see `n_best` and `Engine.decode`."""
        read = [index for index, part in enumerate(parts) if part.ids]
        phrases = [parts[index].phrases for index in read]
        if self.engine.takes_phrases(config):
            phrases = [(*given, *parts[index].span_phrases) for given, index in zip(phrases, read, strict=True)]
        found = self.engine.decode(
            [parts[index].ids for index in read],
            config,
            None if prefixes is None else [prefixes[index] for index in read],
            allowed,
            first,
            phrases if any(phrases) or self.engine.takes_phrases(config) else None,
        )
        outputs = [[TranslatedPart("", Hypothesis([], 0.0, 0.0, True), [])] for _ in parts]
        again = []  # parts whose translations all lose a span that the model read as text
        for index, hypotheses in zip(read, found, strict=True):
            part = parts[index]
            if part.fallback is not None:
                hypotheses = [h for h in hypotheses if keeps_spans(part, h.ids, self.tokenizers.target)]
                again += [] if hypotheses else [index]
            outputs[index] = self.translated(part, hypotheses)
        if again:
            without = [one for index in again if (one := parts[index].fallback) is not None]
            forced = None if prefixes is None else [prefixes[index] for index in again]
            for index, translations in zip(again, self.translate_parts(without, config, forced, allowed, first), strict=True):
                outputs[index] = translations
        return outputs

    def translated(self, part: SourcePart, hypotheses: Sequence[Hypothesis]) -> list[TranslatedPart]:
        """Return hypotheses as translations of a part."""
        return [TranslatedPart(self._to_text(part, h.ids), h, part.ids) for h in hypotheses]

    def can_begin(self, part: SourcePart, config: DecodingConfig) -> bool:
        """Return whether a part can be translated by `begin`: step by step, together with parts that come later."""
        spans = part.phrases or part.span_phrases or part.fallback is not None
        plain = not (spans or config.coverage_penalty or (config.n_best > 1 and config.sampling))
        return bool(part.ids) and plain and isinstance(self.engine, OwnEngine) and not self.trees

    def begin(self, parts: Sequence[SourcePart], config: DecodingConfig, owners: Sequence[Any]) -> GrowingOutputs:
        """Read parts of texts, and return their translations while they grow, each for its owner; they must pass `can_begin`."""
        assert isinstance(self.engine, OwnEngine)
        growing = [GrowingOutput(part, owner) for part, owner in zip(parts, owners, strict=True)]
        search = self.engine.begin([part.ids for part in parts], config, growing)
        return GrowingOutputs(search, lambda output, hypotheses: self.translated(output.source, hypotheses))

    def _to_text(self, part: SourcePart, ids: list[int]) -> str:
        """Return the text of a part's translation."""
        tokenizer = self.tokenizers.target
        if part.coded is not None:
            return restore(part, ids, tokenizer, self._attention_if_any)
        text = tokenizer.decode(ids)
        if BROKEN not in text or BROKEN in self.tokenizers.source.decode(part.ids):
            return text
        return text.replace(BROKEN, "")

    def _attention_if_any(self, source: list[int], target: list[int]) -> Tensor | None:
        try:
            return self.attention(source, target)
        except ConfigError:  # of this engine or model
            return None

    def translate_files(
        self,
        inputs: Sequence[str | Path],
        out: str | Path | None = None,
        all_segments: bool = False,
        file_format: str | None = None,
        languages: Sequence[str] | None = None,
        columns: Sequence[str | int] | None = None,
        **options: Any,
    ) -> FileReport:
        """Translate whole files (PO, XLIFF, HTML, Markdown ...) to a new file or folder; options are those of `translate`.

        Without `out`, a single file is returned as `content`. Only what is untranslated is translated, unless `all_segments`.
        `file_format` names the format where the suffix does not tell, `languages` replaces those of the run, and `columns` are
        those of a table. A call that was interrupted is continued by the same call.

        >>> translator.translate_files(["messages.po"], "messages.de.po").translated
        12
        """
        text_options, others = TextOptions.take_from(options)
        self.check_glossary(text_options, self.decoding(**others))  # refuses a wrong option before any file is read
        found = require_list(inputs, "translate_files", "file")
        names = as_side_names("languages", languages) or self.recipe.data.languages
        read = ReadOptions(names, as_side_names("columns", columns))
        fingerprint = repr((self.folder and self.folder.resolve(), sorted(others.items()), text_options.fingerprint))
        plan = plan_files(found, out, all_segments, file_format, read, fingerprint)
        return translate_plan(plan, lambda texts: self.translate(texts, **options), protect=text_options.protect)

    def decoding(self, **options: Any) -> DecodingConfig:
        """Return the run's config of decoding with these options.

        >>> translator.decoding(beam=1).beam
        1
        """
        values = {**self.recipe.decoding.model_dump(), **options}
        longest = self.engine.longest
        if longest is not None:
            values["max_length"] = min(longest, values["max_length"] or longest)
        return parse(DecodingConfig, values, "decoding")

    @cached_property
    def head_effects(self) -> HeadEffects | None:
        """What the model loses without each head, where `qkv heads` has measured it with these weights."""
        return known_effects(self.folder)

    def inspect(self, text: str, target: str | None = None) -> Inspector:
        """Return the model with an encoded text and its translation, or the given target, for `qkv.look`."""
        engine = self.engine
        if not isinstance(engine, OwnEngine):
            raise ConfigError("only qkv's own engine shows attention; load the run itself, without another engine")
        source = self.in_one_part(TextWithHeads.coerce(text, "the text") if self.trees else text)
        if target is None:
            written = self.translate_parts([source], self.decoding())[0][0].hypothesis.ids
        else:
            written = self.tokenizers.target.encode(normalise(target))
        if engine.longest is not None and len(written) >= engine.longest:
            raise DataError(
                f"the target has {len(written):,} tokens, and this model writes fewer than {engine.longest:,}; shorten it"
            )
        output = self._to_text(source, written)
        return engine.inspect(self.recipe.model.kind, self.tokenizers, source.ids, written, output)

    def in_one_part(self, text: str) -> SourcePart:
        """Return a text that is translated in one part."""
        parts = [part for part in self.segmenter.cut(text, TextOptions(split="never")) if part.ids]
        if not parts:
            raise DataError("the text is empty, or has nothing to translate; give a text to translate")
        if len(parts) > 1:
            most = self.recipe.data.max_tokens
            raise DataError(f"the text has more than {most} tokens and is translated in {len(parts)} parts; look at one of them")
        return parts[0]

    def attention(self, source: list[int], target: list[int]) -> Tensor:
        """Return how much each target token, and the end, attends to each source token. -> (T + 1, S)."""
        return self.engine.attention(source, target)

    def alignment(self, output: TranslatedText) -> list[tuple[int, int]]:
        """Return pairs (source word, target word), from 0: for each target word the source word it attends to most.

        Words are those of the text without tags around words; a placeholder is one word.

        >>> [[best]] = translator.n_best(["How are you?"])
        >>> translator.alignment(best)
        [(0, 0), (1, 1), (2, 2)]
        """
        links: list[tuple[int, int]] = []
        before_source = before_target = 0
        for source, target in output.pieces:
            own = own_tokens(self.tokenizers.source, source)  # those of annotations are in no word
            source_words, target_words = (
                word_ids(partial(decode_with_names, tokenizer), ids)
                for tokenizer, ids in zip(self.tokenizers, ([source[index] for index in own], target), strict=True)
            )
            found = align_words(self.attention(source, target)[:, own], source_words, target_words)
            links += [(s + before_source, t + before_target) for s, t in found]
            before_source += max(source_words, default=-1) + 1
            before_target += max(target_words, default=-1) + 1
        return links
