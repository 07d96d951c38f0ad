"""Changes of an imported GPT-2 equal changes made in transformers' model by hooks, computed there by hand."""

import contextlib
import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from huggingface_networks import from_huggingface
from qkv.base.rows import padded_rows
from qkv.lens.changes import Change, FixedWeight, SoftmaxTemperature, WithoutHead, WithoutLayer, changing
from qkv.lens.inspectors import SelfAttentionInspector

transformers = pytest.importorskip("transformers")

VOCAB, HEADS, WIDTH, LENGTH = 41, 4, 32, 11


@pytest.fixture(scope="module")
def model() -> Any:
    torch.manual_seed(3)
    config = transformers.GPT2Config(
        vocab_size=VOCAB, n_embd=WIDTH, n_layer=3, n_head=HEADS, n_positions=20, bos_token_id=0, eos_token_id=0
    )
    made = transformers.GPT2LMHeadModel(config).eval()
    with torch.no_grad():
        for name, weight in made.named_parameters():
            nn.init.normal_(weight, 1.0 if "ln" in name and "weight" in name else 0.0, 0.3)
    return made


def ids() -> Tensor:
    return torch.randint(0, VOCAB, (1, LENGTH), generator=torch.Generator().manual_seed(1))


def ours(model: Any) -> SelfAttentionInspector:
    config = {**model.config.to_dict(), "architectures": ["GPT2LMHeadModel"]}
    gpt: Any = from_huggingface(config, model.state_dict()).model().encoder
    rows = padded_rows(ids(), torch.ones_like(ids()).bool())
    tokenizer: Any = range(VOCAB)
    return SelfAttentionInspector("generator", "gpt", gpt.eval(), rows, None, {}, tokenizer, None, head=gpt.logits)


@contextlib.contextmanager
def attention_of(block: Any, temperature: float, edit: Callable[[Tensor], None]) -> Iterator[None]:
    """Compute a block's attention by hand, with edited weights (H, T, T), and give it to the output projection."""
    stacked: list[Tensor] = []

    def heads(_: Any, inputs: Any) -> tuple[Tensor]:
        q, k, v = (part[0].view(LENGTH, HEADS, -1).transpose(0, 1) for part in stacked[-1].chunk(3, -1))
        scores = (q @ k.mT) / math.sqrt(q.size(-1)) / temperature
        future = torch.ones(LENGTH, LENGTH).triu(1).bool()
        weights = scores.masked_fill(future, float("-inf")).softmax(-1)
        edit(weights)
        return ((weights @ v).transpose(0, 1).reshape(1, LENGTH, WIDTH),)

    handles = [
        block.attn.c_attn.register_forward_hook(lambda _, inputs, output: stacked.append(output)),
        block.attn.c_proj.register_forward_pre_hook(heads),
    ]
    yield
    for handle in handles:
        handle.remove()


@contextlib.contextmanager
def zeroed(block: Any, head: int) -> Iterator[None]:
    """Set a head's part of the output projection's input to 0."""
    part = slice(head * WIDTH // HEADS, (head + 1) * WIDTH // HEADS)

    def hook(_: Any, inputs: Any) -> tuple[Tensor]:
        joined = inputs[0].clone()
        joined[..., part] = 0
        return (joined,)

    handle = block.attn.c_proj.register_forward_pre_hook(hook)
    yield
    handle.remove()


def compare(model: Any, changes: list[Change], theirs: contextlib.AbstractContextManager[None]) -> None:
    inspector = ours(model)
    with torch.no_grad():
        plain = inspector.logits()
        with changing(inspector, changes):
            found = inspector.logits()
        with theirs:
            wanted = model(ids()).logits[0]
        assert plain is not None and found is not None
        torch.testing.assert_close(plain, model(ids()).logits[0], rtol=0, atol=1e-4)
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-4)
    assert (found - plain).abs().max() > 0.01


@pytest.mark.parametrize(("layer", "head"), [(0, 0), (1, 3), (2, 1)])
def test_a_head_that_is_off(model: Any, layer: int, head: int) -> None:
    compare(model, [WithoutHead(f"decoder.{layer}.self", head)], zeroed(model.transformer.h[layer], head))


def test_a_layer_that_is_off(model: Any) -> None:
    skipped = model.transformer.h[1]

    @contextlib.contextmanager
    def without() -> Iterator[None]:
        kept = model.transformer.h
        model.transformer.h = nn.ModuleList(block for block in kept if block is not skipped)
        yield
        model.transformer.h = kept

    compare(model, [WithoutLayer("decoder.1")], without())


def test_a_weight_that_is_set(model: Any) -> None:
    def edit(weights: Tensor) -> None:
        rest = 1 - weights[2, 7, 4]
        weights[2, 7] *= 0.2 / rest
        weights[2, 7, 4] = 0.8

    compare(model, [FixedWeight("decoder.1.self", 7, 4, 0.8, head=2)], attention_of(model.transformer.h[1], 1.0, edit))


def test_a_temperature(model: Any) -> None:
    by_hand = attention_of(model.transformer.h[0], 0.4, lambda weights: None)
    compare(model, [SoftmaxTemperature(0.4, "decoder.0.self")], by_hand)
