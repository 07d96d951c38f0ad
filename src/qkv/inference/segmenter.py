"""Texts as sources of an engine: a text is cut into parts that are decoded one by one, and their translations are joined."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from qkv.base.errors import DataError, QkvWarning
from qkv.data.corpora import Tokenizers
from qkv.data.trees import encode_with_heads
from qkv.decoding.hypothesis import Hypothesis
from qkv.decoding.phrases import Phrase
from qkv.recipes import TranslationRecipe
from qkv.text.check import normalise
from qkv.text.sentences import split_long
from qkv.text.treebank import TextWithHeads

WITHOUT_SPACES = ("zh", "cmn", "yue", "ja", "th", "lo", "km", "my")  # languages written without spaces between words
CHARS_PER_TOKEN = 20  # no text has more; a longer one is cut before it is tokenised


@dataclass(frozen=True)
class SourcePart:
    """A part of a text that is decoded as one source."""

    ids: list[int]
    phrases: tuple[Phrase, ...] = ()  # token sequences that its translation must contain


@dataclass(frozen=True)
class TranslatedText:
    """One translation of a text."""

    text: str
    score: float  # ranks the n-best list
    pieces: tuple[tuple[list[int], list[int]], ...] = ()  # source and target ids of each part; long texts have several
    confidence: float | None = None  # probability that it is good, where it was asked for; an empty text has none


class Segmenter:
    """Cuts texts into parts that a translator reads one by one, and joins the translations of a text's parts."""

    def __init__(self, tokenizers: Tokenizers, recipe: TranslationRecipe[Any, Any]):
        self.tokenizers, self.recipe = tokenizers, recipe
        languages = recipe.data.languages
        code = languages[1].replace("_", "-").split("-")[0].lower() if languages else ""
        self.between = "" if code in WITHOUT_SPACES else " "  # translations of two parts
        self._warned = False  # of texts without a task prefix

    def cut(self, text: str) -> list[SourcePart]:
        """Return the parts of a text; none if it is empty.

        A text longer than any in training is cut at sentences, clauses or words, unless it has a tree.
        """
        if self.recipe.model.reads_trees:
            if not isinstance(text, TextWithHeads):
                raise DataError(
                    "this model's positions follow dependency trees, and these texts have no heads; "
                    "give qkv.text.treebank.TextWithHeads(text, heads)"
                )
            return [SourcePart(found) for found in [encode_with_heads(self.tokenizers.source, text)] if found]
        source_format = self.recipe.source_format
        return [SourcePart(source_format.apply(ids, self.tokenizers.source)) for ids in self._pieces(normalise(text))]

    def _pieces(self, text: str) -> list[list[int]]:
        """Return the ids of a text in pieces that are no longer than the texts in training."""
        encode, longest = self.tokenizers.source.encode, self.recipe.data.max_tokens - sum(self.recipe.source_format)
        most = CHARS_PER_TOKEN * longest
        ids = encode(text) if len(text) <= most else []
        if ids and len(ids) <= longest:
            return [ids]
        task = self._task_prefix(text)  # every piece needs the prefix of the text
        pieces = split_long(text[len(task) :], lambda piece: len(piece) <= most and len(encode(task + piece)) <= longest)
        return [found for found in (encode(task + piece.strip()) for piece in pieces if piece.strip()) if found]

    def _task_prefix(self, text: str) -> str:
        """Return the task prefix that a text begins with, and the space after it; "" if it has none."""
        known = [f"{normalise(prefix)} " for prefix in self.recipe.data.prefixes]
        return max((prefix for prefix in known if text.startswith(prefix)), key=len, default="")

    def warn_of_missing_prefixes(self, texts: Sequence[str]) -> None:
        """Warn, once, of texts without a task prefix, where all texts in training had one."""
        if self._warned or not self.recipe.data.prefixes:
            return
        missing = sum(bool(text.strip()) and not self._task_prefix(normalise(text)) for text in texts)
        if missing:
            self._warned = True
            known = ", ".join(map(repr, self.recipe.data.prefixes))
            warnings.warn(
                f"{missing:,} of {len(texts):,} texts have no task prefix, and all in training had one; "
                f"begin them with one of {known}",
                QkvWarning,
                stacklevel=4,
            )

    def join(self, parts: Sequence[SourcePart], found: Sequence[list[Hypothesis]]) -> list[TranslatedText]:
        """Join the hypotheses of a text's parts: the k-th best text has the k-th best of each part."""
        if not parts:
            return [TranslatedText("", 0.0)]
        ranks = max(len(hypotheses) for hypotheses in found)
        outputs = []
        for rank in range(ranks):
            chosen = [hypotheses[min(rank, len(hypotheses) - 1)] for hypotheses in found]
            text = self.between.join(self.tokenizers.target.decode(h.ids) for h in chosen)
            pieces = tuple((part.ids, h.ids) for part, h in zip(parts, chosen, strict=True))
            outputs.append(TranslatedText(text, sum(h.score for h in chosen), pieces))
        return outputs
