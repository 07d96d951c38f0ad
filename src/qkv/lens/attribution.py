"""The contribution of each token of a source to an output, by one of three methods.

- gradient: gradient x input, the derivative of the score with respect to a scale on a token's embedding (Shrikumar et al. 2016).
- integrated: integrated gradients (Sundararajan et al. 2017), the mean of gradient x input along the line from zero embeddings,
  at the same positions, to the text's own. The values sum to the difference of the two scores (completeness), which is checked:
  the integral takes more steps until they agree. Gauss-Legendre nodes, as in captum.
- occlusion: how much the score falls when a word is replaced by [MASK], or left out (Zeiler and Fergus 2014).

Above 0 a token supports the score, below 0 it opposes it. S source tokens, M outputs, W words.
"""

import contextlib
from collections.abc import Callable, Iterator
from threading import get_ident
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from qkv.base.errors import ConfigError
from qkv.base.stepwise import Stepwise, complete
from qkv.lens.explained import Explained

METHODS = ("gradient", "integrated", "occlusion")
# Steps of the integral, and the power of t that they take as the scale: where a norm makes a model indifferent to the scale of
# its input, all that changes does so close to 0.
STEPS = ((16, 1), (32, 1), (64, 1), (64, 4), (128, 4), (256, 4), (512, 4))
TOLERANCE = 0.01  # nats, or share of the difference of scores, by which a sum of integrated gradients may miss it


class Completeness(NamedTuple):
    """Whether integrated gradients sum to the difference between the score of the text and that of zero embeddings."""

    sum: float
    difference: float
    error: float  # the largest one of a single output
    steps: int
    complete: bool  # all errors are within the tolerance


class Attribution(NamedTuple):
    """The contribution of the source's tokens to an output."""

    of: str  # the output
    values: Tensor  # (S,)
    each: Tensor | None = None  # (M, S): for each explained token; `values` is their sum
    method: str = "gradient"
    positions: list[int] | None = None  # of the explained tokens in their text
    completeness: Completeness | None = None  # of integrated gradients


def attribute(explained: Explained, method: str = "gradient") -> Attribution:
    """Attribute the explained outputs to the tokens of their source."""
    return complete(attribute_in_steps(explained, method))


def attribute_in_steps(explained: Explained, method: str = "gradient") -> Stepwise[Attribution]:
    """Attribute the explained outputs to the tokens of their source, one pass of the model in each step."""
    if method not in METHODS:
        raise ConfigError(f"no method {method!r} of attribution; choose {', '.join(METHODS)}")
    completeness = None
    if method == "occlusion":
        each = yield from _occlusion(explained)
    elif method == "integrated":
        each, completeness = yield from _integrated_gradients(explained)
    else:
        each = torch.cat([_gradients(explained, outputs, 1.0)[0] for outputs in _passes(explained)])
    rest = len(explained.source.ids) - each.size(1)  # tokens after the output, on which it does not depend
    each = torch.nn.functional.pad(each, (0, rest))
    return Attribution(explained.of, each.sum(0), each, method, explained.positions, completeness)


def gradient_times_input(embedding: nn.Module, score: Callable[[], Tensor]) -> Tensor:
    """Return gradient x input of the tokens of the first call of `embedding` inside `score`. -> (B, T)."""
    return _scaled_gradient(embedding, score, 1.0, None)[0]


def _passes(explained: Explained) -> tuple[Tensor, ...]:
    """Return the numbers of the outputs that are computed together, for each pass."""
    return torch.arange(len(explained.positions)).split(explained.together)


