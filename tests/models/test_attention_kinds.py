"""Whole models with efficient attention: against full attention, in any layout of texts, and under the lens."""

import re
from typing import Any

import pytest
import torch
from torch import Tensor

from qkv.base.errors import ConfigError, DataError
from qkv.base.rows import Rows, padded_rows
from qkv.lens.capture import capture
from qkv.models.albert import Albert, AlbertConfig
from qkv.models.bert import Bert, BertConfig
from qkv.models.electra import ElectraConfig, ElectraEncoder
from qkv.models.ernie import Ernie, ErnieConfig
from qkv.models.transformer import Transformer, TransformerConfig
from qkv.parts.attention_kinds import BigBird, Linformer, Window
from qkv.parts.decoding_weights import PreparedModel
from qkv.parts.encoder import Encoder
from qkv.parts.patterns import Pattern
from qkv.parts.sparse import BlockSparseMask

VOCAB, MAX_POSITIONS = 23, 90
TINY: dict[str, Any] = {"width": 16, "feedforward": 24, "heads": 4, "layers": 3, "max_positions": MAX_POSITIONS, "dropout": 0.0}
ENCODERS: dict[str, tuple[Any, Any]] = {
    "bert": (BertConfig, Bert),
    "albert": (AlbertConfig, Albert),
    "electra": (ElectraConfig, ElectraEncoder),
    "ernie": (ErnieConfig, Ernie),
}
KINDS: dict[str, dict[str, Any]] = {
    "window": {"kind": "window", "radius": 3},
    "bigbird": {"kind": "bigbird", "radius": 2, "global_tokens": 2, "random_blocks": 1, "block_size": 16},
    "linformer": {"kind": "linformer", "projected_length": 4},
}
LENGTHWISE = re.compile(r"mask_builder|length_projection")  # names of weights along the length
PATTERNS = ("window", "bigbird")
SHARING = ("none", "heads", "key-value", "layers")
every_encoder = pytest.mark.parametrize("encoder", ENCODERS)
every_kind = pytest.mark.parametrize("kind", KINDS)
every_pattern = pytest.mark.parametrize("kind", PATTERNS)


@torch.no_grad()
def shaken(model: Any) -> Any:
    """Enlarge the weights: initial ones are small, and biases 0, which would hide mistakes."""
    for parameter in model.parameters():
        parameter += 0.2 * torch.randn_like(parameter)
    return model.eval()


def make(encoder: str, attention: Any) -> Encoder:
    config, model = ENCODERS[encoder]
    narrow = {"embedding_width": 8} if encoder in ("albert", "electra") else {}
    return shaken(model(config(**TINY, **narrow, attention=attention), VOCAB))


def translator(attention: Any, **options: Any) -> Transformer:
    shape = {
        "width": 16,
        "feedforward": 24,
        "heads": 4,
        "encoder_layers": 2,
        "decoder_layers": 1,
        "max_positions": MAX_POSITIONS,
        "dropout": 0.0,
    }
    return shaken(Transformer(TransformerConfig(**shape, **options, attention=attention), VOCAB, VOCAB))


def with_weights_of(model: Any, other: Any) -> Any:
    """Copy the weights that both models have; length projections become the identity."""
    found = model.state_dict() | other.state_dict()
    of_places = {name: w.size(-1) for name, w in model.state_dict().items() if LENGTHWISE.search(name)}
    found |= {name: (positions**0.5 * torch.eye(positions)).expand_as(found[name]) for name, positions in of_places.items()}
    model.load_state_dict({name: found[name] for name in model.state_dict()})
    return model


def some_rows(*lengths: int) -> Rows:
    """Build rows of one text each, padded."""
    ids = torch.randint(0, VOCAB, (len(lengths), max(lengths)))
    return padded_rows(ids, torch.arange(ids.size(1)) < torch.tensor(lengths)[:, None])


def side_by_side(rows: Rows, width: int) -> Rows:
    """Put the same texts into one row."""
    lengths = (rows.text > 0).sum(1).tolist()
    empty = [0] * (width - sum(lengths))
    ids = [number for row, n in zip(rows.ids.tolist(), lengths, strict=True) for number in row[:n]]
    text = [number for number, n in enumerate(lengths, 1) for _ in range(n)]
    position = [at for n in lengths for at in range(n)]
    return Rows(*(torch.tensor([side + empty]) for side in (ids, text, position)))


