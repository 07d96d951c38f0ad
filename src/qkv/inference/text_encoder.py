"""A loaded encoder: vectors of texts, predictions for masked tokens, and the task that it was fine-tuned for."""

import warnings
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F

from qkv.base.errors import ConfigError, DataError, QkvWarning
from qkv.base.hardware import choose_device
from qkv.base.rows import Rows, padded_rows
from qkv.data.labelled import BatchShape
from qkv.data.trees import add_special_tokens, encode_with_heads
from qkv.decoding.search import batches_by_length
from qkv.folder.networks import NetworkRun, read_network_run
from qkv.inference.arguments import require_count, require_list, require_texts
from qkv.inference.encoder_inspector import inspect_encoder
from qkv.inference.engines import pad, padded_heads
from qkv.inference.head_effects import known_effects
from qkv.inference.prediction import compute_outputs, parse_examples, require_labelled
from qkv.inference.spelling import add_unseen_words, tokenizer_for
from qkv.inference.text_scores import score_texts
from qkv.lens.head_effects import HeadEffects
from qkv.lens.inspectors import SelfAttentionInspector
from qkv.models import FAMILIES
from qkv.objectives import OBJECTIVES
from qkv.objectives.finetuning import FinetuningObjective
from qkv.parts.encoder import Encoder
from qkv.parts.heads import ModelWithHeads
from qkv.parts.token_scores import ScoringMode
from qkv.recipes import FinetuningRecipe
from qkv.recipes.abilities import require_verb
from qkv.text.check import normalise as normalise_text
from qkv.text.tokenizer import MASK
from qkv.text.treebank import TextWithHeads

BATCH_TOKENS = 8192  # computed at once


class MaskPrediction(NamedTuple):
    """A word, or a T5's span of words, that may stand at a [MASK]."""

    word: str
    probability: float


