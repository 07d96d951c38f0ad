"""Sharded weights have the gradients of whole ones, for every family; their checkpoints, averages and penalties are the same."""

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from pretraining_models import MAKERS
from process_group import in_processes
from qkv.data.batches import START, Batch
from qkv.models.albert import Albert, AlbertConfig
from qkv.models.convolution import Convolution, ConvolutionConfig
from qkv.models.t5 import T5, T5Config
from qkv.objectives.masked import MaskedConfig, MaskedLanguageModelling
from qkv.objectives.translation import Translation, TranslationConfig
from qkv.parts.adapters import with_adapters
from qkv.parts.heads import ModelWithHeads
from qkv.parts.model_config import AdapterConfig
from qkv.training.gradients import GradientAccumulator
from qkv.training.progress import Progress
from qkv.training.sharding import ShardedGradients, ShardedWeights
from toy_passages import random_passages, vocabulary
from toy_training import BOS, SMALL, VOCAB, toy_batches, toy_model

PROCESSES = 2


def passages_batch() -> Batch:
    passages = random_passages(5, tasks={"masking": 1, "next": 2, "capital": 2})
    return Batch((passages,), labels=100, tokens=100, positions=300, filled=200, after=START, whole_rows=5)


def pairs_batch(one_text_per_row: bool = False) -> Batch:
    batches = toy_batches(tokens=40 if one_text_per_row else 96)
    batches.one_text_per_row = one_text_per_row
    batch = next(batches.starting(START))
    return replace(batch, whole_rows=batch.rows)


def masked(model: Any) -> tuple[Any, nn.Module, Batch]:
    config = MaskedConfig()
    return MaskedLanguageModelling(config, vocabulary(50)), ModelWithHeads(model, config.heads), passages_batch()


TRANSLATION = Translation(TranslationConfig(), BOS)
SHAPE: dict[str, Any] = {"width": 16, "feedforward": 24, "heads": 2}
DEEP: dict[str, Any] = {"encoder_layers": 2, "decoder_layers": 2}


def translator(**changes: Any) -> nn.Module:
    return toy_model(SMALL.model_copy(update=changes))


CASES: dict[str, Callable[[], tuple[Any, nn.Module, Batch]]] = {
    **{name: lambda make=make: (*make(), passages_batch()) for name, make in MAKERS.items()},
    "albert": lambda: masked(Albert(AlbertConfig(**SHAPE, layers=3, embedding_width=8, max_positions=64), 50)),
    "transformer": lambda: (TRANSLATION, translator(dropout=0.2, decoder_layers=2), pairs_batch()),
    "untied": lambda: (TRANSLATION, translator(tied="none", positions="relative"), pairs_batch()),
    "adapters": lambda: (TRANSLATION, with_adapters(translator(), AdapterConfig(rank=3)), pairs_batch()),
    "convolution": lambda: (
        TRANSLATION,
        Convolution(ConvolutionConfig(width=16, embedding_width=16, max_positions=64, **DEEP), VOCAB, VOCAB),
        pairs_batch(one_text_per_row=True),
    ),
    "t5": lambda: (TRANSLATION, T5(T5Config(**SHAPE, head_width=8, **DEEP), VOCAB, VOCAB), pairs_batch()),
}


def compare_gradients(rank: int) -> None:
    """Check that all families have the same gradients sharded, in two micro-batches, as whole."""
    options: dict[str, Any] = {"seed": 1, "progress": Progress(quiet=True)}
    for name, make in CASES.items():
        torch.manual_seed(3)
        objective, model, batch = make()
        plain = copy.deepcopy(model)
        own = batch.part(slice(rank, None, PROCESSES))
        sharded = ShardedWeights(model, objective.loss, rank, PROCESSES)
        gradients = ShardedGradients(sharded, torch.float32, 2, **options)
        loss = gradients.accumulate(own, 7)
        whole = GradientAccumulator(plain, objective.loss, torch.float32, 1, **options)
        torch.testing.assert_close(loss, whole.accumulate(batch, 7), msg=name)
        for key, parameter in plain.named_parameters():
            own_grad = sharded.local[key].grad
            assert (own_grad is None) == (parameter.grad is None), (name, key)
            if own_grad is not None:
                full = sharded.gather(own_grad, len(parameter))
                torch.testing.assert_close(full, parameter.grad, rtol=1e-4, atol=1e-6, msg=f"{name} {key}")


def test_all_families_have_the_gradients_of_whole_weights() -> None:
    in_processes(PROCESSES, compare_gradients)
