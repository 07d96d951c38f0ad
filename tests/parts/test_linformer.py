"""Attention to mixtures of places: against full attention, what is shared, and what is refused."""

import pytest
import torch
from torch import Tensor

from qkv.base.errors import ConfigError, DataError
from qkv.parts import linformer
from qkv.parts.attention import SelfAttention
from qkv.parts.context import AttentionContext
from qkv.parts.dot_product import attend
from qkv.parts.linformer import SHARING, LengthProjection, LinformerAttention, LinformerMask, real_positions
from qkv.parts.masks import DenseMask

EVERYTHING = AttentionContext(DenseMask(None))


def one_text(real: Tensor, shared: LengthProjection | None) -> AttentionContext:
    return AttentionContext(LinformerMask(real, shared))


def with_shared(
    sharing: str, max_positions: int = 12, projected_length: int = 4
) -> tuple[LinformerAttention, LengthProjection | None]:
    shared = LengthProjection(max_positions, projected_length, 2, sharing) if sharing == "layers" else None
    return LinformerAttention(16, 2, max_positions, projected_length, sharing), shared


@pytest.mark.parametrize("sharing", SHARING)
def test_a_mixture_for_each_place_is_full_attention_at_first(sharing: str) -> None:
    ours, shared = with_shared(sharing, max_positions=12, projected_length=12)
    assert all((weight == 12**0.5 * torch.eye(12)).all() for weight in (shared or ours.length_projection).parameters())
    full = SelfAttention(16, 2)
    full.load_state_dict({name: weight for name, weight in ours.state_dict().items() if not name.startswith("length_projection")})
    x = torch.randn(3, 12, 16)
    torch.testing.assert_close(ours(x, one_text(torch.ones(3, 12, dtype=torch.bool), shared)), full(x, EVERYTHING))


@pytest.mark.parametrize("sharing", SHARING)
def test_by_its_formula(sharing: str) -> None:
    """Head by head: softmax(Q (E K)' / sqrt(K)) (F V), where E and F are divided by the places of a mixture."""
    ours, shared = with_shared(sharing)
    x, real = torch.randn(2, 9, 16), torch.ones(2, 9, dtype=torch.bool)
    real[1, 5:] = False
    made = shared or ours.length_projection
    for weight in made.parameters():
        torch.nn.init.normal_(weight)
    e, f = (w.expand(2, 4, 12)[..., :9] / 12**0.5 for w in (made.keys, made.keys if made.values is None else made.values))
    wanted = torch.empty(2, 9, 16)
    for row in range(2):
        q, k, v = ours.qkv(x[row]).chunk(3, -1)
        for head, part in enumerate((slice(0, 8), slice(8, 16))):
            tokens, each = real[row, :, None], max(1, int(real[row].sum()) / 4)
            keys, values = e[head] @ (k[:, part] * tokens) / each, f[head] @ (v[:, part] * tokens) / each
            wanted[row, :, part] = (q[:, part] @ keys.T / 8**0.5).softmax(-1) @ values
    torch.testing.assert_close(ours(x, one_text(real, shared)), ours.out(wanted))


@pytest.mark.parametrize("length", [1, 4, 5, 8, 9])
def test_in_pieces_the_same_is_found(length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linformer, "PIECE", 4)
    q = torch.randn(2, length, 3, 8, requires_grad=True)
    k, v = (torch.randn(2, 3, 6, 8, requires_grad=True) for _ in range(2))
    seen = torch.arange(6) < torch.tensor([6, 2])[:, None, None, None]
    whole, pieces = attend(q.transpose(1, 2), k, v, seen).transpose(1, 2), linformer.attend_in_pieces(q, k, v, seen)
    torch.testing.assert_close(pieces, whole)
    grad = torch.randn_like(whole)
    for mine, right in zip(*(torch.autograd.grad(found, (q, k, v), grad) for found in (pieces, whole)), strict=True):
        torch.testing.assert_close(mine, right)


