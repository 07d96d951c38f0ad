"""A whole model through our GPU kernels, interpreted step by step, against the same model in plain torch."""

import importlib.util

import numpy as np
import pytest
import torch
from torch import Tensor

from qkv.data.batches import make_batch
from qkv.models.transformer import Transformer, TransformerConfig
from qkv.objectives.translation import Translation, TranslationConfig
from qkv.parts import kernels

if importlib.util.find_spec("triton") is None or torch.cuda.is_available():
    pytest.skip("this is for Triton's interpreter, where there is no GPU", allow_module_level=True)


def texts(rng: np.random.Generator, rows: int) -> list[list[np.ndarray]]:
    return [[rng.integers(4, 77, rng.integers(2, 9)) for _ in range(row + 1)] for row in range(rows)]


def loss_and_gradients(model: Transformer, width: int) -> tuple[float, dict[str, Tensor]]:
    rng = np.random.default_rng(3)
    batch = make_batch(texts(rng, 3), texts(rng, 3), (width, width), eos=3)
    model.zero_grad()
    loss = Translation(TranslationConfig(), bos=2).loss(model, *batch.inputs)
    loss.backward()
    return loss.item(), {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize(
    ("width", "heads", "row", "options"),
    [
        (24, 3, 32, {}),
        (48, 2, 48, {"activation": "gelu"}),
        (40, 5, 32, {"activation": "swiglu", "norm": "pre"}),
        (24, 2, 136, {"tied": "target"}),
        (24, 2, 144, {"tied": "none", "norm": "pre"}),
    ],
)
def test_loss_and_gradients_are_the_same(
    monkeypatch: pytest.MonkeyPatch, width: int, heads: int, row: int, options: dict[str, str]
) -> None:
    shape = {"width": width, "inner": 2 * width - 8, "heads": heads, "encoder_layers": 1, "decoder_layers": 1, "dropout": 0.0}
    model = Transformer(TransformerConfig(**shape, **options), 77, 77).train()
    plain, wanted = loss_and_gradients(model, row)
    called = []
    monkeypatch.setattr(kernels, "usable", lambda x: not called.append(x.shape))
    loss, found = loss_and_gradients(model, row)
    assert called, "the kernels were not asked for"
    assert loss == pytest.approx(plain, rel=1e-5)
    assert found.keys() == wanted.keys()
    for name in wanted:
        torch.testing.assert_close(found[name], wanted[name], rtol=1e-3, atol=1e-4, msg=name)
