"""Engines of exported folders: CTranslate2's own search, or our search over ONNX graphs."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from qkv.base.errors import CheckpointError, ConfigError, TrainingError
from qkv.data.corpora import SourceStatistics, Tokenizers
from qkv.decoding.config import DecodingConfig
from qkv.decoding.hypothesis import Hypothesis
from qkv.decoding.phrases import Phrase
from qkv.inference.engines import Engine, SearchEngine, pad, padded_heads
from qkv.lens.capture import NO_CROSS_ATTENTION
from qkv.recipes import TranslationRecipe
from qkv.text.tokenizer import Tokenizer


def open_exported(
    folder: Path, device: str, engine: str | None, precision: str | None
) -> tuple[Engine, Tokenizers, TranslationRecipe[Any, Any], SourceStatistics]:
    """Return the engine, tokenizers, recipe and statistics of training sources of an exported folder.

    Refuse an engine or precision that it was not made for.
    """
    from qkv.interop.exported import read_exported

    manifest, tokenizers = read_exported(folder)
    for wanted, has in ((engine, manifest.format), (precision, manifest.precision)):
        if wanted not in (None, has):
            raise ConfigError(f"{folder} was exported as {has}, not {wanted}; export the run again, or leave {wanted} out")
    opened: Engine
    if manifest.format == "ctranslate2":
        from qkv.interop.ctranslate2.engine import CTranslate2Engine

        opened = CTranslate2Engine(folder, manifest.max_positions, manifest.precision, device)
        if [len(opened.source), len(opened.target)] != [len(t) for t in tokenizers]:
            raise CheckpointError(f"{folder}: its vocabulary is not the tokenizer's; export the run again")
    else:
        from qkv.interop.onnx.model import OnnxModel

        if device not in ("auto", "cpu"):
            raise ConfigError(f"the engine onnx runs on the CPU, not on {device}; leave --device out, or use another engine")
        opened = OnnxEngine(OnnxModel(folder, manifest.max_positions))
    sources = SourceStatistics(manifest.several_sentences, manifest.without_letters)
    return opened, tokenizers, manifest.recipe, sources


class OnnxEngine(SearchEngine):
    """Decodes from an exported model, run by onnxruntime."""

    def __init__(self, model: Any):
        super().__init__(model, torch.device("cpu"))

    def decode(
        self,
        sources: Sequence[list[int]],
        config: DecodingConfig,
        prefixes: Sequence[list[int]] | None = None,
        allowed: Tensor | None = None,
        first: int = 0,
        phrases: Sequence[Sequence[Phrase]] | None = None,
    ) -> list[list[Hypothesis]]:
        from qkv.interop.unsupported import DAMAGED_COPY, refuse_unsupported

        refuse_unsupported("onnx", {f"decoding.precision {config.precision}": config.precision not in ("auto", "float32")})
        try:
            return super().decode(sources, config, prefixes, allowed, first, phrases)
        except TrainingError:  # its message is about checkpoints, which an exported folder does not have
            raise TrainingError(DAMAGED_COPY) from None

    def attention(self, source: list[int], target: list[int]) -> Tensor:
        head = padded_heads([source], self.device)
        state = self.model.start(*pad([source], self.device), len(target) + 1, head=head)
        weights = []
        for token in (Tokenizer.bos, *target):
            self.model.step(torch.tensor([token]), state)
            if state.layers is None:
                raise ConfigError(NO_CROSS_ATTENTION)
            weights.append(state.layers[0].mean(0))  # over layers, as our own engine does
        return torch.stack(weights)
