"""An encoder, ready to be used: texts to vectors, hidden words guessed, examples told apart as it was fine-tuned to."""

import warnings
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from qkv.base.errors import ConfigError, DataError, QkvWarning
from qkv.base.hardware import choose_device
from qkv.base.rows import Rows, padded_rows
from qkv.data.encoding import encode
from qkv.data.labelled import BatchShape
from qkv.data.trees import TokensWithHeads, add_special_tokens, encode_with_heads
from qkv.decoding.search import batches_by_length
from qkv.folder.networks import NetworkRun, read_network_run
from qkv.inference.attention_subject import subject_of
from qkv.inference.engines import pad, padded_heads
from qkv.inference.prediction import predict_examples, score_predictions
from qkv.inference.spelling import add_unseen_words, tokenizer_for
from qkv.inference.text_scores import score_texts
from qkv.lens.inspectors import SelfAttentionInspector
from qkv.models import FAMILIES
from qkv.objectives import OBJECTIVES
from qkv.parts.encoder import Encoder
from qkv.parts.heads import ModelWithHeads
from qkv.parts.token_scores import ScoringMode
from qkv.recipes import FinetuningRecipe
from qkv.text.check import normalise as tidied
from qkv.text.examples import Question, TaggedExample, TextExample
from qkv.text.tokenizer import MASK
from qkv.text.treebank import TextWithHeads

TOGETHER = 8192  # tokens computed at once


class Guess(NamedTuple):
    """A word that may stand where one is hidden."""

    word: str
    probability: float


class Class(NamedTuple):
    """What a text is, and how sure the model is of it."""

    label: str
    probability: float


