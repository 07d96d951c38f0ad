"""Checks that several kinds of recipes share, made before any text is read."""

from typing import Annotated, Any

from pydantic import BeforeValidator

from qkv.models import FAMILIES
from qkv.recipes.embeddings import EmbeddingsConfig
from qkv.text.tokenizer import MASK, TokenizerConfig
from qkv.training.config import TrainingConfig

# A list, or names separated by commas, as on the command line.
Names = Annotated[
    tuple[str, ...],
    BeforeValidator(lambda given: tuple(n.strip() for n in given.split(",")) if isinstance(given, str) else given),
]


def refuse_finetuning_keys(training: TrainingConfig) -> None:
    """Raise ValueError on keys that only fine-tuning has."""
    if training.epochs is not None:
        raise ValueError("training.epochs is for fine-tuning; give training.steps or training.minutes")
    if training.layer_decay != 1:
        raise ValueError(f"training.layer_decay {training.layer_decay:g} is for fine-tuning; leave it out")


def refuse_penalty_without_start(start: str | None, training: TrainingConfig) -> None:
    """Raise ValueError on a penalty towards the weights of a start that is not there."""
    if training.start_penalty and start is None:
        raise ValueError("training.start_penalty holds weights near those of start; give start, the run to go on from")


def check_initial(start: str | None, model: Any, tokenizer: TokenizerConfig | None, embeddings: EmbeddingsConfig | None) -> None:
    """Raise ValueError unless the recipe has exactly one source of initial weights and tokenizer, and trains all weights."""
    if model is not None and model.adapter is not None:
        raise ValueError("model.adapter is for translators; leave it out")
    if start is not None and embeddings is not None:
        raise ValueError("start has embeddings of its own; leave embeddings out, or start")
    if start is None and (model is None or tokenizer is None):
        raise ValueError("give start, the run of a pretrained encoder; or model and tokenizer, to begin with new weights")


def check_objective(model: Any, objective: Any) -> None:
    """Raise ValueError unless the objective trains models of this kind."""
    known = FAMILIES[model.kind].objectives
    if objective.kind not in known:
        others = [kind for kind, family in FAMILIES.items() if objective.kind in family.objectives]
        raise ValueError(
            f"objective.kind {objective.kind} is for model.kind {', '.join(others)}, not {model.kind}, "
            f"which learns by {', '.join(known)}"
        )


def check_new_tokenizer(model: Any, objective: Any, tokenizer: TokenizerConfig | None, key: str = "tokenizer") -> None:
    """Raise ValueError if a tokenizer that is to be trained lacks tokens that the model or the objective needs."""
    if tokenizer is None or tokenizer.file is not None:
        return
    if objective.needs_mask and MASK not in tokenizer.special_tokens:
        raise ValueError(f"masking needs a token {MASK}; set {key}.special_tokens=['{MASK}']")
    if objective.needs_sentinels and not tokenizer.sentinels:
        raise ValueError(f"span corruption needs sentinels, one for each span; set {key}.sentinels=100")
    if model is not None and model.reads_characters and tokenizer.kind != "words":
        raise ValueError(
            f"a model of kind {model.kind} reads whole words, and tokenizer.kind {tokenizer.kind} gives pieces; "
            f"set {key}.kind=words"
        )
