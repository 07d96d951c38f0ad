"""A trained model with its tokenizers, ready to translate; `load` makes one of a run's folder or of an exported one."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from qkv.base.config import parse
from qkv.base.errors import ConfigError, DataError, QkvWarning
from qkv.base.hardware import choose_device
from qkv.data.corpora import Tokenizers
from qkv.data.trees import encode_with_heads
from qkv.decoding.config import DecodingConfig
from qkv.decoding.hypothesis import Hypothesis
from qkv.folder.networks import read_translator_run
from qkv.folder.run import is_exported, read_recipe
from qkv.inference.engines import Engine, OwnEngine
from qkv.inference.exported import open_exported
from qkv.lens.capture import align_words
from qkv.lens.inspectors import Inspector
from qkv.recipes import TranslationRecipe
from qkv.recipes.abilities import require
from qkv.text.check import normalise
from qkv.text.sentences import split_long
from qkv.text.treebank import TextWithHeads
from qkv.text.word_boundaries import word_ids

ENGINES = ("own", "ctranslate2", "onnx")
WITHOUT_SPACES = ("zh", "cmn", "yue", "ja", "th", "lo", "km", "my")  # languages written without spaces between words


@dataclass(frozen=True)
class Output:
    """One translation of a text."""

    text: str
    score: float  # by which the n-best are ranked
    pieces: tuple[tuple[list[int], list[int]], ...] = ()  # source and target ids of each part the text was translated in


class Translator:
    """An engine and its tokenizers, ready to translate."""

    loads_as: ClassVar[Literal["translator"]] = "translator"

    def __init__(self, engine: Engine, tokenizers: Tokenizers, recipe: TranslationRecipe[Any, Any]):
        self.engine, self.tokenizers, self.recipe = engine, tokenizers, recipe
        self._told = False  # that texts do not tell their task

    @property
    def trees(self) -> bool:
        """Whether it reads texts with heads alone."""
        return self.recipe.model.reads_trees

    def translate(self, texts: Sequence[str], **options: Any) -> list[str]:
        """The best translation of each text. Options are the keys of `decoding` in a recipe."""
        if isinstance(texts, str):
            raise TypeError("translate takes a list of texts; for one text, give [text]")
        return [outputs[0].text for outputs in self.n_best(texts, **options)]

    def n_best(
        self,
        texts: Sequence[str],
        prefixes: Sequence[str] | None = None,
        words: Sequence[str] | None = None,
        first: int = 0,
        **options: Any,
    ) -> list[list[Output]]:
        """The best translations of each text, best first; order is kept, and an empty text stays empty.

        A prefix is what a translation must begin with; `words` are the only ones, whole or in pieces, that may stand in it.
        `first` is the number of the first text in a larger job: samples are drawn by it and the seed.
        """
        config = self.decoding(**options)
        self._tell_tasks(texts)
        parts = [self.parts(text) for text in texts]
        flat = [ids for text in parts for ids in text]
        forced = self._forced(prefixes, parts)
        allowed = None if words is None else torch.tensor(sorted({i for w in words for i in self.tokenizers.target.encode(w)}))
        found = iter(self.engine.decode(flat, config, forced, allowed, first))
        return [self.join(text, [next(found) for _ in text]) for text in parts]

    def decoding(self, **options: Any) -> DecodingConfig:
        """The run's way of decoding, with some of it changed."""
        values = {**self.recipe.decoding.model_dump(), **options}
        longest = self.engine.longest
        if longest is not None:
            values["max_length"] = min(longest, values["max_length"] or longest)
        return parse(DecodingConfig, values, "decoding")

    def parts(self, text: str) -> list[list[int]]:
        """The text's ids; a text longer than any seen in training is cut at sentences, clauses or words, unless it has a tree."""
        if self.trees:
            if not isinstance(text, TextWithHeads):
                raise DataError(
                    "this model's positions are structural: it reads texts with heads, and these have none; "
                    "give qkv.text.treebank.TextWithHeads(text, heads)"
                )
            return [found for found in [encode_with_heads(self.tokenizers.source, text)] if found]
        return [self.recipe.source_format.apply(ids, self.tokenizers.source) for ids in self._pieces(normalise(text))]

    def _pieces(self, text: str) -> list[list[int]]:
        encode, longest = self.tokenizers.source.encode, self.recipe.data.max_tokens - sum(self.recipe.source_format)
        ids = encode(text) if len(text) <= 20 * longest else []
        if ids and len(ids) <= longest:
            return [ids]
        task = self._task(text)  # of the whole text, so that every piece must tell it
        pieces = split_long(text[len(task) :], lambda piece: len(piece) <= 20 * longest and len(encode(task + piece)) <= longest)
        return [found for found in (encode(task + piece.strip()) for piece in pieces if piece.strip()) if found]

    def _task(self, text: str) -> str:
        """What a text begins with to tell its task, and the space after it; nothing if it does not."""
        known = [f"{normalise(prefix)} " for prefix in self.recipe.data.prefixes]
        return max((prefix for prefix in known if text.startswith(prefix)), key=len, default="")

    def _tell_tasks(self, texts: Sequence[str]) -> None:
        """Say, the first time, that texts do not tell their task, where those in training did."""
        if self._told or not self.recipe.data.prefixes:
            return
        untold = sum(bool(text.strip()) and not self._task(normalise(text)) for text in texts)
        if untold:
            self._told = True
            known = ", ".join(map(repr, self.recipe.data.prefixes))
            told = f"{untold:,} of {len(texts):,} texts do not tell their task, as all in training did"
            warnings.warn(f"{told}; begin them with one of {known}", QkvWarning, stacklevel=4)

    def _forced(self, prefixes: Sequence[str] | None, parts: list[list[list[int]]]) -> list[list[int]] | None:
        """What each part's output must begin with; only a text's first part has a prefix."""
        if prefixes is None:
            return None
        begin = [self.tokenizers.target.encode(normalise(prefix)) for prefix in prefixes]
        if len(begin) != len(parts):
            raise ConfigError(f"{len(begin)} prefixes for {len(parts)} texts; give one for each, empty for none")
        return [prefix if i == 0 else [] for prefix, text in zip(begin, parts, strict=True) for i in range(len(text))]

    def join(self, parts: list[list[int]], found: list[list[Hypothesis]]) -> list[Output]:
        """Outputs of a text from those of its parts: the k-th best from the k-th best of each."""
        if not parts:
            return [Output("", 0.0)]
        between = "" if _written_without_spaces(self.recipe.data.languages) else " "
        ranks = max(len(hypotheses) for hypotheses in found)
        outputs = []
        for rank in range(ranks):
            chosen = [hypotheses[min(rank, len(hypotheses) - 1)] for hypotheses in found]
            text = between.join(self.tokenizers.target.decode(h.ids) for h in chosen)
            pieces = tuple((ids, h.ids) for ids, h in zip(parts, chosen, strict=True))
            outputs.append(Output(text, sum(h.score for h in chosen), pieces))
        return outputs

    def inspect(self, text: str, target: str | None = None) -> Inspector:
        """Return the model with an encoded text and its translation, or the given target, for `qkv.look`."""
        engine = self.engine
        if not isinstance(engine, OwnEngine):
            raise ConfigError("only qkv's own engine can be looked into; load the run itself, without another engine")
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
        """The ids of a text that is translated as a whole."""
        parts = self.parts(text)
        if not parts:
            raise DataError("the text is empty; write what is to be translated")
        if len(parts) > 1:
            most = self.recipe.data.max_tokens
            raise DataError(f"the text has more than {most} tokens and is translated in {len(parts)} parts; look at one of them")
        return parts[0]

    def attention(self, source: list[int], target: list[int]) -> Tensor:
        """How much each target token (and the end) looked at each source token. -> (T + 1, S)."""
        return self.engine.attention(source, target)

    def alignment(self, output: Output) -> list[tuple[int, int]]:
        """Which source word each word of the output looked at most, counted from 0: (source, target)."""
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


def _written_without_spaces(languages: tuple[str, str] | None) -> bool:
    return languages is not None and languages[1].replace("_", "-").split("-")[0].lower() in WITHOUT_SPACES


def load(folder: str | Path, device: str = "auto", engine: str | None = None, precision: str | None = None) -> Translator:
    """A trained run or an exported folder, ready to use; a run never finished is used as of its newest checkpoint.

    `engine` is own, ctranslate2 or onnx: own for a run when not given, and what it was exported to for an exported folder.
    `precision` is what a run is converted to for ctranslate2: float32 when not given, int8 or bf16.
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
        return Translator(OwnEngine(run.model().to(chosen), run.tokenizers.target), run.tokenizers, run.recipe)
    if not is_exported(path):
        from qkv.interop.export import export_to_cache

        path = export_to_cache(path, str(engine), precision or "float32")
    return Translator(*open_exported(path, device, engine, precision))
