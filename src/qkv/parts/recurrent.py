"""Recurrent networks: layers of LSTM or GRU cells, an encoder made of them, the attention of their decoders, and their decoding.

LSTM: Hochreiter and Schmidhuber 1997 with forget gates; GRU: Cho et al. 2014, as torch and cuDNN compute it, the reset gate
after the product. Attention scores: Bahdanau et al. 2015 (additive), Luong et al. 2015 (dot, general).
A row holds one text, then padding, which changes nothing. On a GPU the host need not know where texts end: torch computes whole
rows, and `PaddedTexts` picks the state at the end of each text. On a CPU, where the host knows them, torch gets the lengths,
which is cheaper.
B batch, T positions, S source length, C width of inputs, D width, N sources, W hypotheses of each, R = N x W, V vocabulary.
"""

import contextlib
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from qkv.base import graphs
from qkv.parts import kernels
from qkv.parts.dot_product import RecordedAttention, additive, is_recording, record, softmax_weights
from qkv.parts.dropout import dropout
from qkv.parts.stepping import MIN_STEPS_LEFT

Cell = Literal["lstm", "gru"]
Direction = Literal["left_to_right", "right_to_left", "both"]
Score = Literal["additive", "dot", "general"]
HiddenState = tuple[Tensor, ...]  # a layer's state between positions: h, and for an LSTM also c, each (B, D)
Memory = tuple[Tensor, Tensor]  # keys and values of the sources, each (N, S, D)
MAX_LENGTH = 1 << 15  # positions of one call of torch; cuDNN refuses twice as many
# Elements of q + k that additive scores compute at once: they fit into a CPU's cache; a GPU needs many, to be busy.
MAX_SUMS = {"cpu": 1 << 20, "mps": 1 << 24, "cuda": 1 << 27}


class PaddedTexts(NamedTuple):
    """The extent of the text in each row of a batch."""

    keep: Tensor  # (B, S) True at tokens
    length: Tensor  # (B, 1)
    reverse: Tensor  # (B, S) the index that reverses each text; padding stays where it is

    def reversed(self, x: Tensor) -> Tensor:
        """Reverse every text. (B, S, D) -> (B, S, D)."""
        return x.gather(1, self.reverse[..., None].expand_as(x))

    def at_end(self, x: Tensor) -> Tensor:
        """Return x at the last token of each text, and zeros for empty texts. (B, S, D) -> (B, D)."""
        before = F.pad(x, (0, 0, 1, 0))
        return before.gather(1, self.length[..., None].expand(-1, -1, x.size(-1)))[:, 0]


def padded_texts(keep: Tensor) -> PaddedTexts:
    """Find the extent of each row's text; `keep` (B, S) is True at tokens."""
    position = torch.arange(keep.size(1), device=keep.device)
    length = keep.sum(1, keepdim=True)
    return PaddedTexts(keep, length, torch.where(keep, length - 1 - position, position))


