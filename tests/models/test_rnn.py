"""Whole recurrent encoder-decoders: padding, order and stepwise decoding change nothing, and they learn."""

from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from qkv.base import graphs
from qkv.base.config import parse
from qkv.base.errors import ConfigError, DataError
from qkv.base.rows import Rows, padded_rows
from qkv.data.batches import START, Batches, make_batch
from qkv.data.tokens import TokenPairs, token_texts
from qkv.decoding import beam, sampling
from qkv.decoding.config import DecodingConfig
from qkv.decoding.hypothesis import Hypothesis
from qkv.decoding.scoring import score
from qkv.decoding.search import decode
from qkv.lens.capture import capture, cross_attention
from qkv.models.rnn import Rnn, RnnConfig
from qkv.objectives.translation import Translation, TranslationConfig
from qkv.parts import recurrent
from qkv.parts.decoding_weights import PreparedModel
from recorded_graphs import Recorded

PAD, BOS, EOS, VOCAB = 0, 2, 3, 23
TINY: dict[str, Any] = {"width": 16, "embedding_width": 12, "layers": 2}
FIXED = [
    {"attention": "none"},
    {"attention": "none", "cell": "gru", "context": "every", "tied": "target", "layers": 1},
    {"attention": "none", "reverse": True, "embedding_width": 16},
    {"attention": "none", "bidirectional": True, "context": "every", "tied": "none"},
]
ATTENDING = [
    {"attention": "general"},
    {"attention": "additive", "cell": "gru", "tied": "none"},
    {"attention": "dot", "input_feeding": False, "layers": 1},
    {"attention": "additive", "input_feeding": False, "tied": "target"},
    {"attention": "dot", "bidirectional": False, "reverse": True},
    {"attention": "general", "cell": "gru", "input_feeding": False, "layers": 3},
]
CLOSE = {"rtol": 0, "atol": 2e-6}

every_kind = pytest.mark.parametrize("kind", [*FIXED, *ATTENDING], ids=lambda kind: "-".join(map(str, kind.values())))
attending = pytest.mark.parametrize("kind", ATTENDING, ids=lambda kind: "-".join(map(str, kind.values())))
Text = list[int]


def make(**options: Any) -> Rnn:
    torch.manual_seed(1)
    model = Rnn(RnnConfig(**{**TINY, **options}), VOCAB, VOCAB).eval()
    for parameter in model.parameters():
        parameter.data *= 2.0  # so that mistakes show, and texts differ
    return model


def random_pairs(count: int, seed: int = 0, most: int = 9) -> list[tuple[Text, Text]]:
    rng = np.random.default_rng(seed)
    return [tuple(rng.integers(4, VOCAB, rng.integers(1, most)).tolist() for _ in range(2)) for _ in range(count)]


def padded(pairs: list[tuple[Text, Text]], extra: int = 0) -> tuple[Rows, Rows]:
    """Build rows of one pair each; targets end in eos; padding is not 0, so that a leak would show."""
    sides = [[s for s, _ in pairs], [[*t, EOS] for _, t in pairs]]
    return tuple(padded_side(side, max(map(len, side)) + extra) for side in sides)


def padded_side(texts: list[Text], width: int) -> Rows:
    ids = torch.full((len(texts), width), 7)
    keep = torch.zeros_like(ids, dtype=torch.bool)
    for row, text in enumerate(texts):
        ids[row, : len(text)] = torch.tensor(text)
        keep[row, : len(text)] = True
    return padded_rows(ids, keep)


def hidden(model: Rnn, source: Rows, target: Rows) -> Tensor:
    return model(source, Translation(TranslationConfig(), BOS).shifted(target))


# Layout


