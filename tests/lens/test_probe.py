"""The probe of a network in training: its figures against plain sums, for dead and living states, of every kind of model."""

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pretraining_models import MAKERS
from qkv.data.batches import START
from qkv.lens.probe import probe
from toy_passages import random_passages
from toy_training import BOS, toy_batches, toy_model

TEXT = torch.tensor([[1, 1, 1, 2, 2, 0], [1, 1, 1, 1, 0, 0]])


class Layers(nn.Module):
    """A stack of layers that add a constant."""

    def __init__(self, *added: float):
        super().__init__()
        self.layers = nn.ModuleList(Constant(value) for value in added)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


class Constant(nn.Module):
    def __init__(self, value: float):
        super().__init__()
        self.value = value

    def forward(self, x: Tensor) -> Tensor:
        return x + self.value


def plain_similarities(x: Tensor) -> tuple[float, float]:
    """The mean cosines of all pairs of tokens in the same text, and of the texts' means."""
    cosines, means = [], []
    for row in range(len(TEXT)):
        for number in range(1, int(TEXT[row].max()) + 1):
            states = x[row][TEXT[row] == number]
            means.append(states.mean(0))
            cosines += [
                float(F.cosine_similarity(states[a], states[b], dim=0))
                for a in range(len(states)) for b in range(len(states)) if a != b
            ]  # fmt: skip
    texts = [
        float(F.cosine_similarity(means[a], means[b], dim=0))
        for a in range(len(means)) for b in range(len(means)) if a != b
    ]  # fmt: skip
    return sum(cosines) / len(cosines), sum(texts) / len(texts)


def test_similarities_equal_plain_sums() -> None:
    torch.manual_seed(1)
    x, model = torch.randn(2, 6, 5), Layers(0.0, 0.7)
    found = probe(model, lambda: model(x), [TEXT]).similarity
    assert list(found) == ["layers.0", "layers.1"]
    assert found["layers.0"] == pytest.approx(plain_similarities(x), abs=1e-5)
    assert found["layers.1"] == pytest.approx(plain_similarities(x + 0.7), abs=1e-5)


def test_states_that_are_one_vector_are_alike() -> None:
    torch.manual_seed(1)
    x = torch.randn(2, 6, 64)
    model = Layers(0.0, 1000.0)
    found = probe(model, lambda: model(x), [TEXT]).similarity
    assert abs(found["layers.0"].tokens) < 0.2 and found["layers.1"].tokens > 0.999 and found["layers.1"].texts > 0.999


def test_padding_does_not_count() -> None:
    torch.manual_seed(1)
    x, model = torch.randn(2, 6, 5), Layers(0.0)
    other = torch.where((TEXT > 0)[..., None], x, 100.0)
    assert probe(model, lambda: model(x), [TEXT]) == probe(model, lambda: model(other), [TEXT])


def test_entropy_is_a_share_of_the_largest() -> None:
    model = toy_model().eval()
    source, target = next(toy_batches().starting(START)).inputs
    with torch.no_grad():
        for layer in (*model.encoder, *model.decoder):
            layer.attention.qkv.weight.zero_()
            layer.attention.qkv.bias.zero_()
    found = probe(model, lambda: model(source, target._replace(ids=torch.full_like(target.ids, BOS))), [source.text, target.text])
    shares = {name: heads for name, heads in found.entropy.items() if "cross" not in name}
    assert shares and all(value == pytest.approx(1, abs=1e-4) for heads in shares.values() for value in heads)


@pytest.mark.parametrize("kind", MAKERS)
def test_every_kind_of_model_has_figures(kind: str) -> None:
    torch.manual_seed(3)
    objective, model = MAKERS[kind]()
    passages = random_passages(rows=4)
    found = probe(model.eval(), lambda: objective.loss(model, passages), [passages.text])
    assert found.similarity and found.entropy
    values: list[Any] = [value for layer in found.similarity.values() for value in layer]
    values += [value for heads in found.entropy.values() for value in heads]
    assert all(math.isfinite(value) and -1 <= value <= 1.001 for value in values)


def test_a_network_that_reads_twice_has_each_layer_once() -> None:
    objective, model = MAKERS["tied"]()
    passages = random_passages(rows=4)
    found = probe(model, lambda: objective.loss(model, passages), [passages.text])
    layers = len(model.discriminator.encoder.layers)
    assert [*found.similarity] == [f"discriminator.encoder.layers.{number}" for number in range(layers)]