class Recurrence(nn.Module):
    """One left-to-right LSTM or GRU layer; an LSTM's h may be projected (Sak et al. 2014), but `step` supports no projection."""

    def __init__(self, cell: Cell, inputs: int, width: int, projection: int = 0, recorded: bool = False):
        """`recorded`: run the layer as a CUDA graph in training, for models whose whole update cannot be recorded."""
        super().__init__()
        self.width = width
        self.recorder = graphs.LayerRecorder("a recurrent layer") if recorded else None
        projected: dict[str, Any] = {"proj_size": projection} if projection else {}
        self.cells: Any = (nn.LSTM if cell == "lstm" else nn.GRU)(inputs, width, batch_first=True, **projected)
        if cell == "lstm":
            with torch.no_grad():  # open forget gates, so that a new layer remembers (Jozefowicz et al. 2015)
                for name, value in (("bias_ih_l0", 1.0), ("bias_hh_l0", 0.0)):
                    getattr(self.cells, name)[width : 2 * width] = value

    def forward(self, x: Tensor, initial: HiddenState | None = None) -> Tensor:
        """Run over all positions in one call, from an initial state. x (B, T, C) -> h at each position, (B, T, D)."""
        if not x.size(1):  # torch refuses empty texts
            return x.new_zeros(len(x), 0, self.cells.proj_size or self.width)
        if x.is_cuda and torch.is_autocast_enabled("cuda"):
            # Under autocast cuDNN runs in fp16, even if autocast's dtype is bf16, and loses small gradients of unscaled losses.
            with torch.autocast("cuda", enabled=False):
                return self(x.float(), None if initial is None else tuple(part.float() for part in initial))
        state: Any = None
        if initial is not None:
            state = tuple(part[None] for part in initial)
            state = state if isinstance(self.cells, nn.LSTM) else state[0]
        with warnings.catch_warnings() if self.cells.proj_size else contextlib.nullcontext():
            if self.cells.proj_size:  # on a CPU torch warns that oneDNN has no projections; users cannot change that
                warnings.filterwarnings("ignore", "LSTM with projections")
            if self.recorder is not None and self.training and initial is None and x.size(1) <= MAX_LENGTH:
                return self.recorder(lambda x: self.cells(x)[0], x, self.learned)
            outputs = []
            for piece in x.split(MAX_LENGTH, 1):
                h, state = self.cells(piece, state)
                outputs.append(h)
        return outputs[0] if len(outputs) == 1 else torch.cat(outputs, 1)

    @property
    def learned(self) -> list[Tensor]:
        """The weights that are trained."""
        return [weight for weight in self.parameters() if weight.requires_grad]

    def step(self, x: Tensor, before: HiddenState) -> HiddenState:
        """Advance by one position. x (R, C)."""
        c = self.cells
        weights = (c.weight_ih_l0, c.weight_hh_l0, c.bias_ih_l0, c.bias_hh_l0)
        return torch.lstm_cell(x, before, *weights) if isinstance(c, nn.LSTM) else (torch.gru_cell(x, before[0], *weights),)

    def read(self, x: Tensor, texts: PaddedTexts) -> tuple[Tensor, HiddenState]:
        """Read whole texts. x (B, S, C) -> h at each position, (B, S, D), and the state at the end of each text."""
        lengths_on_host = x.device.type == "cpu" and x.numel() > 0
        # Autocast does not reach packed texts and would leave them in float32.
        if isinstance(self.cells, nn.LSTM) and lengths_on_host and not torch.is_autocast_enabled("cpu"):
            return self._read_packed(x, texts.length)
        h = self(x)
        return h, self.at_end(x, h, texts)

    def _read_packed(self, x: Tensor, length: Tensor) -> tuple[Tensor, HiddenState]:
        """Read texts of known lengths (B, 1) as a packed sequence, for which torch also returns an LSTM's c at their ends."""
        nonempty = length[:, 0].clamp(min=1)  # torch refuses empty texts
        packed, ends = self.cells(pack_padded_sequence(x, nonempty, batch_first=True, enforce_sorted=False))
        h, _ = pad_packed_sequence(packed, batch_first=True, total_length=x.size(1))
        return h, tuple(end[0].masked_fill(length == 0, 0) for end in ends)

    def at_end(self, x: Tensor, h: Tensor, texts: PaddedTexts) -> HiddenState:
        """Return the state at the end of each text, from inputs (B, S, C) and outputs (B, S, D)."""
        last = texts.at_end(h)
        return (last, self._cell_at_end(x, h, texts.keep)) if isinstance(self.cells, nn.LSTM) else (last,)

    def _cell_at_end(self, x: Tensor, h: Tensor, keep: Tensor) -> Tensor:
        """Return an LSTM's c at the end of each text; torch returns it only at the end of whole rows.

        c(t) = f(t) c(t-1) + i(t) g(t), where all gates follow from x(t) and h(t-1). So c is the sum of all i(t) g(t), each times
        the product of the f after it.
        """
        c, gates = self.cells, slice(0, 3 * self.width)  # all but the output gate, which is last
        before = F.pad(h, (0, 0, 1, 0))[:, :-1]

        def projected(inputs: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
            return F.linear(*(part.to(h.dtype) for part in (inputs, weight[gates], bias[gates])))

        with torch.autocast(h.device.type, enabled=False):  # in the dtype of h
            sums = projected(x, c.weight_ih_l0, c.bias_ih_l0) + projected(before, c.weight_hh_l0, c.bias_hh_l0)
        i, f, g = sums.float().chunk(3, -1)
        padding = ~keep[..., None]
        log_f = F.logsigmoid(f).masked_fill(padding, 0)
        log_f_after = log_f.flip(1).cumsum(1).flip(1) - log_f
        return (log_f_after.exp() * i.sigmoid() * g.tanh()).masked_fill(padding, 0).sum(1).to(h.dtype)


def run_side_by_side(layers: Sequence[Recurrence], inputs: Sequence[Tensor]) -> list[Tensor]:
    """Run LSTMs with projections, equal in shape, each over its own input: in training on a GPU, by kernels that they share.

    inputs (B, T, C) -> outputs (B, T, P).
    """
    first, x = layers[0], inputs[0]
    fused = first.training and torch.is_grad_enabled() and x.numel() and kernels.usable(x)
    if first.recorder is None or not fused:
        return [layer(x) for layer, x in zip(layers, inputs, strict=True)]

    def run(x: Tensor) -> Tensor:
        cells = [layer.cells for layer in layers]
        bias = torch.stack([one.bias_ih_l0 + one.bias_hh_l0 for one in cells])
        names = ("weight_ih_l0", "weight_hh_l0", "weight_hr_l0")
        weight, recurrent_weight, projection = (torch.stack([getattr(one, name) for one in cells]) for name in names)
        return kernels.lstm.projected_lstms(x, weight, recurrent_weight, bias, projection)

    learned = [weight for layer in layers for weight in layer.learned]
    return [*first.recorder(run, torch.stack([*inputs]), learned)]


class RecurrentEncoderLayer(nn.Module):
    """An encoder layer: one direction, or both with half of the width each."""

    def __init__(self, cell: Cell, inputs: int, width: int, direction: Direction):
        super().__init__()
        cell_width = width // 2 if direction == "both" else width
        self.left_to_right = None if direction == "right_to_left" else Recurrence(cell, inputs, cell_width)
        self.right_to_left = None if direction == "left_to_right" else Recurrence(cell, inputs, cell_width)

    def forward(self, x: Tensor, texts: PaddedTexts) -> tuple[Tensor, HiddenState]:
        """x (B, S, C) -> h, concatenated over the directions, (B, S, D), and the state at the end of each text."""
        outputs, ends = [], []
        if self.left_to_right is not None:
            h, end = self.left_to_right.read(x, texts)
            outputs.append(h)
            ends.append(end)
        if self.right_to_left is not None:
            h, end = self.right_to_left.read(texts.reversed(x), texts)
            outputs.append(texts.reversed(h))
            ends.append(end)
        return torch.cat(outputs, -1), tuple(torch.cat(parts, -1) for parts in zip(*ends, strict=True))


class RecurrentEncoder(nn.Module):
    """A stack of encoder layers with dropout between them."""

    def __init__(self, cell: Cell, inputs: int, width: int, layers: int, direction: Direction, rate: float):
        super().__init__()
        self.rate = rate
        self.layers = nn.ModuleList(RecurrentEncoderLayer(cell, width if n else inputs, width, direction) for n in range(layers))

    def forward(self, x: Tensor, texts: PaddedTexts) -> tuple[Tensor, list[HiddenState]]:
        """x (B, S, C) -> h of the last layer, zeros at padding, (B, S, D), and each layer's state at the end of each text."""
        ends = []
        for number, layer in enumerate(self.layers):
            x, end = layer(dropout(x, self.rate, self.training) if number else x, texts)
            ends.append(end)
        return x.masked_fill(~texts.keep[..., None], 0), ends


class RecurrentAttention(RecordedAttention):
    """A recurrent decoder's cross-attention: one head, with the encoder's states themselves as values."""

    def __init__(self, score: Score, width: int):
        super().__init__()
        self.score = score
        self.key = nn.Identity() if score == "dot" else nn.Linear(width, width, bias=False)
        if score == "additive":
            self.query = nn.Linear(width, width, bias=False)
            self.v = nn.Parameter(torch.empty(width).uniform_(-(width**-0.5), width**-0.5))

    def project_memory(self, memory: Tensor) -> Memory:
        """Return keys and values, which all steps share. (N, S, D) -> two of (N, S, D)."""
        return self.key(memory), memory

    def scores(self, q: Tensor, keys: Tensor) -> Tensor:
        """q (N, T, D), keys (N, S, D) -> (N, T, S)."""
        if self.score != "additive":
            return q @ keys.mT  # general: q' W memory, with W already in the keys
        query, v = self.query(q), self.v.to(keys.dtype)
        return _AdditiveScores.apply(query, keys, v) if torch.is_grad_enabled() else _tanh_sums(query, keys) @ v

    def attend(self, q: Tensor, memory: Memory, mask: Tensor, first: int | None = None) -> tuple[Tensor, Tensor]:
        """q (N, T, D) from position `first`, additive mask (N, 1, S) -> context vectors, (N, T, D), and weights, (N, T, S)."""
        keys, values = memory
        weights = softmax_weights((self.scores(q, keys) + mask)[:, None], first)[:, 0]
        return weights.to(values.dtype) @ values, weights

    def forward(self, q: Tensor, memory: Memory, mask: Tensor) -> Tensor:
        """Attend from all positions and record the weights; additive scores are computed in pieces, to save memory."""
        positions = max(1, MAX_SUMS[q.device.type] // max(1, memory[0].numel()))
        pieces = q.split(positions, 1) if self.score == "additive" else [q]
        results = [self.attend(piece, memory, mask, number * positions) for number, piece in enumerate(pieces)]
        context, weights = (torch.cat(parts, 1) for parts in zip(*results, strict=True))
        record(weights[:, None])
        return context


def _tanh_sums(q: Tensor, keys: Tensor) -> Tensor:
    """Return tanh(q + k) for each query and key. (N, T, D), (N, S, D) -> (N, T, S, D)."""
    return torch.tanh(q[:, :, None] + keys[:, None])


class _AdditiveScores(torch.autograd.Function):
    """v' tanh(q + k) for all pairs; the backward pass recomputes tanh, so that no (N, T, S, D) tensor is kept."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, keys: Tensor, v: Tensor) -> Tensor:
        ctx.save_for_backward(q, keys, v)
        return _tanh_sums(q, keys) @ v

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, keys, v = ctx.saved_tensors
        sums = _tanh_sums(q, keys)
        grad = torch.ops.aten.tanh_backward(grads[0][..., None] * v, sums)
        return grad.sum(2), grad.sum(1), grads[0].flatten() @ sums.flatten(0, 2)


def source_mask(keep: Tensor, like: Tensor) -> Tensor:
    """Build the additive mask of source tokens; dtype follows `like`. (N, S) -> (N, 1, S)."""
    return additive(keep[:, None], like.dtype)


@dataclass
class RecurrentState:
    """The state of a recurrent decoder between steps; on a GPU, its steps become a CUDA graph."""

    run: Callable[[Tensor, "RecurrentState"], Tensor]  # the model's decode step: tokens (R,) -> logits (R, V)
    layers: list[HiddenState]  # the state of each layer, (R, D)
    input_feed: Tensor | None  # (R, C) the last step's output, with input feeding
    context: Tensor | None  # (R, D) the source's vector, where every step reads it
    memory: Memory | None  # keys and values, with attention
    mask: Tensor | None  # (N, 1, S)
    sources: int
    steps_left: int  # an upper bound
    want_attention: bool
    attention: Tensor | None = None  # (R, S) weights of the last step
    moves: int = 0  # times that the number of rows changed
    recorder: graphs.GraphRecorder[graphs.GraphedFunction] = field(
        default_factory=lambda: graphs.GraphRecorder("a decoding step")
    )

    def step(self, tokens: Tensor) -> Tensor:
        """Return the logits of the next tokens (R, V); on a GPU a CUDA graph replays repeated steps."""
        graph = None
        if graphs.usable(tokens) and not self.want_attention and not is_recording():
            graph = self.recorder.recording(
                self.moves,
                lambda: graphs.GraphedFunction(self._in_place, tokens.clone()),
                worthwhile=self.steps_left >= MIN_STEPS_LEFT,
            )
        self.steps_left -= 1
        return self.run(tokens, self) if graph is None else graph(tokens)

    def _in_place(self, tokens: Tensor) -> Tensor:
        """Take a step that writes the new state over the old one."""
        before = self.layers, self.input_feed
        try:
            logits = self.run(tokens, self)
            for old, new in zip(_tensors(*before), _tensors(self.layers, self.input_feed), strict=True):
                old.copy_(new)
        finally:  # also if a recording fails
            self.layers, self.input_feed = before
        return logits

    def select(self, rows: Tensor) -> None:
        """Make row i the old row rows[i]; the number of rows may change. From now on each row has its own source."""
        self.regroup(rows[:, None], rows // (self._rows // self.sources))

    def regroup(self, rows: Tensor, sources: Tensor | None) -> None:
        """Select rows (N, W), the hypotheses of a source side by side; keep only these sources (N,), or all if None."""
        flat = rows.flatten()
        same = sources is None and len(flat) == self._rows
        if same and self.recorder.recordings:
            for tensor in _tensors(self.layers, self.input_feed, self.context):
                tensor.copy_(tensor.index_select(0, flat))
            return
        if not same:
            self.moves += 1
            self.recorder.forget()
        self.layers = [tuple(part.index_select(0, flat) for part in layer) for layer in self.layers]
        self.input_feed, self.context, self.attention = (
            None if tensor is None else tensor.index_select(0, flat) for tensor in (self.input_feed, self.context, self.attention)
        )
        if sources is None:
            return
        self.sources = len(sources)
        if self.memory is not None and self.mask is not None:
            keys, values = self.memory
            chosen = values.index_select(0, sources)
            self.memory = (chosen if keys is values else keys.index_select(0, sources)), chosen
            self.mask = self.mask.index_select(0, sources)

    def join(self, other: "RecurrentState") -> None:
        """Add the rows of another state of the same model, after the own ones: equally many of each source."""
        self.moves += 1
        self.recorder.forget()
        pairs = zip(self.layers, other.layers, strict=True)
        self.layers = [tuple(map(torch.cat, zip(own, new, strict=True))) for own, new in pairs]
        self.input_feed, self.context = _cat(self.input_feed, other.input_feed), _cat(self.context, other.context)
        self.sources, self.steps_left = self.sources + other.sources, max(self.steps_left, other.steps_left)
        if self.memory is not None and other.memory is not None and self.mask is not None and other.mask is not None:
            width = max(self.mask.size(-1), other.mask.size(-1))
            values = _cat_sources(self.memory[1], other.memory[1], width)
            same = self.memory[0] is self.memory[1]
            self.memory = (values if same else _cat_sources(self.memory[0], other.memory[0], width)), values
            hidden = torch.finfo(self.mask.dtype).min
            masks = [F.pad(mask, (0, width - mask.size(-1)), value=hidden) for mask in (self.mask, other.mask)]
            self.mask = torch.cat(masks)

    @property
    def _rows(self) -> int:
        return len(self.layers[0][0])


def _cat(first: Tensor | None, second: Tensor | None) -> Tensor | None:
    return None if first is None or second is None else torch.cat([first, second])


def _cat_sources(first: Tensor, second: Tensor, width: int) -> Tensor:
    """Return keys or values of more sources, (N, S, D) and (M, S, D), in this width."""
    return torch.cat([F.pad(each, (0, 0, 0, width - each.size(1))) for each in (first, second)])


def _tensors(layers: list[HiddenState], *others: Tensor | None) -> list[Tensor]:
    """Return the tensors of layer states, and the others that are not None."""
    return [part for layer in layers for part in layer] + [tensor for tensor in others if tensor is not None]