@torch.no_grad()
@every_kind
def test_a_text_alone_and_padded_in_a_batch_give_the_same(kind: dict[str, Any]) -> None:
    model, pairs = make(**kind), random_pairs(6)
    source, target = padded(pairs, extra=5)
    found = hidden(model, source, target)
    for row, pair in enumerate(pairs):
        torch.testing.assert_close(found[row][target.text[row] > 0], hidden(model, *padded([pair]))[0], **CLOSE)


@pytest.mark.parametrize("kind", [FIXED[0], FIXED[3], ATTENDING[0], ATTENDING[5]], ids=str)
def test_padding_changes_neither_loss_nor_gradient(kind: dict[str, Any]) -> None:
    model, pairs = make(**kind, dropout=0.0).train(), random_pairs(6)
    objective = Translation(TranslationConfig(), BOS)
    empty = padded_side([[]], 14), padded_side([[]], 14)  # an empty row, as batches of a fixed size have
    some = padded(pairs), [on_top(rows, none) for rows, none in zip(padded_to(pairs, 14), empty, strict=True)]
    losses = [objective.loss(model, *rows) for rows in some]
    assert losses[0].item() == pytest.approx(losses[1].item(), rel=1e-6)
    for one, two in zip(*(torch.autograd.grad(loss, list(model.parameters())) for loss in losses), strict=True):
        torch.testing.assert_close(one, two, rtol=1e-4, atol=1e-4)


def padded_to(pairs: list[tuple[Text, Text]], width: int) -> tuple[Rows, Rows]:
    return padded_side([s for s, _ in pairs], width), padded_side([[*t, EOS] for _, t in pairs], width)


def on_top(rows: Rows, others: Rows) -> Rows:
    return Rows(*(torch.cat(both) for both in zip(rows[:3], others[:3], strict=True)))


@torch.no_grad()
@every_kind
def test_a_future_word_cannot_change_the_past(kind: dict[str, Any]) -> None:
    model = make(**kind)
    source, target = padded([([5, 6, 7], [8, 9, 10, 11, 12, 13])])
    before = model(source, target)[0]
    for position in range(target.ids.size(1)):
        other = target._replace(ids=target.ids.clone())
        other.ids[0, position] = 20
        after = model(source, other)[0]
        torch.testing.assert_close(after[:position], before[:position], **CLOSE)
        assert ((after[position:] - before[position:]).abs().amax(-1) > 1e-6).all()


@torch.no_grad()
@every_kind
def test_every_source_word_counts_for_every_target_word(kind: dict[str, Any]) -> None:
    model = make(**kind)
    source, target = padded([([5, 6, 7], [8, 9, 10]), ([5, 6, 7, 8, 9], [8])])
    before = model(source, target)[0]
    for position in range(3):
        other = source._replace(ids=source.ids.clone())
        other.ids[0, position] = 20
        assert ((model(other, target)[0] - before).abs().amax(-1) > 1e-6).all()


@torch.no_grad()
@pytest.mark.parametrize("attention", ["none", "general"])
def test_a_reversed_source_is_each_text_back_to_front(attention: str) -> None:
    plain, reversing = (make(attention=attention, bidirectional=False, reverse=reverse) for reverse in (False, True))
    weights = {name.replace("right_to_left", "left_to_right"): weight for name, weight in reversing.state_dict().items()}
    plain.load_state_dict(weights)
    pairs = random_pairs(6)
    turned = [(source[::-1], target) for source, target in pairs]
    torch.testing.assert_close(hidden(reversing, *padded(pairs)), hidden(plain, *padded(turned)), **CLOSE)
    if attention != "none":  # attention weights are in the order of the given source
        some, others = cross_attention(reversing, *padded(pairs)), cross_attention(plain, *padded(turned))
        for row, (source, _) in enumerate(pairs):
            torch.testing.assert_close(some[row, :, : len(source)], others[row, :, : len(source)].flip(-1), **CLOSE)


def test_several_texts_in_a_row_are_refused() -> None:
    texts = [[np.array([5, 6]), np.array([7])]]
    source, target = make_batch(texts, texts, (8, 8), EOS).inputs
    with pytest.raises(DataError, match=r"several texts.*one_text_per_row=True"):
        make()(source, target)


