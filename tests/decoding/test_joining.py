"""Inputs that join a running search get the outputs that they get alone."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from qkv.base import graphs
from qkv.decoding import beam, sampling
from qkv.decoding.config import DecodingConfig
from qkv.decoding.hypothesis import Hypothesis
from qkv.decoding.logprobs import LogprobRecord
from qkv.decoding.search import begin_search, decode
from qkv.models.gpt import CausalLM, Gpt, GptConfig
from qkv.models.rnn import Rnn, RnnConfig
from qkv.models.t5 import T5, T5Config
from qkv.models.transformer import Transformer, TransformerConfig
from qkv.parts import kernels, stepping
from qkv.parts.decoding_weights import PreparedModel
from recorded_graphs import Recorded

BOS, EOS, PAD, VOCABULARY = 1, 2, 0, 40
SHAPE: dict[str, Any] = {"width": 16, "feedforward": 24, "heads": 2}
DEEP = {**SHAPE, "encoder_layers": 2, "decoder_layers": 2}
PLACED = [(0, 4), (4, 3), (7, 2), (9, 1), (10, 3), (13, 2), (15, 2), (17, 1), (18, 2)]  # first number and count of groups
SEARCHES: dict[str, dict[str, Any]] = {
    "greedy": {"beam": 1},
    "beam": {"beam": 3, "n_best": 2},
    "samples": {"sampling": True, "temperature": 0.8},
    "constrained": {"beam": 1, "min_length": 4, "no_repeat_ngram": 2, "repetition_penalty": 1.3},
    "constrained beam": {"beam": 3, "min_length": 4, "no_repeat_ngram": 2},
}


def gpt(**settings: Any) -> nn.Module:
    return CausalLM(Gpt(GptConfig(**SHAPE, layers=2, max_positions=64, **settings), VOCABULARY))


MODELS = {
    "gpt": gpt,
    **{f"gpt, {scheme}": lambda scheme=scheme: gpt(positions=scheme) for scheme in ("rotary", "alibi", "relative", "none")},
    "transformer": lambda: Transformer(TransformerConfig(**DEEP), VOCABULARY, VOCABULARY),
    **{
        f"transformer, {scheme}": lambda scheme=scheme: Transformer(
            TransformerConfig(**DEEP, positions=scheme), VOCABULARY, VOCABULARY
        )
        for scheme in ("rotary", "alibi", "relative")
    },
    "t5": lambda: T5(T5Config(**DEEP), VOCABULARY, VOCABULARY),
    "rnn": lambda: Rnn(RnnConfig(width=16, embedding_width=16), VOCABULARY, VOCABULARY),
}


def made(name: str) -> PreparedModel:
    """A model with weights so large that its outputs differ."""
    torch.manual_seed(5)
    model = MODELS[name]()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.5)
    return PreparedModel(model.eval())


def inputs_of(model: PreparedModel, rng: np.random.Generator, numbers: list[int]) -> dict[str, Any]:
    """Sources, or prompts, of 1 to 9 tokens."""
    texts = [rng.integers(3, VOCABULARY, size=rng.integers(1, 10)).tolist() for _ in numbers]
    prompts = isinstance(model.model, CausalLM)
    kept = [text[:-1] if prompts else text for text in texts]
    width = max(map(len, kept))
    padded = [[*text, *[PAD] * (width - len(text))] for text in kept]
    ids = torch.tensor(padded, dtype=torch.long).view(len(kept), width)
    keep = torch.arange(width) < torch.tensor([len(text) for text in kept])[:, None]
    more: dict[str, Any] = {"last_tokens": [text[-1] for text in texts]} if prompts else {}
    return {"ids": ids, "keep": keep, "index": numbers, **more}


@torch.inference_mode()
def joined(model: PreparedModel, groups: list[dict[str, Any]], config: DecodingConfig) -> dict[Any, list[Hypothesis]]:
    """Let the groups join one search, each after a few more steps than the one before."""
    found: dict[Any, list[Hypothesis]] = {}
    running = None
    for number, group in enumerate(groups):
        new = begin_search(model, **group, config=config, bos=BOS, eos=EOS, pad=PAD, owners=group["index"])
        if running is None:
            running = new
        else:
            assert running.joins(new)
            running.join(new)
        for _ in range(number + 1):
            if len(running):
                found.update(running.step())
    assert running is not None
    while len(running):
        found.update(running.step())
    return found


@pytest.mark.parametrize("search", SEARCHES)
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("waiting", [False, True])
def test_joining_changes_nothing(name: str, search: str, waiting: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if waiting:  # outputs that are done wait to leave, as on a GPU
        for module in (beam, sampling):
            monkeypatch.setattr(module, "worth_leaving", lambda going, device: 2 * going.sum() <= len(going))
    model, rng = made(name), np.random.default_rng(1)
    config = DecodingConfig(**SEARCHES[search], max_ratio=0, max_extra=14, length_penalty=0.6)
    groups = [inputs_of(model, rng, numbers) for numbers in ([0, 1, 2], [3], [4, 5], [6, 7, 8, 9])]
    with monkeypatch.context() as context:
        context.setattr(kernels, "MANY_POSITIONS", 16)  # soon our kernel attends to the cache; alone, torch does
        found = joined(model, groups, config)
    assert len(found) == 10
    for group in groups:
        alone = decode(model, **group, config=config, bos=BOS, eos=EOS, pad=PAD)
        for number, expected in zip(group["index"], alone, strict=True):
            assert [one.ids for one in found[number]] == [one.ids for one in expected], number
            for one, other in zip(found[number], expected, strict=True):
                assert one.finished == other.finished
                assert one.logprob == pytest.approx(other.logprob, abs=2e-4)


@pytest.mark.parametrize("piece", [1, 4, 64])
@torch.inference_mode()
def test_prompts_that_were_read_in_pieces_join_others(piece: int) -> None:
    model, rng = made("gpt"), np.random.default_rng(3)
    config = DecodingConfig(beam=1, max_ratio=0, max_extra=14)
    groups = [inputs_of(model, rng, numbers) for numbers in ([0, 1], [2, 3, 4], [5])]
    shared = {"config": config, "bos": BOS, "eos": EOS, "pad": PAD}
    in_pieces: Any = SimpleNamespace(step=model.step, start=lambda *inputs: model.start(*inputs, piece=piece))
    running, found = begin_search(model, **groups[0], **shared, owners=groups[0]["index"]), {}
    for group in groups[1:]:
        new = begin_search(in_pieces, **group, **shared, owners=group["index"])
        while new.state.reading:  # type: ignore[attr-defined]
            found.update(new.step())
            found.update(running.step() if len(running) else ())
        running.join(new)  # type: ignore[arg-type]
    while len(running):
        found.update(running.step())
    for group in groups:
        for number, (expected,) in zip(group["index"], decode(model, **group, **shared), strict=True):
            assert found[number][0].ids == expected.ids


@torch.inference_mode()
def test_outputs_keep_their_own_penalties_and_log_probabilities() -> None:
    model, rng, shared = made("gpt"), np.random.default_rng(2), {"bos": BOS, "eos": EOS, "pad": PAD}
    options: list[dict[str, Any]] = [
        {"beam": 1},
        {"beam": 1, "frequency_penalty": 1.5},
        {"beam": 1, "sampling": True, "presence_penalty": 2.0},
        {"beam": 1, "presence_penalty": -1.0},
    ]
    configs = [DecodingConfig(**each, max_ratio=0, max_extra=12) for each in options]
    groups = [inputs_of(model, rng, numbers) for numbers in ([0, 1], [2], [3, 4, 5], [6])]
    records: dict[int, LogprobRecord | None] = {number: LogprobRecord(2) if number % 2 else None for number in range(7)}
    found: dict[Any, list[Hypothesis]] = {}
    running: Any = None
    for group, config in zip(groups, configs, strict=True):
        wanted = [records[number] for number in group["index"]]
        new = begin_search(
            model, **group, config=config, **shared, owners=group["index"], records=wanted if any(wanted) else None
        )
        if running is None:
            running = new
        else:
            assert running.joins(new)
            running.join(new)
        found.update(running.step())
        found.update(running.step())
    while len(running):
        found.update(running.step())
    for group, config in zip(groups, configs, strict=True):
        own = [LogprobRecord(2) for _ in group["index"]]
        for number, (expected,), told in zip(
            group["index"], decode(model, **group, config=config, **shared, records=own), own, strict=True
        ):
            assert found[number][0].ids == expected.ids
            if (record := records[number]) is not None:
                assert [one.token for one in record.tokens] == [one.token for one in told.tokens] == expected.ids
                np.testing.assert_allclose(
                    [one.logprob for one in record.tokens], [one.logprob for one in told.tokens], atol=2e-4
                )


@pytest.mark.parametrize("search", SEARCHES)
@pytest.mark.parametrize("name", [name for name in MODELS if name != "rnn"])
def test_new_texts_take_the_places_of_those_that_are_done(name: str, search: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU steps are recorded, and new texts come into the same memory; here recordings are made as if they were graphs."""
    if name.startswith("gpt") and "beam" in search:
        pytest.skip("the state of a GPT does not know which rows are one input's")
    for module in (beam, sampling):
        monkeypatch.setattr(module, "worth_leaving", lambda going, device: False)
    monkeypatch.setattr(graphs, "usable", lambda values: True)
    monkeypatch.setattr(graphs, "GraphedFunction", Recorded)
    monkeypatch.setattr(stepping, "SPAN", 4)
    monkeypatch.setattr(stepping, "MIN_STEPS_LEFT", 2)
    model, rng = made(name), np.random.default_rng(2)
    config = DecodingConfig(**SEARCHES[search], max_ratio=0, max_extra=14)
    groups = [inputs_of(model, rng, list(range(first, first + count))) for first, count in PLACED]
    for group in groups:
        group["max_lengths"] = rng.integers(6, 15, size=len(group["index"])).tolist()
    found, placed = running_out_of_places(model, groups, config)
    assert placed >= len(groups) // 2
    monkeypatch.undo()
    for group in groups:
        for number, expected in zip(
            group["index"], decode(model, **group, config=config, bos=BOS, eos=EOS, pad=PAD), strict=True
        ):
            assert [one.ids for one in found[number]] == [one.ids for one in expected], number


@torch.inference_mode()
def running_out_of_places(
    model: PreparedModel, groups: list[dict[str, Any]], config: DecodingConfig
) -> tuple[dict[Any, list[Hypothesis]], int]:
    """Let each group join as soon as there are places for it; return all outputs, and how often no memory had to move."""
    found: dict[Any, list[Hypothesis]] = {}
    placed, running = 0, None
    for group in groups:
        new = begin_search(model, **group, config=config, bos=BOS, eos=EOS, pad=PAD, owners=group["index"])
        if running is None:
            running = new
            continue
        while len(running) > 1 and len(running.batch) - len(running) < len(new):
            found.update(running.step())
        if not len(running):
            running = new
            continue
        rows = len(running.batch)
        running.join(new)
        placed += len(running.batch) == rows
        found.update(running.step())
    assert running is not None
    while len(running):
        found.update(running.step())
    return found, placed
