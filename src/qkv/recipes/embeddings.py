"""Word vectors that initialise a model's embeddings."""

from pydantic import model_validator

from qkv.base.config import Config


class EmbeddingsConfig(Config):
    """Word vectors for the tokens of an encoder, a GPT or a T5."""

    file: str  # a folder of qkv's vectors, or a file of word2vec, GloVe or fastText


class SidesConfig(Config):
    """Word vectors for the source and the target of a translator."""

    source: str | None = None  # a folder or a file, as above
    target: str | None = None

    @model_validator(mode="after")
    def _something(self) -> "SidesConfig":
        if self.source is None and self.target is None:
            raise ValueError("give embeddings.source, embeddings.target or both")
        return self