# Decoding


@torch.no_grad()
@every_kind
def test_decoding_step_by_step_is_the_teacher_forced_pass(kind: dict[str, Any]) -> None:
    model, pairs = make(**kind), [(s, (t * 8)[:7]) for s, t in random_pairs(4)]
    source, target = padded(pairs)
    wanted = model.logits(hidden(model, source, target))  # (B, T, V)
    state = PreparedModel(model).start(source.ids, source.text > 0, max_length=8)
    words = torch.full((4,), BOS)
    for position in range(8):
        scores = model.step(words, state)
        assert scores.dtype == torch.float32
        torch.testing.assert_close(scores, wanted[:, position], rtol=0, atol=1e-5)
        words = target.ids[:, position]


@torch.no_grad()
@every_kind
def test_hypotheses_that_move_double_and_leave_take_their_past_with_them(kind: dict[str, Any]) -> None:
    model, rng = make(**kind), np.random.default_rng(3)
    sources = [s for s, _ in random_pairs(3)]
    source = padded_side(sources, max(map(len, sources)))
    state = PreparedModel(model).start(source.ids, source.text > 0, max_length=12)
    owners, written = [0, 1, 2], [[BOS], [BOS], [BOS]]
    moves = [  # rows, the sources that remain (None: all), and whether rows are grouped by source
        ([[0, 0], [1, 1], [2, 2]], None, True),
        ([[1, 0], [2, 3], [5, 5]], None, True),
        ([[4, 5], [0, 0]], [2, 0], True),
        ([3, 0, 1], None, False),
        ([2, 1, 0], None, False),
        ([[0], [1], [2]], None, True),
        ([1, 1], None, False),
        ([0, 0, 0], None, False),
    ]
    for rows, goes_on, grouped in moves:
        scores = model.step(torch.tensor([words[-1] for words in written]), state)
        for row, (owner, words) in enumerate(zip(owners, written, strict=True)):
            single = padded_side([sources[owner]], len(sources[owner]))
            whole = model.logits(model(single, padded_side([words], len(words))))[0, -1]
            torch.testing.assert_close(scores[row], whole, rtol=0, atol=1e-5)
        if grouped:
            state.regroup(torch.tensor(rows), None if goes_on is None else torch.tensor(goes_on))
        else:
            state.select(torch.tensor(rows))
        flat = np.ravel(rows).tolist()
        owners = [owners[row] for row in flat]
        written = [[*written[row], int(rng.integers(4, VOCAB))] for row in flat]


def log_probability(model: Rnn, source: Text, words: Text) -> float:
    found = model.logits(hidden(model, *padded([(source, words)])))[0].log_softmax(-1)
    return sum(float(found[position, word]) for position, word in enumerate(words))


@torch.no_grad()
@every_kind
def test_scores_of_a_search_are_the_models_own(kind: dict[str, Any]) -> None:
    model, sources = make(**kind), [s for s, _ in random_pairs(4)]
    source = padded_side(sources, max(map(len, sources)))
    for config in (
        DecodingConfig(beam=3, n_best=2, max_ratio=0, max_extra=9),
        DecodingConfig(sampling=True, n_best=2, max_extra=4),
    ):
        found = decode(model, source.ids, source.text > 0, config, bos=BOS, eos=EOS, pad=PAD)
        for text, hypotheses in zip(sources, found, strict=True):
            for one in hypotheses:
                words = [*one.ids, EOS] if one.finished else one.ids
                assert one.logprob == pytest.approx(log_probability(model, text, words), abs=1e-4)
    targets = [t for _, t in random_pairs(4)]
    wanted = [log_probability(model, s, [*t, EOS]) for s, t in zip(sources, targets, strict=True)]
    scores = score(model, source.ids, source.text > 0, targets, bos=BOS, eos=EOS)
    assert [one.logprob for one in scores] == pytest.approx(wanted, abs=1e-4)


