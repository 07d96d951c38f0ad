"""The whole convolutional model: texts of a row never mix, and decoding steps give the teacher-forced logits."""

import copy
import itertools
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from qkv.base import graphs
from qkv.base.config import parse
from qkv.base.errors import ConfigError
from qkv.base.rows import Rows, map_tensors, padded_rows
from qkv.data.batches import make_batch
from qkv.decoding import beam, sampling
from qkv.decoding.config import DecodingConfig
from qkv.decoding.hypothesis import Hypothesis
from qkv.decoding.scoring import score
from qkv.decoding.search import decode
from qkv.lens.capture import capture, cross_attention
from qkv.models.convolution import Convolution, ConvolutionConfig
from qkv.objectives.translation import Translation, TranslationConfig
from qkv.parts import kernels
from qkv.parts.decoding_weights import PreparedModel
from recorded_graphs import Recorded

PAD, BOS, EOS, VOCAB = 0, 2, 3, 23
TINY: dict[str, Any] = {"width": 16, "embedding_width": 12, "encoder_layers": 2, "decoder_layers": 3, "max_positions": 50}
KINDS: list[dict[str, Any]] = [
    {"kernel_width": 3, "positions": "learned", "tied": "none"},
    {"kernel_width": 5, "positions": "sinusoidal", "tied": "all"},
    {"kernel_width": 1, "positions": "learned", "tied": "target"},
    {"kernel_width": 3, "positions": "none", "tied": "all"},
    {"kernel_width": 3, "positions": "counting", "tied": "target"},
    {"kernel_width": 3, "positions": "normalised", "tied": "all"},
]
WAYS = {
    "greedy": DecodingConfig(beam=1, max_extra=12),
    "beam": DecodingConfig(beam=4, n_best=4, max_ratio=0, max_extra=12),
    "coverage": DecodingConfig(beam=3, coverage_penalty=0.3, max_extra=9),
    "sampling": DecodingConfig(sampling=True, n_best=3, max_extra=12),
}
CLOSE = {"rtol": 0, "atol": 2e-5}
REACHES = list(itertools.product([1, 2, 4], [1, 3, 5]))  # layers, kernel width
Pair = tuple[list[int], list[int]]

every_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: "-".join(map(str, kind.values())))
every_reach = pytest.mark.parametrize(("layers", "window"), REACHES)
every_way = pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)


def make(**options: Any) -> Convolution:
    torch.manual_seed(1)
    model = Convolution(ConvolutionConfig(**{**TINY, **options}), VOCAB, VOCAB).eval()
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):  # initially 0, which would hide mistakes
            torch.nn.init.normal_(parameter, std=0.3)
        elif "embedding" in name or "table" in name:
            torch.nn.init.normal_(parameter, std=0.4)  # large enough that tokens matter
    return model


def random_pairs(count: int, seed: int = 0, most: int = 9) -> list[Pair]:
    rng = np.random.default_rng(seed)
    return [tuple(rng.integers(4, VOCAB, rng.integers(1, most)).tolist() for _ in range(2)) for _ in range(count)]


def padded(pairs: list[Pair], extra: int = 0) -> tuple[Rows, Rows]:
    """Build rows of one pair each; targets end in eos."""
    sides = [[s for s, _ in pairs], [[*t, EOS] for _, t in pairs]]
    return tuple(padded_side(side, max(map(len, side)) + extra) for side in sides)


def padded_side(texts: list[list[int]], width: int = 0) -> Rows:
    """Pad with tokens that are not 0, so that a leak would show."""
    ids = torch.full((len(texts), width or max(map(len, texts))), 7)
    keep = torch.zeros_like(ids, dtype=torch.bool)
    for row, text in enumerate(texts):
        ids[row, : len(text)] = torch.tensor(text)
        keep[row, : len(text)] = True
    return padded_rows(ids, keep)


