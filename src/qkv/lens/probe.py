"""A probe of a network in training: what its layers and heads do with a few rows of a batch.

A network that dies gives the same state to all tokens, or attends everywhere alike, long before its scores say so.
"""

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from qkv.lens.capture import capture_calls

MAX_WIDTH = 512  # of rows whose attention is recorded: weights are (T, T) for every head
MIN_KEYS = 4  # that a query must see, so that its entropy says something


class LayerSimilarity(NamedTuple):
    """The mean cosine between states after a layer: of two tokens of a text, and of two texts (means over their tokens)."""

    tokens: float
    texts: float


class ProbeResult(NamedTuple):
    """The figures of a probe, by the name of the layer or of the attention module."""

    similarity: dict[str, LayerSimilarity]
    entropy: dict[str, list[float]]  # of each head: mean entropy of its weights, as a share of the largest possible


@torch.no_grad()
def probe(model: nn.Module, run: Callable[[], Any], texts: Sequence[Tensor]) -> ProbeResult:
    """Run the model by `run` and measure its layers and heads.

    `texts` holds the text numbers of the rows that it reads, (R, W) each, 0 at padding.
    """
    calls: list[tuple[str, Tensor]] = []
    with contextlib.ExitStack() as stack:
        states = stack.enter_context(_layer_states(model))
        if max(text.size(1) for text in texts) <= MAX_WIDTH:
            calls = stack.enter_context(capture_calls(model))
        run()
    similarity, entropy = {}, {}
    for name, state in states:
        similarity[name] = _similarity(state, _text_numbers(texts, state.shape[:2]))
    for name, weights in calls:
        entropy[name] = _entropy(weights, _text_numbers(texts, (weights.size(0), weights.size(2))))
    # One transfer for all figures.
    flat = torch.cat([*similarity.values(), *entropy.values()]).tolist() if similarity or entropy else []
    values = iter(flat)
    return ProbeResult(
        {name: LayerSimilarity(next(values), next(values)) for name in similarity},
        {name: [next(values) for _ in heads] for name, heads in entropy.items()},
    )


def _text_numbers(texts: Sequence[Tensor], shape: Sequence[int]) -> Tensor:
    """Return the text numbers of the rows of a shape. -> (R, W).

    Rows of source and target may have one shape: then only columns that both use keep their number. Where a model reads rows in
    parts of another width (XLNet's memory), each row counts as one text.
    """
    matching = [text for text in texts if text.shape == torch.Size(shape)]
    if not matching:
        return torch.ones(*shape, dtype=torch.long, device=texts[0].device)
    return matching[0] * torch.stack([text > 0 for text in matching]).all(0)


@contextlib.contextmanager
def _layer_states(model: nn.Module) -> Iterator[list[tuple[str, Tensor]]]:
    """Collect the outputs of all layers, which are the modules in lists of modules, in the order in which they are called.

    Layers are numbered by their calls, because one may be called several times (ALBERT). A network that reads the rows again, as
    both networks of a tied ELECTRA, begins at 0 again.
    """
    states: list[tuple[str, Tensor]] = []
    calls: Counter[str] = Counter()

    def note(name: str) -> Any:
        def hook(_: nn.Module, __: Any, output: Any) -> None:
            state = output[0] if isinstance(output, tuple) else output
            if isinstance(state, Tensor) and state.dim() == 3:
                states.append((f"{name}.{calls[name]}", state))
                calls[name] += 1

        return hook

    def restart(name: str) -> Any:
        def hook(*_: Any) -> None:
            calls[name] = 0

        return hook

    lists = [(name, module) for name, module in model.named_modules() if isinstance(module, nn.ModuleList)]
    handles = [layer.register_forward_hook(note(name)) for name, layers in lists for layer in layers]
    for name, _ in lists:
        network = model.get_submodule(name.rpartition(".")[0])
        handles.append(network.register_forward_pre_hook(restart(name)))
    try:
        yield states
    finally:
        for handle in handles:
            handle.remove()


def _similarity(state: Tensor, text: Tensor) -> Tensor:
    """Return the mean cosine of two tokens of a text, and of two texts. state (R, W, D), text (R, W) -> (2,)."""
    row = torch.arange(len(text), device=text.device)[:, None]
    number = (row * (text.size(1) + 1) + text).flatten()  # of the text among all rows
    real = (text > 0).flatten()[:, None]
    state = torch.where(real, state.float().flatten(0, 1), 0.0)
    size = len(text) * (text.size(1) + 1)
    counts = torch.zeros(size, 1, device=text.device).index_add_(0, number, real.float())
    zeros = torch.zeros(size, state.size(1), device=text.device)
    unit_sums = zeros.index_add(0, number, F.normalize(state, dim=-1))
    # The squared length of a sum of n unit vectors is n plus all their cosines.
    cosines, pairs = (unit_sums.square().sum(1, keepdim=True) - counts), counts * (counts - 1)
    of_tokens = cosines.sum() / pairs.sum().clamp(min=1)
    means = F.normalize(zeros.index_add(0, number, state), dim=-1)
    many = (counts > 0).sum()
    of_texts = (means.sum(0).square().sum() - many) / (many * (many - 1)).clamp(min=1)
    return torch.stack([of_tokens, of_texts])


def _entropy(weights: Tensor, text: Tensor) -> Tensor:
    """Return each head's entropy, 1 where all visible keys have the same weight, 0 where one key has it all.

    weights (B, H, T, S), text (B, T), 0 at queries that are padding -> (H,)
    """
    weights = weights.float()
    seen = (weights > 0).sum(-1)  # (B, H, T)
    share = torch.special.entr(weights).sum(-1) / seen.clamp(min=2).log()
    counted = (seen >= MIN_KEYS) & share.isfinite() & (text > 0)[:, None]
    share = torch.where(counted, share, 0.0)
    return share.sum((0, 2)) / counted.sum((0, 2)).clamp(min=1)