def real(rows: Rows, found: Tensor) -> Tensor:
    return found[rows.text > 0]


@every_encoder
@torch.no_grad()
def test_a_window_of_all_is_full_attention(encoder: str) -> None:
    full, rows = make(encoder, "full"), some_rows(70, 31, 1)
    window = with_weights_of(make(encoder, {"kind": "window", "radius": 70}), full)
    torch.testing.assert_close(real(rows, window(rows)), real(rows, full(rows)), rtol=0, atol=1e-5)
    narrow = with_weights_of(make(encoder, KINDS["window"]), full)
    assert not torch.allclose(real(rows, narrow(rows)), real(rows, full(rows)), atol=1e-2)


@every_encoder
@pytest.mark.parametrize("sharing", SHARING)
@torch.no_grad()
def test_a_projected_length_of_all_positions_is_full_attention(encoder: str, sharing: str) -> None:
    """With an identity projection attention is full, for texts that fill the row, since padding is projected too."""
    full, rows = make(encoder, "full"), some_rows(MAX_POSITIONS, MAX_POSITIONS)
    ours = with_weights_of(make(encoder, {"kind": "linformer", "projected_length": MAX_POSITIONS, "sharing": sharing}), full)
    torch.testing.assert_close(ours(rows), full(rows), rtol=0, atol=1e-5)


@pytest.mark.parametrize("positions", ["sinusoidal", "learned", "rotary"])
@pytest.mark.parametrize(
    "attention", [{"kind": "window", "radius": MAX_POSITIONS}, {"kind": "linformer", "projected_length": MAX_POSITIONS}]
)
@torch.no_grad()
def test_efficient_attention_over_everything_equals_full_attention(attention: Any, positions: str) -> None:
    full, source, target = translator("full", positions=positions), some_rows(MAX_POSITIONS, MAX_POSITIONS), some_rows(9, 4)
    ours = with_weights_of(translator(attention, positions=positions), full)
    torch.testing.assert_close(real(target, ours(source, target)), real(target, full(source, target)), rtol=0, atol=1e-5)


@every_encoder
@every_pattern
@torch.no_grad()
def test_a_packed_row_is_padded_ones(encoder: str, kind: str) -> None:
    model, rows = make(encoder, KINDS[kind]), some_rows(40, 1, 77, 12)
    packed = side_by_side(rows, 150)
    torch.testing.assert_close(real(packed, model(packed)), real(rows, model(rows)), rtol=0, atol=1e-5)


@torch.no_grad()
def test_padding_changes_nothing_for_linformer() -> None:
    model, rows = make("bert", KINDS["linformer"]), some_rows(40, 7)
    wide = Rows(*(torch.nn.functional.pad(side, (0, 60)) for side in rows[:3]))
    torch.testing.assert_close(real(wide, model(wide)), real(rows, model(rows)), rtol=0, atol=1e-5)
    with pytest.raises(DataError, match="a row holds 2 texts, and Linformer mixes all positions of a row"):
        model(side_by_side(rows, 50))


@every_encoder
@every_kind
def test_every_weight_learns(encoder: str, kind: str) -> None:
    model, rows = make(encoder, KINDS[kind]), some_rows(MAX_POSITIONS, 40)
    hidden = model(rows, torch.randint(0, 2, rows.ids.shape))
    (hidden * torch.randn_like(hidden)).sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None and parameter.grad.abs().sum() > 0, name


@every_kind
def test_weights_along_the_length_are_those_that_the_sharing_says(kind: str) -> None:
    names = {name for name, _ in make("bert", KINDS[kind]).named_parameters() if LENGTHWISE.search(name)}
    assert names == ({"mask_builder.shared.keys"} if kind == "linformer" else set())
    names = {
        name for name, _ in make("albert", {"kind": "linformer", "projected_length": 4, "sharing": "heads"}).named_parameters()
    }
    assert {name for name in names if LENGTHWISE.search(name)} == {
        f"attention_blocks.0.attention.length_projection.{of}" for of in ("keys", "values")
    }


