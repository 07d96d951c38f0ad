"""Recurrence: layers of LSTM or GRU cells, an encoder made of them, the attention of their decoders, and decoding step by step.

LSTM: Hochreiter and Schmidhuber 1997 with forget gates; GRU: Cho et al. 2014, as torch and cuDNN compute it, the reset gate
after the product. Scores: Bahdanau et al. 2015 (additive), Luong et al. 2015 (dot, general).
A row holds one text, from the left. What stands behind the text changes nothing, and the host need not know where it ends: torch
computes whole rows, and what was known at the end of each text is taken from there. On a CPU, where the host does know, torch is
told where texts end, which is cheaper.
B batch, T places, S source length, C width of inputs, D width, N sources, W hypotheses of each, R = N x W, V vocabulary.
"""

import contextlib
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from qkv.base import graphs
from qkv.parts.dot_product import RecordedAttention, additive, record
from qkv.parts.dropout import dropout
from qkv.parts.stepping import PAYS

Cell = Literal["lstm", "gru"]
Reading = Literal["rightward", "leftward", "both"]
Score = Literal["additive", "dot", "general"]
Carried = tuple[Tensor, ...]  # what a layer hands on from place to place: h, and of an LSTM also c, each (B, D)
Memory = tuple[Tensor, Tensor]  # keys and values of the sources, each (N, S, D)
AT_ONCE = 1 << 15  # places that torch is given in one call; cuDNN refuses twice as many
SUMS = 1 << 20  # numbers that additive scores of a pass are computed from at once, sums of queries and keys: a cache holds them


class Texts(NamedTuple):
    """Where the texts of a batch of rows are."""

    keep: Tensor  # (B, S) True at tokens
    length: Tensor  # (B, 1)
    turn: Tensor  # (B, S) for each place the one that it changes with when texts are read from their ends; padding stays

    def turned(self, x: Tensor) -> Tensor:
        """Every text back to front. (B, S, D) -> the same."""
        return x.gather(1, self.turn[..., None].expand_as(x))

    def at_end(self, x: Tensor) -> Tensor:
        """What stands at the last token of each text, and zeros where there is no token. (B, S, D) -> (B, D)."""
        before = F.pad(x, (0, 0, 1, 0))
        return before.gather(1, self.length[..., None].expand(-1, -1, x.size(-1)))[:, 0]


def texts_at(keep: Tensor) -> Texts:
    """The texts of rows, of which `keep` (B, S) is True at tokens."""
    position = torch.arange(keep.size(1), device=keep.device)
    length = keep.sum(1, keepdim=True)
    return Texts(keep, length, torch.where(keep, length - 1 - position, position))


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without torch's warning that on a CPU it computes projections itself, as nobody can do anything about that."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "LSTM with projections")
        yield


