"""A loaded translator: an engine with its tokenizers, from a run folder or an exported one."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from qkv.base.config import parse
from qkv.base.errors import ConfigError, DataError
from qkv.base.hardware import choose_device
from qkv.data.corpora import Tokenizers
from qkv.decoding.config import DecodingConfig
from qkv.decoding.scoring import TokenStatistics
from qkv.folder.networks import read_translator_run
from qkv.folder.run import is_exported, read_recipe
from qkv.inference.arguments import require_list, require_texts
from qkv.inference.confidence import CALIBRATE, ConfidenceModel, read_confidence
from qkv.inference.engines import Engine, OwnEngine
from qkv.inference.exported import open_exported
from qkv.inference.file_translation import FileReport, plan_files, translate_plan
from qkv.inference.segmenter import Segmenter, TranslatedText
from qkv.lens.capture import align_words
from qkv.lens.inspectors import Inspector
from qkv.recipes import TranslationRecipe
from qkv.recipes.abilities import require
from qkv.text.check import normalise
from qkv.text.translatable import ReadOptions
from qkv.text.treebank import TextWithHeads
from qkv.text.word_boundaries import word_ids

ENGINES = ("own", "ctranslate2", "onnx")
Pieces = Sequence[tuple[list[int], list[int]]]  # source and target ids of each part of a text


class Translator:
    """A translator's run, or its exported copy: `translate` texts, or take the `n_best` translations of each.

    >>> translator = qkv.load("runs/mine")
    >>> translator.translate(["How are you?"])
    ['Wie geht es dir?']
    """

    loads_as: ClassVar[Literal["translator"]] = "translator"

    def __init__(self, engine: Engine, tokenizers: Tokenizers, recipe: TranslationRecipe[Any, Any], folder: Path | None = None):
        self.engine, self.tokenizers, self.recipe = engine, tokenizers, recipe
        self.folder = folder  # None while it is in training
        self.segmenter = Segmenter(tokenizers, recipe)

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
        """Return the best translation of each text. Options are the keys of `decoding` in a recipe.

        >>> translator.translate(["How are you?"], beam=8)
        ['Wie geht es dir?']
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
        config = self.decoding(**options)
        if confidence:
            _ = self.confidence_model  # refuses a run without a calibration before the work
        self.segmenter.warn_of_missing_prefixes(texts)
        parts = [self.segmenter.cut(text) for text in texts]
        flat = [part for text in parts for part in text]
        forced = None
        if prefixes is not None:
            begin = [self.tokenizers.target.encode(normalise(prefix)) for prefix in require_texts(prefixes, "n_best", "prefix")]
            if len(begin) != len(parts):
                raise ConfigError(f"{len(begin)} prefixes for {len(parts)} texts; give one for each, empty for none")
            # Only the first part of a text has a prefix.
            forced = [prefix if i == 0 else [] for prefix, text in zip(begin, parts, strict=True) for i in range(len(text))]
        allowed = None
        if words is not None:
            known = {i for word in require_texts(words, "n_best", "word") for i in self.tokenizers.target.encode(word)}
            allowed = torch.tensor(sorted(known))
        phrases = [part.phrases for part in flat]
        found = iter(self.engine.decode([part.ids for part in flat], config, forced, allowed, first, phrases))
        outputs = [self.segmenter.join(text, [next(found) for _ in text]) for text in parts]
        if not confidence:
            return outputs
        values = iter(self.confidences([output.pieces for each in outputs for output in each]))
        return [[replace(output, confidence=next(values)) for output in each] for each in outputs]

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

    def translate_files(
        self, inputs: Sequence[str | Path], out: str | Path, all_segments: bool = False, **options: Any
    ) -> FileReport:
        """Translate whole files (PO, XLIFF, HTML, Markdown ...) to a new file or folder; options are those of `translate`.

        Only what is untranslated is translated, unless `all_segments`.

        >>> translator.translate_files(["messages.po"], "messages.de.po").translated
        12
        """
        self.decoding(**options)  # refuses a wrong option before any file is read
        found = require_list(inputs, "translate_files", "file")
        plan = plan_files(found, out, all_segments, options=ReadOptions(self.recipe.data.languages))
        return translate_plan(plan, lambda texts: self.translate(texts, **options))

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

    def inspect(self, text: str, target: str | None = None) -> Inspector:
        """Return the model with an encoded text and its translation, or the given target, for `qkv.look`."""
        engine = self.engine
        if not isinstance(engine, OwnEngine):
            raise ConfigError("only qkv's own engine shows attention; load the run itself, without another engine")
        source = self._in_one_part(TextWithHeads.coerce(text, "the text") if self.trees else text)
        if target is None:
            written = engine.decode([source], self.decoding())[0][0].ids
        else:
            written = self.tokenizers.target.encode(normalise(target))
        if engine.longest is not None and len(written) >= engine.longest:
            raise DataError(
                f"the target has {len(written):,} tokens, and this model writes fewer than {engine.longest:,}; shorten it"
            )
        output = self.tokenizers.target.decode(written)
        return engine.inspect(self.recipe.model.kind, self.tokenizers, source, written, output)

    def _in_one_part(self, text: str) -> list[int]:
        """Return the ids of a text that is translated in one part."""
        parts = self.segmenter.cut(text)
        if not parts:
            raise DataError("the text is empty; give a text to translate")
        if len(parts) > 1:
            most = self.recipe.data.max_tokens
            raise DataError(f"the text has more than {most} tokens and is translated in {len(parts)} parts; look at one of them")
        return parts[0].ids

    def attention(self, source: list[int], target: list[int]) -> Tensor:
        """Return how much each target token, and the end, attends to each source token. -> (T + 1, S)."""
        return self.engine.attention(source, target)

    def alignment(self, output: TranslatedText) -> list[tuple[int, int]]:
        """Return pairs (source word, target word), from 0: for each target word the source word it attends to most.

        >>> [[best]] = translator.n_best(["How are you?"])
        >>> translator.alignment(best)
        [(0, 0), (1, 1), (2, 2)]
        """
        links: list[tuple[int, int]] = []
        before_source = before_target = 0
        for source, target in output.pieces:
            source_words = word_ids(self.tokenizers.source.decode, source)
            target_words = word_ids(self.tokenizers.target.decode, target)
            found = align_words(self.attention(source, target), source_words, target_words)
            links += [(s + before_source, t + before_target) for s, t in found]
            before_source += max(source_words, default=-1) + 1
            before_target += max(target_words, default=-1) + 1
        return links


