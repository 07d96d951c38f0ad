"""Recurrent layers against the papers' formulas and torch's layers, and attention scores against the papers' formulas."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from qkv.parts import recurrent
from qkv.parts.dot_product import recording
from qkv.parts.recurrent import Recurrence, RecurrentAttention, RecurrentEncoder, padded_texts, source_mask

CLOSE = {"rtol": 0, "atol": 1e-6}
LENGTHS = [5, 1, 7, 3]
each_cell = pytest.mark.parametrize("cell", ["lstm", "gru"])


def rubbish(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def keep_of(lengths: list[int], width: int) -> Tensor:
    return torch.arange(width) < torch.tensor(lengths)[:, None]


def make(cell: str, inputs: int = 4, width: int = 6) -> Recurrence:
    torch.manual_seed(1)
    layer = Recurrence(cell, inputs, width)
    for weight in layer.parameters():  # larger than usual, so that mistakes show
        nn.init.normal_(weight, std=0.7)
    return layer


def by_hand(layer: Recurrence, x: Tensor, carried: list[Tensor]) -> list[list[Tensor]]:
    """Apply the papers' formulas to one text (T, C), position after position; return the state after each."""
    c = layer.cells
    found = []
    for here in x:
        from_x, from_h = c.weight_ih_l0 @ here + c.bias_ih_l0, c.weight_hh_l0 @ carried[0] + c.bias_hh_l0
        if len(carried) == 2:
            i, f, g, o = (from_x + from_h).chunk(4)
            cell = f.sigmoid() * carried[1] + i.sigmoid() * g.tanh()
            carried = [o.sigmoid() * cell.tanh(), cell]
        else:
            (rx, zx, nx), (rh, zh, nh) = from_x.chunk(3), from_h.chunk(3)
            new, update = (nx + (rx + rh).sigmoid() * nh).tanh(), (zx + zh).sigmoid()
            carried = [(1 - update) * new + update * carried[0]]
        found.append(carried)
    return found


@torch.no_grad()
@each_cell
@pytest.mark.parametrize("begins", [False, True])
def test_cells_are_the_papers_formulas(cell: str, begins: bool) -> None:
    layer, x = make(cell), rubbish(3, 5, 4)
    parts = 2 if cell == "lstm" else 1
    first = tuple(rubbish(3, 6, seed=9 + n) if begins else torch.zeros(3, 6) for n in range(parts))
    whole = layer(x, first if begins else None)
    stepped = first
    for position in range(5):
        stepped = layer.step(x[:, position], stepped)
        for row in range(3):
            wanted = by_hand(layer, x[row], [part[row] for part in first])[position]
            torch.testing.assert_close(whole[row, position], wanted[0], **CLOSE)
            for part, right in zip(stepped, wanted, strict=True):
                torch.testing.assert_close(part[row], right, **CLOSE)


