"""A trained model with its tokenizers, ready to translate; `load` makes one of a run's folder."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from qkv.base.config import parse
from qkv.base.errors import CheckpointError, ConfigError
from qkv.base.hardware import choose_device
from qkv.base.rows import padded_rows
from qkv.build import Recipe, make_model, make_objective
from qkv.data.corpora import Tokenizers
from qkv.decoding.config import DecodingConfig
from qkv.decoding.hypothesis import Hypothesis
from qkv.decoding.search import batches_by_length, decode
from qkv.lens.capture import align_words, cross_attention
from qkv.runs.folder import WEIGHTS, check_model, check_tokenizers, load_tokenizers, read_recipe
from qkv.text.check import normalise
from qkv.text.sentences import split_long
from qkv.text.words import word_numbers
from qkv.training import checkpoints

WITHOUT_SPACES = ("zh", "cmn", "yue", "ja", "th", "lo", "km", "my")  # languages written without spaces between words


@dataclass(frozen=True)
class Output:
    """One translation of a text."""

    text: str
    score: float  # by which the n-best are ranked
    pieces: tuple[tuple[list[int], list[int]], ...] = ()  # source and target ids of each part the text was translated in


class Translator:
    """A model and its tokenizers, ready to translate."""

    def __init__(self, model: nn.Module, tokenizers: Tokenizers, recipe: Recipe):
        self.model, self.tokenizers, self.recipe = model, tokenizers, recipe
        self.device = next(model.parameters()).device

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
        parts = [self._parts(text) for text in texts]
        flat = [ids for text in parts for ids in text]
        forced = self._forced(prefixes, parts)
        allowed = None if words is None else torch.tensor(sorted({i for w in words for i in self.tokenizers.target.encode(w)}))
        found = iter(self._decode(flat, forced, allowed, first, config))
        return [self._join(text, [next(found) for _ in text]) for text in parts]

    def decoding(self, **options: Any) -> DecodingConfig:
        """The run's way of decoding, with some of it changed."""
        values = {**self.recipe.decoding.model_dump(), **options}
        longest: int | None = self.model.longest  # type: ignore[assignment]
        if longest is not None:
            values["max_length"] = min(longest, values["max_length"] or longest)
        return parse(DecodingConfig, values, "decoding")

    def _parts(self, text: str) -> list[list[int]]:
        """The text's ids; a text longer than any seen in training is cut at sentences, clauses or words."""
        text = normalise(text)
        encode, longest = self.tokenizers.source.encode, self.recipe.data.max_tokens
        ids = encode(text) if len(text) <= 20 * longest else []
        if ids and len(ids) <= longest:
            return [ids]
        pieces = split_long(text, lambda piece: len(piece) <= 20 * longest and len(encode(piece)) <= longest)
        return [found for found in (encode(piece.strip()) for piece in pieces) if found]

    def _forced(self, prefixes: Sequence[str] | None, parts: list[list[list[int]]]) -> list[list[int]] | None:
        """What each part's output must begin with; only a text's first part has a prefix."""
        if prefixes is None:
            return None
        begin = [self.tokenizers.target.encode(normalise(prefix)) for prefix in prefixes]
        if len(begin) != len(parts):
            raise ConfigError(f"{len(begin)} prefixes for {len(parts)} texts; give one for each, empty for none")
        return [prefix if i == 0 else [] for prefix, text in zip(begin, parts, strict=True) for i in range(len(text))]

    @torch.inference_mode()
    def _decode(
        self,
        sources: list[list[int]],
        prefixes: list[list[int]] | None,
        allowed: Tensor | None,
        first: int,
        config: DecodingConfig,
    ) -> list[list[tuple[list[int], Hypothesis]]]:
        target = self.tokenizers.target
        results: list[list[tuple[list[int], Hypothesis]]] = [[] for _ in sources]
        for batch in batches_by_length([len(ids) for ids in sources], config.batch_tokens):
            ids, keep = pad([sources[i] for i in batch], self.device)
            found = decode(
                self.model,  # type: ignore[arg-type]
                ids,
                keep,
                config,
                bos=target.bos,
                eos=target.eos,
                pad=target.pad,
                prefix=[prefixes[i] for i in batch] if prefixes else None,
                allowed=None if allowed is None else [allowed] * len(batch),
                seed=config.seed,
                index=[first + i for i in batch],
            )
            for i, hypotheses in zip(batch, found, strict=True):
                results[i] = [(sources[i], h) for h in hypotheses]
        return results

    def _join(self, parts: list[list[int]], found: list[list[tuple[list[int], Hypothesis]]]) -> list[Output]:
        """Outputs of a text from those of its parts: the k-th best from the k-th best of each."""
        if not parts:
            return [Output("", 0.0)]
        between = "" if _written_without_spaces(self.recipe.data.languages) else " "
        ranks = max(len(hypotheses) for hypotheses in found)
        outputs = []
        for rank in range(ranks):
            chosen = [hypotheses[min(rank, len(hypotheses) - 1)] for hypotheses in found]
            text = between.join(self.tokenizers.target.decode(h.ids) for _, h in chosen)
            outputs.append(Output(text, sum(h.score for _, h in chosen), tuple((ids, h.ids) for ids, h in chosen)))
        return outputs

    def attention(self, source: list[int], target: list[int]) -> Tensor:
        """How much each target token (and the end) looked at each source token. -> (T + 1, S)."""
        ids, keep = pad([source], self.device)
        answer, answer_keep = pad([[*target, self.tokenizers.target.eos]], self.device)
        shifted = make_objective(self.recipe, self.tokenizers).shifted(padded_rows(answer, answer_keep))
        return cross_attention(self.model, padded_rows(ids, keep), shifted)[0].cpu()

    def alignment(self, output: Output) -> list[tuple[int, int]]:
        """Which source word each word of the output looked at most, counted from 0: (source, target)."""
        links: list[tuple[int, int]] = []
        before_source = before_target = 0
        for source, target in output.pieces:
            source_words = word_numbers(self.tokenizers.source.decode, source)
            target_words = word_numbers(self.tokenizers.target.decode, target)
            found = align_words(self.attention(source, target), source_words, target_words)
            links += [(s + before_source, t + before_target) for s, t in found]
            before_source += max(source_words, default=-1) + 1
            before_target += max(target_words, default=-1) + 1
        return links