def read_languages(folder: Path) -> tuple[str, str] | None:
    """Return the languages of a translator's run or of its exported copy, without loading its weights."""
    if is_exported(folder):
        from qkv.interop.exported import read_exported

        return read_exported(folder)[0].recipe.data.languages
    require(read_recipe(folder), folder, "translator")
    return read_translator_run(folder).recipe.data.languages


def load_translator(
    folder: str | Path, device: str = "auto", engine: str | None = None, precision: str | None = None
) -> Translator:
    """Load a translator's run or an exported folder; a run that is still in training with its newest checkpoint, and a warning.

    `engine` is own (the default of a run), ctranslate2 or onnx; an exported folder has its own. `precision` is that of a run's
    copy for ctranslate2: float32 (the default), int8 or bf16.
    """
    path, chosen = Path(folder), choose_device(device)
    if engine not in (None, *ENGINES):
        raise ConfigError(f"no engine {engine!r}; known are {', '.join(ENGINES)}")
    if not is_exported(path) and engine in (None, "own"):
        if precision is not None:
            raise ConfigError(
                f"precision {precision} is for another engine's copy of a run; give the engine ctranslate2 too, "
                f"or set precision={precision} among the options of decoding (--set precision={precision}) for qkv's own engine"
            )
        require(read_recipe(path), path, "translator")
        run = read_translator_run(path)
        run.weights_file.warn_if_unfinished()
        return Translator(OwnEngine(run.model().to(chosen), run.tokenizers.target), run.tokenizers, run.recipe, path)
    exported = path
    if not is_exported(path):
        from qkv.interop.export import export_to_cache

        exported = export_to_cache(path, str(engine), precision or "float32")
    return Translator(*open_exported(exported, device, engine, precision), path)
