"""Word vectors that a model's embeddings begin with."""

from pydantic import model_validator

from qkv.base.config import Config


class EmbeddingsConfig(Config):
    """Vectors for the tokens of an encoder or a GPT."""

    file: str  # a folder of qkv's vectors, or a file of word2vec, GloVe or fastText


class SidesConfig(Config):
    """Vectors for the two sides of a translator."""

    source: str | None = None  # a folder or a file, as above
    target: str | None = None

    @model_validator(mode="after")
    def _something(self) -> "SidesConfig":
        if self.source is None and self.target is None:
            raise ValueError("give embeddings.source, embeddings.target or both")
        return self