class TextEncoder:
    """An encoder's run: `embed` gives vectors of texts, `fill` guesses hidden words, `score` tells how likely texts are.

    `predict` does what it learned last.
    """

    loads_as: ClassVar[Literal["encoder"]] = "encoder"

    def __init__(self, run: NetworkRun, device: torch.device):
        self.run, self.device = run, device
        self.tokenizer, self.recipe = run.tokenizer, run.recipe
        self._told = False  # that a text is longer than those in training

    @cached_property
    def model(self) -> ModelWithHeads:
        """The encoder that the run was for, with its heads; of an ELECTRA the discriminator."""
        return self.run.network.model().to(self.device)

    @cached_property
    def guesser(self) -> ModelWithHeads:
        """What guesses hidden words: the same, but an ELECTRA's generator."""
        network = self.run.with_head(self.model.encoder.fill_head, "filling in words")
        return self.model if network is self.run.network else network.model().to(self.device)

    @property
    def _mask(self) -> int:
        """The id that stands for a masked token: [MASK], or padding for a network that never reads it (XLNet)."""
        return self.tokenizer.mask if self.model.encoder.sees_masked else self.tokenizer.pad

    @torch.no_grad()
    def embed(
        self,
        texts: Sequence[str],
        how: Literal["mean", "cls"] = "mean",
        layer: int | Literal["mix"] = -1,
        normalise: bool = False,
    ) -> np.ndarray:
        """A vector for each text: the mean over its tokens, or that of the token that stands for it. -> (texts, width), float32.

        With "cls" that is the first one, of a GPT, where only the last one has seen the text, the last; an ELMo has none.

        Layers are counted as in a list: 0 is what the embeddings give, -1 the last layer; "mix" is an ELMo's mix of all of them,
        which is their mean until it is fine-tuned. A text longer than the model can read is cut, with a warning. `normalise`
        makes all vectors 1 long. Texts for a model that reads trees are as for `qkv.look`.
        """
        if isinstance(texts, str):
            raise TypeError("embed takes a list of texts; for one text, give [text]")
        if how not in ("mean", "cls"):
            raise ConfigError(f"no way {how!r} to make a vector of a text; known are mean and cls")
        encoder = self.model.encoder
        if how == "cls" and encoder.summary == "mean":
            kind = encoder.config.kind
            raise ConfigError(f"no token of {'an' if kind == 'elmo' else 'a'} {kind} stands for a text; take the mean")
        depth = _depth(layer, encoder)
        vectors = torch.empty(len(texts), encoder.config.width)
        for numbers, rows in self._rows(self._framed(texts)):
            hidden = _after(encoder, rows, depth)
            real = rows.text > 0
            vectors[numbers] = (_mean(hidden, real) if how == "mean" else _summary(hidden, real, encoder.summary == "last")).cpu()
        return (F.normalize(vectors, dim=-1) if normalise else vectors).numpy()

    def fill(self, text: str, top: int = 5) -> list[list[Guess]]:
        """For each [MASK] in a text the likeliest words there, best first."""
        return self.fill_all([text], top)[0]

    @torch.no_grad()
    def fill_all(self, texts: Sequence[str], top: int = 5) -> list[list[list[Guess]]]:
        """The same for several texts at once."""
        masked, encoder = [self.masked(text) for text in texts], self.guesser.encoder
        self._tell_places([len(ids) for ids in masked])
        found: list[list[list[Guess]]] = [[] for _ in texts]
        for numbers, rows in self._rows(masked):
            chosen = (rows.ids == self._mask) & (rows.text > 0)  # (B, T)
            chances = self.guesser.heads[encoder.fill_head](encoder.states_at_masked(rows, chosen)).softmax(-1)
            chances = chances[:, : len(self.tokenizer)]  # the model's vocabulary may be rounded up
            best = chances.topk(min(top, len(self.tokenizer)))
            for row, words, values in zip(
                chosen.nonzero()[:, 0].tolist(), best.indices.tolist(), best.values.tolist(), strict=True
            ):
                found[numbers[row]].append([Guess(self._word(word), value) for word, value in zip(words, values, strict=True)])
        return found

    def masked(self, text: str) -> list[int]:
        """Token ids of a text in which words are hidden, between those that begin and end a text."""
        longest = self.guesser.encoder.longest
        if MASK not in text:
            raise DataError(f"there is no {MASK} in the text; write {MASK} where a word is to be guessed")
        ids = [self.tokenizer.bos, *self.tokenizer.encode_masked(tidied(text), self._mask), self.tokenizer.eos]
        if longest is not None and len(ids) > longest:
            raise DataError(
                f"the text has {len(ids):,} tokens, and this model reads {longest:,} at most: it has learned no positions "
                "beyond; shorten it"
            )
        return ids

    def score(self, texts: Sequence[str], how: ScoringMode | None = None) -> list[float]:
        """How likely each text is, in nats: the sum over its tokens of their log-probabilities.

        With how="each", which is usual, a token is told from all others; with how="left", of a UniLM, an XLNet or an ELMo, from
        those before it, so that the sum is the log-probability of the text (see `qkv.objectives.likelihood`).
        """
        masked = FAMILIES[self.recipe.model.kind].scoring_head == "masked"
        return score_texts(self.run, self.guesser if masked else self.model, texts, how)

    @property
    def trees(self) -> bool:
        """Whether it reads texts with heads alone."""
        return self.model.encoder.config.reads_trees

    def inspect(self, text: str, target: str | None = None) -> SelfAttentionInspector:
        """Return the model with an encoded text, or a pair whose second text is `target`, for `qkv.look`."""
        return subject_of(self, text, target)

    def predict(self, examples: Sequence[Any]) -> list[Any]:
        """What a fine-tuned model says of each example: a Class, a number, the tags of its words, or an Answer.

        An example is a text or a pair of texts, a list of words for tagging, or a question and its context; or one that
        `qkv.text.examples.read_examples` gave.
        """
        kind, labels = self.finetuned().objective.kind, self.run.network.label_names
        given = [_example(kind, example) for example in examples]
        return [_told(kind, one, labels) for one in self._said(given)]

    def evaluate(self, examples: Sequence[Any], metrics: Sequence[str] = ()) -> dict[str, float]:
        """How good its predictions are for labelled examples, as `read_examples` gives them; by the recipe's metrics."""
        recipe = self.finetuned()
        kind, labels = recipe.objective.kind, self.run.network.label_names
        said = self._said(examples)
        return {name: score_predictions(kind, name, said, examples, labels) for name in metrics or recipe.judged_by}

    def _said(self, examples: Sequence[Any]) -> list[Any]:
        """The model's outputs for each example."""
        recipe, labels = self.finetuned(), self.run.network.label_names
        if not examples:
            return []
        tokenizer = tokenizer_for(self.model.encoder.config, self.tokenizer)
        encoded = encode(examples, tokenizer, recipe.data.length, recipe.objective.kind, labels, recipe.data.stride)
        add_unseen_words(self.model, tokenizer)
        self._tell_places(encoded.lengths)
        tokens = min(TOGETHER, 2 * int(encoded.lengths.sum()))  # with room for what packing leaves empty
        one_text_per_row = self.model.encoder.config.one_text_per_row
        shape = BatchShape.holding(int(encoded.lengths.max()), tokens, one_text_per_row, self.tokenizer.pad)
        return predict_examples(
            self.model,
            OBJECTIVES[recipe.objective.kind].build(recipe.objective, self.tokenizer),
            encoded,
            examples,
            shape,
        )

    def finetuned(self) -> FinetuningRecipe[Any, Any]:
        """The recipe, which must be one of fine-tuning."""
        if self.recipe.job != "finetuning":
            kind = self.recipe.objective.kind
            raise ConfigError(f"{self.run.folder} was trained for {kind}, not fine-tuned; do so with qkv train finetune")
        return self.recipe  # type: ignore[return-value]

    def _word(self, number: int) -> str:
        return self.tokenizer.decode([number]).strip() or self.tokenizer.pieces([number])[0]

    def _framed(self, texts: Sequence[str]) -> list[list[int]]:
        """Token ids of texts, between those that begin and end a text."""
        if self.trees:
            return [self._with_tree(text, f"text {number}") for number, text in enumerate(texts, 1)]
        tokenizer, longest = tokenizer_for(self.model.encoder.config, self.tokenizer), self.model.encoder.longest
        found = tokenizer.encode_batch([tidied(text) for text in texts])
        add_unseen_words(self.model, tokenizer)
        room = None if longest is None else longest - 2
        cut = 0 if room is None else sum(len(ids) > room for ids in found)
        if cut:
            told = f"{cut:,} of {len(texts):,} texts have more than {longest:,} tokens and are cut there"
            warnings.warn(f"{told}: this model has learned no positions beyond", QkvWarning, stacklevel=3)
        texts_ids = [[self.tokenizer.bos, *ids[:room], self.tokenizer.eos] for ids in found]
        self._tell_places([len(ids) for ids in texts_ids])
        return texts_ids

    def _with_tree(self, text: str, name: str) -> TokensWithHeads:
        """The same of one text with heads, which cannot be cut."""
        found = add_special_tokens([encode_with_heads(self.tokenizer, TextWithHeads.coerce(text, name))], self.tokenizer)
        longest = self.model.encoder.longest
        if longest is not None and len(found) > longest:
            raise DataError(f"{name} has {len(found):,} tokens, and this model reads {longest:,} at most; shorten it")
        return found

    def _tell_places(self, lengths: Sequence[int] | np.ndarray) -> None:
        """Say, the first time, that texts have more tokens than any had in training: of the places beyond nothing was learned."""
        most = self.run.trained_length if self.model.encoder.longest is not None else None
        beyond = 0 if most is None else int((np.asarray(lengths) > most).sum())
        if beyond and not self._told:
            self._told = True
            warnings.warn(
                f"{beyond:,} of {len(lengths):,} texts have more than {most:,} tokens, the most that {self.run.folder} was "
                "trained on; what it says of longer ones is not to be relied on",
                QkvWarning,
                stacklevel=4,
            )

    def _rows(self, texts: list[list[int]]) -> Iterator[tuple[list[int], Rows]]:
        """Texts of like length together, one a row: their numbers, and the rows."""
        for numbers in batches_by_length([len(ids) for ids in texts], TOGETHER):
            chosen = [texts[number] for number in numbers]
            yield numbers, padded_rows(*pad(chosen, self.device), padded_heads(chosen, self.device))


