"""Spellings for a model that reads words by their characters (ELMo); other models know tokens by their ids alone."""

from typing import Any, TypeVar

from torch import nn

from qkv.base.characters import character_ids
from qkv.text.open_vocabulary import OpenVocabularyTokenizer, words_by_id
from qkv.text.tokenizer import Tokenizer

M = TypeVar("M", bound=nn.Module)


def with_spellings(model: M, tokenizer: Tokenizer) -> M:
    """Give a new model the spellings of its vocabulary, where it reads characters; return the model."""
    encoder: Any = getattr(model, "encoder", None)
    if getattr(getattr(encoder, "config", None), "reads_characters", False):
        encoder.embedding.token_embedding.set_vocabulary(character_ids(words_by_id(tokenizer), encoder.config.max_characters))
        add_unseen_words(model, tokenizer)
    return model


def tokenizer_for(config: Any, tokenizer: Tokenizer) -> Tokenizer:
    """Return the tokenizer as a model reads texts: unseen words have ids of their own if the model reads characters."""
    return OpenVocabularyTokenizer(tokenizer) if config.reads_characters else tokenizer


def add_unseen_words(model: nn.Module, tokenizer: Tokenizer) -> None:
    """Give the model the spellings of the unseen words that an open vocabulary has met."""
    encoder: Any = model.get_submodule("encoder")
    if isinstance(tokenizer, OpenVocabularyTokenizer):
        encoder.embedding.token_embedding.set_unseen(character_ids(list(tokenizer.unseen), encoder.config.max_characters))
