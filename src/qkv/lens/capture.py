"""Capture attention weights by module name: `with capture(model) as weights: model(...)`, then `weights["decoder.2.cross"]`."""

import contextlib
from collections.abc import Iterator
from threading import get_ident
from typing import Any

import torch
from torch import Tensor, nn

from qkv.base.errors import ConfigError
from qkv.base.rows import Rows
from qkv.parts.dot_product import RecordedAttention, recording

NO_CROSS_ATTENTION = (
    "this model has no attention to the source that could be shown; a transformer has, and an rnn with model.attention"
)


@contextlib.contextmanager
def capture(model: nn.Module) -> Iterator[dict[str, Tensor]]:
    """Collect the attention weights of the calls inside, (B, H, T, S) by module name; the dict is filled on leaving.

    A module that is called several times has its last weights there; `capture_calls` keeps all.
    """
    weights: dict[str, Tensor] = {}
    with capture_calls(model) as calls:
        yield weights
    weights.update(calls)


@contextlib.contextmanager
def capture_calls(model: nn.Module) -> Iterator[list[tuple[str, Tensor]]]:
    """Collect the module name and the weights of every attention call inside that this thread makes, in order."""
    calls: list[tuple[str, Tensor]] = []
    names: list[str] = []
    thread = get_ident()
    modules = {n: m for n, m in model.named_modules() if isinstance(m, RecordedAttention)}

    def note(name: str) -> Any:
        # Other threads that use the model run its hooks too.
        return lambda *_: names.append(name) if get_ident() == thread else None

    handles = [module.register_forward_pre_hook(note(name)) for name, module in modules.items()]
    try:
        with recording() as weights:
            yield calls
        calls += zip(names, weights, strict=True)
    finally:
        for handle in handles:
            handle.remove()


@torch.no_grad()
def cross_attention(model: nn.Module, source: Rows, target: Rows) -> Tensor:
    """Return the mean cross-attention over layers and heads. -> (B, T, S)."""
    with capture(model) as captured:
        model(source, target)
    layers = [weights.mean(1) for name, weights in captured.items() if name.endswith("cross")]
    if not layers:
        raise ConfigError(NO_CROSS_ATTENTION)
    return torch.stack(layers).mean(0)


def align_words(weights: Tensor, source_words: list[int], target_words: list[int]) -> list[tuple[int, int]]:
    """Align each target word with the source word that it attends to most, from token weights (T, S).

    The lists give the word of each token. -> (source word, target word) pairs, in the target's order.
    """
    if not source_words or not target_words:
        return []
    columns = torch.zeros(weights.size(0), max(source_words) + 1)
    columns.index_add_(1, torch.tensor(source_words), weights[:, : len(source_words)].float())
    table = torch.zeros(max(target_words) + 1, columns.size(1))
    table.index_add_(0, torch.tensor(target_words), columns[: len(target_words)])
    return [(int(best), word) for word, best in enumerate(table.argmax(1))]
