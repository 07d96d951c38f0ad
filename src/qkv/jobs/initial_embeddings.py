"""Embeddings that begin with word vectors: a token that is a whole word gets the word's vector, others stay as they are."""

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

TOGETHER = 1 << 16  # words looked up at once


def initialise_translator_embeddings(model: nn.Module, tokenizers: Tokenizers, config: SidesConfig, progress: Progress) -> None:
    """Fill the embeddings of a translator's sides; where they are one and the same, the target's words come last."""
    for side, file in (("source", config.source), ("target", config.target)):
        if file is not None:
            embedding = getattr(model, f"{side}_embedding")
            initialise_embedding(embedding, getattr(tokenizers, side), file, f"embeddings.{side}", progress)


def initialise_token_embeddings(model: nn.Module, tokenizer: Tokenizer, config: EmbeddingsConfig, progress: Progress) -> None:
    """Fill the embeddings of an encoder, a GPT or a T5."""
    parts = [getattr(part, name, None) for part in model.modules() for name in ("words", "target_embedding")]
    found = [part for part in parts if isinstance(part, nn.Embedding)]
    if not found:
        raise ConfigError("embeddings.file: this model has no vectors of tokens to begin with; leave embeddings out")
    for embedding in {id(one.weight): one for one in found}.values():
        initialise_embedding(embedding, tokenizer, config.file, "embeddings.file", progress)


@torch.no_grad()
def initialise_embedding(embedding: nn.Embedding, tokenizer: Tokenizer, file: str, key: str, progress: Progress) -> None:
    """Fill one embedding, at the scale of its first weights."""
    vectors = read_vectors(Path(file))
    if vectors.width != embedding.embedding_dim:
        raise ConfigError(
            f"{key}: {file} is {vectors.width} wide, the model's embeddings {embedding.embedding_dim}; make both equal"
        )
    tokens, rows = whole_words(tokenizer, vectors)
    if not len(tokens):
        raise ConfigError(f"{key}: no token is a word of {file}; was it learned from text of another language or case?")
    chosen = torch.from_numpy(vectors.matrix[rows])
    weight = embedding.weight
    scale = weight.square().mean().sqrt() / chosen.square().mean().sqrt()
    weight[torch.from_numpy(tokens)] = (chosen * scale.cpu()).to(weight)
    progress.say(f"{key}: {len(tokens):,} of {len(tokenizer):,} tokens begin with vectors of {file}")


def whole_words(tokenizer: Tokenizer, vectors: WordVectors) -> tuple[np.ndarray, np.ndarray]:
    """Tokens that are whole words of the vectors, and the rows of these: both (N,). Of words that are one token, the first."""
    found: dict[int, int] = {}
    for start in range(0, len(vectors), TOGETHER):
        pieces = tokenizer.encode_words(vectors.words[start : start + TOGETHER])
        for row, ids in enumerate(pieces, start):
            if len(ids) == 1 and ids[0] not in tokenizer.special_ids:
                found.setdefault(ids[0], row)
    return np.array([*found], np.int64), np.array([*found.values()], np.int64)
