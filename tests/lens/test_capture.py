"""Captured weights are those that attention computed, under the right name, and capturing changes nothing."""

import math
import threading
from typing import Any

import pytest
import torch
from torch import Tensor

from qkv.base.rows import Rows, padded_rows
from qkv.lens.capture import align_words, capture, capture_calls, cross_attention
from qkv.models.albert import Albert, AlbertConfig
from qkv.models.transformer import Transformer, TransformerConfig

NAMES = {
    *(f"encoder.{n}.attention" for n in range(2)),
    *(f"decoder.{n}.{kind}" for n in range(3) for kind in ("attention", "cross")),
}


@pytest.fixture(params=["post", "pre"])
def model(request: Any) -> Transformer:
    config = TransformerConfig(width=8, feedforward=12, heads=2, encoder_layers=2, decoder_layers=3, norm=request.param)
    return Transformer(config, 20, 20).eval()


@pytest.fixture
def rows() -> tuple[Rows, Rows]:
    """Two pairs of different lengths, padded. -> source (2, 4), target (2, 3)."""
    source, target = torch.tensor([[5, 6, 7, 8], [9, 10, 0, 0]]), torch.tensor([[11, 12, 13], [14, 0, 0]])
    return padded_rows(source, source > 0), padded_rows(target, target > 0)


def inputs_of(model: Transformer, rows: tuple[Rows, Rows]) -> dict[str, tuple[Tensor, ...]]:
    """What each attention was given, by name."""
    given: dict[str, tuple[Tensor, ...]] = {}
    hooks = [
        module.register_forward_pre_hook(lambda _, inputs, name=name: given.update({name: inputs}))
        for name, module in model.named_modules()
        if name in NAMES
    ]
    model(*rows)
    for hook in hooks:
        hook.remove()
    return given


def softmax_by_hand(q: Tensor, k: Tensor, mask: Tensor) -> list[float]:
    """One row of weights: q (K), k (S, K), mask (S)."""
    power = [math.exp(float(q @ key) / math.sqrt(len(q))) if seen else 0.0 for key, seen in zip(k, mask, strict=True)]
    return [p / sum(power) for p in power]


@torch.no_grad()
@pytest.mark.parametrize("name", sorted(NAMES))
def test_the_weights_are_the_softmax_computed_by_hand(model: Transformer, rows: tuple[Rows, Rows], name: str) -> None:
    with capture(model) as seen:
        model(*rows)
    attention, given = model.get_submodule(name), inputs_of(model, rows)[name]
    if name.endswith("cross"):
        x, (keys, _), mask = given
        queries = attention.q(x).unflatten(-1, (2, 4)).transpose(1, 2)  # type: ignore[operator]
    else:
        x, context, *_ = given
        mask = context.mask
        queries, keys = attention.qkv(x)[..., :16].unflatten(-1, (2, 2, 4)).permute(2, 0, 3, 1, 4)  # type: ignore[operator]
    weights = seen[name]
    assert weights.shape == (2, 2, x.size(1), keys.size(2))
    for b in range(2):
        for h in range(2):
            for t in range(x.size(1)):
                wanted = softmax_by_hand(queries[b, h, t], keys[b, h], mask.dense()[b, 0, t])
                assert weights[b, h, t].tolist() == pytest.approx(wanted, abs=1e-6)


@torch.no_grad()
def test_every_attention_is_there_and_every_row_sums_to_one(model: Transformer, rows: tuple[Rows, Rows]) -> None:
    with capture(model) as seen:
        model(*rows)
    assert set(seen) == NAMES
    for weights in seen.values():
        torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:-1]))
    assert not seen["decoder.0.attention"][0].triu(1).any()  # nobody looks at the future
    assert not seen["decoder.2.cross"][1, :, :1, 2:].any()  # nor at padding


def test_recording_changes_neither_output_nor_gradient(model: Transformer, rows: tuple[Rows, Rows]) -> None:
    def run() -> tuple[Tensor, tuple[Tensor, ...]]:
        output = model(*rows)
        used = [p for name, p in model.named_parameters() if name.startswith(("encoder", "decoder"))]
        return output, torch.autograd.grad(output.square().sum(), used)

    before, gradients = run()
    with capture(model) as seen:
        during, recorded = run()
    assert not any(weights.requires_grad for weights in seen.values())  # what is looked at later holds no graph alive
    after, _ = run()
    real = rows[1].text > 0
    torch.testing.assert_close(during[real], before[real], rtol=0, atol=1e-5)
    assert torch.equal(after, before)  # and leaves nothing behind
    for one, two in zip(gradients, recorded, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-3, atol=1e-5)


@torch.no_grad()
def test_another_thread_that_uses_the_model_is_not_captured(model: Transformer, rows: tuple[Rows, Rows]) -> None:
    with capture_calls(model) as wanted:
        model(*rows)
    with capture_calls(model) as calls:
        other = threading.Thread(target=model, args=(rows[1], rows[0]))
        other.start()
        model(*rows)
        other.join()
    assert [name for name, _ in calls] == [name for name, _ in wanted]
    assert all(torch.equal(one, two) for (_, one), (_, two) in zip(calls, wanted, strict=True))


def test_a_module_that_is_called_again_is_captured_again() -> None:
    shape = {"width": 8, "feedforward": 12, "heads": 2, "layers": 3, "embedding_width": 4, "max_positions": 8}
    model = Albert(AlbertConfig(**shape), 20).eval()
    ids = torch.tensor([[5, 6, 7]])
    with capture_calls(model) as calls:
        model(padded_rows(ids, ids > 0))
    assert [name for name, _ in calls] == ["attention_blocks.0.attention"] * 3
    assert not torch.equal(calls[0][1], calls[1][1])


@torch.no_grad()
def test_leaving_takes_every_hook_away(model: Transformer, rows: tuple[Rows, Rows]) -> None:
    with pytest.raises(ZeroDivisionError), capture(model) as seen:
        model(*rows)
        raise ZeroDivisionError
    assert seen == {}
    assert not any(module._forward_pre_hooks for module in model.modules())


@torch.no_grad()
def test_a_capture_around_decoding_with_attention(model: Transformer, rows: tuple[Rows, Rows]) -> None:
    source, _ = rows
    state = model.start(source.ids, source.text > 0, max_length=2, attention=True)
    with capture(model) as seen:
        for _ in range(2):
            model.step(torch.tensor([5, 6]), state)
    assert state.attention is not None
    torch.testing.assert_close(seen["decoder.2.cross"][:, :, 0].mean(1), state.attention)
    assert seen["decoder.0.attention"].shape == (2, 2, 1, 2)  # of the last step


@torch.no_grad()
def test_cross_attention_is_the_mean_over_layers_and_heads(model: Transformer, rows: tuple[Rows, Rows]) -> None:
    with capture(model) as seen:
        model(*rows)
    wanted = sum(seen[f"decoder.{n}.cross"][:, h] for n in range(3) for h in range(2)) / 6
    torch.testing.assert_close(cross_attention(model, *rows), wanted)


def test_words_are_aligned_by_the_sum_over_their_tokens() -> None:
    # Source words: 0 of two tokens, 1 of one; target words: 0 of one token, 1 of two.
    weights = torch.tensor([[0.3, 0.3, 0.4], [0.1, 0.1, 0.8], [0.3, 0.3, 0.4], [9.0, 9.0, 0.0]])
    assert align_words(weights, [0, 0, 1], [0, 1, 1]) == [(0, 0), (1, 1)]
    assert align_words(weights, [], [0]) == []
    assert align_words(weights, [0], []) == []
