"""The whole Transformer: only visible tokens count, in any layout of texts and in decoding."""

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from qkv.base.errors import ConfigError
from qkv.base.rows import Rows, padded_rows
from qkv.data.batches import make_batch
from qkv.decoding.config import DecodingConfig
from qkv.decoding.search import decode
from qkv.lens.capture import capture
from qkv.models.transformer import SIZES, Transformer, TransformerConfig
from qkv.objectives.translation import Translation, TranslationConfig
from qkv.parts.adapters import with_adapters
from qkv.parts.decoding_weights import PreparedModel
from qkv.parts.model_config import AdapterConfig

PAD, BOS, EOS, VOCAB = 0, 2, 3, 23
TINY: dict[str, Any] = {
    "width": 16, "feedforward": 24, "heads": 4, "encoder_layers": 2, "decoder_layers": 3, "max_positions": 40, "max_distance": 2,
}  # fmt: skip
KINDS = [
    {"norm": norm, "activation": activation, "positions": positions, "tied": tied}
    for (norm, activation, positions), tied in zip(
        itertools.product(["post", "pre"], ["relu", "gelu", "swiglu"], ["sinusoidal", "learned"]),
        itertools.cycle(["all", "target", "none"]),
        strict=False,
    )
]
OTHER_POSITIONS = ["none", "counting", "normalised", "relative", "rotary", "alibi"]
KINDS += [{"norm": norm, "positions": positions} for positions, norm in zip(OTHER_POSITIONS, ["post", "pre"] * 3, strict=True)]
KINDS += [{"activation": "silu", "output_bias": True}]
CLOSE = {"rtol": 0, "atol": 2e-5}

every_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: "-".join(map(str, kind.values())))


def make(**options: Any) -> Transformer:
    torch.manual_seed(1)
    model = Transformer(TransformerConfig(**{**TINY, **options}), VOCAB, VOCAB).eval()
    for name, parameter in model.named_parameters():
        # Norms and biases start at 1 and 0, which would hide mistakes.
        if parameter.dim() == 1 or "table" in name:
            torch.nn.init.normal_(parameter, 1.0 if "norm.weight" in name else 0.0, 0.3)
    return model


def random_pairs(count: int, seed: int = 0, most: int = 9) -> list[tuple[list[int], list[int]]]:
    rng = np.random.default_rng(seed)
    return [tuple(rng.integers(4, VOCAB, rng.integers(1, most)).tolist() for _ in range(2)) for _ in range(count)]


def padded(pairs: list[tuple[list[int], list[int]]], extra: int = 0) -> tuple[Rows, Rows]:
    """Build rows of one pair each; targets end in eos; padding is not 0, so that a leak would show."""
    sides = [[s for s, _ in pairs], [[*t, EOS] for _, t in pairs]]
    return tuple(padded_side(side, max(map(len, side)) + extra) for side in sides)


def padded_side(texts: list[list[int]], width: int) -> Rows:
    ids = torch.full((len(texts), width), 7)
    keep = torch.zeros_like(ids, dtype=torch.bool)
    for row, text in enumerate(texts):
        ids[row, : len(text)] = torch.tensor(text)
        keep[row, : len(text)] = True
    return padded_rows(ids, keep)


def packed(rows: list[list[tuple[list[int], list[int]]]], width: int) -> tuple[Rows, Rows]:
    sides = [[[np.array(pair[side]) for pair in row] for row in rows] for side in (0, 1)]
    return make_batch(*sides, (width, width), EOS).inputs


def hidden(model: Transformer, source: Rows, target: Rows) -> Tensor:
    return model(source, Translation(TranslationConfig(), BOS).shifted(target))


def by_text(values: Tensor, rows: Rows) -> list[Tensor]:
    """Return the values of each text, in the order of rows and of texts in them."""
    return [values[r][rows.text[r] == n] for r in range(len(values)) for n in range(1, int(rows.text[r].max()) + 1)]


# Layout


