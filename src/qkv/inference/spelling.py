"""What an ELMo is told of how words are spelled; other models know words by their numbers alone."""

from typing import Any, TypeVar

from torch import nn

from qkv.base.characters import character_ids
from qkv.models.elmo import Elmo, ElmoConfig
from qkv.text.open_vocabulary import OpenVocabularyTokenizer, words_by_id
from qkv.text.tokenizer import Tokenizer

M = TypeVar("M", bound=nn.Module)


def with_spellings(model: M, tokenizer: Tokenizer) -> M:
    """A new model, told how its vocabulary is spelled, and any unseen words that its tokenizer has met."""
    encoder: Any = getattr(model, "encoder", None)
    if isinstance(encoder, Elmo):
        words: Any = encoder.embedding.words
        words.know(character_ids(words_by_id(tokenizer), encoder.config.max_characters))  # type: ignore[attr-defined]
        tell_unseen(model, tokenizer)
    return model


def reading(tokenizer: Tokenizer, config: Any) -> Tokenizer:
    """The tokenizer as the model reads texts: unseen words have numbers if it can read them."""
    return OpenVocabularyTokenizer(tokenizer) if isinstance(config, ElmoConfig) else tokenizer


def tell_unseen(model: nn.Module, tokenizer: Tokenizer) -> None:
    """Tell the model of the unseen words that such a tokenizer has met."""
    encoder: Any = model.get_submodule("encoder")
    if isinstance(tokenizer, OpenVocabularyTokenizer):
        encoder.embedding.words.know_unseen(character_ids(list(tokenizer.unseen), encoder.config.max_characters))
