"""A translating UniLM: source and target in one row, and cached steps that give the logits of a whole pass."""

from typing import Any

import pytest
import torch
from torch import Tensor

from qkv.base import graphs
from qkv.base.rows import Rows, padded_rows
from qkv.models.unilm import UnilmConfig, UnilmTranslator
from qkv.parts import stepping
from qkv.parts.cache import StaticKVCache
from qkv.parts.decoding_weights import PreparedModel

VOCAB, BOS, MASK = 30, 2, 4
SCHEMES = ["learned", "none", "relative", "rotary", "alibi"]


def make(**options: Any) -> UnilmTranslator:
    torch.manual_seed(1)
    shape = {"width": 32, "feedforward": 48, "heads": 4, "layers": 3, "max_positions": 40, **options}
    model = UnilmTranslator(UnilmConfig(**shape), VOCAB, MASK)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.2 * torch.randn(parameter.shape)
    return model.eval()


def random_ids(*shape: int, seed: int = 2) -> Tensor:
    return torch.randint(5, VOCAB, shape, generator=torch.Generator().manual_seed(seed))


def kept(lengths: list[int]) -> Tensor:
    return torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]


def expected_logits(model: UnilmTranslator, source: Tensor, written: Tensor) -> Tensor:
    """Return the logits after `written` without caches: a whole pass with [MASK] at the end, one text at a time."""
    target = torch.cat([written, torch.full((1, 1), MASK)], 1)
    known = model(*(padded_rows(ids, torch.ones_like(ids).bool()) for ids in (source, target)))
    return model.heads["masked"](known[:, -1])


@pytest.mark.parametrize("positions", SCHEMES)
@torch.no_grad()
def test_steps_give_what_a_whole_pass_gives(positions: str) -> None:
    model, lengths = make(positions=positions), [5, 1, 7]
    sources, words = random_ids(3, 7), random_ids(3, 6, seed=3)
    state = PreparedModel(model).start(sources, kept(lengths), max_length=7)
    last = torch.full((3,), BOS)
    for step in range(7):
        scores = model.step(last, state)
        for row, length in enumerate(lengths):
            wanted = expected_logits(model, sources[row : row + 1, :length], words[row : row + 1, :step])
            torch.testing.assert_close(scores[row : row + 1], wanted, rtol=0, atol=1e-4)
        last = words[:, min(step, 5)]


@torch.no_grad()
def test_hypotheses_can_be_reordered_and_dropped() -> None:
    model, lengths = make(), [4, 6]
    sources, words = random_ids(2, 6), random_ids(3, 4, seed=3)
    state = PreparedModel(model).start(sources, kept(lengths), max_length=6)
    state.select(torch.tensor([1, 0]))  # before the first token, as for samples of one source
    model.step(torch.full((2,), BOS), state)
    state.select(torch.tensor([0, 1, 0]))
    model.step(words[:, 0], state)
    model.step(words[:, 1], state)
    state.select(torch.tensor([2, 1]))
    scores = model.step(words[[2, 1], 2], state)
    for row, (source, hypothesis) in enumerate([(1, 2), (0, 1)]):
        wanted = expected_logits(model, sources[source : source + 1, : lengths[source]], words[hypothesis : hypothesis + 1, :3])
        torch.testing.assert_close(scores[row : row + 1], wanted, rtol=0, atol=1e-4)


@torch.no_grad()
def test_samples_of_one_source_begin_alike() -> None:
    model, sources = make(), random_ids(2, 6)
    state = PreparedModel(model).start(sources, kept([4, 6]), max_length=2)
    state.select(torch.tensor([0, 0, 1, 1, 1]))
    scores = model.step(torch.full((5,), BOS), state)
    nothing = torch.empty(1, 0).long()
    for row, wanted in enumerate(
        [expected_logits(model, sources[:1, :4], nothing)] * 2 + [expected_logits(model, sources[1:], nothing)] * 3
    ):
        torch.testing.assert_close(scores[row : row + 1], wanted, rtol=0, atol=1e-4)


@torch.no_grad()
def test_steps_on_fixed_memory_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run on static caches, as on a GPU, which records steps."""
    model, words = make(), random_ids(2, 12, seed=3)
    sources, keep = random_ids(2, 5), kept([5, 3])

    def all_steps() -> tuple[list[Tensor], Any]:
        state = PreparedModel(model).start(sources, keep, max_length=13)
        return [model.step(words[:, step], state) for step in range(12)], state

    plain, _ = all_steps()
    monkeypatch.setattr(graphs, "usable", lambda words: True)
    monkeypatch.setattr(graphs, "GraphedFunction", lambda run, words: run)
    monkeypatch.setattr(stepping, "SPAN", 8)
    monkeypatch.setattr(stepping, "MIN_STEPS_LEFT", 1)
    fixed, state = all_steps()
    assert isinstance(state.cache, StaticKVCache)
    for one, other in zip(plain, fixed, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-5)


@torch.no_grad()
def test_a_source_without_tokens() -> None:
    model = make()
    state = PreparedModel(model).start(torch.empty(2, 0).long(), torch.empty(2, 0).bool(), max_length=2)
    scores = model.step(torch.full((2,), BOS), state)
    assert scores.isfinite().all() and torch.equal(scores[0], scores[1])


def in_one_row(ids: Tensor, lengths: tuple[int, ...], width: int) -> Rows:
    text, position = torch.zeros(2, 1, width, dtype=torch.long)
    at = 0
    for number, length in enumerate(lengths, 1):
        text[0, at : at + length], position[0, at : at + length] = number, torch.arange(length)
        at += length
    return Rows(ids, text, position)


@torch.no_grad()
def test_packed_pairs_are_what_they_are_alone() -> None:
    model, sources, targets = make(), random_ids(1, 16), random_ids(1, 14, seed=3)
    of_sources, of_targets = (4, 0, 7), (3, 5, 4)
    together = model(in_one_row(sources, of_sources, 16), in_one_row(targets, of_targets, 14))
    s = t = 0
    for source, target in zip(of_sources, of_targets, strict=True):
        one = in_one_row(sources[:, s : s + max(source, 1)], (source,), max(source, 1))
        single = model(one, in_one_row(targets[:, t : t + target], (target,), target))
        torch.testing.assert_close(together[:, t : t + target], single, rtol=0, atol=1e-5)
        s, t = s + source, t + target


@torch.no_grad()
def test_later_tokens_are_not_seen() -> None:
    model, source = make(), padded_rows(random_ids(1, 5), torch.ones(1, 5).bool())
    target, other = random_ids(1, 6, seed=3), random_ids(1, 6, seed=3)
    other[0, 3] = 5 + (other[0, 3] - 4) % (VOCAB - 5)
    one, two = (model(source, padded_rows(ids, torch.ones(1, 6).bool())) for ids in (target, other))
    assert torch.equal(one[:, :3], two[:, :3])
    assert not torch.isclose(one[:, 3:], two[:, 3:]).all(-1).any()


def test_its_weights_are_an_encoders() -> None:
    model = make()
    names = dict(model.named_parameters())
    assert all(name.startswith(("encoder.", "heads.masked.")) for name in names)
    assert model.output.weight is names["encoder.embedding.token_embedding.weight"]
    assert model.output.bias is names["heads.masked.bias"]