def packed(rows: list[list[Pair]], width: int) -> tuple[Rows, Rows]:
    sides = [[[np.array(pair[side]) for pair in row] for row in rows] for side in (0, 1)]
    return make_batch(*sides, (width, width), EOS).inputs


def hidden(model: Convolution, source: Rows, target: Rows) -> Tensor:
    return model(source, Translation(TranslationConfig(), BOS).shifted(target))


def by_text(values: Tensor, rows: Rows) -> list[Tensor]:
    """Return the values of each text, in the order of rows and of texts in them."""
    return [values[r][rows.text[r] == n] for r in range(len(values)) for n in range(1, int(rows.text[r].max()) + 1)]


# Layout


@torch.no_grad()
@every_kind
def test_packed_rows_padded_rows_and_single_texts_give_the_same(kind: dict[str, Any]) -> None:
    model, pairs = make(**kind), random_pairs(9)
    together, wide = packed([pairs[:4], pairs[4:5], pairs[5:]], 45), padded(pairs, extra=5)
    found = by_text(hidden(model, *together), together[1])
    for one, two, pair in zip(found, by_text(hidden(model, *wide), wide[1]), pairs, strict=True):
        single = hidden(model, *padded([pair]))[0]
        torch.testing.assert_close(one, single, **CLOSE)
        torch.testing.assert_close(two, single, **CLOSE)


@every_kind
def test_packed_and_padded_batches_have_the_same_loss_and_gradient(kind: dict[str, Any]) -> None:
    model, pairs = make(**kind, dropout=0.0).train(), random_pairs(9)
    objective = Translation(TranslationConfig(smoothing=0.1), BOS)
    losses, gradients = [], []
    for rows in (packed([pairs[:5], pairs[5:]], 60), padded(pairs, extra=7)):
        loss = objective.loss(model, *rows)
        losses.append(float(loss.detach()))
        gradients.append(torch.autograd.grad(loss, list(model.parameters())))
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)
    for one, two in zip(*gradients, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-3, atol=1e-4)


@torch.no_grad()
def test_bf16_gives_the_same_loss_to_its_own_rounding() -> None:
    model, pairs = make(), random_pairs(20)
    objective, rows = Translation(TranslationConfig(), BOS), packed([pairs[:10], pairs[10:]], 90)
    whole = float(objective.loss(model, *rows))
    with torch.autocast("cpu", torch.bfloat16):
        assert float(objective.loss(model, *rows)) == pytest.approx(whole, rel=0.01)


@pytest.mark.skipif(not kernels.TRITON or torch.cuda.is_available(), reason="this is for Triton's interpreter")
def test_loss_and_gradients_through_our_kernels_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    model, rows = make(dropout=0.0).train(), packed([random_pairs(3)], 32)
    found = []
    for usable in (False, True):
        monkeypatch.setattr(kernels, "usable", lambda x, usable=usable: usable)
        loss = Translation(TranslationConfig(), BOS).loss(model, *rows)
        found.append([loss.detach(), *torch.autograd.grad(loss, list(model.parameters()))])
    for one, two in zip(*found, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-3, atol=1e-4)


# Receptive fields


def seen_from(values: Tensor, words: Tensor, position: int) -> list[int]:
    """Return the positions of embeddings (1, T, E) on which values (1, T, X) at one position depend."""
    (gradient,) = torch.autograd.grad(values[0, position].sum(), words, retain_graph=True)
    return gradient[0].abs().sum(-1).nonzero()[:, 0].tolist()


def embedded(table: torch.nn.Module) -> list[Tensor]:
    """Collect the embedding's outputs from now on."""
    vectors: list[Tensor] = []
    table.register_forward_hook(lambda module, given, found: vectors.append(found.detach().requires_grad_()) or vectors[-1])
    return vectors


