"""Loaded models with random weights, whose attention tests inspect."""

from functools import cache
from pathlib import Path
from typing import Any

from encoder_runs import LINES, randomised, shape_of, write_model
from qkv.data.corpora import Tokenizers
from qkv.inference.engines import OwnEngine
from qkv.inference.text_encoder import TextEncoder, load_text_encoder
from qkv.inference.text_generator import TextGenerator, load_text_generator
from qkv.inference.translator import Translator
from qkv.jobs.translation import new_translator
from qkv.models import FAMILIES
from qkv.models.gpt import Gpt, GptConfig
from qkv.parts.heads import ModelWithHeads
from qkv.recipes import parse_recipe
from qkv.text.tokenizer import Tokenizer, TokenizerConfig, train_tokenizer
from qkv.text.treebank import TextWithHeads

TEXT = "The quick brown fox jumps over the lazy dog."
TREE = TextWithHeads(TEXT, [4, 4, 4, 5, 0, 5, 9, 9, 6])
SIZE: dict[str, Any] = {"width": 16, "feedforward": 20, "heads": 2}
DEEP: dict[str, Any] = {"encoder_layers": 2, "decoder_layers": 3}
TRANSLATORS: dict[str, dict[str, Any]] = {
    "transformer": {"kind": "transformer", **SIZE, **DEEP},
    "relative": {"kind": "transformer", **SIZE, **DEEP, "positions": "relative"},
    "structural": {"kind": "transformer", **SIZE, **DEEP, "positions": "structural", "max_distance": 3},
    "linformer": {"kind": "transformer", **SIZE, **DEEP, "attention": {"kind": "linformer", "projected_length": 8}},
    "t5": {"kind": "t5", **SIZE, **DEEP, "head_width": 6},
    "rnn": {"kind": "rnn", "width": 16, "embedding_width": 16, "layers": 2, "attention": "additive"},
    "rnn, unfed": {"kind": "rnn", "width": 16, "embedding_width": 16, "layers": 1, "attention": "dot", "input_feeding": False},
    "convolution": {"kind": "convolution", "width": 16, "embedding_width": 12, **DEEP},
    "unilm": {"kind": "unilm", **SIZE, "layers": 3, "max_positions": 80},
}
ENCODERS: dict[str, dict[str, Any]] = {
    "bert": {},
    "albert": {},
    "electra": {},
    "ernie": {},
    "unilm": {},
    "xlnet": {},
    "window": {"attention": {"kind": "window", "radius": 3}},
    "bigbird": {"attention": {"kind": "bigbird", "radius": 2, "global_tokens": 1, "random_blocks": 1, "block_size": 16}},
    "rotary": {"positions": "rotary"},
}


@cache
def tokenizer() -> Tokenizer:
    return train_tokenizer(TokenizerConfig(kind="bpe", vocab=120, special_tokens=("[MASK]",)), LINES * 10)


@cache
def translator(name: str) -> Translator:
    """Return one of TRANSLATORS."""
    return build_translator(name, TRANSLATORS[name])


def build_translator(name: str, model_values: dict[str, Any]) -> Translator:
    """Return a translator of this shape."""
    values = {
        "data": {"train": "train.tsv", "dev": "dev.tsv", "max_tokens": 40},
        "tokenizer": {"shared": {"kind": "bpe", "vocab": 120, "special_tokens": ["[MASK]"]}},
        "model": model_values,
        "objective": {"kind": "masked-translation" if name == "unilm" else "translation"},
        "training": {"steps": 1},
        "decoding": {"beam": 2, "max_extra": 3, "precision": "float32"},
    }
    recipe, tokenizers = parse_recipe(values, "recipe"), Tokenizers(tokenizer(), tokenizer())
    model = randomised(new_translator(recipe, tokenizers))  # type: ignore[arg-type]
    return Translator(OwnEngine(model, tokenizer()), tokenizers, recipe)  # type: ignore[arg-type]


def reader(
    name: str, folder: Path, heads: tuple[str, ...] = ("masked",), labels: tuple[str, ...] = (), objective: str | None = None,
    **options: Any,
) -> TextEncoder:  # fmt: skip
    """Return one of ENCODERS."""
    given = {**ENCODERS[name], **options}
    kind = "bert" if ENCODERS[name] else name
    family = FAMILIES[kind]
    c = family.config(**shape_of(kind, **given))
    model = randomised(family.build_network(c, len(tokenizer()), heads, len(labels) or 1))
    usual = {"xlnet": "permutation", "unilm": "unilm"}.get(kind)
    run = write_model(folder / "run", model, c.model_dump(mode="json"), tokenizer(), labels, objective or usual)
    return load_text_encoder(run, "cpu")


def generator(folder: Path) -> TextGenerator:
    c = GptConfig(**SIZE, layers=3, max_positions=60)
    model = randomised(ModelWithHeads(Gpt(c, len(tokenizer())), ()))
    return load_text_generator(
        write_model(folder / "gpt", model, c.model_dump(mode="json"), tokenizer(), objective="causal"), "cpu"
    )
