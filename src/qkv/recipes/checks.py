"""What several kinds of recipes refuse before any text is read."""

from typing import Annotated, Any

from pydantic import BeforeValidator

from qkv.models.elmo import ElmoConfig
from qkv.parts.attention_kinds import AttentiveConfig
from qkv.recipes.embeddings import EmbeddingsConfig
from qkv.text.tokenizer import TokenizerConfig
from qkv.training.config import TrainingConfig


def _split(given: Any) -> Any:
    return tuple(name.strip() for name in given.split(",")) if isinstance(given, str) else given


Names = Annotated[tuple[str, ...], BeforeValidator(_split)]  # a list, or one text with commas, as on the command line


def refuse_finetuning(training: TrainingConfig) -> None:
    """Refuse what means something in fine-tuning alone."""
    if training.epochs is not None:
        raise ValueError("training.epochs is for fine-tuning; give training.steps or training.minutes")
    if training.layer_decay != 1:
        raise ValueError(f"training.layer_decay {training.layer_decay:g} is for fine-tuning; leave it out")


def refuse_trees(model: Any, text: str) -> None:
    """Refuse positions that need a tree of each text, which `text` says has none."""
    if model.trees:
        raise ValueError(f"model.positions={model.positions} is for texts with heads, and {text}; choose other positions")


def check_beginning(
    start: str | None, model: Any, tokenizer: TokenizerConfig | None, embeddings: EmbeddingsConfig | None
) -> None:
    """Whether it is said what a run begins with, and said once."""
    if start is not None and embeddings is not None:
        raise ValueError("start has embeddings of its own; leave embeddings out, or start")
    if start is None and (model is None or tokenizer is None):
        raise ValueError("give start, the run of a pretrained encoder; or model and tokenizer, to begin with new weights")


def check_shape_of(model: Any, length: int, parts: int) -> None:
    """Whether a model can read texts of such a length, of so many parts that are to be told apart."""
    if not hasattr(model, "head_width") and model.width % model.heads:  # else heads do not share the width
        raise ValueError(f"model.width {model.width} does not split into {model.heads} heads; choose heads that divide it")
    check_max_positions(model, length, "data.length")
    if model.segments < parts:
        raise ValueError(f"model.segments {model.segments} is too few to tell {parts} texts apart; say model.segments={parts}")


def check_words(model: Any, tokenizer: TokenizerConfig | None) -> None:
    """Whether a tokenizer that is to be made gives whole words to a model that needs them."""
    if isinstance(model, ElmoConfig) and tokenizer is not None and tokenizer.file is None and tokenizer.kind != "words":
        raise ValueError(f"an elmo reads whole words, and tokenizer.kind {tokenizer.kind} gives pieces; say tokenizer.kind=words")


def check_max_positions(model: Any, length: int, key: str) -> None:
    """Whether the model has a place for each token of texts as long as `key` lets them be."""
    told = f"model.max_positions {getattr(model, 'max_positions', 0)} is below {key} {length}: raise the one or lower the other"
    if isinstance(model, AttentiveConfig) and model.attention.one_text_per_row and model.max_positions < length:
        raise ValueError(f"{told}; {model.attention.kind} has weights for each place")
    if getattr(model, "positions", None) == "learned" and model.max_positions < length:
        raise ValueError(f"{told}; learned positions end there, others (model.positions) do not")