@every_reach
def test_the_receptive_field_of_a_source_position(layers: int, window: int) -> None:
    model = make(encoder_layers=layers, kernel_width=window)
    words = embedded(model.source_embedding)
    keys, values = model.encode(padded_side([[5] * 40]))
    radius = layers * (window - 1) + 1
    for known in (keys, values):
        assert seen_from(known, words[0], 20) == list(range(20 - radius // 2, 20 + radius // 2 + 1))


@every_reach
def test_the_receptive_field_of_a_target_position(layers: int, window: int) -> None:
    model = make(decoder_layers=layers, kernel_width=window)
    words = embedded(model.target_embedding)
    found = model(padded_side([[5, 6, 7]]), padded_side([[5] * 40]))
    radius = layers * (window - 1) + 1
    assert seen_from(found, words[0], 30) == list(range(31 - radius, 31))


@torch.no_grad()
def test_every_source_word_counts_for_every_target_word() -> None:
    model = make()
    source, target = padded([([5, 6, 7], [8, 9, 10])])
    before = model(source, target)[0]
    for position in range(3):
        other = source._replace(ids=source.ids.clone())
        other.ids[0, position] = 20
        assert ((model(other, target)[0] - before).abs().amax(-1) > 1e-4).all()


def test_the_encoders_gradient_is_shared_among_the_decoders_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    model, rows = make(dropout=0.0).train(), padded(random_pairs(3))
    weights = [model.encoder_output.direction, model.decoder[0].convolution.linear.direction]
    found = torch.autograd.grad(hidden(model, *rows).pow(2).sum(), weights)
    monkeypatch.setattr("qkv.models.convolution.scale_gradient", lambda x, scale: x)
    plain = torch.autograd.grad(hidden(model, *rows).pow(2).sum(), weights)
    torch.testing.assert_close(found[0] * 3, plain[0], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(found[1], plain[1], rtol=1e-4, atol=1e-5)


def test_whoever_asks_for_gradients_outside_training_gets_the_true_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    model, rows = make().eval(), padded(random_pairs(3))
    found = torch.autograd.grad(hidden(model, *rows).pow(2).sum(), model.encoder_output.direction)
    monkeypatch.setattr("qkv.models.convolution.scale_gradient", lambda x, scale: x)
    plain = torch.autograd.grad(hidden(model, *rows).pow(2).sum(), model.encoder_output.direction)
    assert torch.equal(found[0], plain[0])


# Decoding


@torch.no_grad()
@every_kind
def test_decoding_step_by_step_is_the_teacher_forced_pass(kind: dict[str, Any]) -> None:
    model, pairs = make(**kind), [(s, (t * 12)[:11]) for s, t in random_pairs(4)]
    source, target = padded(pairs)
    wanted = model.logits(hidden(model, source, target))  # (B, T, V)
    state = PreparedModel(model).start(source.ids, source.text > 0, max_length=12)
    words = torch.full((4,), BOS)
    for position in range(12):
        scores = model.step(words, state)
        assert scores.dtype == torch.float32
        torch.testing.assert_close(scores, wanted[:, position], **CLOSE)
        words = target.ids[:, position]
    assert state.history.shape == (3, 4, kind["kernel_width"] - 1, 16)  # only what the windows need


@torch.no_grad()
@every_kind
def test_hypotheses_that_move_double_and_leave_take_their_past_with_them(kind: dict[str, Any]) -> None:
    model, rng = make(**kind), np.random.default_rng(3)
    sources = [s for s, _ in random_pairs(3)]
    source = padded_side(sources)
    state = PreparedModel(model).start(source.ids, source.text > 0, max_length=12)
    owners, written = [0, 1, 2], [[BOS], [BOS], [BOS]]
    # Within their sources, across them, more of them, fewer of them, none moved.
    moves = [[0, 0, 1, 1, 2, 2], [1, 0, 2, 3, 5, 5], [5, 0, 3], [2, 1, 0], [0, 1, 2], [1, 1], [0], [0, 0, 0]]
    for rows in moves:
        scores = model.step(torch.tensor([words[-1] for words in written]), state)
        for row, (owner, words) in enumerate(zip(owners, written, strict=True)):
            whole = model.logits(model(padded_side([sources[owner]]), padded_side([words])))[0, -1]
            torch.testing.assert_close(scores[row], whole, **CLOSE)
        state.select(torch.tensor(rows))
        owners = [owners[row] for row in rows]
        written = [[*written[row], int(rng.integers(4, VOCAB))] for row in rows]


@torch.no_grad()
def test_a_source_shared_by_its_hypotheses_is_as_good_as_one_for_each() -> None:
    model = make()
    source = padded_side([s for s, _ in random_pairs(3)])
    shared, apart = (PreparedModel(model).start(source.ids, source.text > 0, max_length=9, attention=True) for _ in range(2))
    words = torch.full((3,), BOS)
    moves = [  # rows, and the sources that remain
        ([[0, 0], [1, 1], [2, 2]], None),
        ([[1, 0], [2, 2], [5, 4]], None),
        ([[4, 5], [0, 0]], [2, 0]),
        ([[1, 0, 1], [3, 3, 2]], None),
        ([[4, 3, 5]], [1]),
    ]
    for rows, sources in moves:
        torch.testing.assert_close(model.step(words, shared), model.step(words, apart), **CLOSE)
        shared.regroup(torch.tensor(rows), None if sources is None else torch.tensor(sources))
        apart.select(torch.tensor(rows).flatten())
        assert shared.attention is not None and apart.attention is not None
        torch.testing.assert_close(shared.attention, apart.attention, **CLOSE)
        words = torch.arange(4, 4 + torch.tensor(rows).numel())
        assert len(shared.source.keys) == len(rows) and len(apart.source.keys) == len(words)


@torch.no_grad()
def test_the_attention_of_a_step_is_the_mean_over_the_layers() -> None:
    model, pairs = make(), [([5, 6, 7, 8], [9, 10, 11]), ([12, 13], [14, 15, 16])]
    source, target = padded(pairs)
    with capture(model) as seen:
        hidden(model, source, target)
    assert {name: layer.shape for name, layer in seen.items()} == {f"decoder.{n}.cross": (2, 1, 4, 4) for n in range(3)}
    wanted = torch.stack(list(seen.values())).mean((0, 2))  # (B, T, S)
    read = Translation(TranslationConfig(), BOS).shifted(target)
    torch.testing.assert_close(cross_attention(model, source, read), wanted, **CLOSE)
    state = PreparedModel(model).start(source.ids, source.text > 0, max_length=4, attention=True)
    for position in range(4):
        model.step(target.ids[:, position - 1] if position else torch.full((2,), BOS), state)
        assert state.attention is not None
        torch.testing.assert_close(state.attention, wanted[:, position], **CLOSE)
    state.select(torch.tensor([1, 1, 0]))
    torch.testing.assert_close(state.attention, wanted[[1, 1, 0], 3], **CLOSE)


def log_probability(model: Convolution, source: list[int], words: list[int]) -> float:
    found = model.logits(hidden(model, *padded([(source, words)])))[0].log_softmax(-1)
    return sum(float(found[position, word]) for position, word in enumerate(words))


def texts(model: Convolution, way: DecodingConfig, device: str = "cpu") -> tuple[list[list[int]], list[list[Hypothesis]]]:
    sources = [s for s, _ in random_pairs(9)]
    rows = padded_side(sources)
    way = way.model_copy(update={"precision": "float32"})
    found = decode(model.to(device), rows.ids.to(device), (rows.text > 0).to(device), way, bos=BOS, eos=EOS, pad=PAD)
    return sources, found


@torch.no_grad()
@every_way
def test_what_every_search_finds_has_the_models_own_score(way: DecodingConfig) -> None:
    model = make()
    sources, found = texts(model, way)
    for source, hypotheses in zip(sources, found, strict=True):
        for one in hypotheses:
            words = [*one.ids, EOS] if one.finished else one.ids
            assert one.logprob == pytest.approx(log_probability(model, source, words), abs=1e-4)
    rows = padded_side(sources)
    scores = score(model, rows.ids, rows.text > 0, [found[0].ids for found in found], bos=BOS, eos=EOS)
    wanted = [log_probability(model, s, [*f[0].ids, EOS]) for s, f in zip(sources, found, strict=True)]
    assert [one.logprob for one in scores] == pytest.approx(wanted, abs=1e-4)


@every_way
def test_steps_that_are_replayed_find_the_same(way: DecodingConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    model = make()
    wanted = texts(model, way)[1]
    monkeypatch.setattr(graphs, "usable", lambda words: True)
    monkeypatch.setattr(graphs, "GraphedFunction", Recorded)
    for module in (beam, sampling):
        monkeypatch.setattr(module, "worth_leaving", lambda going, device: 2 * going.sum() <= len(going))
    before = Recorded.made
    for some, others in zip(texts(model, way)[1], wanted, strict=True):
        assert [(one.ids, one.finished) for one in some] == [(one.ids, one.finished) for one in others]
    assert (Recorded.made > before) == (way.coverage_penalty == 0)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@every_way
def test_a_gpu_finds_the_same_texts(way: DecodingConfig) -> None:
    model = make()
    wanted = texts(model, way)[1]
    for some, others in zip(texts(model, way, "cuda")[1], wanted, strict=True):
        assert [(one.ids, one.finished) for one in some] == [(one.ids, one.finished) for one in others]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_in_bf16_has_the_same_loss_to_its_own_rounding() -> None:
    model, pairs = make(dropout=0.0).train(), random_pairs(20)
    objective, rows = Translation(TranslationConfig(), BOS), packed([pairs[:10], pairs[10:]], 90)
    wanted = float(objective.loss(model, *rows).detach())
    with torch.autocast("cuda", torch.bfloat16):
        loss = objective.loss(model.cuda(), *(map_tensors(side, Tensor.cuda) for side in rows))
    loss.backward()
    assert float(loss.detach()) == pytest.approx(wanted, rel=0.01)
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


@torch.no_grad()
def test_weights_that_change_are_decoded_with() -> None:
    model, (source, target) = make(), padded(random_pairs(2))
    for _ in range(2):
        state = model.start(source.ids, source.text > 0, max_length=2)
        wanted = model.logits(hidden(model, source, target))[:, 0]
        torch.testing.assert_close(model.step(torch.full((2,), BOS), state), wanted, **CLOSE)
        model.decoder[1].convolution.linear.length.mul_(0.5)


@torch.no_grad()
def test_in_bf16_scores_are_the_same_to_its_own_rounding() -> None:
    model, (source, target) = make(), padded(random_pairs(4))
    wanted = model.logits(hidden(model, source, target))[:, 0]
    with torch.autocast("cpu", torch.bfloat16):
        state = PreparedModel(model).start(source.ids, source.text > 0, max_length=2)
        found = model.step(torch.full((4,), BOS), state)
    assert state.history.dtype == torch.bfloat16 and found.dtype == torch.float32
    torch.testing.assert_close(found, wanted, rtol=0.05, atol=0.05)


# Learning


def test_it_learns_to_copy_backwards() -> None:
    rng = np.random.default_rng(5)
    torch.manual_seed(0)
    shape = {"width": 32, "embedding_width": 32, "encoder_layers": 2, "decoder_layers": 2, "dropout": 0.0, "max_positions": 48}
    model = Convolution(ConvolutionConfig(**shape), 12, 12)
    objective, optimiser = Translation(TranslationConfig(smoothing=0.0), BOS), torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(100):
        texts = [[rng.integers(4, 12, rng.integers(1, 6)) for _ in range(8)] for _ in range(4)]
        batch = make_batch(texts, [[text[::-1] for text in row] for row in texts], (48, 48), EOS)
        optimiser.zero_grad()
        (objective.loss(model, *batch.inputs) / batch.labels).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
    asked = [rng.integers(4, 12, rng.integers(1, 6)).tolist() for _ in range(50)]
    rows = padded_side(asked)
    found = decode(model.eval(), rows.ids, rows.text > 0, DecodingConfig(beam=2), bos=BOS, eos=EOS, pad=PAD)
    assert sum(one.ids == text[::-1] for [one], text in zip(found, asked, strict=True)) >= 40


def test_dropout_acts_in_training_only() -> None:
    model, rows = make(dropout=0.5).train(), padded(random_pairs(2))
    assert not torch.equal(hidden(model, *rows), hidden(model, *rows))
    assert torch.equal(hidden(model.eval(), *rows), hidden(model, *rows))


@torch.no_grad()
def test_signals_keep_their_size_through_many_layers() -> None:
    torch.manual_seed(1)
    model = Convolution(ConvolutionConfig(width=64, embedding_width=64, dropout=0.0, tied="all"), VOCAB, VOCAB)
    found = hidden(model, *padded([(list(range(4, 20)), list(range(4, 20)))]))
    assert 0.03 < float(found.std()) < 0.5  # embeddings plus positions start at 0.14


# Weights and bad input


def test_tied_weights_are_one_tensor() -> None:
    together, target, none = (make(tied=tied) for tied in ("all", "target", "none"))
    assert together.source_embedding.weight is together.target_embedding.weight is together.output.weight
    assert target.target_embedding.weight is target.output.weight
    assert target.source_embedding.weight is not target.target_embedding.weight
    counts = [sum(p.numel() for p in model.parameters()) for model in (together, target, none)]
    assert np.diff(counts).tolist() == [VOCAB * 12, VOCAB * 13]  # a direction and a length for each token


def test_weights_are_all_that_a_copy_needs() -> None:
    model, rows = make(), padded(random_pairs(3))
    other = Convolution(model.config, VOCAB, VOCAB).eval()
    other.load_state_dict(copy.deepcopy(model.state_dict()))
    assert torch.equal(hidden(other, *rows), hidden(model, *rows))


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ({"kernel_width": 4}, r"kernel_width: a window is centred on a source token, so it must be odd, got 4"),
        ({"kernel_width": 0}, r"kernel_width: .*greater than 0, got 0"),
        ({"heads": 4}, r"unknown key 'heads'"),
        ({"positions": "rotary"}, r"positions: .*'learned'"),
        ({"dropout": 1.0}, r"dropout: .*less than 1"),
    ],
)
def test_shapes_that_cannot_be_are_refused_in_a_line(values: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint) as caught:
        parse(ConvolutionConfig, values, "recipe")
    assert "\n" not in str(caught.value)


def test_one_vocabulary_is_needed_where_all_is_tied() -> None:
    with pytest.raises(ConfigError, match=r"model.tied=all needs one vocabulary"):
        Convolution(ConvolutionConfig(**TINY, tied="all"), 20, 21)


@torch.no_grad()
def test_texts_longer_than_the_learned_positions_are_refused() -> None:
    model, short = make(max_positions=5), padded_side([[5, 6]])
    assert (model.longest, make(positions="sinusoidal").longest) == (5, None)
    with pytest.raises(ConfigError, match=r"a text of 6 tokens does not fit the 5 learned positions; use"):
        model.start(torch.full((1, 6), 4), torch.ones(1, 6, dtype=torch.bool), max_length=3)
    state = PreparedModel(model).start(short.ids, short.text > 0, max_length=9)
    for _ in range(5):
        model.step(torch.tensor([BOS]), state)
    with pytest.raises(ConfigError, match=r"the 5 positions for target tokens are full; start with a larger max_length"):
        model.step(torch.tensor([BOS]), state)


@torch.no_grad()
def test_an_empty_source_gives_finite_states() -> None:
    model = make()
    state = PreparedModel(model).start(torch.full((2, 3), 7), torch.tensor([[True] * 3, [False] * 3]), max_length=2)
    assert model.step(torch.full((2,), BOS), state).isfinite().all()