@torch.no_grad()
@each_cell
@pytest.mark.parametrize("begins", [False, True])
def test_a_text_too_long_for_one_call_is_read_in_pieces(cell: str, begins: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    layer, x = make(cell), rubbish(3, 7, 4)
    first = tuple(rubbish(3, 6, seed=9 + n) for n in range(2 if cell == "lstm" else 1)) if begins else None
    whole = layer(x, first)
    monkeypatch.setattr(recurrent, "MAX_LENGTH", 3)
    torch.testing.assert_close(layer(x, first), whole, **CLOSE)


@torch.no_grad()
@each_cell
def test_what_is_carried_out_of_a_text_is_what_torch_says_of_it_alone(cell: str) -> None:
    layer, x = make(cell), rubbish(4, 9, 4)
    texts = padded_texts(keep_of(LENGTHS, 9))
    found = layer.at_end(x, layer(x), texts)
    for row, length in enumerate(LENGTHS):
        last = layer.cells(x[row : row + 1, :length])[1]
        for part, wanted in zip(found, last if cell == "lstm" else [last], strict=True):
            torch.testing.assert_close(part[row], wanted[0, 0], **CLOSE)


@each_cell
def test_its_gradient_is_that_of_the_text_alone(cell: str) -> None:
    layer, x = make(cell), rubbish(1, 9, 4)
    together = sum(part.sum() for part in layer.at_end(x, layer(x), padded_texts(keep_of([5], 9))))
    last = layer.cells(x[:, :5])[1]
    single = sum(part.sum() for part in (last if cell == "lstm" else [last]))
    for one, two in zip(*(torch.autograd.grad(loss, layer.parameters()) for loss in (together, single)), strict=True):
        torch.testing.assert_close(one, two, rtol=1e-4, atol=1e-5)


@each_cell
def test_reading_packed_texts_gives_what_whole_rows_give(cell: str) -> None:
    layer, lengths = make(cell), [5, 0, 7, 9]
    x, texts = rubbish(4, 9, 4), padded_texts(keep_of(lengths, 9))
    h = layer(x)
    found = []
    for states, ends in ((h, layer.at_end(x, h, texts)), layer.read(x, texts)):
        states = states.masked_fill(~texts.keep[..., None], 0)
        loss = (states**2).sum() + sum((part**2).sum() for part in ends)
        found.append([states, *ends, *torch.autograd.grad(loss, layer.parameters())])
    for one, two in zip(*found, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_torch_gets_lengths_wherever_that_works(monkeypatch: pytest.MonkeyPatch) -> None:
    layer, x, texts = make("lstm"), rubbish(4, 9, 4), padded_texts(keep_of(LENGTHS, 9))
    assert [tuple(part.shape) for part in layer.read(x[:0], padded_texts(texts.keep[:0]))[1]] == [(0, 6)] * 2
    with torch.autocast("cpu", torch.bfloat16):
        assert layer.read(x, texts)[0].dtype == torch.bfloat16
    monkeypatch.delattr(Recurrence, "_cell_at_end")
    layer.read(x, texts)


@torch.no_grad()
def test_long_texts_whose_beginning_is_forgotten_are_no_trouble() -> None:
    layer, x = make("lstm"), rubbish(2, 3000, 4)
    layer.cells.bias_ih_l0[6:12] = -4.0
    found = layer.at_end(x, layer(x), padded_texts(keep_of([3000, 2500], 3000)))
    torch.testing.assert_close(found[1][0], layer.cells(x[:1])[1][1][0, 0], rtol=0, atol=1e-5)
    torch.testing.assert_close(found[1][1], layer.cells(x[1:, :2500])[1][1][0, 0], rtol=0, atol=1e-5)


def test_at_first_an_lstm_remembers() -> None:
    cells = Recurrence("lstm", 4, 6).cells
    assert (cells.bias_ih_l0 + cells.bias_hh_l0)[6:12].tolist() == [1.0] * 6


def test_texts_are_turned_and_padding_is_not() -> None:
    texts = padded_texts(keep_of([3, 0, 5], 5))
    x = torch.tensor([[1, 2, 3, 8, 9], [6, 7, 8, 9, 9], [1, 2, 3, 4, 5]])[..., None]
    assert texts.reversed(x)[..., 0].tolist() == [[3, 2, 1, 8, 9], [6, 7, 8, 9, 9], [5, 4, 3, 2, 1]]
    assert texts.at_end(x)[..., 0].tolist() == [3, 0, 5]


# The encoder


def of_torch(encoder: RecurrentEncoder, cell: str, inputs: int, width: int, both: bool) -> nn.RNNBase:
    """torch's own stack of layers, with the same weights."""
    kind = nn.LSTM if cell == "lstm" else nn.GRU
    stack = kind(inputs, width, len(encoder.layers), batch_first=True, bidirectional=both)
    for number, layer in enumerate(encoder.layers):
        for way, suffix in ((layer.left_to_right, ""), (layer.right_to_left, "_reverse" if both else "")):
            for name, weight in way.cells.named_parameters() if way is not None else ():
                getattr(stack, name.replace("l0", f"l{number}") + suffix).data = weight.data
    return stack


@torch.no_grad()
@each_cell
@pytest.mark.parametrize("reading", ["left_to_right", "right_to_left", "both"])
def test_the_encoder_of_padded_texts_is_torchs_of_each_text_alone(cell: str, reading: str) -> None:
    torch.manual_seed(3)
    encoder, both = RecurrentEncoder(cell, 4, 6, 3, reading, 0.0), reading == "both"
    stack = of_torch(encoder, cell, 4, 3 if both else 6, both)
    x = rubbish(4, 9, 4)
    states, ends = encoder(x, padded_texts(keep_of(LENGTHS, 9)))
    for row, length in enumerate(LENGTHS):
        single = x[row : row + 1, :length]
        wanted, last = stack(single.flip(1) if reading == "right_to_left" else single)
        torch.testing.assert_close(states[row, :length], wanted.flip(1)[0] if reading == "right_to_left" else wanted[0], **CLOSE)
        assert not states[row, length:].any()
        for part, right in enumerate(last if cell == "lstm" else [last]):  # (layers x ways, 1, D)
            for number, end in enumerate(ends):
                torch.testing.assert_close(end[part][row], right.view(3, -1)[number], **CLOSE)


@torch.no_grad()
@each_cell
def test_a_text_without_tokens_says_nothing_however_wide_its_row(cell: str) -> None:
    encoder = RecurrentEncoder(cell, 4, 6, 2, "both", 0.0)
    states, ends = encoder(rubbish(2, 5, 4), padded_texts(keep_of([0, 5], 5)))
    assert not states[0].any()
    assert not any(part[0].any() for end in ends for part in end)


# Attention


@torch.no_grad()
@pytest.mark.parametrize("score", ["additive", "dot", "general"])
def test_scores_and_weights_are_the_papers_formulas(score: str) -> None:
    torch.manual_seed(2)
    attention, q, memory, keep = RecurrentAttention(score, 6), rubbish(4, 3, 6), rubbish(4, 9, 6, seed=1), keep_of(LENGTHS, 9)
    mask = source_mask(keep, memory)
    with recording() as recorded:
        seen = attention(q, attention.project_memory(memory), mask)
    assert [tuple(weights.shape) for weights in recorded] == [(4, 1, 3, 9)]
    for b, length in enumerate(LENGTHS):
        for t in range(3):
            scores = [float(score_of(attention, q[b, t], memory[b, s])) for s in range(length)]
            weights = torch.tensor(scores).softmax(0)
            torch.testing.assert_close(recorded[0][b, 0, t, :length], weights, **CLOSE)
            assert not recorded[0][b, 0, t, length:].any()
            torch.testing.assert_close(seen[b, t], sum(w * h for w, h in zip(weights, memory[b], strict=False)), **CLOSE)


def attended(attention: RecurrentAttention, leaves: list[Tensor], keep: Tensor) -> list[Tensor]:
    """Return the context vectors, the weights, and the gradients of all inputs."""
    q, memory = leaves
    with recording() as recorded:
        seen = attention(q, attention.project_memory(memory), source_mask(keep, memory))
    return [seen, recorded[0], *torch.autograd.grad((seen**2).sum(), [*leaves, *attention.parameters()])]


@pytest.mark.parametrize("score", ["additive", "general"])
def test_a_pass_in_pieces_is_the_pass_at_once(score: str, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(2)
    attention, keep = RecurrentAttention(score, 6), keep_of(LENGTHS, 9)
    leaves = [rubbish(4, 5, 6).requires_grad_(), rubbish(4, 9, 6, seed=1).requires_grad_()]
    wanted = attended(attention, leaves, keep)
    monkeypatch.setitem(recurrent.MAX_SUMS, "cpu", 2 * 4 * 9 * 6)  # pieces of two positions
    largest = watch_mixing(monkeypatch)
    for one, two in zip(attended(attention, leaves, keep), wanted, strict=True):
        torch.testing.assert_close(one, two, **CLOSE)
    assert max(largest, default=0) == (2 * 4 * 9 * 6 if score == "additive" else 0)


def watch_mixing(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Collect the sizes of the tensors from which additive scores are computed from now on."""
    sizes, mixed = [], recurrent._tanh_sums

    def watched(q: Tensor, keys: Tensor) -> Tensor:
        found = mixed(q, keys)
        sizes.append(found.numel())
        return found

    monkeypatch.setattr(recurrent, "_tanh_sums", watched)
    return sizes


def test_additive_scores_have_the_gradient_of_their_formula() -> None:
    q, keys, v = (rubbish(*shape).double().requires_grad_() for shape in ((2, 3, 4), (2, 5, 4), (4,)))
    assert torch.autograd.gradcheck(recurrent._AdditiveScores.apply, (q, keys, v))


def test_training_keeps_nothing_of_the_size_of_all_pairs_times_width() -> None:
    attention, q, memory = RecurrentAttention("additive", 16), rubbish(2, 7, 16), rubbish(2, 9, 16)
    kept: list[int] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: kept.append(x.numel()) or x, lambda x: x):
        attention(q, attention.project_memory(memory), source_mask(keep_of([9, 4], 9), memory))
    assert 0 < max(kept) < 2 * 7 * 9 * 16


def score_of(attention: RecurrentAttention, state: Tensor, source: Tensor) -> Tensor:
    if attention.score == "dot":
        return state @ source
    if attention.score == "general":
        return state @ attention.key.weight @ source
    return attention.v @ (attention.query.weight @ state + attention.key.weight @ source).tanh()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@each_cell
def test_small_gradients_are_not_lost_on_a_gpu(cell: str) -> None:
    """Gradients are tiny, as for a loss that is the mean of many tokens: below the range of fp16."""
    layer, x = make(cell), torch.randn(2, 9, 4)

    def gradients(device: str) -> list[Tensor]:
        moved, given = layer.to(device), x.to(device).requires_grad_()
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            (moved(given).float() * 1e-8).sum().backward()
        found = [given.grad, *(weight.grad for weight in moved.parameters())]
        moved.zero_grad()
        return [1e8 * grad.cpu() for grad in found if grad is not None]

    for mine, right in zip(gradients("cuda"), gradients("cpu"), strict=True):
        torch.testing.assert_close(mine, right, rtol=0.02, atol=0.02)


@torch.no_grad()
def test_autocast_does_not_round_what_an_lstm_carries_out_of_a_text() -> None:
    layer, x, texts = make("lstm"), rubbish(4, 9, 4), padded_texts(keep_of(LENGTHS, 9))
    (_, (_, wanted)), whole = layer.read(x, texts), layer(x)
    with torch.autocast("cpu", torch.bfloat16):
        _, found = layer.at_end(x, whole, texts)
    torch.testing.assert_close(found, wanted, **CLOSE)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize(("cell", "projection"), [("lstm", 0), ("lstm", 5), ("gru", 0)])
def test_a_recorded_layer_gives_the_gradients_on_a_gpu(cell: Any, projection: int) -> None:
    recorded, plain = (Recurrence(cell, 4, 6, projection, recorded=where == "cuda").to(where) for where in ("cuda", "cpu"))
    for _ in range(5):
        x = torch.randn(2, 9, 4)
        for mine, right in zip(recorded.parameters(), plain.parameters(), strict=True):
            torch.nn.init.normal_(right, std=0.5)
            mine.data.copy_(right)
        for layer, given in ((recorded, x.cuda().requires_grad_()), (plain, x.requires_grad_())):
            layer.zero_grad()
            layer(given).square().sum().backward()
        for mine, right in zip(recorded.parameters(), plain.parameters(), strict=True):
            assert mine.grad is not None and right.grad is not None
            torch.testing.assert_close(mine.grad.cpu(), right.grad, rtol=0.02, atol=0.02)  # products there are TF32
    assert recorded.recorder is not None and recorded.recorder.recordings