@torch.no_grad()
@every_kind
def test_packed_rows_padded_rows_and_single_texts_give_the_same(kind: dict[str, str]) -> None:
    model, pairs = make(**kind), random_pairs(9)
    rows = [pairs[:4], pairs[4:5], pairs[5:]]
    together = packed(rows, 45)
    found = by_text(hidden(model, *together), together[1])
    wide = padded(pairs, extra=5)
    assert len(found) == 9
    for one, two, pair in zip(found, by_text(hidden(model, *wide), wide[1]), pairs, strict=True):
        single = hidden(model, *padded([pair]))[0]
        torch.testing.assert_close(one, single, **CLOSE)
        torch.testing.assert_close(two, single, **CLOSE)


@pytest.mark.parametrize("kind", KINDS[:12:5] + KINDS[12:], ids=lambda kind: "-".join(map(str, kind.values())))
@pytest.mark.parametrize("training", [False, True])
def test_packed_and_padded_batches_have_the_same_loss_and_gradient(kind: dict[str, str], training: bool) -> None:
    model, pairs = make(**kind, dropout=0.0).train(training), random_pairs(9)
    objective = Translation(TranslationConfig(smoothing=0.1), BOS)
    losses, gradients = [], []
    for rows in (packed([pairs[:5], pairs[5:]], 60), padded(pairs), padded(pairs, extra=7)):
        loss = objective.loss(model, *rows)
        losses.append(float(loss.detach()))
        gradients.append(torch.autograd.grad(loss, list(model.parameters())))
    assert losses[1:] == pytest.approx([losses[0]] * 2, rel=1e-5)
    for others in gradients[1:]:
        for one, two in zip(gradients[0], others, strict=True):
            torch.testing.assert_close(one, two, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_packed_and_padded_batches_are_the_same_to_adapters(norm: str) -> None:
    model, pairs = with_adapters(make(norm=norm, dropout=0.0).train(), AdapterConfig(rank=2, alpha=2)), random_pairs(9)
    trained = [p for p in model.parameters() if p.requires_grad]
    for p in trained:
        torch.nn.init.normal_(p, std=0.3)
    objective, layouts = Translation(TranslationConfig(), BOS), (packed([pairs[:5], pairs[5:]], 60), padded(pairs))
    losses = [objective.loss(model, *rows) for rows in layouts]
    torch.testing.assert_close(*losses, rtol=1e-5, atol=0)
    for one, two in zip(*(torch.autograd.grad(loss, trained) for loss in losses), strict=True):
        torch.testing.assert_close(one, two, rtol=1e-3, atol=1e-4)


@torch.no_grad()
@pytest.mark.parametrize("norm", ["post", "pre"])
def test_bf16_gives_the_same_loss_to_its_own_rounding(norm: str) -> None:
    model, pairs = make(norm=norm), random_pairs(20)
    objective, rows = Translation(TranslationConfig(), BOS), packed([pairs[:10], pairs[10:]], 90)
    whole = float(objective.loss(model, *rows))
    with torch.autocast("cpu", torch.bfloat16):
        half = objective.loss(model, *rows)
    assert half.dtype == torch.float32  # thousands of losses are not summed in bf16
    assert float(half) == pytest.approx(whole, rel=0.01)


@torch.no_grad()
@pytest.mark.parametrize("norm", ["post", "pre"])
def test_another_text_in_the_same_row_changes_nothing(norm: str) -> None:
    model, pairs, others = make(norm=norm), random_pairs(3, most=6), random_pairs(3, seed=9, most=12)
    rows = packed([pairs], 40)
    before = by_text(hidden(model, *rows), rows[1])
    for changed in range(3):
        mixed = [others[i] if i == changed else pair for i, pair in enumerate(pairs)]
        rows = packed([mixed], 40)
        after = by_text(hidden(model, *rows), rows[1])
        for i in {0, 1, 2} - {changed}:
            torch.testing.assert_close(after[i], before[i], **CLOSE)
        assert after[changed].shape != before[changed].shape or (after[changed] - before[changed]).abs().max() > 0.01


@torch.no_grad()
@every_kind
def test_a_future_word_cannot_change_the_past(kind: dict[str, str]) -> None:
    model = make(**kind)
    source, target = padded([([5, 6, 7], [8, 9, 10, 11, 12, 13])])
    before = model.logits(model(source, target))[0]
    for position in range(target.ids.size(1)):
        other = target._replace(ids=target.ids.clone())
        other.ids[0, position] = 20
        after = model.logits(model(source, other))[0]
        torch.testing.assert_close(after[:position], before[:position], **CLOSE)
        assert ((after[position:] - before[position:]).abs().amax(-1) > 1e-4).all()


@torch.no_grad()
def test_every_source_word_counts_for_every_target_word() -> None:
    model = make()
    source, target = padded([([5, 6, 7], [8, 9, 10])])
    before = model(source, target)[0]
    for position in range(3):
        other = source._replace(ids=source.ids.clone())
        other.ids[0, position] = 20
        assert ((model(other, target)[0] - before).abs().amax(-1) > 1e-4).all()


@torch.no_grad()
def test_the_order_of_words_counts() -> None:
    model = make()
    one, two = (hidden(model, *padded([(source, [8])])) for source in ([5, 6, 7], [7, 6, 5]))
    assert (one - two).abs().max() > 1e-3


# Positions

each_scheme = pytest.mark.parametrize("positions", ["sinusoidal", "learned", *OTHER_POSITIONS])


@torch.no_grad()
@each_scheme
def test_only_without_positions_is_the_encoder_blind_to_order(positions: str) -> None:
    model, words, order = make(positions=positions), [5, 6, 7, 8, 9, 10], [3, 0, 5, 1, 4, 2]
    straight, mixed = (model.encode(padded_side([text], 6))[0] for text in (words, [words[i] for i in order]))
    assert ((mixed - straight[order]).abs().max() < 1e-5) == (positions == "none")


@torch.no_grad()
@pytest.mark.parametrize("positions", ["counting", "normalised"])
def test_a_norm_takes_away_what_all_dimensions_have_in_common(positions: str) -> None:
    """So with pre-norm, counting and normalised positions have no effect."""
    rows = padded(random_pairs(4))
    found, none = (hidden(make(norm="pre", positions=kind), *rows) for kind in (positions, "none"))
    torch.testing.assert_close(found, none, **CLOSE)


@torch.no_grad()
@each_scheme
def test_distances_without_a_side_do_not_tell_a_text_from_its_mirror_image(positions: str) -> None:
    model, words = make(positions=positions), [5, 6, 7, 8]
    straight, mirrored = (hidden(model, *padded([(text, [9, 10])])) for text in (words, words[::-1]))
    assert ((straight - mirrored).abs().max() < 1e-5) == (positions in ("alibi", "none"))


@torch.no_grad()
@each_scheme
def test_the_decoder_tells_orders_of_its_past_apart(positions: str) -> None:
    model = make(positions=positions)
    one, two = (hidden(model, *padded([([5, 6], words)]))[0, -1] for words in ([8, 9, 10, 11], [9, 8, 10, 11]))
    # Even without positions: a causal hidden state depends on the tokens before it.
    assert (one - two).abs().max() > 1e-4


@torch.no_grad()
@pytest.mark.parametrize("positions", ["sinusoidal", *OTHER_POSITIONS])
def test_texts_may_be_longer_than_any_number_in_the_config(positions: str) -> None:
    model, rng = make(positions=positions, max_positions=4, max_distance=3), np.random.default_rng(5)
    assert model.longest is None
    source, target = padded([tuple(rng.integers(4, VOCAB, length).tolist() for length in (70, 59))])
    wanted = model.logits(hidden(model, source, target))
    state = PreparedModel(model).start(source.ids, source.text > 0, max_length=60)
    for position in range(60):
        scores = model.step(target.ids[:, position - 1] if position else torch.tensor([BOS]), state)
        torch.testing.assert_close(scores, wanted[:, position], rtol=0, atol=1e-4)


@torch.no_grad()
def test_learned_positions_end_with_their_table() -> None:
    model = make(positions="learned", max_positions=4)
    assert model.longest == 4
    with pytest.raises(ConfigError, match="a text of 5 tokens does not fit the 4 learned positions"):
        model.encode(padded_side([[5, 6, 7, 8, 9]], 5))


@torch.no_grad()
@each_scheme
def test_every_scheme_gives_the_same_loss_in_bf16_to_its_own_rounding(positions: str) -> None:
    model, pairs = make(positions=positions), random_pairs(20)
    objective, rows = Translation(TranslationConfig(), BOS), packed([pairs[:10], pairs[10:]], 90)
    whole = float(objective.loss(model, *rows))
    with torch.autocast("cpu", torch.bfloat16):
        half = float(objective.loss(model, *rows))
    assert half == pytest.approx(whole, rel=0.02)


@torch.no_grad()
@pytest.mark.parametrize("positions", OTHER_POSITIONS)
def test_the_lens_sees_every_layer_of_every_scheme_and_changes_nothing(positions: str) -> None:
    model, rows = make(positions=positions), packed([random_pairs(3)], 30)
    before = by_text(hidden(model, *rows), rows[1])
    with capture(model) as seen:
        after = by_text(hidden(model, *rows), rows[1])
    assert len(seen) == 2 + 2 * 3
    assert all(torch.allclose(weights.sum(-1), torch.ones(1)) for weights in seen.values())
    for one, two in zip(before, after, strict=True):
        torch.testing.assert_close(one, two, **CLOSE)


def test_rotary_needs_heads_of_an_even_width() -> None:
    with pytest.raises(ValueError, match="rotary rotates pairs of dimensions, but a width of 15 does not give each of 5 heads"):
        TransformerConfig(width=15, heads=5, positions="rotary")
    assert TransformerConfig(width=20, heads=5, positions="rotary").positions == "rotary"


def test_only_relative_positions_have_weights_in_attention() -> None:
    names = {name for name, _ in make(positions="relative", max_distance=7).named_parameters()} - {
        n for n, _ in make().named_parameters()
    }
    layers = [f"{side}.{n}.attention.relative.0" for side, count in (("encoder", 2), ("decoder", 3)) for n in range(count)]
    assert names == {f"{layer}.{side}" for layer in layers for side in ("keys", "values")}
    assert make(positions="relative", max_distance=7).encoder[0].attention.relative[0].keys.shape == (15, 4)  # type: ignore[union-attr]
    for positions in ("rotary", "alibi", "counting", "normalised", "none"):
        assert make(positions=positions).state_dict().keys() == make().state_dict().keys()


# Decoding


@torch.no_grad()
@every_kind
def test_decoding_step_by_step_is_the_teacher_forced_pass(kind: dict[str, str]) -> None:
    model, pairs = make(**kind), [(s, (t * 8)[:7]) for s, t in random_pairs(4)]
    source, target = padded(pairs)
    wanted = model.logits(hidden(model, source, target))  # (B, T, V)
    state = PreparedModel(model).start(source.ids, source.text > 0, max_length=8)
    words = torch.full((4,), BOS)
    for position in range(8):
        scores = model.step(words, state)
        assert scores.dtype == torch.float32
        torch.testing.assert_close(scores, wanted[:, position], **CLOSE)
        words = target.ids[:, position]


@torch.no_grad()
@every_kind
def test_hypotheses_that_move_double_and_leave_take_their_past_with_them(kind: dict[str, str]) -> None:
    model, rng = make(**kind), np.random.default_rng(3)
    sources = [s for s, _ in random_pairs(3)]
    source = padded_side(sources, max(map(len, sources)))
    state = PreparedModel(model).start(source.ids, source.text > 0, max_length=12)
    owners, written = [0, 1, 2], [[BOS], [BOS], [BOS]]
    # Within their sources, across them, more of them, fewer of them, none moved.
    moves = [[0, 0, 1, 1, 2, 2], [1, 0, 2, 3, 5, 5], [5, 0, 3], [2, 1, 0], [0, 1, 2], [1, 1], [0], [0, 0, 0]]
    for rows in moves:
        scores = model.step(torch.tensor([words[-1] for words in written]), state)
        for row, (owner, words) in enumerate(zip(owners, written, strict=True)):
            single = padded_side([sources[owner]], len(sources[owner]))
            whole = model.logits(model(single, padded_side([words], len(words))))[0, -1]
            torch.testing.assert_close(scores[row], whole, **CLOSE)
        state.select(torch.tensor(rows))
        owners = [owners[row] for row in rows]
        written = [[*written[row], int(rng.integers(4, VOCAB))] for row in rows]


@torch.no_grad()
def test_the_attention_of_a_step_is_that_of_the_last_layer() -> None:
    model, pairs = make(), [([5, 6, 7, 8], [9, 10, 11]), ([12, 13], [14, 15, 16])]
    source, target = padded(pairs)
    with capture(model) as seen:
        hidden(model, source, target)
    wanted = seen["decoder.2.cross"].mean(1)  # (B, T, S)
    state = PreparedModel(model).start(source.ids, source.text > 0, max_length=4, attention=True)
    for position in range(4):
        model.step(target.ids[:, position - 1] if position else torch.full((2,), BOS), state)
        assert state.attention is not None
        torch.testing.assert_close(state.attention, wanted[:, position], **CLOSE)
    state.select(torch.tensor([1, 1, 0]))
    torch.testing.assert_close(state.attention, wanted[[1, 1, 0], 3], **CLOSE)


@torch.no_grad()
def test_attention_is_recorded_only_on_request() -> None:
    model = make()
    state = PreparedModel(model).start(torch.tensor([[5, 6]]), torch.ones(1, 2).bool(), max_length=2)
    model.step(torch.tensor([BOS]), state)
    assert state.attention is None


def log_probability(model: Transformer, source: list[int], words: list[int]) -> float:
    rows = padded([(source, words)])
    found = model.logits(hidden(model, *rows))[0].log_softmax(-1)
    return sum(float(found[position, word]) for position, word in enumerate(words))


@torch.no_grad()
@pytest.mark.parametrize("norm", ["post", "pre"])
def test_beam_search_scores_are_the_models_own(norm: str) -> None:
    model, sources = make(norm=norm), [s for s, _ in random_pairs(5)]
    source = padded_side(sources, max(map(len, sources)))
    config = DecodingConfig(beam=4, n_best=4, max_ratio=0, max_extra=12)
    found = decode(model, source.ids, source.text > 0, config, bos=BOS, eos=EOS, pad=PAD)
    assert {one.finished for hypotheses in found for one in hypotheses} == {True, False}
    for text, hypotheses in zip(sources, found, strict=True):
        assert len({tuple(one.ids) for one in hypotheses}) == 4
        for one in hypotheses:
            words = [*one.ids, EOS] if one.finished else one.ids
            assert one.logprob == pytest.approx(log_probability(model, text, words), abs=1e-4)


@torch.no_grad()
def test_greedy_decoding_is_the_best_word_each_time() -> None:
    model, sources = make(norm="pre", tied="none"), [s for s, _ in random_pairs(4)]
    source = padded_side(sources, max(map(len, sources)))
    found = decode(model, source.ids, source.text > 0, DecodingConfig(beam=1, max_extra=3), bos=BOS, eos=EOS, pad=PAD)
    for text, [one] in zip(sources, found, strict=True):
        words = [BOS]
        while len(words) <= len(one.ids) + (1 if one.finished else 0):
            single = padded_side([text], len(text))
            scores = model.logits(model(single, padded_side([words], len(words))))[0, -1]
            scores[[PAD, BOS]] = -torch.inf
            words.append(int(scores.argmax()))
        assert words[1:] == ([*one.ids, EOS] if one.finished else one.ids)


# Parameters


@pytest.mark.parametrize(("size", "millions"), [("base", 65), ("big", 213)])
def test_the_published_sizes_have_the_published_number_of_parameters(size: str, millions: int) -> None:
    with torch.device("meta"):
        model = Transformer(TransformerConfig(**SIZES[size]), 37_000, 37_000)
    assert sum(p.numel() for p in model.parameters()) == pytest.approx(millions * 1e6, rel=0.03)


def test_tied_weights_are_one_tensor() -> None:
    together, target, none = (make(tied=tied) for tied in ("all", "target", "none"))
    assert together.source_embedding.weight is together.target_embedding.weight is together.output.weight
    assert target.target_embedding.weight is target.output.weight
    assert target.source_embedding.weight is not target.target_embedding.weight
    tensors = [none.source_embedding.weight, none.target_embedding.weight, none.output.weight]
    assert len({tensor.data_ptr() for tensor in tensors}) == 3
    counts = [sum(p.numel() for p in model.parameters()) for model in (together, target, none)]
    assert np.diff(counts).tolist() == [VOCAB * 16] * 2


def test_dropout_acts_in_training_only() -> None:
    model = make(dropout=0.5).train()
    rows = padded(random_pairs(2))
    assert not torch.equal(hidden(model, *rows), hidden(model, *rows))
    assert torch.equal(hidden(model.eval(), *rows), hidden(model, *rows))


@pytest.mark.parametrize("options", [{"width": 10, "heads": 4}, {"tied": "all"}])
def test_shapes_that_do_not_fit_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"heads|one vocabulary"):
        Transformer(TransformerConfig(**{**TINY, **options}), 20, 21)


