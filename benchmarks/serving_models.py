"""Models with random weights for the measurements of a service: a GPT of GPT-2's smallest shape, a translator, and sentences.

    python benchmarks/serving_models.py FOLDER [--tiny]

Writes FOLDER/gpt, FOLDER/translator (the shape of `transformer-small`, beam 5) and FOLDER/sentences.txt. Their speed is that of
trained models, and texts are as long as requests allow: the GPT hardly ever ends one, and the translator's are 1.2 times as
long as their sources.
"""

import argparse
import random
import string
from pathlib import Path

import torch
from serving_overhead import write_gpt

from qkv.base.config import dump_yaml
from qkv.data.corpora import Tokenizers
from qkv.folder.run import WEIGHTS, save_config, save_tokenizers
from qkv.jobs.translation import new_translator
from qkv.recipes import RECIPE, parse_recipe
from qkv.text.tokenizer import TokenizerConfig, train_tokenizer
from qkv.training.checkpoints import named_weights, save_weights

GPT2 = {"width": 768, "feedforward": 3072, "heads": 12, "layers": 12, "max_positions": 1024}


def made_up_lines(words: int, lines: int) -> list[str]:
    """Return lines of 8 to 20 words of random letters, frequent and rare ones."""
    rng = random.Random(1)
    known = ["".join(rng.choices(string.ascii_lowercase, k=rng.randint(2, 7))) for _ in range(words)]
    weights = [1 / (rank + 10) for rank in range(words)]
    return [" ".join(rng.choices(known, weights, k=rng.randint(8, 20))) + "." for _ in range(lines)]


def write_translator(folder: Path, lines: list[str], vocab: int, width: int, layers: int) -> None:
    """Write the run of a translator that has learned nothing, and hardly ever ends a text before its limit."""
    tokenizer = train_tokenizer(TokenizerConfig(kind="unigram", vocab=vocab), lines)
    shape = {"width": width, "feedforward": 4 * width, "heads": 4, "encoder_layers": layers, "decoder_layers": layers}
    values = {
        "data": {"train": "x", "dev": "x", "max_tokens": 128, "languages": ["en", "de"]},
        "tokenizer": {"shared": {"file": "x"}},
        "model": {"kind": "transformer", "norm": "pre", **shape},
        "training": {"steps": 1},
        "decoding": {"beam": 5, "max_ratio": 1.2, "max_extra": 0},
    }
    recipe, tokenizers = parse_recipe(values, "recipe"), Tokenizers(tokenizer, tokenizer)
    torch.manual_seed(1)
    weights = named_weights(new_translator(recipe, tokenizers))  # type: ignore[arg-type]
    for weight in weights.values():
        if len(weight) == len(tokenizer):  # embeddings, which are the output layer's weights too
            weight.data[tokenizer.eos] = 0
    folder.mkdir(parents=True, exist_ok=True)
    save_tokenizers(folder, tokenizers)
    save_config(folder, recipe, tokenizers, [])
    folder.joinpath(RECIPE).write_text(dump_yaml(recipe), encoding="utf-8")
    save_weights(folder / WEIGHTS, weights)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tiny", action="store_true", help="models that a CPU computes fast, to try a measurement")
    given = parser.parse_args()
    tiny = given.tiny
    lines = made_up_lines(400, 300) if tiny else made_up_lines(30000, 6000)
    write_gpt(given.folder / "gpt", lines, 500 if tiny else 32000, **({"layers": 2} if tiny else GPT2))
    write_translator(given.folder / "translator", lines, 300 if tiny else 8000, 32 if tiny else 256, 1 if tiny else 4)
    given.folder.joinpath("sentences.txt").write_text("\n".join(lines[:1000]) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
