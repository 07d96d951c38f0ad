import torch
from torch import nn

from qkv.base.undrawn import shapes_only, undrawn_weights


def draw() -> nn.Module:
    """Build layers and draw their weights in the ways that networks use."""
    layers = nn.ModuleList([nn.Linear(4, 3), nn.Embedding(5, 2), nn.LSTM(2, 3), nn.Conv1d(2, 2, 3), nn.LayerNorm(3)])
    layers[0].weight.data.fill_(7.0)  # as memory may be
    nn.init.trunc_normal_(layers[0].weight, std=0.02, a=-0.04, b=0.04)
    layers[1].weight.data.normal_(0, 0.02)
    return layers


def test_nothing_is_drawn():
    before = torch.get_rng_state()
    with undrawn_weights():
        layers = draw()
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(layers[4].weight, torch.ones(3)), "constants are set"
    draw()
    assert not torch.equal(torch.get_rng_state(), before)


def test_shapes_have_no_memory():
    with shapes_only():
        layers = draw()
        nn.init.xavier_uniform_(layers[0].weight)
    assert all(weight.is_meta for weight in layers.parameters())
    assert layers[0].weight.shape == (3, 4)