class TextEncoder:
    """An encoder's run: `embed` texts, `fill` in masked words, `score` texts; `predict` and `evaluate` if it is fine-tuned.

    >>> encoder = qkv.load("runs/bert-mini")
    >>> encoder.embed(["How are you?", "Fine."]).shape
    (2, 256)
    """

    loads_as: ClassVar[Literal["encoder"]] = "encoder"

    def __init__(self, run: NetworkRun, device: torch.device):
        self.run, self.device = run, device
        self.tokenizer, self.recipe = run.tokenizer, run.recipe
        self._warned = False  # of texts longer than those in training

    @property
    def folder(self) -> Path:
        """The folder of the run."""
        return self.run.folder

    def __repr__(self) -> str:
        recipe = self.recipe
        return (
            f"TextEncoder({str(self.run.folder)!r}: {recipe.model.kind}, trained for {recipe.objective.kind}, on {self.device})"
        )

    @cached_property
    def model(self) -> ModelWithHeads:
        """The network with its heads; an ELECTRA's discriminator."""
        return self.run.network.model().to(self.device)

    @cached_property
    def fill_model(self) -> ModelWithHeads:
        """The network that predicts masked tokens: the same, but an ELECTRA's generator."""
        head = getattr(self.model.encoder, "fill_head", "masked")  # a GPT and an ELMo have none
        network = self.run.with_head(head, "filling in words")
        return self.model if network is self.run.network else network.model().to(self.device)

    @property
    def trees(self) -> bool:
        """Whether it reads only texts with heads."""
        return self.model.encoder.config.reads_trees

    @torch.no_grad()
    def embed(
        self,
        texts: Iterable[str | list[int]],
        pooling: Literal["mean", "cls"] = "mean",
        layer: int | Literal["mix"] = -1,
        normalise: bool = False,
    ) -> np.ndarray:
        """Return a vector for each text. -> (texts, width), float32.

        `pooling="mean"` averages over a text's tokens; "cls" takes its first token, or the last of a GPT, where only that one has
        seen the whole text. `layer` counts from 0, the embeddings; -1 is the last layer, "mix" an ELMo's mix of all layers.
        `normalise` scales vectors to length 1. A text longer than the model can read is cut, with a warning. A text may also be
        the list of its token ids, without special tokens. A model that reads trees takes texts as `qkv.look` does.

        >>> encoder.embed(["How are you?"], normalise=True)
        """
        texts = require_list(texts, "embed", "text")
        require_texts([text for text in texts if not isinstance(text, list)], "embed")
        if pooling not in ("mean", "cls"):
            raise ConfigError(f"pooling {pooling!r} is not one of mean, cls")
        encoder = self.model.encoder
        if pooling == "cls" and encoder.summary == "mean":
            raise ConfigError(f"no token of this {encoder.config.kind} represents a whole text; take the mean")
        depth = _depth(layer, encoder)
        vectors = torch.empty(len(texts), encoder.config.width)
        for numbers, rows in self._rows(self._encode(texts)):
            # Layers after `depth` are not computed.
            hidden = encoder(rows) if depth is None else next(islice(encoder.each_layer(rows), depth, None))  # (B, T, D)
            real = rows.text > 0
            if pooling == "mean":
                pooled = (hidden * real[..., None]).sum(1) / real.sum(1, keepdim=True)
            else:
                pooled = hidden[torch.arange(len(hidden)), real.sum(1) - 1] if encoder.summary == "last" else hidden[:, 0]
            vectors[numbers] = pooled.cpu()
        return (F.normalize(vectors, dim=-1) if normalise else vectors).numpy()

    @torch.no_grad()
    def fill(self, texts: Iterable[str], top: int = 5) -> list[list[list[MaskPrediction]]]:
        """Return, for each [MASK] of each text, the `top` most probable words, best first.

        >>> encoder.fill(["Paris is the [MASK] of France."], top=1)
        [[[MaskPrediction(word='capital', probability=0.93)]]]
        """
        require_count(top, "fill", "top")
        encoded, encoder = [self.masked(text) for text in require_texts(texts, "fill")], self.fill_model.encoder
        self._warn_of_long_texts([len(ids) for ids in encoded])
        found: list[list[list[MaskPrediction]]] = [[] for _ in encoded]
        for numbers, rows in self._rows(encoded):
            chosen = (rows.ids == self.mask_id) & (rows.text > 0)  # (B, T)
            probabilities = self.fill_model.heads[encoder.fill_head](encoder.states_at_masked(rows, chosen)).softmax(-1)
            probabilities = probabilities[:, : len(self.tokenizer)]  # the model's vocabulary may be rounded up
            best = probabilities.topk(min(top, len(self.tokenizer)))
            for row, tokens, values in zip(
                chosen.nonzero()[:, 0].tolist(), best.indices.tolist(), best.values.tolist(), strict=True
            ):
                words = [self.tokenizer.decode([token]).strip() or self.tokenizer.pieces([token])[0] for token in tokens]
                found[numbers[row]].append([MaskPrediction(*pair) for pair in zip(words, values, strict=True)])
        return found

    def masked(self, text: str) -> list[int]:
        """Return the ids of a text with [MASK]s, with special tokens."""
        longest = self.fill_model.encoder.longest
        if MASK not in text:
            raise DataError(f"there is no {MASK} in the text; write {MASK} where a word is to be predicted")
        ids = [self.tokenizer.bos, *self.tokenizer.encode_masked(normalise_text(text), self.mask_id), self.tokenizer.eos]
        if longest is not None and len(ids) > longest:
            raise DataError(
                f"the text has {len(ids):,} tokens, and this model reads {longest:,} at most: it has no position embeddings "
                "beyond; shorten it"
            )
        return ids

    def score(self, texts: Iterable[str], how: ScoringMode | None = None) -> list[float]:
        """Return the sum of the log-probabilities of each text's tokens, in nats.

        With how="each", the default of most models, each token is predicted from all others (pseudo-log-likelihood); with
        how="left", for a UniLM, an XLNet or an ELMo, from those before it, so that the sum is the text's log-probability.

        >>> encoder.score(["Paris is big.", "Paris are big."])
        [-17.2, -24.9]
        """
        masked = FAMILIES[self.recipe.model.kind].scoring_head == "masked"
        return score_texts(self.run, self.fill_model if masked else self.model, texts, how)

    @cached_property
    def head_effects(self) -> HeadEffects | None:
        """What the model loses without each head, where `qkv heads` has measured it with these weights."""
        return known_effects(self.run.folder)

    def inspect(self, text: str, target: str | None = None) -> SelfAttentionInspector:
        """Return the model with an encoded text, or a pair whose second text is `target`, for `qkv.look`."""
        return inspect_encoder(self, text, target)

    def predict(self, examples: Iterable[Any]) -> list[Any]:
        """Predict a LabelPrediction, a number, the tags of the words, or an Answer for each example (fine-tuned models).

        An example is a text or a pair of texts; for tagging a list of words, for answering a question and its context; or an
        example from `qkv.text.examples.read_examples`.

        >>> qkv.load("runs/reviews").predict(["A great film."])
        [LabelPrediction(label='positive', probability=0.98)]
        """
        given = require_list(examples, "predict", "example")
        outputs = self._outputs(parse_examples(self.task, self.finetuned().texts_per_example, given))
        return self.task.predictions(outputs, self.run.network.label_names)

    def evaluate(self, examples: Sequence[Any], metrics: Sequence[str] = ()) -> dict[str, float]:
        """Score the predictions for labelled examples, as `read_examples` returns them; by the recipe's metrics by default.

        >>> from qkv.text.examples import ExamplesConfig, read_examples
        >>> examples = read_examples(encoder.task.readers, ExamplesConfig(files="test.tsv"))
        >>> encoder.evaluate(examples, ["accuracy"])
        {'accuracy': 0.91}
        """
        recipe = self.finetuned()
        names = require_texts(metrics or (), "evaluate", "metric") or recipe.judged_by
        wanted = {name: self.task.find_metric(name) for name in names}
        examples = require_labelled(self.task, recipe.texts_per_example, examples)
        outputs, labels = self._outputs(examples), self.run.network.label_names
        return {name: self.task.score(metric, outputs, examples, labels) for name, metric in wanted.items()}

    def finetuned(self) -> FinetuningRecipe[Any, Any]:
        """Return the recipe; raise ConfigError unless it is one of fine-tuning."""
        folder = self.run.folder
        require_verb(self.recipe, folder, "predict", f"fine-tune it: qkv train finetune --set start={folder}")
        return self.recipe  # type: ignore[return-value]

    @cached_property
    def task(self) -> FinetuningObjective:
        """The objective of a fine-tuned model: it makes predictions of outputs."""
        objective = self.finetuned().objective
        return OBJECTIVES[objective.kind].build(objective, self.tokenizer)

    @property
    def mask_id(self) -> int:
        """The id of a masked token: [MASK], or padding for a network that never reads it (XLNet)."""
        return self.tokenizer.mask if self.model.encoder.sees_masked else self.tokenizer.pad

    def _outputs(self, examples: Sequence[Any]) -> list[Any]:
        """Return the model's outputs for each example."""
        recipe, labels = self.finetuned(), self.run.network.label_names
        if not examples:
            return []
        tokenizer = tokenizer_for(self.model.encoder.config, self.tokenizer)
        encoded = self.task.encode(examples, tokenizer, recipe.data, labels)
        add_unseen_words(self.model, tokenizer)
        self._warn_of_long_texts(encoded.lengths)
        tokens = min(BATCH_TOKENS, 2 * int(encoded.lengths.sum()))  # with room for what packing leaves empty
        one_text_per_row = self.model.encoder.config.one_text_per_row
        shape = BatchShape.holding(int(encoded.lengths.max()), tokens, one_text_per_row, self.tokenizer.pad)
        return compute_outputs(self.model, self.task, encoded, examples, shape)

    def check_ids(self, ids: list[int]) -> list[int]:
        """Return the token ids of a text; refuse those that the tokenizer does not know."""
        if not ids:
            raise DataError("a text has no token ids; give one or more")
        for wrong in (token for token in ids if type(token) is not int):
            raise DataError(f"a list inside texts holds token ids, and one holds {type(wrong).__name__}; give each text as a str")
        for wrong in (token for token in ids if not 0 <= token < len(self.tokenizer)):
            raise DataError(f"a text has the token id {wrong}, and the tokenizer has {len(self.tokenizer):,}; use its own ids")
        return ids

    def _encode(self, texts: Sequence[str | list[int]]) -> list[list[int]]:
        """Return the ids of texts with special tokens; too long ones are cut, or refused if they have trees."""
        longest = self.model.encoder.longest
        if self.trees:
            encoded: list[list[int]] = []
            for number, text in enumerate(texts, 1):
                if isinstance(text, list):
                    raise DataError(f"text {number} is a list of token ids, and this model needs a text with heads")
                tokens = encode_with_heads(self.tokenizer, TextWithHeads.coerce(text, f"text {number}"))
                encoded.append(add_special_tokens([tokens], self.tokenizer))
                if longest is not None and len(encoded[-1]) > longest:
                    length = len(encoded[-1])
                    raise DataError(f"text {number} has {length:,} tokens, and this model reads {longest:,} at most; shorten it")
            return encoded
        tokenizer = tokenizer_for(self.model.encoder.config, self.tokenizer)
        strings = iter(tokenizer.encode_batch([normalise_text(text) for text in texts if isinstance(text, str)]))
        found = [next(strings) if isinstance(text, str) else self.check_ids(text) for text in texts]
        add_unseen_words(self.model, tokenizer)
        room = None if longest is None else longest - 2
        cut = 0 if room is None else sum(len(ids) > room for ids in found)
        if cut:
            warnings.warn(
                f"{cut:,} of {len(texts):,} texts have more than {longest:,} tokens and are cut there: this "
                "model has no position "
                "embeddings beyond",
                QkvWarning,
                stacklevel=3,
            )
        encoded = [[self.tokenizer.bos, *ids[:room], self.tokenizer.eos] for ids in found]
        self._warn_of_long_texts([len(ids) for ids in encoded])
        return encoded

    def _warn_of_long_texts(self, lengths: Sequence[int] | np.ndarray) -> None:
        """Warn, once, of texts that are longer than any in training: position embeddings beyond are untrained."""
        most = self.run.trained_length if self.model.encoder.longest is not None else None
        beyond = 0 if most is None else int((np.asarray(lengths) > most).sum())
        if beyond and not self._warned:
            self._warned = True
            warnings.warn(
                f"{beyond:,} of {len(lengths):,} texts have more than {most:,} tokens, the most that {self.run.folder} was "
                "trained on; results for longer ones are unreliable",
                QkvWarning,
                stacklevel=4,
            )

    def _rows(self, texts: list[list[int]]) -> Iterator[tuple[list[int], Rows]]:
        """Yield batches of texts of similar length, one text per row: the texts' numbers, and the rows."""
        for numbers in batches_by_length([len(ids) for ids in texts], BATCH_TOKENS):
            chosen = [texts[number] for number in numbers]
            yield numbers, padded_rows(*pad(chosen, self.device), padded_heads(chosen, self.device))


def load_text_encoder(run: str | Path, device: str = "auto", step: int | None = None) -> TextEncoder:
    """Load the run of an encoder; one that is still in training with its newest checkpoint, and a warning."""
    chosen = choose_device(device)
    found = read_network_run(Path(run), step)
    found.weights_file.warn_if_unfinished()
    return TextEncoder(found, chosen)


def _depth(layer: int | Literal["mix"], encoder: Encoder) -> int | None:
    """Return a layer's index from 0, the embeddings; None for the mix of all."""
    layers = encoder.config.layers
    if layer == "mix":
        if not hasattr(encoder, "mix"):
            raise ConfigError(f"layer mix is for an elmo, and this is a {encoder.config.kind}; give a layer's number")
        return None
    if not isinstance(layer, int):
        raise ConfigError(f"layer takes a number or mix, got {type(layer).__name__}")
    if not -layers - 1 <= layer <= layers:
        raise ConfigError(f"no layer {layer}; this model has 0 (the embeddings) to {layers}, or -1 (the last) to {-layers - 1}")
    return layer % (layers + 1)