def pad(texts: Iterable[list[int]], device: torch.device) -> tuple[Tensor, Tensor]:
    """Texts of different lengths as one tensor, and where it holds real tokens; both (B, S)."""
    rows = [torch.tensor(ids, dtype=torch.long) for ids in texts]
    ids = nn.utils.rnn.pad_sequence(rows, batch_first=True)
    keep = torch.arange(ids.size(1)) < torch.tensor([len(row) for row in rows])[:, None]
    return ids.to(device), keep.to(device)


def _written_without_spaces(languages: tuple[str, str] | None) -> bool:
    return languages is not None and languages[1].replace("_", "-").split("-")[0].lower() in WITHOUT_SPACES


def load(run: str | Path, device: str = "auto") -> Translator:
    """A trained run, ready to use; one never finished is used as of its newest checkpoint."""
    folder = Path(run)
    recipe = read_recipe(folder)
    tokenizers = load_tokenizers(folder)
    if tokenizers is None:
        raise CheckpointError(f"{folder}: no tokenizer there; its training has not come far enough to be used")
    check_tokenizers(folder, tokenizers)
    check_model(folder, recipe)
    model = make_model(recipe, tokenizers)
    path = folder / WEIGHTS
    if not path.exists():
        newest, _, _ = checkpoints.newest(folder)
        path = checkpoints.validated(newest) if newest else path
    checkpoints.set_weights(model, checkpoints.load_weights(path), str(path))
    return Translator(model.to(choose_device(device)).eval(), tokenizers, recipe)
