"""Decoding steps on static caches and as CUDA graphs give the logits of plain steps."""

from typing import Any

import pytest
import torch

from qkv.base import graphs
from qkv.decoding import beam, sampling
from qkv.decoding.config import DecodingConfig
from qkv.decoding.hypothesis import Hypothesis
from qkv.decoding.search import decode
from qkv.models.transformer import Transformer, TransformerConfig
from qkv.parts import stepping
from qkv.parts.decoding_weights import PreparedModel
from recorded_graphs import Recorded

WAYS = [
    DecodingConfig(beam=1, max_extra=12),
    DecodingConfig(beam=4, n_best=3, max_extra=12),
    DecodingConfig(beam=3, n_best=3, no_repeat_ngram=2, min_length=3, max_extra=20),
    DecodingConfig(beam=3, coverage_penalty=0.3, max_extra=9),
    DecodingConfig(sampling=True, n_best=3, max_extra=12),
]
each_way = pytest.mark.parametrize("way", WAYS, ids=["greedy", "beam", "limits", "coverage", "sampling"])


@pytest.fixture
def model() -> Transformer:
    torch.manual_seed(2)
    shape = TransformerConfig(width=32, feedforward=48, heads=2, encoder_layers=1, decoder_layers=2, norm="pre", tied="none")
    model = Transformer(shape, 30, 30).eval()
    torch.nn.init.normal_(model.output.weight, std=0.6)  # so that some texts end early and others late
    return model


def texts(model: Transformer, way: DecodingConfig, device: str = "cpu") -> list[list[Hypothesis]]:
    rng = torch.Generator().manual_seed(4)
    ids = torch.randint(4, 30, (9, 11), generator=rng)
    keep = torch.arange(11) < torch.randint(2, 12, (9, 1), generator=rng)
    way = way.model_copy(update={"precision": "float32"})
    return decode(model.to(device), ids.to(device), keep.to(device), way, bos=2, eos=3, pad=0)


def assert_same(found: list[list[Hypothesis]], wanted: list[list[Hypothesis]]) -> None:
    for some, others in zip(found, wanted, strict=True):
        assert [(one.ids, one.finished) for one in some] == [(one.ids, one.finished) for one in others]
        assert [one.score for one in some] == pytest.approx([one.score for one in others], abs=1e-4)


@each_way
def test_fixed_memory_and_rows_that_wait_to_leave_change_nothing(
    model: Transformer, way: DecodingConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = texts(model, way)
    assert len({len(found[0].ids) for found in wanted}) > 2
    monkeypatch.setattr(graphs, "usable", lambda words: True)
    monkeypatch.setattr(graphs, "GraphedFunction", Recorded)
    monkeypatch.setattr(stepping, "SPAN", 4)
    monkeypatch.setattr(stepping, "MIN_STEPS_LEFT", 2)
    for module in (beam, sampling):
        monkeypatch.setattr(module, "worth_leaving", lambda going, device: 2 * going.sum() <= len(going))
    before = Recorded.made
    assert_same(texts(model, way), wanted)
    assert (Recorded.made > before + 1) == (way.coverage_penalty == 0)


SCHEMES = ["none", "counting", "normalised", "relative", "rotary", "alibi"]
each_scheme = pytest.mark.parametrize("positions", SCHEMES)


def with_positions(positions: Any) -> Transformer:
    torch.manual_seed(2)
    shape = {
        "width": 32,
        "feedforward": 48,
        "heads": 2,
        "encoder_layers": 1,
        "decoder_layers": 2,
        "tied": "none",
        "max_distance": 3,
    }
    model = Transformer(TransformerConfig(**shape, positions=positions, norm="pre"), 30, 30).eval()
    torch.nn.init.normal_(model.output.weight, std=0.6)
    return model


@each_scheme
def test_every_scheme_of_positions_works_on_fixed_memory(positions: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, way = with_positions(positions), WAYS[1]
    wanted = texts(model, way)
    monkeypatch.setattr(graphs, "usable", lambda words: True)
    monkeypatch.setattr(graphs, "GraphedFunction", Recorded)
    monkeypatch.setattr(stepping, "SPAN", 4)
    monkeypatch.setattr(stepping, "MIN_STEPS_LEFT", 2)
    before = Recorded.made
    assert_same(texts(model, way), wanted)
    assert Recorded.made > before + 1


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@each_scheme
def test_a_gpu_finds_the_same_texts_with_every_scheme(positions: str) -> None:
    model = with_positions(positions)
    assert_same(texts(model, WAYS[1], "cuda"), texts(model, WAYS[1]))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@each_way
def test_a_gpu_finds_the_same_texts(model: Transformer, way: DecodingConfig) -> None:
    assert_same(texts(model, way, "cuda"), texts(model, way))


@each_way
def test_in_bf16_texts_are_as_probable(model: Transformer, way: DecodingConfig) -> None:
    rng = torch.Generator().manual_seed(4)
    ids, keep = torch.randint(4, 30, (9, 11), generator=rng), torch.ones(9, 11, dtype=torch.bool)
    half, whole = (
        decode(model, ids, keep, way.model_copy(update={"precision": precision}), bos=2, eos=3, pad=0)
        for precision in ("bf16", "float32")
    )
    assert sum(some[0].ids == others[0].ids for some, others in zip(half, whole, strict=True)) >= 5
    for some, others in zip(half, whole, strict=True):
        if some[0].ids == others[0].ids:
            assert some[0].score == pytest.approx(others[0].score, abs=0.1, rel=0.05)


@torch.no_grad()
def test_a_source_shared_by_its_hypotheses_is_as_good_as_one_for_each(model: Transformer) -> None:
    ids = torch.randint(4, 30, (3, 7), generator=torch.Generator().manual_seed(5))
    keep = torch.arange(7) < torch.tensor([[7], [2], [5]])
    shared, apart = (PreparedModel(model).start(ids, keep, max_length=9, attention=True) for _ in range(2))
    words = torch.full((3,), 2)
    moves = [  # rows, and the sources that remain
        ([[0, 0], [1, 1], [2, 2]], None),
        ([[1, 0], [2, 2], [5, 4]], None),
        ([[4, 5], [0, 0]], [2, 0]),
        ([[1, 0, 1], [3, 3, 2]], None),
        ([[4, 3, 5]], [1]),
    ]
    for rows, sources in moves:
        torch.testing.assert_close(model.step(words, shared), model.step(words, apart), rtol=0, atol=1e-5)
        assert shared.attention is not None and apart.attention is not None
        torch.testing.assert_close(shared.attention, apart.attention, rtol=0, atol=1e-5)
        shared.regroup(torch.tensor(rows), None if sources is None else torch.tensor(sources))
        apart.select(torch.tensor(rows).flatten())
        words = torch.arange(4, 4 + torch.tensor(rows).numel())
        assert len(shared.memory) == len(rows) and len(apart.memory) == len(words)
