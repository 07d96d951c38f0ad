"""Record attention weights by name: `with capture(model) as seen: model(...)`, then `seen["decoder.2.cross"]`."""

import contextlib
from collections.abc import Iterator
from functools import partial
from threading import get_ident

import torch
from torch import Tensor, nn

from qkv.base.errors import ConfigError
from qkv.base.rows import Rows
from qkv.parts.attention import CrossAttention, SelfAttention, recording
from qkv.parts.two_stream import RelativeAttention

NO_ATTENTION = "this model has no attention to the source that could be shown; a transformer has, and an rnn with model.attention"


@contextlib.contextmanager
def capture(model: nn.Module) -> Iterator[dict[str, Tensor]]:
    """Inside, attention is computed openly; on leaving, its weights (B, H, T, S) stand under their module's name.

    Of a module that is called several times the last weights stand there; `capture_calls` keeps all.
    """
    seen: dict[str, Tensor] = {}
    with capture_calls(model) as calls:
        yield seen
    seen.update(calls)


@contextlib.contextmanager
def capture_calls(model: nn.Module) -> Iterator[list[tuple[str, Tensor]]]:
    """The same as a list of names and weights, in the order in which attention was computed by this thread."""
    calls: list[tuple[str, Tensor]] = []
    order: list[str] = []
    attentions = {n: m for n, m in model.named_modules() if isinstance(m, SelfAttention | CrossAttention | RelativeAttention)}
    hooks = [m.register_forward_pre_hook(partial(_note, order, get_ident(), n)) for n, m in attentions.items()]
    try:
        with recording() as weights:
            yield calls
        calls += zip(order, weights, strict=True)
    finally:
        for hook in hooks:
            hook.remove()


def _note(order: list[str], thread: int, name: str, *_: object) -> None:
    """Hooks are the model's, and other threads that use it go through them too."""
    if get_ident() == thread:
        order.append(name)


@torch.no_grad()
def cross_attention(model: nn.Module, source: Rows, target: Rows) -> Tensor:
    """How much each target place looked at each source place: the mean over layers and heads. -> (B, T, S)."""
    with capture(model) as seen:
        model(source, target)
    layers = [weights.mean(1) for name, weights in seen.items() if name.endswith("cross")]
    if not layers:
        raise ConfigError(NO_ATTENTION)
    return torch.stack(layers).mean(0)


def align_words(weights: Tensor, source_words: list[int], target_words: list[int]) -> list[tuple[int, int]]:
    """For each target word the source word it looked at most, from token weights (T, S).

    The lists say which word each token belongs to. -> (source word, target word) pairs, in the target's order.
    """
    if not source_words or not target_words:
        return []
    columns = torch.zeros(weights.size(0), max(source_words) + 1)
    columns.index_add_(1, torch.tensor(source_words), weights[:, : len(source_words)].float())
    table = torch.zeros(max(target_words) + 1, columns.size(1))
    table.index_add_(0, torch.tensor(target_words), columns[: len(target_words)])
    return [(int(best), word) for word, best in enumerate(table.argmax(1))]
