"""Run folders of small encoders with random weights, written as training writes them."""

from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import nn

from huggingface_networks import ENCODERS
from qkv.base.config import dump_yaml
from qkv.data.corpora import Tokenizers
from qkv.folder.run import WEIGHTS, save_config, save_tokenizers
from qkv.models.electra import Electra, ElectraConfig
from qkv.objectives import OBJECTIVES
from qkv.parts.heads import ModelWithHeads
from qkv.recipes import RECIPE, parse_recipe
from qkv.text.tokenizer import Tokenizer, TokenizerConfig, train_tokenizer
from qkv.training.checkpoints import named_weights, save_weights

LINES = [
    "The quick brown fox jumps over the lazy dog.",
    "Paris is the capital of France, and Rome of Italy.",
    "Le café est très agréable à Paris.",
    "打开 Home Assistant 设置，然后重启。",
]
TEXTS = [*LINES, "a", "the fox", "Rome is the capital of Italy. The dog jumps over the fox and over the capital.", "", "设置"]
SHAPE: dict[str, Any] = {"width": 16, "feedforward": 20, "heads": 2, "layers": 3, "max_positions": 60}


@cache
def own_tokenizer(kind: str = "wordpiece", lowercase: bool = True) -> Tokenizer:
    config = TokenizerConfig(kind=kind, vocab=150, lowercase=lowercase, special_tokens=("[MASK]",))  # type: ignore[arg-type]
    return train_tokenizer(config, LINES * 10)


def shape_of(kind: str, **options: Any) -> dict[str, Any]:
    narrow = {"embedding_width": 12} if kind in ("albert", "electra") else {}
    tasks = {"task_types": 3} if kind == "ernie" else {}
    return {"kind": kind, **SHAPE, **narrow, **tasks, **options}


@torch.no_grad()
def randomised(model: nn.Module, seed: int = 1) -> nn.Module:
    """Return the model with random weights; weights of 0 or 1 would hide mistakes."""
    torch.manual_seed(seed)
    for name, parameter in model.named_parameters():
        nn.init.normal_(parameter, 1.0 if parameter.dim() == 1 and "norm" in name and "weight" in name else 0.0, 0.2)
    return model.eval()


def write_run(
    folder: Path, kind: str = "bert", heads: tuple[str, ...] = ("masked",), tokenizer: Tokenizer | None = None,
    labels: tuple[str, ...] = (), objective: str | None = None, pair: str | None = None, **options: Any,
) -> Path:  # fmt: skip
    """Write an encoder with some heads; for an ELECTRA only the discriminator."""
    tokenizer = tokenizer or own_tokenizer()
    config, encoder = ENCODERS[kind]
    c = config(**shape_of(kind, **options))
    count = 1 if objective == "regression" else len(labels) or 2
    model = randomised(ModelWithHeads(encoder(c, len(tokenizer)), heads, count))  # type: ignore[arg-type]
    return write_model(folder, model, c.model_dump(mode="json"), tokenizer, labels, objective, pair)


def write_electra(folder: Path, tokenizer: Tokenizer | None = None, tied: bool = False) -> Path:
    """Write generator and discriminator, as pretraining does."""
    tokenizer = tokenizer or own_tokenizer()
    c = ElectraConfig(**shape_of("electra", generator_size=1.0 if tied else 0.5), tied_generator=tied)
    return write_model(folder, randomised(Electra(c, len(tokenizer))), c.model_dump(mode="json"), tokenizer)


def write_model(
    folder: Path, model: nn.Module, shape: dict[str, Any], tokenizer: Tokenizer, labels: tuple[str, ...] = (),
    objective: str | None = None, pair: str | None = None,
) -> Path:  # fmt: skip
    """Write the run of a model: of pretraining, or of the given objective; `pair` is the column of second texts."""
    pretrained = {"text": "text.txt", "length": 32}
    labelled = {"train": "train.tsv", "dev": "dev.tsv", "length": 60, "pair": pair}
    values = {
        "data": labelled if objective and OBJECTIVES[objective].config_class.job == "finetuning" else pretrained,
        "tokenizer": {"special_tokens": ["[MASK]"]},
        "model": shape,
        "objective": {"kind": objective or ("replaced" if shape["kind"] == "electra" else "masked")},
        "training": {"steps": 1},
    }
    recipe, tokenizers = parse_recipe(values, "recipe"), Tokenizers(tokenizer, tokenizer)
    folder.mkdir(parents=True)
    folder.joinpath(RECIPE).write_text(dump_yaml(recipe), encoding="utf-8")
    save_tokenizers(folder, tokenizers)
    save_config(folder, recipe, tokenizers, [], labels=labels)
    save_weights(folder / WEIGHTS, named_weights(model))
    return folder
