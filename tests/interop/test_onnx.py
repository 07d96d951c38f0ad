"""The graphs compute what our model does, step by step, and our search finds the same words over them."""

import sys
from pathlib import Path
from typing import Any

import onnx
import pytest
import torch
from interop_models import KINDS, make, make_decided

from qkv.base.errors import CheckpointError, ConfigError, TrainingError
from qkv.base.rows import padded_rows
from qkv.decoding.config import DecodingConfig
from qkv.interop.onnx import GRAPHS, DecoderGraph, EncoderGraph, write_onnx
from qkv.interop.onnx_model import OnnxModel
from qkv.models.transformer import Transformer
from qkv.runs.engines import OnnxEngine, OwnEngine, pad

BOS = 2
CPU = torch.device("cpu")
CLOSE = {"rtol": 0, "atol": 2e-5}
# Writing takes seconds, so these stand for all.
CHOSEN: list[dict[str, Any]] = [
    {"norm": "post", "activation": "relu", "positions": "sinusoidal", "tied": "all", "decoder_layers": 1},
    {"norm": "pre", "activation": "swiglu", "positions": "learned", "tied": "target", "decoder_layers": 2},
    {"norm": "pre", "activation": "gelu", "positions": "relative", "tied": "none", "decoder_layers": 1},
]


@pytest.fixture(scope="module", params=CHOSEN, ids=lambda kind: kind["positions"])
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Transformer, OnnxModel, Path]:
    """A model, and the same one exported."""
    folder = tmp_path_factory.mktemp("onnx")
    model = make_decided(**request.param)
    write_onnx(model, folder)
    return model, OnnxModel(folder, model.longest), folder


@torch.no_grad()
def test_each_step_gives_the_same_scores_however_hypotheses_move(pair: Any, sources: list[list[int]]) -> None:
    model, exported, _ = pair
    owners, written = [0, 1, 2], [[BOS], [BOS], [BOS]]
    state = exported.start(*pad(sources[:3], CPU), longest=8, attention=True)
    for rows in ([0, 0, 1, 1, 2, 2], [1, 0, 2, 3, 5, 5], [5, 0, 3], [2, 1, 0], [1, 1], [0]):
        scores = exported.step(torch.tensor([words[-1] for words in written]), state)
        for row, (owner, words) in enumerate(zip(owners, written, strict=True)):
            alone = [padded_rows(*pad([ids], CPU)) for ids in (sources[owner], words)]
            torch.testing.assert_close(scores[row], model.words(model(*alone))[0, -1], **CLOSE)
        state.select(torch.tensor(rows))
        owners = [owners[row] for row in rows]
        written = [[*written[row], 4 + (7 * row + len(written[row])) % 15] for row in rows]


@torch.no_grad()
@pytest.mark.parametrize("positions", ["none", "counting", "normalised", "relative", "rotary", "alibi"])
def test_before_they_are_written_graphs_compute_what_every_scheme_of_positions_does(
    positions: str, sources: list[list[int]]
) -> None:
    model = make(norm="pre", tied="target", positions=positions)
    ids, keep = pad(sources[:4], CPU)
    memory, state = EncoderGraph(model)(ids, keep), model.start(ids, keep, longest=8)
    words, past = torch.full((4,), BOS), memory.new_zeros(4, 2, 2, 4, 0, 4)
    for _ in range(8):
        scores, past, _ = DecoderGraph(model)(words, memory, keep, past)
        torch.testing.assert_close(scores, model.step(words, state), **CLOSE)
        words = scores.argmax(-1)


SEARCHES: list[dict[str, Any]] = [
    {"beam": 1},
    {"beam": 4, "n_best": 3},
    {"beam": 3, "coverage_penalty": 0.2},
    {"sampling": True, "n_best": 2},
]


@pytest.mark.parametrize("options", SEARCHES, ids=str)
def test_our_search_finds_the_same_words(pair: Any, options: dict[str, Any], sources: list[list[int]]) -> None:
    model, exported, _ = pair
    config = DecodingConfig(**{"max_length": 30, **options})
    own, theirs = (engine.decode(sources, config) for engine in (OwnEngine(model), OnnxEngine(exported)))
    assert [[one.ids for one in found] for found in theirs] == [[one.ids for one in found] for found in own]
    scores = [[one.score for found in engine for one in found] for engine in (own, theirs)]
    assert scores[1] == pytest.approx(scores[0], abs=1e-3)


def test_attention_is_the_same(pair: Any, sources: list[list[int]]) -> None:
    model, exported, _ = pair
    for source in sources[:3]:
        own, theirs = (engine.attention(source, [7, 8, 9]) for engine in (OwnEngine(model), OnnxEngine(exported)))
        torch.testing.assert_close(theirs, own, **CLOSE)


def test_a_source_without_tokens_gives_numbers(pair: Any) -> None:
    _, exported, _ = pair
    state = exported.start(torch.tensor([[5, 6], [7, 7]]), torch.tensor([[True, True], [False, False]]), longest=1)
    assert exported.step(torch.tensor([BOS, BOS]), state).isfinite().all()


def test_the_graphs_are_sound_and_named_as_told(pair: Any) -> None:
    _, _, folder = pair
    assert sorted(path.name for path in folder.iterdir()) == sorted(GRAPHS)  # weights are inside
    for name, told in GRAPHS.items():
        graph = onnx.load(folder / name)
        onnx.checker.check_model(graph, full_check=True)
        assert [value.name for value in graph.graph.input] == list(told["inputs"])
        assert [value.name for value in graph.graph.output] == list(told["outputs"])


def test_a_precision_that_the_graphs_have_not_is_refused(pair: Any) -> None:
    engine = OnnxEngine(pair[1])
    with pytest.raises(ConfigError, match=r"^decoding\.precision bf16 is not for the engine onnx; use qkv's own engine for it"):
        engine.decode([[5]], DecodingConfig(precision="bf16"))
    one, other = (engine.decode([[5]], DecodingConfig(precision=name, max_length=9)) for name in ("float32", "auto"))
    assert one == other


def test_weights_that_are_no_numbers(pair: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pair[1], "step", lambda words, _: torch.full((len(words), 23), torch.nan))
    with pytest.raises(TrainingError, match="of this copy are damaged: see whether qkv's own engine can use the run, and export"):
        OnnxEngine(pair[1]).decode([[5]], DecodingConfig(beam=1, max_length=9))


def test_a_damaged_graph_is_refused(tmp_path: Path) -> None:
    for name in GRAPHS:
        (tmp_path / name).write_bytes(b"not a graph")
    with pytest.raises(CheckpointError, match="export the run again"):
        OnnxModel(tmp_path, None)


@pytest.mark.parametrize("package", ["onnx", "onnxscript"])
def test_without_the_package_it_says_what_to_install(package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ConfigError, match=rf"needs the package {package} .*; pip install {package}, or "):
        write_onnx(make(**KINDS[0]), tmp_path)
    assert not list(tmp_path.iterdir())
