"""A model as it predicts the tokens of a text: its passes, its output layer, and the sites where values can be read or set.

Layers and attention heads of all families are `Site`s. `at_sites` calls a function with the values of each site while the model
runs, and takes what it returns in their place. Patching and the predictions of each layer are built on it.

R rows of a pass, Q positions that a layer computes, T tokens of the text, P predicted tokens, D width, V vocabulary.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from threading import get_ident
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from qkv.base.errors import ConfigError
from qkv.lens.inspectors import CROSS, DECODER, ENCODER, EncoderDecoderInspector
from qkv.lens.tokenized_text import TokenizedText
from qkv.parts.dot_product import RecordedAttention
from qkv.text.tokenizer import Tokenizer

NO_LAYERS = (
    "the layers of this model do not add to one state of each token, so that none of them can be read or replaced by itself; "
    "use a transformer, t5, convolution, gpt, or an encoder other than an ELMo"
)


class Site(NamedTuple):
    """A place in a network: the state after a layer, or the outputs of the heads of an attention before they are joined."""

    name: str  # encoder.0, or encoder.0.self
    part: str  # encoder, decoder or cross
    layer: int
    text: str  # the text whose positions it has
    module: nn.Module  # its output is the state; its input holds the heads' outputs side by side
    heads: int  # 0 for the state after a layer


@dataclass(frozen=True)
class Predictor:
    """A network with its texts, and the tokens that it predicts."""

    kind: str  # translator, encoder or generator
    model: str
    network: nn.Module
    run: Callable[[int], Tensor]  # runs the network over some copies of the texts; the states that predict, (copies, P, D)
    select: Callable[[Tensor], Tensor]  # the states that predict, of all states after a layer. (R, Q, D) -> (copies, P, D)
    norm: Callable[[Tensor], Tensor]  # the norm after the last layer, if there is one
    output: Callable[[Tensor], Tensor]  # the output layer. (..., D) -> (..., V)
    layers: Sequence[Site]  # states after each layer, in the order of computation
    attentions: Sequence[Site]
    texts: dict[str, TokenizedText]  # source; read where a decoder reads something else
    predicts_in: str  # the text at whose positions tokens are predicted
    positions: Sequence[int]  # where, one of each predicted token
    labels: Sequence[int] | None  # the tokens to predict; None: the most probable ones
    tokenizer: Tokenizer  # of the predicted tokens

    def logits(self, states: Tensor) -> Tensor:
        """Return the logits of states as `run` returns them, for tokens of the tokenizer. (..., D) -> (..., V), float32."""
        return self.output(states)[..., : len(self.tokenizer)].float()  # the model's vocabulary may be rounded up

    @property
    def predicting_layers(self) -> list[Site]:
        """The layers that lead to predictions: a translator's decoder, all layers of other models."""
        return [site for site in self.layers if site.text == self.predicts_in]


@contextlib.contextmanager
def at_sites(sites: Sequence[Site], act: Callable[[int, Tensor], Tensor | None]) -> Iterator[None]:
    """Call `act` with the number of each site and its values (R, Q, X) in every pass of this thread inside.

    What it returns, unless it is None, replaces the values. A module that runs in several layers (ALBERT) has a site for each.
    """
    numbers: dict[nn.Module, list[int]] = {}
    for number, site in enumerate(sites):
        numbers.setdefault(site.module, []).append(number)
    calls = dict.fromkeys(numbers, 0)
    thread = get_ident()

    def call(module: nn.Module, values: Tensor) -> Tensor | None:
        if get_ident() != thread:  # other threads that use the model run its hooks too
            return None
        calls[module] += 1
        return act(numbers[module][(calls[module] - 1) % len(numbers[module])], values)

    def before(module: nn.Module, inputs: Any) -> Any:
        changed = call(module, inputs[0])
        return None if changed is None else (changed, *inputs[1:])

    with contextlib.ExitStack() as stack:
        for module, of_module in numbers.items():
            if sites[of_module[0]].heads:
                handle = module.register_forward_pre_hook(before)
            else:
                handle = module.register_forward_hook(lambda module, _, output: call(module, output))
            stack.callback(handle.remove)
        yield


@torch.no_grad()
def read_sites(predictor: Predictor, sites: Sequence[Site]) -> tuple[list[Tensor], Tensor]:
    """Run the network once; return the values of each site, (R, Q, X) each, and the states that predict, (P, D)."""
    found: list[Tensor] = [torch.empty(0)] * len(sites)

    def note(number: int, values: Tensor) -> None:
        found[number] = values

    with at_sites(sites, note):
        states = predictor.run(1)
    return found, states[0]


@contextlib.contextmanager
def skipped(layers: Sequence[Site], outputs: Sequence[Tensor], copies: int) -> Iterator[None]:
    """Let layers return known outputs (1, Q, D), for some copies of a text, instead of computing them, in this thread.

    What `at_sites` does there is done. A module that runs in several layers is computed.
    """
    modules = [site.module for site in layers]
    thread = get_ident()

    def returning(forward: Callable[..., Any], output: Tensor) -> Callable[..., Any]:
        known = output.expand(copies, -1, -1)
        return lambda *inputs, **named: known if get_ident() == thread else forward(*inputs, **named)

    with contextlib.ExitStack() as stack:
        for module, output in zip(modules, outputs, strict=True):
            if modules.count(module) == 1:
                stack.callback(delattr, module, "forward")
                module.forward = returning(module.forward, output)
        yield


def stack_sites(network: Any, text: str) -> tuple[list[Site], list[Site]]:
    """Return the layers and the attentions of a stack over one text."""
    part = DECODER if network.causal else ENCODER
    layers, attentions = [], []
    for n in range(network.config.layers):
        modules = network.layer_modules(n)
        layers.append(Site(f"{part}.{n}", part, n, text, modules[-1], 0))
        found: Any = next(one for module in modules for one in module.modules() if isinstance(one, RecordedAttention))
        attentions.append(Site(f"{part}.{n}.self", part, n, text, found.out, found.heads))
    return layers, attentions


def encoder_decoder_sites(inspector: EncoderDecoderInspector) -> tuple[list[Site], list[Site]]:
    """Return the layers and the attentions of an encoder-decoder."""
    text = {ENCODER: "source", DECODER: "read", CROSS: "read"}
    layers = [Site(name, part, int(name.rpartition(".")[2]), text[part], module, 0) for name, part, module in inspector.layers()]
    if not layers:  # an rnn's
        raise ConfigError(NO_LAYERS)
    attentions = [
        Site(one.name, one.part, one.layer, text[one.part], one.module.out, one.heads)  # type: ignore[arg-type]
        for one in inspector.attentions()
    ]
    return layers, attentions