class Recurrence(nn.Module):
    """One layer of cells, read from left to right; h of an LSTM may be projected (Sak et al. 2014), for reading whole texts."""

    def __init__(self, cell: Cell, inputs: int, width: int, projection: int = 0, recorded: bool = False):
        """`recorded`: in training on a GPU the layer is a graph, for models whose updates cannot be recorded as a whole."""
        super().__init__()
        self.width = width
        self.recorder = graphs.LayerRecorder("a recurrent layer") if recorded else None
        projected: dict[str, Any] = {"proj_size": projection} if projection else {}
        self.cells: Any = (nn.LSTM if cell == "lstm" else nn.GRU)(inputs, width, batch_first=True, **projected)
        if cell == "lstm":
            self._remember()

    @torch.no_grad()
    def _remember(self) -> None:
        """Open the forget gates, so that at first a layer remembers (Jozefowicz et al. 2015)."""
        gates = slice(self.width, 2 * self.width)
        self.cells.bias_ih_l0[gates] = 1.0
        self.cells.bias_hh_l0[gates] = 0.0

    def forward(self, x: Tensor, first: Carried | None = None) -> Tensor:
        """All places, in one call. x (B, T, C), first what is carried into them -> h at each, (B, T, D)."""
        if not x.size(1):  # torch refuses to read nothing
            return x.new_zeros(len(x), 0, self.cells.proj_size or self.width)
        if x.is_cuda and torch.is_autocast_enabled("cuda"):
            # Whichever type autocast was told, cuDNN would get fp16 from it, where small gradients of unscaled losses are lost.
            with torch.autocast("cuda", enabled=False):
                return self(x.float(), None if first is None else tuple(part.float() for part in first))
        carried: Any = None
        if first is not None:
            start = tuple(part[None] for part in first)
            carried = start if isinstance(self.cells, nn.LSTM) else start[0]
        with _quiet() if self.cells.proj_size else contextlib.nullcontext():
            if self.recorder is not None and self.training and first is None and x.size(1) <= AT_ONCE:
                learned = [weight for weight in self.parameters() if weight.requires_grad]
                return self.recorder(lambda x: self.cells(x)[0], x, learned)
            found = []
            for piece in x.split(AT_ONCE, 1):
                h, carried = self.cells(piece, carried)
                found.append(h)
        return found[0] if len(found) == 1 else torch.cat(found, 1)

    def step(self, x: Tensor, before: Carried) -> Carried:
        """One place. x (R, C)."""
        c = self.cells
        weights = (c.weight_ih_l0, c.weight_hh_l0, c.bias_ih_l0, c.bias_hh_l0)
        return torch.lstm_cell(x, before, *weights) if isinstance(c, nn.LSTM) else (torch.gru_cell(x, before[0], *weights),)

    def read(self, x: Tensor, texts: Texts) -> tuple[Tensor, Carried]:
        """Whole texts. x (B, S, C) -> h at each place, (B, S, D), and what is carried out of each text."""
        host_knows = x.device.type == "cpu" and x.numel() > 0
        # Packed texts are beyond autocast, which would leave them in float32.
        if isinstance(self.cells, nn.LSTM) and host_knows and not torch.is_autocast_enabled("cpu"):
            return self._read_packed(x, texts.length)
        h = self(x)
        return h, self.at_end(x, h, texts)

    def _read_packed(self, x: Tensor, length: Tensor) -> tuple[Tensor, Carried]:
        """As torch reads texts whose lengths (B, 1) it is told: then it tells an LSTM's c at their ends too."""
        some = length[:, 0].clamp(min=1)  # torch refuses to read nothing
        packed, ends = self.cells(pack_padded_sequence(x, some, batch_first=True, enforce_sorted=False))
        h, _ = pad_packed_sequence(packed, batch_first=True, total_length=x.size(1))
        return h, tuple(end[0].masked_fill(length == 0, 0) for end in ends)

    def at_end(self, x: Tensor, h: Tensor, texts: Texts) -> Carried:
        """What is carried out of each text, from inputs (B, S, C) and outputs (B, S, D)."""
        last = texts.at_end(h)
        return (last, self._cell_at_end(x, h, texts.keep)) if isinstance(self.cells, nn.LSTM) else (last,)

    def _cell_at_end(self, x: Tensor, h: Tensor, keep: Tensor) -> Tensor:
        """An LSTM's c at the end of each text, which torch tells of whole rows only.

        c(t) = f(t) c(t-1) + i(t) g(t), where all gates follow from x(t) and h(t-1): so it is the sum of all i(t) g(t), each times
        the product of the f after it.
        """
        c, gates = self.cells, slice(0, 3 * self.width)  # without the output's, which stand last
        before = F.pad(h, (0, 0, 1, 0))[:, :-1]

        def asked(seen: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
            return F.linear(*(part.to(h.dtype) for part in (seen, weight[gates], bias[gates])))

        with torch.autocast(h.device.type, enabled=False):  # in the numbers in which h was found
            sums = asked(x, c.weight_ih_l0, c.bias_ih_l0) + asked(before, c.weight_hh_l0, c.bias_hh_l0)
        i, f, g = sums.float().chunk(3, -1)
        gone = ~keep[..., None]
        forgotten = F.logsigmoid(f).masked_fill(gone, 0)
        after = forgotten.flip(1).cumsum(1).flip(1) - forgotten
        return (after.exp() * i.sigmoid() * g.tanh()).masked_fill(gone, 0).sum(1).to(h.dtype)


class ReadingLayer(nn.Module):
    """A layer of the encoder: one way, or both, each with half of the width."""

    def __init__(self, cell: Cell, inputs: int, width: int, reading: Reading):
        super().__init__()
        each = width // 2 if reading == "both" else width
        self.rightward = None if reading == "leftward" else Recurrence(cell, inputs, each)
        self.leftward = None if reading == "rightward" else Recurrence(cell, inputs, each)

    def forward(self, x: Tensor, texts: Texts) -> tuple[Tensor, Carried]:
        """x (B, S, C) -> h of both ways side by side, (B, S, D), and what is carried out of each text."""
        seen, ends = [], []
        if self.rightward is not None:
            h, end = self.rightward.read(x, texts)
            seen.append(h)
            ends.append(end)
        if self.leftward is not None:
            h, end = self.leftward.read(texts.turned(x), texts)
            seen.append(texts.turned(h))
            ends.append(end)
        return torch.cat(seen, -1), tuple(torch.cat(parts, -1) for parts in zip(*ends, strict=True))


class RecurrentEncoder(nn.Module):
    """Layers over whole texts; dropout on what goes from one to the next."""

    def __init__(self, cell: Cell, inputs: int, width: int, layers: int, reading: Reading, rate: float):
        super().__init__()
        self.rate = rate
        self.layers = nn.ModuleList(ReadingLayer(cell, width if n else inputs, width, reading) for n in range(layers))

    def forward(self, x: Tensor, texts: Texts) -> tuple[Tensor, list[Carried]]:
        """x (B, S, C) -> h of the last layer, zeros at padding, (B, S, D), and what is carried out of each text, by layer."""
        ends = []
        for number, layer in enumerate(self.layers):
            x, end = layer(dropout(x, self.rate, self.training) if number else x, texts)
            ends.append(end)
        return x.masked_fill(~texts.keep[..., None], 0), ends


class RecurrentAttention(RecordedAttention):
    """Cross-attention with one head, a recurrent decoder's scores, and the memory itself as values."""

    def __init__(self, score: Score, width: int):
        super().__init__()
        self.score = score
        self.key = nn.Identity() if score == "dot" else nn.Linear(width, width, bias=False)
        if score == "additive":
            self.query = nn.Linear(width, width, bias=False)
            self.v = nn.Parameter(torch.empty(width).uniform_(-(width**-0.5), width**-0.5))

    def project_memory(self, memory: Tensor) -> Memory:
        """What does not change from step to step. (N, S, D) -> keys and values, each (N, S, D)."""
        return self.key(memory), memory

    def scores(self, q: Tensor, keys: Tensor) -> Tensor:
        """q (N, T, D), keys (N, S, D) -> (N, T, S)."""
        if self.score != "additive":
            return q @ keys.mT  # general: q' (W memory), with W in the keys
        asked, v = self.query(q), self.v.to(keys.dtype)
        return _AdditiveScores.apply(asked, keys, v) if torch.is_grad_enabled() else _mixed(asked, keys) @ v

    def look(self, q: Tensor, memory: Memory, mask: Tensor) -> tuple[Tensor, Tensor]:
        """q (N, T, D), mask (N, 1, S), additive -> what was seen, (N, T, D), and the weights, (N, T, S)."""
        keys, values = memory
        weights = (self.scores(q, keys) + mask).softmax(-1)
        return weights.to(values.dtype) @ values, weights

    def forward(self, q: Tensor, memory: Memory, mask: Tensor) -> Tensor:
        """The same for all places of a pass, told to whoever records; additive scores in pieces that fit into memory."""
        pieces = q.split(max(1, SUMS // max(1, memory[0].numel())), 1) if self.score == "additive" else [q]
        seen, weights = (torch.cat(found, 1) for found in zip(*(self.look(piece, memory, mask) for piece in pieces), strict=True))
        record(weights[:, None])
        return seen


def _mixed(q: Tensor, keys: Tensor) -> Tensor:
    """Each query with each key. (N, T, D), (N, S, D) -> (N, T, S, D)."""
    return torch.tanh(q[:, :, None] + keys[:, None])


class _AdditiveScores(torch.autograd.Function):
    """v' tanh(q + k) of all pairs; the backward pass mixes them anew, so that nothing as large as pairs times width is kept."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, keys: Tensor, v: Tensor) -> Tensor:
        ctx.save_for_backward(q, keys, v)
        return _mixed(q, keys) @ v

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, keys, v = ctx.saved_tensors
        mixed = _mixed(q, keys)
        grad = torch.ops.aten.tanh_backward(grads[0][..., None] * v, mixed)
        return grad.sum(2), grad.sum(1), grads[0].flatten() @ mixed.flatten(0, 2)


def may_look(keep: Tensor, like: Tensor) -> Tensor:
    """Which source places there are, to be added to scores. (N, S) -> (N, 1, S)."""
    return additive(keep[:, None], like.dtype)


@dataclass
class RecurrentState:
    """What decoding carries from step to step; on a GPU, its steps become a CUDA graph."""

    run: Callable[[Tensor, "RecurrentState"], Tensor]  # the model's step: words (R,) -> scores (R, V)
    layers: list[Carried]  # of each layer, (R, D)
    fed: Tensor | None  # (R, C) what the last step found, where that is fed to the next
    context: Tensor | None  # (R, D) the source in one vector, where every step reads it
    memory: Memory | None  # where there is attention
    may: Tensor | None  # (N, 1, S)
    sources: int
    left: int  # steps to come at most
    want_attention: bool
    attention: Tensor | None = None  # (R, S) of the last step
    moves: int = 0  # times that rows changed in number
    recorder: graphs.GraphRecorder[graphs.GraphedFunction] = field(
        default_factory=lambda: graphs.GraphRecorder("a decoding step")
    )

    def step(self, words: Tensor) -> Tensor:
        """Scores of the next words (R, V); on a GPU by a graph, once steps have come to look the same."""
        graph = None
        if graphs.usable(words) and not self.want_attention:
            graph = self.recorder.recording(
                self.moves, lambda: graphs.GraphedFunction(self._in_place, words.clone()), worthwhile=self.left >= PAYS
            )
        self.left -= 1
        return self.run(words, self) if graph is None else graph(words)

    def _in_place(self, words: Tensor) -> Tensor:
        """A step that writes what it carries on where it found it."""
        known = self.layers, self.fed
        try:
            scores = self.run(words, self)
            for old, new in zip(_tensors(*known), _tensors(self.layers, self.fed), strict=True):
                old.copy_(new)
        finally:  # also where a recording fails
            self.layers, self.fed = known
        return scores

    def select(self, rows: Tensor) -> None:
        """Row i becomes the old row rows[i]; the number of rows may change. Each row has its source to itself from now on."""
        self.regroup(rows[:, None], rows // (self._rows // self.sources))

    def regroup(self, rows: Tensor, sources: Tensor | None) -> None:
        """As select of rows (N, W), those of a source side by side, where only these sources go on, or None for all."""
        flat = rows.flatten()
        same = sources is None and len(flat) == self._rows
        if same and self.recorder.recordings:
            for tensor in _tensors(self.layers, self.fed, self.context):
                tensor.copy_(tensor.index_select(0, flat))
            return
        if not same:
            self.moves += 1
            self.recorder.forget()
        self.layers = [tuple(part.index_select(0, flat) for part in layer) for layer in self.layers]
        self.fed, self.context, self.attention = (
            None if tensor is None else tensor.index_select(0, flat) for tensor in (self.fed, self.context, self.attention)
        )
        if sources is not None:
            self._keep_sources(sources)

    def _keep_sources(self, sources: Tensor) -> None:
        self.sources = len(sources)
        if self.memory is not None and self.may is not None:
            keys, values = self.memory
            chosen = values.index_select(0, sources)
            self.memory = (chosen if keys is values else keys.index_select(0, sources)), chosen
            self.may = self.may.index_select(0, sources)

    @property
    def _rows(self) -> int:
        return len(self.layers[0][0])


def _tensors(layers: list[Carried], *others: Tensor | None) -> list[Tensor]:
    return [part for layer in layers for part in layer] + [tensor for tensor in others if tensor is not None]
