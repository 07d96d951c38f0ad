"""Run folders of small encoder-decoders with random weights, written as training writes them."""

from pathlib import Path
from typing import Any

import torch

from qkv.base.config import dump_yaml
from qkv.data.corpora import Tokenizers
from qkv.folder.run import WEIGHTS, save_config, save_tokenizers
from qkv.jobs.translation import new_translator
from qkv.recipes import RECIPE, parse_recipe
from qkv.text.tokenizer import Tokenizer
from qkv.training.checkpoints import named_weights, save_weights

TRANSFORMER = {"width": 8, "feedforward": 8, "heads": 2, "encoder_layers": 1, "decoder_layers": 1, "norm": "post"}
T5 = {"kind": "t5", "width": 8, "feedforward": 8, "heads": 2, "head_width": 4, "encoder_layers": 1, "decoder_layers": 1}


def write_pairs_run(folder: Path, model: dict[str, Any], source: Tokenizer, target: Tokenizer, **more: Any) -> Path:
    """Write the run of an encoder-decoder with random weights; by default a translator's."""
    files = {"shared": {"file": "x"}} if source is target else {side: {"file": "x"} for side in ("source", "target")}
    data = {"train": "x", "dev": "x", "max_tokens": 200}
    values = {"data": data, "tokenizer": files, "model": model, "training": {"steps": 1}, **more}
    recipe, tokenizers = parse_recipe(values, "here"), Tokenizers(source, target)
    torch.manual_seed(1)
    folder.mkdir()
    save_tokenizers(folder, tokenizers)
    save_config(folder, recipe, tokenizers, [])
    (folder / RECIPE).write_text(dump_yaml(recipe), encoding="utf-8")
    save_weights(folder / WEIGHTS, named_weights(new_translator(recipe, tokenizers)))  # type: ignore[arg-type]
    return folder