def _gradients(explained: Explained, outputs: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """Return gradient x input where embeddings are scaled, (M,) -> (M, S), and the scores there, (M,)."""
    source = explained.source.ids[: explained.length]
    scores: list[Tensor] = []

    def score() -> Tensor:
        scores.append(explained.scores([source] * len(outputs), outputs[:, None])[:, 0])
        return scores[0].sum()

    values, _ = _scaled_gradient(explained.embedding, score, scale, explained.length)
    return values, scores[0].detach().float().cpu()


def _integrated_gradients(explained: Explained) -> Stepwise[tuple[Tensor, Completeness]]:
    """Return the integrated gradients, (M, S), with as many steps as completeness needs."""
    found, differences, most = [], [], 0
    for outputs in _passes(explained):
        (_, whole), (_, nothing) = (_gradients(explained, outputs, scale) for scale in (1.0, 0.0))
        difference = (whole - nothing).double()
        for steps, power in STEPS:
            values = yield from _integral(explained, outputs, steps, power)
            if bool((_errors(values, difference) <= _allowed(difference)).all()):
                break
        found.append(values)
        differences.append(difference)
        most = max(most, steps)
    each, difference = torch.cat(found), torch.cat(differences)
    errors = _errors(each, difference)
    complete = bool((errors <= _allowed(difference)).all())
    sums = float(each.sum()), float(difference.sum())
    return each.float(), Completeness(*sums, float(errors.max()), most, complete)


def _integral(explained: Explained, outputs: Tensor, steps: int, power: int) -> Stepwise[Tensor]:
    """Return the integral of gradient x input over scales t^power, by Gauss-Legendre nodes t. -> (M, S)."""
    nodes, weights = np.polynomial.legendre.leggauss(steps)
    total = torch.zeros(len(outputs), explained.length, dtype=torch.double)
    for t, weight in zip((1 + nodes) / 2, weights / 2, strict=True):
        yield
        total += weight * power * t ** (power - 1) * _gradients(explained, outputs, t**power)[0].double()
    return total


def _errors(values: Tensor, difference: Tensor) -> Tensor:
    return (values.sum(-1) - difference).abs()


def _allowed(difference: Tensor) -> Tensor:
    return TOLERANCE * difference.abs().clamp(min=1)


@torch.no_grad()
def _occlusion(explained: Explained) -> Stepwise[Tensor]:
    """Return how much each score falls without each word, shared equally among the word's tokens. -> (M, S)."""
    length = explained.length
    source, numbers = explained.source.ids[:length], explained.source.word_ids[:length]
    words = [[n for n, word in enumerate(numbers) if word == number] for number in sorted({w for w in numbers if w is not None})]
    words = [own for own in words if [source[n] for n in own] != [explained.replacement]]  # a [MASK] hides nothing
    changed = [_without(explained, own) for own in words]
    each = torch.zeros(len(explained.positions), length)
    for outputs in _passes(explained):
        whole = explained.scores([source], outputs[None]).cpu()  # (1, M)
        for first in range(0, len(words), explained.together):
            yield
            part = changed[first : first + explained.together]
            drops = whole - explained.scores(part, outputs.expand(len(part), -1)).cpu()  # (W, M)
            for own, drop in zip(words[first:], drops, strict=False):
                each[outputs[:, None], torch.tensor(own)] = (drop / len(own))[:, None].expand(-1, len(own))
    return each


def _without(explained: Explained, own: list[int]) -> list[int]:
    """Return the source without the word at some positions."""
    source, replacement = explained.source.ids[: explained.length], explained.replacement
    if replacement is None:
        return [token for n, token in enumerate(source) if n not in own] or [explained.unknown]
    return [replacement if n in own else token for n, token in enumerate(source)]


def _scaled_gradient(
    embedding: nn.Module, score: Callable[[], Tensor], scale: float, length: int | None
) -> tuple[Tensor, Tensor]:
    """Return gradient x input of the first `length` tokens, (B, T), and the score, where their embeddings are scaled."""
    # cuDNN keeps what the backward pass of a recurrent layer needs in training mode only.
    without_cudnn = torch.backends.cudnn.flags(enabled=False)
    with torch.inference_mode(False), torch.enable_grad(), without_cudnn, _first_output(embedding, scale, length) as outputs:
        value = score()
        (gradient,) = torch.autograd.grad(value, outputs[1])
    return (gradient * outputs[0]).sum(-1).detach().float().cpu(), value.detach()


@contextlib.contextmanager
def _first_output(embedding: nn.Module, scale: float, length: int | None) -> Iterator[list[Tensor]]:
    """Detach and scale the first output that this thread gets from the module, up to `length` tokens.

    Put that output and the scaled one, a leaf, into the yielded list.
    """
    outputs: list[Tensor] = []
    thread = get_ident()

    def hook(_: nn.Module, inputs: Any, output: Tensor) -> Tensor:
        if outputs or get_ident() != thread:
            return output
        own = output.detach()[:, :length]
        outputs.extend([own, (own * scale).requires_grad_()])
        return outputs[1] if own.size(1) == output.size(1) else torch.cat([outputs[1], output.detach()[:, own.size(1) :]], 1)

    handle = embedding.register_forward_hook(hook)
    try:
        yield outputs
    finally:
        handle.remove()