@torch.no_grad()
@every_kind
def test_a_source_without_words_is_the_same_in_every_batch(kind: dict[str, Any]) -> None:
    model = make(**kind)
    single = PreparedModel(model).start(torch.empty(1, 0, dtype=torch.long), torch.empty(1, 0, dtype=torch.bool), max_length=2)
    among = PreparedModel(model).start(
        torch.tensor([[7, 7, 7], [5, 6, 7]]), torch.tensor([[False] * 3, [True] * 3]), max_length=2
    )
    for word in (BOS, 9):
        one, two = model.step(torch.tensor([word]), single), model.step(torch.tensor([word, word]), among)
        torch.testing.assert_close(one[0], two[0], **CLOSE)
        assert one.isfinite().all()


WAYS = [
    DecodingConfig(beam=1, max_extra=12),
    DecodingConfig(beam=4, n_best=3, max_extra=12),
    DecodingConfig(beam=3, n_best=3, no_repeat_ngram=2, min_length=3, max_extra=20),
    DecodingConfig(beam=3, coverage_penalty=0.3, max_extra=9),
    DecodingConfig(sampling=True, n_best=3, max_extra=12),
]


def texts(model: Rnn, way: DecodingConfig, device: str = "cpu") -> list[list[Hypothesis]]:
    rng = torch.Generator().manual_seed(4)
    ids = torch.randint(4, VOCAB, (9, 11), generator=rng)
    keep = torch.arange(11) < torch.randint(2, 12, (9, 1), generator=rng)
    way = way.model_copy(update={"precision": "float32"})
    return decode(model.to(device), ids.to(device), keep.to(device), way, bos=BOS, eos=EOS, pad=PAD)


def assert_same(found: list[list[Hypothesis]], wanted: list[list[Hypothesis]]) -> None:
    for some, others in zip(found, wanted, strict=True):
        assert [(one.ids, one.finished) for one in some] == [(one.ids, one.finished) for one in others]
        assert [one.score for one in some] == pytest.approx([one.score for one in others], abs=1e-4)


