"""The graphs of Transformers whose encoder sees a part of the text, mixtures of it, or its tree: they find what ours does."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from interop_models import SOURCE_WORDS, make_decided

from qkv.base.rows import padded_rows
from qkv.data.trees import TokensWithHeads
from qkv.decoding.config import DecodingConfig
from qkv.inference.engines import OwnEngine, pad
from qkv.inference.exported import OnnxEngine
from qkv.interop.onnx.model import OnnxModel
from qkv.interop.onnx.writer import graphs_of, write_onnx
from qkv.parts.masks import DenseMask
from qkv.parts.trees import MAX_EXPORTED_POSITIONS

BOS = 2
CPU = torch.device("cpu")
CLOSE = {"rtol": 0, "atol": 2e-5}
WINDOW = {"kind": "window", "radius": 2}
BIGBIRD = {"kind": "bigbird", "radius": 3, "global_tokens": 2, "random_blocks": 2, "block_size": 16, "seed": 5}
LINFORMER = {"kind": "linformer", "projected_length": 8}
# Writing takes seconds, so these are written and the rest is compared before.
WRITTEN: dict[str, dict[str, Any]] = {
    "window": {"attention": WINDOW, "positions": "sinusoidal"},
    "bigbird": {"attention": BIGBIRD, "positions": "sinusoidal"},
    "linformer": {"attention": LINFORMER, "positions": "learned"},
    "trees": {"positions": "structural"},
}
OTHERS: list[dict[str, Any]] = [
    {"attention": WINDOW, "positions": "rotary", "norm": "post"},
    {"attention": {**BIGBIRD, "random_blocks": 0}, "positions": "learned"},
    {"attention": {**BIGBIRD, "global_tokens": 0, "radius": 20, "random_blocks": 3}, "positions": "none"},
    {"attention": BIGBIRD, "positions": "structural-absolute"},
    {"attention": {**LINFORMER, "sharing": "none"}, "positions": "rotary"},
    {"attention": {**LINFORMER, "sharing": "heads"}, "positions": "counting"},
    {"attention": {**LINFORMER, "sharing": "key-value"}, "positions": "sinusoidal"},
    {"positions": "structural-relative", "norm": "post"},
]


@torch.no_grad()
def decided(**options: Any) -> Any:
    """A model that is sure of its words, which are others where the encoder sees something else."""
    model: Any = make_decided(**{"norm": "pre", "tied": "target", "encoder_layers": 2, "max_positions": 160, **options})
    for layer in model.encoder:
        layer.attention.qkv.weight *= 4
        layer.attention.out.weight *= 4
    for layer in model.decoder:
        layer.cross.q.weight *= 6
        layer.cross.out.weight *= 6
    for name, parameter in model.named_parameters():
        if "shortening" in name:  # mixtures as trained ones are: of all places, and unlike each other
            parameter += 0.5 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(3))
    return model


def texts() -> list[list[int]]:
    """Longer and shorter than the window, than the mixtures and than several blocks, with trees of words of several tokens."""
    rng = np.random.default_rng(2)
    lengths = (1, 2, 3, 7, 9, 16, 17, 33, 50, 64, 97, 130, 160)
    return [planted(rng.integers(4, SOURCE_WORDS, length).tolist(), rng, chain=length == 97) for length in lengths]


def planted(ids: list[int], rng: np.random.Generator, chain: bool) -> TokensWithHeads:
    """Ids with a tree: a chain of words of one token, or one in which words and roots are where chance has them."""
    begins = [0, *(position for position in range(1, len(ids)) if chain or rng.random() < 0.7)]
    order = begins if chain else rng.permutation(begins).tolist()
    above = {order[0]: order[0]}
    for number, word in enumerate(order[1:], 1):
        chosen = order[rng.integers(number)] if rng.random() < 0.9 else word
        above[word] = order[number - 1] if chain else chosen
    word, head = 0, []
    for position in range(len(ids)):
        word = position if position in above else word
        head.append(2 * above[word] if position == word else 2 * word + 1)
    return TokensWithHeads(ids, head)


def read_by(model: Any, sources: list[list[int]]) -> list[list[int]]:
    """Sources as this model reads them: with trees or without."""
    return sources if model.config.reads_trees else [list(source) for source in sources]


def told(model: Any, sources: Any) -> dict[str, torch.Tensor]:
    """What the encoder's graph is given."""
    ids, keep = pad(sources, CPU)
    head = {"head": pad([source.head for source in sources], CPU)[0]} if model.config.reads_trees else {}
    return {"ids": ids, "keep": keep, **head}


def memory_of(model: Any, source: list[int]) -> torch.Tensor:
    """Keys and values of a text by itself, as our own engine has them. -> (L, 2, H, S, K)."""
    known = told(model, [source])
    found = model.encode(padded_rows(known["ids"], known["keep"], known.get("head")))
    return torch.stack([torch.stack(layer.cross.project_memory(found, DenseMask(None))) for layer in model.decoder])[:, :, 0]