def load_text_encoder(run: str | Path, device: str = "auto") -> TextEncoder:
    """An encoder's run, ready to use; one never finished is used as of its newest checkpoint."""
    chosen = choose_device(device)
    return TextEncoder(read_network_run(Path(run)), chosen)


def _example(kind: str, given: Any) -> Any:
    """What a user gives as an example, as the reading of files gives it; without what is to be predicted."""
    if isinstance(given, TextExample | TaggedExample | Question):
        return given
    if kind == "tagging":
        return TaggedExample(list(given), [], "", 0)
    first, second = (given, None) if isinstance(given, str) else given
    if kind == "answering":
        return Question("", first, second or "", [], "", 0, 0)
    return TextExample(tidied(first), None if second is None else tidied(second), None, "", 0)


def _told(kind: str, said: Any, labels: Sequence[str]) -> Any:
    """A prediction as people want it."""
    if kind == "classification":
        return Class(labels[int(said.argmax())], float(said.max()))
    if kind == "tagging":
        return [labels[number] for number in said.argmax(-1)]
    return float(said) if kind == "regression" else said


def _depth(layer: int | Literal["mix"], encoder: Encoder) -> int | None:
    """A layer's number from 0, the embeddings, on; None for the mix of all."""
    layers = encoder.config.layers
    if layer == "mix":
        if not hasattr(encoder, "mix"):
            raise ConfigError(f"layer mix is for an elmo, and this is a {encoder.config.kind}; give a layer's number")
        return None
    if not -layers - 1 <= layer <= layers:
        raise ConfigError(f"no layer {layer}; this model has 0 (the embeddings) to {layers}, or -1 (the last) to {-layers - 1}")
    return layer % (layers + 1)


def _after(encoder: Encoder, rows: Rows, depth: int | None) -> Tensor:
    """What a layer gives, of which those after it are not computed; or the mix of all. -> (B, T, D)."""
    return encoder(rows) if depth is None else next(islice(encoder.each_layer(rows), depth, None))


def _mean(hidden: Tensor, real: Tensor) -> Tensor:
    """The mean over a text's tokens. (B, T, D), real (B, T) -> (B, D)."""
    return (hidden * real[..., None]).sum(1) / real.sum(1, keepdim=True)


def _summary(hidden: Tensor, real: Tensor, last: bool) -> Tensor:
    """The first or the last token of each text. (B, T, D), real (B, T) -> (B, D)."""
    return hidden[torch.arange(len(hidden)), real.sum(1) - 1] if last else hidden[:, 0]