@pytest.mark.parametrize("way", WAYS, ids=["greedy", "beam", "limits", "coverage", "sampling"])
@pytest.mark.parametrize("kind", [FIXED[3], ATTENDING[0], ATTENDING[2]], ids=["fixed", "fed", "dot"])
def test_steps_on_the_same_memory_change_nothing(
    kind: dict[str, Any], way: DecodingConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    if way.coverage_penalty and kind["attention"] == "none":
        return
    model = make(**kind)
    wanted = texts(model, way)
    monkeypatch.setattr(recurrent.graphs, "usable", lambda words: True)
    monkeypatch.setattr(graphs, "GraphedFunction", Recorded)
    monkeypatch.setattr(graphs.FunctionRecorder, "recording", lambda *_: None)
    monkeypatch.setattr(recurrent, "MIN_STEPS_LEFT", 2)
    for module in (beam, sampling):
        monkeypatch.setattr(module, "worth_leaving", lambda going, device: 2 * going.sum() <= len(going))
    before = Recorded.made
    assert_same(texts(model, way), wanted)
    assert (Recorded.made > before) == (way.coverage_penalty == 0)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@every_kind
def test_a_gpu_finds_the_same_texts(kind: dict[str, Any]) -> None:
    model = make(**kind)
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        assert_same(texts(model, WAYS[1], "cuda"), texts(model, WAYS[1]))


@torch.no_grad()
@every_kind
def test_bf16_gives_the_same_to_its_own_rounding(kind: dict[str, Any]) -> None:
    model, pairs = make(**kind), random_pairs(20)
    objective, rows = Translation(TranslationConfig(), BOS), padded(pairs)
    whole = float(objective.loss(model, *rows))
    with torch.autocast("cpu", torch.bfloat16):
        assert float(objective.loss(model, *rows)) == pytest.approx(whole, rel=0.01)
    sources, targets = [s for s, _ in pairs], [t for _, t in pairs]
    ids, keep = rows[0].ids, rows[0].text > 0
    exact = [one.logprob for one in score(model, ids, keep, targets, bos=BOS, eos=EOS)]
    with torch.autocast("cpu", torch.bfloat16):
        rounded = [one.logprob for one in score(model, ids, keep, targets, bos=BOS, eos=EOS)]
    assert rounded == pytest.approx(exact, rel=0.05, abs=0.2)
    assert len(sources) == 20


# Recorded attention


@torch.no_grad()
@attending
def test_the_attention_of_steps_is_that_of_the_whole_pass(kind: dict[str, Any]) -> None:
    model, pairs = make(**kind), [([5, 6, 7, 8], [9, 10, 11]), ([12, 13], [14, 15, 16])]
    source, target = padded(pairs)
    with capture(model) as seen:
        unrecorded = hidden(model, source, target)
    assert [(name, tuple(weights.shape)) for name, weights in seen.items()] == [("cross", (2, 1, 4, 4))]
    torch.testing.assert_close(unrecorded, hidden(model, source, target), **CLOSE)
    wanted = seen["cross"][:, 0]
    torch.testing.assert_close(wanted.sum(-1), torch.ones(2, 4))
    assert not wanted[1, :, 2:].any()
    state = PreparedModel(model).start(source.ids, source.text > 0, max_length=4, attention=True)
    for position in range(4):
        model.step(target.ids[:, position - 1] if position else torch.full((2,), BOS), state)
        torch.testing.assert_close(state.attention, wanted[:, position], **CLOSE)
    state.select(torch.tensor([1, 1, 0]))
    torch.testing.assert_close(state.attention, wanted[[1, 1, 0], 3], **CLOSE)


@torch.no_grad()
def test_attention_is_recorded_only_on_request_and_where_there_is_some() -> None:
    for options, asked in (({}, False), ({"attention": "none"}, True)):
        model = make(**options)
        state = PreparedModel(model).start(torch.tensor([[5, 6]]), torch.ones(1, 2).bool(), max_length=2, attention=asked)
        model.step(torch.tensor([BOS]), state)
        assert state.attention is None


def test_a_coverage_penalty_without_attention_is_refused() -> None:
    with pytest.raises(ConfigError, match="coverage_penalty needs a model that returns its attention"):
        texts(make(attention="none"), WAYS[3])


# Learning


def strings(count: int, seed: int, most: int) -> list[Text]:
    rng = np.random.default_rng(seed)
    return [rng.integers(4, 14, rng.integers(2, most + 1)).tolist() for _ in range(count)]


def learned(model: Rnn, most: int, steps: int, turned: bool) -> float:
    """Return the share of unseen strings that are right after training for `steps` steps."""
    way = -1 if turned else 1
    known, asked = strings(6000, 1, most), strings(100, 2, most)
    pairs = TokenPairs(token_texts(known), token_texts([text[::way] for text in known]))
    batches = Batches([pairs], [1.0], seed=1, tokens=768, widths=(16, 16), eos=EOS, one_text_per_row=True).starting(START)
    objective, optimiser = Translation(TranslationConfig(smoothing=0.0), BOS), torch.optim.Adam(model.parameters())
    rates = torch.optim.lr_scheduler.OneCycleLR(optimiser, 0.02, total_steps=steps)
    model.train()
    for _, batch in zip(range(steps), batches, strict=False):
        optimiser.zero_grad()
        (objective.loss(model, *batch.inputs) / batch.labels).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        rates.step()
    rows = padded_side(asked, most)
    found = decode(model.eval(), rows.ids, rows.text > 0, DecodingConfig(beam=1), bos=BOS, eos=EOS, pad=PAD)
    return float(np.mean([best.ids == text[::way] for text, [best] in zip(asked, found, strict=True)]))


@pytest.mark.parametrize(
    ("kind", "turned"), [({"attention": "general"}, True), ({"attention": "additive", "input_feeding": False}, False)]
)
def test_with_attention_it_learns_to_copy_and_to_reverse(kind: dict[str, Any], turned: bool) -> None:
    torch.manual_seed(1)
    model = Rnn(RnnConfig(width=48, embedding_width=24, layers=1, dropout=0.0, **kind), 14, 14)
    assert learned(model, 5, 120, turned) > 0.9


def test_one_vector_is_enough_for_short_strings() -> None:
    torch.manual_seed(1)
    model = Rnn(RnnConfig(width=64, embedding_width=32, layers=1, dropout=0.0, attention="none", cell="gru"), 14, 14)
    assert learned(model, 3, 130, False) > 0.9


# Shapes and errors


def test_tied_weights_are_one_tensor() -> None:
    together, target, none = (make(tied=tied) for tied in ("all", "target", "none"))
    assert together.source_embedding.weight is together.target_embedding.weight is together.output.weight
    assert target.target_embedding.weight is target.output.weight
    assert target.source_embedding.weight is not target.target_embedding.weight
    assert none.target_embedding.weight is not none.output.weight


@pytest.mark.parametrize("width", [32, 256])
def test_the_cells_read_embeddings_of_deviation_1_and_the_output_their_unscaled_weights(width: int) -> None:
    torch.manual_seed(1)
    model, seen = Rnn(RnnConfig(width=32, embedding_width=width, layers=1, dropout=0.0), 400, 400).eval(), []
    layer: Any = model.encoder.layers[0]
    layer.register_forward_hook(lambda module, inputs, output: seen.append(inputs[0]))
    model.encode(padded_side([[*range(10, 400)]], 390))
    assert float(seen[0].detach().std()) == pytest.approx(1, abs=0.05)
    assert float(model.output.weight.detach().std()) == pytest.approx(width**-0.5, rel=0.05)


def test_dropout_acts_in_training_only() -> None:
    model, rows = make(dropout=0.5).train(), padded(random_pairs(2))
    assert not torch.equal(hidden(model, *rows), hidden(model, *rows))
    assert torch.equal(hidden(model.eval(), *rows), hidden(model, *rows))


def test_what_attention_brings_with_it_can_be_left_out() -> None:
    assert (RnnConfig().bidirectional, RnnConfig().input_feeding) == (True, True)
    plain = RnnConfig(attention="none")
    assert (plain.bidirectional, plain.input_feeding) == (False, False)
    assert RnnConfig(attention="none", bidirectional=True).bidirectional
    assert not RnnConfig(input_feeding=False).input_feeding
    assert parse(RnnConfig, plain.model_dump(mode="json"), "recipe") == plain


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"width": 33}, "width 33 is odd"),
        ({"reverse": True}, "reads from both ends"),
        ({"attention": "none", "input_feeding": True}, "input_feeding needs attention; set attention, or input_feeding to false"),
        ({"context": "every"}, "with attention every step has its own context"),
        ({"layers": 0}, "greater than 0"),
        ({"cell": "elman"}, "'lstm' or 'gru'"),
        ({"heads": 8}, "unknown key 'heads'"),
    ],
)
def test_shapes_that_do_not_fit_are_refused_in_a_line(options: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says) as refused:
        parse(RnnConfig, options, "recipe.yaml")
    assert "\n" not in str(refused.value)
    with pytest.raises(ValidationError):
        RnnConfig(**options)


def test_two_vocabularies_are_not_tied() -> None:
    with pytest.raises(ConfigError, match="one vocabulary"):
        Rnn(RnnConfig(**TINY), 20, 21)
    assert Rnn(RnnConfig(**TINY, tied="target"), 20, 21).output.weight.shape == (21, 12)
