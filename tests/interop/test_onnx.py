"""The graphs compute what our model does, step by step, and our search finds the same words over them."""

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import onnx
import pytest
import torch
from interop_models import KINDS, make, make_convolution, make_decided, make_rnn

from qkv.base.errors import CheckpointError, ConfigError, TrainingError
from qkv.base.rows import padded_rows
from qkv.decoding.config import DecodingConfig
from qkv.inference.engines import OwnEngine, pad
from qkv.inference.exported import OnnxEngine
from qkv.interop.onnx.graphs import DECODER, ENCODER
from qkv.interop.onnx.model import OnnxModel
from qkv.interop.onnx.writer import graphs_of, write_onnx

BOS = 2
CPU = torch.device("cpu")
CLOSE = {"rtol": 0, "atol": 2e-5}
# Writing takes seconds, so these stand for all.
CHOSEN: dict[str, Callable[[], Any]] = {
    "sinusoidal": partial(make_decided, norm="post", activation="relu", positions="sinusoidal", tied="all", decoder_layers=1),
    "learned": partial(make_decided, norm="pre", activation="swiglu", positions="learned", tied="target", decoder_layers=2),
    "relative": partial(make_decided, norm="pre", activation="gelu", positions="relative", tied="none", decoder_layers=1),
    "general": partial(make_rnn, attention="general"),
    "additive": partial(make_rnn, cell="gru", attention="additive", input_feeding=False, bidirectional=False, reverse=True),
    "one vector": partial(make_rnn, attention="none", context="every"),
    "convolution": partial(make_convolution, tied="none"),
}


@pytest.fixture(scope="module", params=CHOSEN)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, OnnxModel, Path]:
    """A model, and the same one exported."""
    folder = tmp_path_factory.mktemp("onnx")
    model = CHOSEN[request.param]()
    write_onnx(graphs_of(model), folder)
    return model, OnnxModel(folder, model.longest), folder


@torch.no_grad()
def test_each_step_gives_the_same_scores_however_hypotheses_move(pair: Any, sources: list[list[int]]) -> None:
    model, exported, _ = pair
    owners, written = [0, 1, 2], [[BOS], [BOS], [BOS]]
    state = exported.start(*pad(sources[:3], CPU), max_length=8, attention=True)
    for rows in ([0, 0, 1, 1, 2, 2], [1, 0, 2, 3, 5, 5], [5, 0, 3], [2, 1, 0], [1, 1], [0]):
        scores = exported.step(torch.tensor([words[-1] for words in written]), state)
        for row, (owner, words) in enumerate(zip(owners, written, strict=True)):
            single = [padded_rows(*pad([ids], CPU)) for ids in (sources[owner], words)]
            torch.testing.assert_close(scores[row], model.logits(model(*single))[0, -1], **CLOSE)
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
    same_words(model, ids, keep, graphs_of(model).encoder_module(ids, keep))


@torch.no_grad()
@pytest.mark.parametrize("positions", ["none", "counting", "normalised", "sinusoidal", "learned"])
def test_so_do_those_of_a_convolution(positions: str, sources: list[list[int]]) -> None:
    model = make_convolution(positions=positions, kernel_width=1 if positions == "none" else 5)
    ids, keep = pad(sources[:4], CPU)
    same_words(model, ids, keep, graphs_of(model).encoder_module(ids, keep))


@torch.no_grad()
@pytest.mark.parametrize("cell", ["lstm", "gru"])
@pytest.mark.parametrize("input_feeding", [True, False])
@pytest.mark.parametrize("score", ["additive", "dot", "general"])
def test_a_step_is_that_of_every_recurrent_model(cell: str, input_feeding: bool, score: str, sources: list[list[int]]) -> None:
    model = make_rnn(cell=cell, attention=score, input_feeding=input_feeding)
    ids, keep = pad(sources[:4], CPU)
    states, ends = model.encode(padded_rows(ids, keep))  # ONNX's own operators cannot be run before they are written
    keys, values = model.cross.project_memory(states)
    layers = torch.stack([torch.stack(layer, 1) for layer in ends], 1)
    same_words(model, ids, keep, {"keys": keys, "values": values, "layers": layers, "fed": states.new_zeros(4, 12)})