@every_encoder
@every_pattern
@torch.no_grad()
def test_weights_that_are_seen_are_zero_where_the_rule_forbids(encoder: str, kind: str) -> None:
    model, rows = make(encoder, KINDS[kind]), some_rows(60, 33)
    with capture(model) as seen:
        looked_at = model(rows)
    may = Pattern(**{key: value for key, value in KINDS[kind].items() if key != "kind"}).rule(rows.text).dense(2, 60, 60)
    assert seen
    for weights in seen.values():
        assert weights.shape == (2, 4, 60, 60)
        allowed = may.expand_as(weights)
        assert not weights[~allowed].any() and (weights[allowed] > 0).float().mean() > 0.9
    torch.testing.assert_close(real(rows, looked_at), real(rows, model(rows)), rtol=0, atol=1e-5)


@torch.no_grad()
def test_linformer_has_length_projections() -> None:
    model, rows = make("bert", KINDS["linformer"]), some_rows(60, 33)
    with capture(model) as seen:
        model(rows)
    assert list(seen) == [f"layers.{number}.attention" for number in range(3)]
    for weights in seen.values():
        assert weights.shape == (2, 4, 60, 4)
        torch.testing.assert_close(weights.sum(-1), torch.ones(2, 4, 60))


@every_kind
@torch.no_grad()
def test_a_translators_steps_are_its_forward_pass(kind: str) -> None:
    model, source, target = translator(KINDS[kind]), some_rows(70, 30), some_rows(6, 6)
    wanted = model.logits(model(source, target))
    state = PreparedModel(model).start(source.ids, source.text > 0, max_length=6)
    for position in range(6):
        torch.testing.assert_close(model.step(target.ids[:, position], state), wanted[:, position], rtol=0, atol=1e-4)
    assert model.longest == (MAX_POSITIONS if kind == "linformer" else None)


def test_the_random_graph_comes_from_the_seed() -> None:
    graphs = [BigBird(seed=seed).pattern.rule(torch.ones(1, 1024)).dense(1, 1024, 1024) for seed in (0, 0, 1)]
    assert torch.equal(graphs[0], graphs[1]) and not torch.equal(graphs[0], graphs[2])


def test_a_word_is_a_kind() -> None:
    assert BertConfig(attention="bigbird").attention == BertConfig(attention={"kind": "bigbird"}).attention == BigBird()
    assert TransformerConfig(attention="window").attention == Window()
    made = BertConfig(attention=Linformer(sharing="heads"))
    assert BertConfig.model_validate(made.model_dump(mode="json")) == made


@every_pattern
def test_no_matrix_of_all_pairs_is_made(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BlockSparseMask, "dense", None)
    wide = 4096
    model = Bert(BertConfig(**{**TINY, "layers": 1, "max_positions": wide}, attention=kind), VOCAB)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: _small(t, wide), lambda t: t):
        model(some_rows(wide)).sum().backward()


def _small(tensor: Tensor, wide: int) -> Tensor:
    assert tensor.numel() < wide * wide
    return tensor


@pytest.mark.parametrize("positions", ["relative", "alibi"])
@every_kind
def test_positions_that_need_all_pairs_are_refused(kind: str, positions: Any) -> None:
    with pytest.raises(ValueError, match=rf"model\.positions={positions} needs full attention, not {kind}; choose one of none"):
        TransformerConfig(positions=positions, attention=KINDS[kind])
    TransformerConfig(positions=positions, attention="full")


def test_bad_shapes_are_refused() -> None:
    with pytest.raises(
        ValueError, match=r"projected_length 128 is above model\.max_positions 90; set model\.attention\.projected"
    ):
        BertConfig(max_positions=90, attention="linformer")
    with pytest.raises(ValueError, match="greater than or equal to 1"):
        BertConfig(attention={"kind": "window", "radius": 0})
    with pytest.raises(ConfigError, match=r"model\.width 16 does not split into 3 heads"):
        Bert(BertConfig(**{**TINY, "heads": 3}, attention="window"), VOCAB)
    with pytest.raises(DataError, match="a text of 91 tokens is longer than the 90 positions"):
        translator(KINDS["linformer"])(some_rows(91), some_rows(3))
