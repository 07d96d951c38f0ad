"""ERNIE from and to transformers: a BERT, with an embedding of the task in version 2.0."""

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from qkv.interop.huggingface.bert import OPTIONS, BertFamily
from qkv.interop.huggingface.options import Options
from qkv.models.ernie import ErnieConfig
from qkv.parts.encoder import EncoderConfig


class ErnieFamily(BertFamily):
    """ERNIE (Sun et al. 2019 and 2020)."""

    kind: ClassVar[str] = "ernie"
    model_types: ClassVar[tuple[str, ...]] = ("ernie",)
    config: ClassVar[type[EncoderConfig]] = ErnieConfig
    options: ClassVar[Options] = OPTIONS | {"task_types": ("task_type_vocab_size", 3)}

    def read_more(self, config: Mapping[str, Any]) -> dict[str, Any]:
        return {} if config.get("use_task_id", False) else {"task_types": 0}

    def write_more(self, c: ErnieConfig) -> dict[str, Any]:
        return {"use_task_id": c.task_types > 0, "task_type_vocab_size": max(1, c.task_types)}

    def embedding_modules(self, c: ErnieConfig) -> Iterator[tuple[str, ...]]:
        yield from super().embedding_modules(c)
        if c.task_types:
            yield "embedding.task_embedding", "embeddings.task_type_embeddings"