@pytest.fixture(scope="module", params=WRITTEN)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, OnnxModel, Path]:
    """A model, and the same one exported."""
    folder = tmp_path_factory.mktemp("onnx")
    model = decided(**WRITTEN[request.param])
    graphs = graphs_of(model)
    write_onnx(graphs, folder)
    return model, OnnxModel(folder, graphs.longest), folder


@torch.no_grad()
@pytest.mark.parametrize("options", [*OTHERS, *WRITTEN.values()], ids=str)
def test_before_they_are_written_graphs_read_as_the_model_does(options: dict[str, Any]) -> None:
    model = decided(**options)
    sources = read_by(model, texts())
    found = graphs_of(model).encoder_module(**told(model, sources))["memory"]
    for row, source in zip(found, sources, strict=True):
        torch.testing.assert_close(row[:, :, :, : len(source)], memory_of(model, source), rtol=1e-4, atol=1e-4)


@torch.no_grad()
def test_every_text_of_a_batch_is_read_as_by_itself(pair: Any) -> None:
    model, exported, _ = pair
    sources = read_by(model, texts())
    state = exported.start(**told(model, sources), max_length=5)
    for row, source in zip(state.source["memory"], sources, strict=True):
        here = torch.from_numpy(row)[:, :, :, : len(source)]
        torch.testing.assert_close(here, memory_of(model, source), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("options", [{"beam": 1}, {"beam": 4, "n_best": 3}, {"beam": 3, "coverage_penalty": 0.2}], ids=str)
def test_our_search_finds_the_same_words(pair: Any, options: dict[str, Any]) -> None:
    model, exported, _ = pair
    sources = read_by(model, texts())
    config = DecodingConfig(**{"max_length": 30, **options})
    own, theirs = (engine.decode(sources, config) for engine in (OwnEngine(model), OnnxEngine(exported)))
    assert [[one.ids for one in found] for found in theirs] == [[one.ids for one in found] for found in own]
    scores = [[one.score for found in engine for one in found] for engine in (own, theirs)]
    assert scores[1] == pytest.approx(scores[0], abs=1e-3)


def test_the_words_are_not_those_of_full_attention(pair: Any) -> None:
    model, exported, _ = pair
    if model.config.attention.kind in ("full", "linformer"):
        return  # whose weights are no others'
    full = decided(positions=model.config.positions)
    full.load_state_dict(model.state_dict())
    config = DecodingConfig(beam=1, max_length=30)
    own, others = (engine.decode(read_by(model, texts()), config) for engine in (OnnxEngine(exported), OwnEngine(full)))
    alike = [one[0].ids == other[0].ids for one, other in zip(own, others, strict=True)]
    assert alike[0] and alike.count(False) > 3  # of a text within the window all is seen


def test_attention_is_the_same(pair: Any) -> None:
    model, exported, _ = pair
    for source in read_by(model, texts())[::4]:
        own, theirs = (engine.attention(source, [7, 8, 9]) for engine in (OwnEngine(model), OnnxEngine(exported)))
        torch.testing.assert_close(theirs, own, **CLOSE)


def test_a_source_without_tokens_gives_numbers(pair: Any) -> None:
    model, exported, _ = pair
    head = torch.zeros(2, 2, dtype=torch.long) if model.config.reads_trees else None
    keep = torch.tensor([[True, True], [False, False]])
    state = exported.start(torch.tensor([[5, 6], [7, 7]]), keep, max_length=1, head=head)
    assert exported.step(torch.tensor([BOS, BOS]), state).isfinite().all()


def test_the_graphs_are_sound_and_as_they_are_told(pair: Any) -> None:
    model, _, folder = pair
    for name, said in graphs_of(model).describe().items():
        graph = onnx.load(folder / name)
        onnx.checker.check_model(graph, full_check=True)
        assert [value.name for value in graph.graph.input] == list(said["inputs"])
        assert [value.name for value in graph.graph.output] == list(said["outputs"])
        assert ("head" in said["inputs"]) == (model.config.reads_trees and name == "encoder.onnx")


def test_a_text_may_be_as_long_as_its_graph_can_tell() -> None:
    longest = {name: graphs_of(decided(**options)).longest for name, options in WRITTEN.items()}
    assert longest == {"window": None, "bigbird": MAX_EXPORTED_POSITIONS, "linformer": 160, "trees": MAX_EXPORTED_POSITIONS}
    assert graphs_of(decided(attention={**BIGBIRD, "random_blocks": 0})).longest is None
    assert graphs_of(decided(attention=BIGBIRD, positions="learned")).longest == 160