def test_encoder_and_decoder_may_differ_in_depth_and_vocabulary() -> None:
    model = Transformer(TransformerConfig(**{**TINY, "encoder_layers": 1, "decoder_layers": 2, "tied": "target"}), 9, 30)
    assert (len(model.encoder), len(model.decoder)) == (1, 2)
    rows = padded([([8, 7], [29, 20])])
    assert model.logits(hidden(model, *rows)).shape == (1, 3, 30)


# Sources with trees

STRUCTURAL = ["structural", "structural-absolute", "structural-relative"]


def hanging(pairs: list[tuple[list[int], list[int]]], seed: int = 0) -> list[np.ndarray]:
    """Return the dependency heads of each source: a token's head is itself or an earlier one."""
    rng = np.random.default_rng(seed)
    return [2 * np.array([rng.integers(0, position + 1) for position in range(len(source))]) for source, _ in pairs]


@torch.no_grad()
@pytest.mark.parametrize("positions", STRUCTURAL)
def test_trees_are_the_same_in_packed_and_in_padded_rows(positions: str) -> None:
    model, pairs = make(positions=positions), random_pairs(5)
    heads = hanging(pairs)
    sides = [[[np.array(pair[side]) for pair in row] for row in (pairs[:3], pairs[3:])] for side in (0, 1)]
    rows = make_batch(sides[0], sides[1], (40, 40), EOS, head=[heads[:3], heads[3:]]).inputs
    found = by_text(hidden(model, *rows), rows[1])
    for pair, head, one in zip(pairs, heads, found, strict=True):
        source, target = padded([pair])
        single = source._replace(head=torch.from_numpy(head)[None])
        torch.testing.assert_close(one, hidden(model, single, target)[0], **CLOSE)
        other = single._replace(head=2 * single.position)  # every word is a root
        assert len(head) == 1 or not head.any() or not torch.allclose(one, hidden(model, other, target)[0], **CLOSE)