@pytest.mark.parametrize("length", [1, 3, 4, 5, 11, 12])
def test_texts_of_all_lengths_find_as_much_at_first(length: int) -> None:
    """Which is what full attention finds, as far as there is a mixture for each place."""
    torch.manual_seed(1)
    ours, _ = with_shared("heads")
    full = SelfAttention(16, 2)
    full.load_state_dict({name: weight for name, weight in ours.state_dict().items() if not name.startswith("length_projection")})
    x, real = torch.randn(50, 12, 16) + 1, torch.arange(12).expand(50, -1) < length
    found, wanted = ours(x, one_text(real, None))[:, :length], full(x[:, :length], EVERYTHING)
    if length <= 4:
        torch.testing.assert_close(found, wanted)
    assert 0.8 < found.norm() / wanted.norm() < 1.25


def test_a_row_without_a_text_is_no_nan() -> None:
    ours, _ = with_shared("heads")
    assert ours(torch.randn(1, 12, 16), one_text(torch.zeros(1, 12, dtype=torch.bool), None)).isfinite().all()


def test_mixtures_are_sums_of_every_so_manieth_place_at_first() -> None:
    made = LengthProjection(10, 4, 1, "layers").keys
    wanted = torch.zeros(4, 10)
    for position in range(10):
        wanted[position % 4, position] = 1
    torch.testing.assert_close(made.detach() / 10**0.5, wanted)


@pytest.mark.parametrize(("sharing", "numbers"), [("none", 2 * 2 * 48), ("heads", 2 * 48), ("key-value", 48), ("layers", 48)])
def test_what_is_shared(sharing: str, numbers: int) -> None:
    ours, shared = with_shared(sharing)
    assert sum(weight.numel() for weight in (shared or ours.length_projection).parameters()) == numbers
    assert (ours.length_projection is None) == (sharing == "layers")


def test_padding_changes_nothing() -> None:
    """What stands there, how much of it, and whether the row is wider than the longest text."""
    ours, _ = with_shared("heads")
    x = torch.randn(2, 15, 16)
    text = torch.ones(2, 15, dtype=torch.long)
    text[:, 7:] = 0
    wide, real = x.clone(), real_positions(text, 12)
    wide[:, 7:] = 1e4
    wanted = ours(x[:, :7], one_text(real[:, :7], None))
    torch.testing.assert_close(ours(wide, one_text(real, None))[:, :7], wanted)
    wide[:, 7:] = float("nan")
    assert torch.equal(ours(wide, one_text(real, None))[:, :7], ours(x, one_text(real, None))[:, :7])


@pytest.mark.parametrize("sharing", SHARING)
def test_all_weights_learn(sharing: str) -> None:
    ours, shared = with_shared(sharing)
    ours(torch.randn(2, 12, 16), one_text(torch.ones(2, 12, dtype=torch.bool), shared)).square().sum().backward()
    for weight in [*ours.parameters(), *(shared.parameters() if shared else [])]:
        assert weight.grad is not None and weight.grad.abs().sum() > 0


def test_what_is_refused() -> None:
    packed, long = torch.tensor([[1, 1, 0, 0], [1, 1, 2, 0]]), torch.tensor([[1, 1, 1, 1, 1, 0]])
    with pytest.raises(
        DataError, match=r"^a row holds 2 texts, and Linformer mixes all positions of a row; give each text a row of its own$"
    ):
        real_positions(packed, 12)
    with pytest.raises(DataError, match=r"^a text of 5 tokens is longer than the 4 positions of .*; cut it$"):
        real_positions(long, 4)
    assert real_positions(long, 5).tolist() == [[True] * 5 + [False]]
    assert real_positions(packed, 12, checked=True).equal(packed > 0), "what is known is not looked at"
    with pytest.raises(ConfigError, match=r"^projected_length 5 is not between 1 and max_positions 4; choose .*$"):
        LengthProjection(4, 5, 1, "heads")
    with pytest.raises(ConfigError, match=r"^projected_length 0 is not between 1 and max_positions 4; .*$"):
        LengthProjection(4, 0, 1, "heads")
    with pytest.raises(ConfigError, match=r"^sharing 'all' is not known; use one of none, heads, key-value, layers$"):
        LengthProjection(4, 2, 1, "all")
    with pytest.raises(ValueError, match=r"^width 10 does not split into 3 heads; choose heads that divide it$"):
        LinformerAttention(10, 3, 4, 2, "heads")
