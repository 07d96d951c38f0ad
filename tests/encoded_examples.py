"""Encoding of examples by the name of their task."""

from collections.abc import Sequence
from typing import Any

from qkv.data.encoding import EncodingConfig
from qkv.objectives import OBJECTIVES
from qkv.text.tokenizer import Tokenizer


def encode(
    examples: Sequence[Any], tokenizer: Tokenizer, length: int, kind: str, labels: Sequence[str] = (), stride: int = 128
) -> Any:
    objective: Any = OBJECTIVES[kind]
    return objective(objective.config_class()).encode(examples, tokenizer, EncodingConfig(length=length, stride=stride), labels)