def same_words(model: Any, ids: torch.Tensor, keep: torch.Tensor, told: dict[str, torch.Tensor]) -> None:
    """Steps from what the encoder told, before they are written, beside the model's own."""
    step, state = graphs_of(model).decoder, model.start(ids, keep, max_length=8)
    known = {**told, "keep": keep, "words": torch.full((len(ids),), BOS)}
    for _ in range(8):
        found = step.module(**{name: known[name] for name in step.inputs})
        torch.testing.assert_close(found["logits"], model.step(known["words"], state), **CLOSE)
        known.update({name.removeprefix("next_"): value for name, value in found.items()})
        known["words"] = found["logits"].argmax(-1)


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
    if config.coverage_penalty and not has_attention(model):
        with pytest.raises(ConfigError, match="coverage_penalty needs a model that returns its attention"):
            OnnxEngine(exported).decode(sources, config)
        return
    own, theirs = (engine.decode(sources, config) for engine in (OwnEngine(model), OnnxEngine(exported)))
    assert [[one.ids for one in found] for found in theirs] == [[one.ids for one in found] for found in own]
    scores = [[one.score for found in engine for one in found] for engine in (own, theirs)]
    assert scores[1] == pytest.approx(scores[0], abs=1e-3)


def has_attention(model: Any) -> bool:
    return graphs_of(model).attention is not None


def test_attention_is_the_same(pair: Any, sources: list[list[int]]) -> None:
    model, exported, _ = pair
    if not has_attention(model):
        for engine in (OwnEngine(model), OnnxEngine(exported)):
            with pytest.raises(ConfigError, match="this model has no attention to the source that could be shown"):
                engine.attention(sources[0], [7, 8, 9])
        return
    for source in sources[:3]:
        own, theirs = (engine.attention(source, [7, 8, 9]) for engine in (OwnEngine(model), OnnxEngine(exported)))
        torch.testing.assert_close(theirs, own, **CLOSE)


def test_statistics_of_tokens_are_the_same(pair: Any, sources: list[list[int]]) -> None:
    model, exported, _ = pair
    targets = [[4 + (3 * i + j) % 15 for j in range(i % 6)] for i in range(len(sources))]
    engines = OwnEngine(model), OnnxEngine(exported)
    for own, other in zip(*(engine.statistics(sources, targets, DecodingConfig()) for engine in engines), strict=True):
        assert other == pytest.approx(own, abs=1e-4)


def test_a_source_without_tokens_gives_numbers(pair: Any) -> None:
    _, exported, _ = pair
    state = exported.start(torch.tensor([[5, 6], [7, 7]]), torch.tensor([[True, True], [False, False]]), max_length=1)
    assert exported.step(torch.tensor([BOS, BOS]), state).isfinite().all()


def shape(told: str) -> list[str]:
    """The axes of what is told of a value, sizes where there are any."""
    return [axis.strip().rpartition("=")[2] for axis in told.partition("(")[2].partition(")")[0].split(",")]


def test_the_graphs_are_sound_and_as_they_are_told(pair: Any) -> None:
    model, _, folder = pair
    graphs = graphs_of(model).describe()
    assert sorted(path.name for path in folder.iterdir()) == sorted(graphs)  # weights are inside
    for name, told in graphs.items():
        graph = onnx.load(folder / name)
        onnx.checker.check_model(graph, full_check=True)
        assert [value.name for value in graph.graph.input] == list(told["inputs"])
        assert [value.name for value in graph.graph.output] == list(told["outputs"])
        for value in graph.graph.input:
            axes = [str(axis.dim_value) if axis.HasField("dim_value") else "" for axis in value.type.tensor_type.shape.dim]
            assert axes == [axis if axis.isdigit() else "" for axis in shape(told["inputs"][value.name])]


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
    for name in (ENCODER, DECODER):
        (tmp_path / name).write_bytes(b"not a graph")
    with pytest.raises(CheckpointError, match="export the run again"):
        OnnxModel(tmp_path, None)


@pytest.mark.parametrize("package", ["onnx", "onnxscript"])
def test_without_the_package_it_says_what_to_install(package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ConfigError, match=rf"needs the package {package} .*; pip install {package}, or "):
        write_onnx(graphs_of(make(**KINDS[0])), tmp_path)
    assert not list(tmp_path.iterdir())