@torch.no_grad()
@pytest.mark.parametrize("positions", STRUCTURAL)
def test_decoding_from_trees_is_the_teacher_forced_pass(positions: str) -> None:
    model, pairs = make(positions=positions), random_pairs(4)
    source, target = padded(pairs)
    head = torch.zeros_like(source.ids)
    for row, heads in enumerate(hanging(pairs)):
        head[row, : len(heads)] = torch.from_numpy(heads)
    wanted = model.logits(hidden(model, source._replace(head=head), target))
    state = PreparedModel(model).start(source.ids, source.text > 0, target.ids.size(1), head=head)
    words = torch.full((4,), BOS)
    for position in range(target.ids.size(1)):
        scores = model.step(words, state)
        here = target.text[:, position] > 0
        torch.testing.assert_close(scores[here], wanted[here, position], **CLOSE)
        words = target.ids[:, position]


@torch.no_grad()
@pytest.mark.parametrize("positions", STRUCTURAL)
def test_decoding_from_trees_in_bf16(positions: str) -> None:
    model, (pair,) = make(positions=positions), random_pairs(1, most=9)
    ids, head = torch.tensor([pair[0]]), torch.from_numpy(hanging([pair])[0])[None]
    plain, rounded = PreparedModel(model).start(ids, ids > 0, 4, head=head), None
    with torch.autocast("cpu", torch.bfloat16):
        rounded = model.step(torch.tensor([BOS]), model.start(ids, ids > 0, 4, head=head))
    torch.testing.assert_close(rounded, model.step(torch.tensor([BOS]), plain), rtol=0, atol=0.1)
