"""What a recipe says, built: the model with its first weights, the objective."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch

from qkv.base.errors import ConfigError
from qkv.base.seeds import seed_at
from qkv.data.corpora import Tokenizers
from qkv.models.albert import Albert
from qkv.models.bert import Bert
from qkv.models.convolution import Convolution
from qkv.models.electra import Electra, ElectraConfig, ElectraEncoder
from qkv.models.elmo import Elmo
from qkv.models.ernie import Ernie
from qkv.models.gpt import Gpt
from qkv.models.rnn import Rnn
from qkv.models.t5 import T5
from qkv.models.t5_encoder import T5Encoder
from qkv.models.transformer import Transformer
from qkv.models.unilm import Unilm, UnilmConfig
from qkv.models.unilm_translator import UnilmTranslator
from qkv.models.xlnet import Xlnet
from qkv.objectives.answering import Answering
from qkv.objectives.bidirectional import Bidirectional, BidirectionalConfig
from qkv.objectives.causal import Causal
from qkv.objectives.classification import Classification
from qkv.objectives.ernie import Continual
from qkv.objectives.masked import Masked
from qkv.objectives.masking import Vocabulary
from qkv.objectives.permutation import Permutation
from qkv.objectives.regression import Regression
from qkv.objectives.replaced import Replaced
from qkv.objectives.spans import Spans, SpansConfig
from qkv.objectives.tagging import Tagging
from qkv.objectives.translation import Translation
from qkv.objectives.unilm import FourWays, MaskedTranslation
from qkv.parts.encoder import Encoder
from qkv.parts.heads import ModelWithHeads
from qkv.recipes import FinetuningRecipe, PretrainingRecipe, TranslationRecipe
from qkv.text.tokenizer import Tokenizer

TRANSLATORS: dict[str, Any] = {"transformer": Transformer, "rnn": Rnn, "convolution": Convolution, "t5": T5}
ENCODERS: dict[str, Callable[[Any, int], Encoder]] = {
    "bert": Bert,
    "albert": Albert,
    "electra": ElectraEncoder,
    "ernie": Ernie,
    "gpt": Gpt,
    "xlnet": Xlnet,
    "unilm": Unilm,
    "elmo": Elmo,
    "t5-encoder": T5Encoder,
}
PRETRAINING: dict[str, Any] = {
    "masked": Masked,
    "replaced": Replaced,
    "ernie": Continual,
    "permutation": Permutation,
    "unilm": FourWays,
}
FINETUNING: dict[str, Any] = {
    "classification": Classification,
    "regression": Regression,
    "tagging": Tagging,
    "answering": Answering,
}


def make_translator(
    recipe: TranslationRecipe[Any] | PretrainingRecipe[Any, Any], tokenizers: Tokenizers, words: int | None = None
) -> Transformer | Rnn | Convolution | T5 | UnilmTranslator:
    """The model with its first weights; its vocabularies are the tokenizers', or of so many words."""
    source, target = words or len(tokenizers.source), words or len(tokenizers.target)
    if getattr(recipe.model, "tied", None) == "all" and not tokenizers.source.same_vocabulary(tokenizers.target):
        raise ConfigError("model.tied=all needs one vocabulary, and these two tokenizers have two; say model.tied=target")
    with first_weights(recipe.seed):
        if isinstance(recipe.model, UnilmConfig):
            return UnilmTranslator(recipe.model, target, tokenizers.target.mask)
        return TRANSLATORS[recipe.model.kind](recipe.model, source, target)


def make_translation(recipe: TranslationRecipe[Any], tokenizers: Tokenizers) -> Translation | MaskedTranslation:
    """The objective of translation."""
    if isinstance(recipe.model, UnilmConfig):
        return MaskedTranslation(recipe.objective, tokenizers.target.mask)
    return Translation(recipe.objective, tokenizers.target.bos)


@contextlib.contextmanager
def first_weights(seed: int) -> Iterator[None]:
    """Inside, a model's weights depend on the seed alone; the caller's own random numbers go on as if nothing had happened."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed_at(seed, "weights"))
        yield


# Encoders and GPTs


def make_pretrained(recipe: PretrainingRecipe[Any, Any], vocabulary: int) -> ModelWithHeads | Electra:
    """The model to be pretrained, with its first weights."""
    with first_weights(recipe.seed):
        if isinstance(recipe.model, ElectraConfig):
            return Electra(recipe.model, vocabulary, recipe.objective.rate)
        encoder = ENCODERS[recipe.model.kind](recipe.model, vocabulary)
        if isinstance(encoder, Elmo):
            encoder.mix.requires_grad_(False)  # layers are mixed by who uses them
        return ModelWithHeads(encoder, recipe.objective.heads)


def make_pretraining(
    recipe: PretrainingRecipe[Any, Any], tokenizer: Tokenizer
) -> Masked | Replaced | Continual | Causal | Permutation | Bidirectional | Spans:
    """What it is pretrained for."""
    if isinstance(recipe.objective, BidirectionalConfig):
        return Bidirectional(recipe.objective, tokenizer.unk)
    if isinstance(recipe.objective, SpansConfig):
        return Spans(recipe.objective, tokenizer.bos, tokenizer.eos, tokenizer.sentinels)
    if not recipe.masks:
        return Causal(recipe.objective, tokenizer.byte_lengths())
    special = (tokenizer.pad, tokenizer.bos, tokenizer.eos)
    mask = tokenizer.mask if recipe.needs_mask else tokenizer.unk  # which then is nowhere put
    vocabulary = Vocabulary(len(tokenizer), tokenizer.first_text_id, mask, special)
    return PRETRAINING[recipe.objective.kind](recipe.objective, vocabulary)


def make_finetuned(recipe: FinetuningRecipe[Any, Any], vocabulary: int, labels: int) -> ModelWithHeads:
    """The model to be fine-tuned, with first weights everywhere."""
    with first_weights(recipe.seed):
        return ModelWithHeads(ENCODERS[recipe.model.kind](recipe.model, vocabulary), recipe.objective.heads, labels)


def make_finetuning(recipe: FinetuningRecipe[Any, Any]) -> Any:
    """What it is fine-tuned for."""
    return FINETUNING[recipe.objective.kind](recipe.objective)
