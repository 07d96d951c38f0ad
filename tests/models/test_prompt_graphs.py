"""Prompts that are read by graphs, padded to a few sizes, give the logits and caches of those that are read as they are."""

from typing import Any

import pytest
import torch
from torch import Tensor

from qkv.base import graphs
from qkv.models.gpt import CausalLM, Gpt, GptConfig
from qkv.parts.decoding_weights import PreparedModel
from recorded_graphs import Recorded

LENGTHS = [[5], [3, 9, 1], [6, 6, 6], [4, 2, 8], [17, 30], [12], [9, 31], [2, 2, 3], [33, 31], [20, 34]]


def made(positions: Any) -> CausalLM:
    torch.manual_seed(1)
    shape = GptConfig(width=32, feedforward=32, heads=2, layers=2, max_positions=40, positions=positions)
    return CausalLM(Gpt(shape, 77).eval())


@torch.inference_mode()
def logits(model: CausalLM, piece: int | None = None) -> list[Tensor]:
    """Return the logits of some steps after the prompts of each batch, the second batch of equal size being read by a graph."""
    prepared, rng, found = PreparedModel(model), torch.Generator().manual_seed(2), []
    for lengths in LENGTHS * 2:
        ids = torch.randint(4, 77, (len(lengths), max(lengths)), generator=rng)
        keep = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
        state = prepared.start(ids, keep, max_length=6, piece=piece)
        while not state.read_piece():
            pass
        found += [model.step(words, state) for words in torch.randint(4, 77, (4, len(lengths)), generator=rng)]
        state.select(torch.tensor([len(lengths) - 1, 0]))
        found += [model.step(words, state) for words in torch.randint(4, 77, (2, 2), generator=rng)]
    return found


@pytest.mark.parametrize("positions", ["none", "learned", "relative", "rotary", "alibi"])
def test_prompts_read_by_graphs_change_nothing(positions: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = made(positions)
    wanted, before = logits(model), Recorded.made
    monkeypatch.setattr(graphs, "GraphedFunction", Recorded)
    monkeypatch.setattr("qkv.parts.stepping.AttentionState._graph", lambda state, tokens: None)  # readings alone
    monkeypatch.setattr(graphs, "usable", lambda words: True)
    for found, expected in zip(logits(model), wanted, strict=True):
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)
    assert Recorded.made == before + 4  # (1, 16), (4, 16), (2, 32), (2, 40)


@pytest.mark.parametrize("positions", ["learned", "alibi"])
def test_prompts_in_pieces_have_no_graph(positions: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = made(positions)
    wanted = logits(model, piece=4)
    monkeypatch.setattr(graphs, "GraphedFunction", Recorded)
    monkeypatch.setattr("qkv.parts.stepping.AttentionState._graph", lambda state, tokens: None)
    monkeypatch.setattr(graphs, "usable", lambda words: True)
    for found, expected in zip(logits(model, piece=4), wanted, strict=True):
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)


def test_weights_that_are_still_trained_have_no_graph() -> None:
    model = made("learned")
    assert model.prompt_recorder is None
    assert model.prepare_decoding(torch.float32).prompt_recorder is not None
    assert model.prompt_recorder is None
