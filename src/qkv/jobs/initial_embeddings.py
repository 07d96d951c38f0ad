"""Initial embeddings from word vectors: a token that is a whole word gets the word's vector, others keep their initial
weights.
"""

from pathlib import Path

import numpy as np
import torch
from torch import nn

from qkv.base.errors import ConfigError
from qkv.data.corpora import Tokenizers
from qkv.recipes.embeddings import EmbeddingsConfig, SidesConfig
from qkv.text.tokenizer import Tokenizer
from qkv.training.progress import Progress
from qkv.vectors.formats import read_vectors
from qkv.vectors.word_vectors import WordVectors

WORDS_AT_ONCE = 1 << 16  # that are tokenised together


def initialise_translator_embeddings(model: nn.Module, tokenizers: Tokenizers, config: SidesConfig, progress: Progress) -> None:
    """Initialise the source and the target embedding; where they are shared, the target's vectors win."""
    for side, file in (("source", config.source), ("target", config.target)):
        if file is not None:
            embedding = getattr(model, f"{side}_embedding")
            initialise_embedding(embedding, getattr(tokenizers, side), file, f"embeddings.{side}", progress)


def initialise_token_embeddings(model: nn.Module, tokenizer: Tokenizer, config: EmbeddingsConfig, progress: Progress) -> None:
    """Initialise the token embedding of an encoder, a GPT or a T5."""
    parts = [getattr(part, name, None) for part in model.modules() for name in ("token_embedding", "target_embedding")]
    found = [part for part in parts if isinstance(part, nn.Embedding)]
    if not found:
        raise ConfigError("embeddings.file: this model has no token embedding; leave embeddings out")
    for embedding in {id(one.weight): one for one in found}.values():
        initialise_embedding(embedding, tokenizer, config.file, "embeddings.file", progress)


@torch.no_grad()
def initialise_embedding(embedding: nn.Embedding, tokenizer: Tokenizer, file: str, key: str, progress: Progress) -> None:
    """Write word vectors into an embedding, at the scale of its initial weights."""
    vectors = read_vectors(Path(file))
    if vectors.width != embedding.embedding_dim:
        raise ConfigError(
            f"{key}: {file} has width {vectors.width}, the model's embeddings {embedding.embedding_dim}; make both equal"
        )
    tokens, rows = whole_words(tokenizer, vectors)
    if not len(tokens):
        raise ConfigError(f"{key}: no token is a word of {file}; give vectors of the same language and case as the text")
    chosen = torch.from_numpy(vectors.matrix[rows])
    weight = embedding.weight
    scale = weight.square().mean().sqrt() / chosen.square().mean().sqrt()
    weight[torch.from_numpy(tokens)] = (chosen * scale.cpu()).to(weight)
    progress.say(f"{key}: {len(tokens):,} of {len(tokenizer):,} tokens begin with vectors of {file}")


def whole_words(tokenizer: Tokenizer, vectors: WordVectors) -> tuple[np.ndarray, np.ndarray]:
    """Return the tokens that are whole words, and the rows of their vectors; of several words with one token, the first. (N,)."""
    found: dict[int, int] = {}
    for start in range(0, len(vectors), WORDS_AT_ONCE):
        pieces = tokenizer.encode_words(vectors.words[start : start + WORDS_AT_ONCE])
        for row, ids in enumerate(pieces, start):
            if len(ids) == 1 and ids[0] not in tokenizer.special_ids:
                found.setdefault(ids[0], row)
    return np.array([*found], np.int64), np.array([*found.values()], np.int64)
