"""A UniLM that turns sources into targets (Dong et al. 2019, sections 2.4 and 3.1).

A source and its target are one text, read as such by the mask, with the frame that texts have in pretraining: bos, the source,
eos, the target, eos. To write, [MASK] is put after what has been written, what stands there is told, and the word takes its
place. A step therefore reads two tokens, the last word and a new [MASK]; of these the caches keep the word alone.
B batch, S source length, T target length, D width, R hypotheses, V vocabulary.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from qkv.base.rows import Rows
from qkv.models.unilm import Unilm, UnilmConfig
from qkv.parts.cache import Cache, Past
from qkv.parts.decoding_weights import IncrementalDecoder
from qkv.parts.heads import ModelWithHeads, states_at
from qkv.parts.masks import addable
from qkv.parts.modes import SOURCE, TARGET, side_by_side
from qkv.parts.stepping import PromptState, among_different, ending_together, word_scores


@dataclass(kw_only=True)
class MaskedState(PromptState):
    """What goes on from sources; the first step has no word to keep, as nothing has been written yet."""

    first: Callable[[Tensor, Any], Tensor]  # that step: words (R,), which say nothing, this state -> scores (R, V)
    begun: bool = False

    def step(self, words: Tensor) -> Tensor:
        """Scores of the next words (R, V)."""
        if self.begun:
            return super().step(words)
        self.begun = True
        return self.first(words, self)


class UnilmTranslator(IncrementalDecoder, ModelWithHeads):
    """Reads sources, tells the masked words of targets; `start` and `step` decode with caches."""

    one_text_per_row = False  # rows may hold several texts

    def __init__(self, c: UnilmConfig, vocab: int, mask: int):
        super().__init__(Unilm(c, vocab), ("masked",))
        self.mask = mask  # the id of [MASK]
        words, head = self.encoder.embedding.words, self.heads["masked"]
        self.output = nn.Linear(words.embedding_dim, vocab, device="meta")
        self.output.weight, self.output.bias = words.weight, head.bias  # type: ignore[assignment]

    def forward(self, source: Rows, target: Rows) -> Tensor:
        """What is known at each target place. -> (B, T, D)."""
        rows, segment, where = side_by_side(source, target)
        return states_at(self.encoder(rows, segment), where)

    @property
    def target_embedding(self) -> nn.Embedding:
        """The one embedding of both sides."""
        return self.encoder.embedding.words

    source_embedding = target_embedding

    @property
    def longest(self) -> int | None:
        """Tokens that source and target may each have; None where there is no limit."""
        return None if self.encoder.longest is None else self.encoder.longest // 2

    def start(self, ids: Tensor, keep: Tensor, longest: int, attention: bool = False) -> MaskedState:
        """Read sources padded at their ends, (B, S), and make room for `longest` target words each."""
        model = self.in_compute_dtype()
        with torch.autocast(ids.device.type, enabled=False):
            return model._started(ids, keep, longest)

    def _started(self, ids: Tensor, keep: Tensor, longest: int) -> MaskedState:
        if not ids.size(1):  # there must be something that nobody looks at
            ids, keep = F.pad(ids, (0, 1)), F.pad(keep, (0, 1))
        shift, past = ids.size(1) - keep.sum(1), Past(ids.size(1) + longest)
        state = MaskedState(
            run=self._stepped,
            first=self._opened,
            past=past,
            caches=[Cache(past) for _ in self.encoder.layers],  # type: ignore[union-attr]
            positions=self.encoder.embedding.segments.weight,  # type: ignore[union-attr, arg-type]  # only its kind is asked for
            fused=False,
            shift=shift,
        )
        rows = ending_together(ids, shift)
        x = self.encoder.embedding(rows, torch.full_like(rows.ids, SOURCE), None)
        may = self.encoder.relation.of_rows(self.encoder.who_looks(rows, None, like=x), rows, like=x)
        state.read(self.encoder.layers, x, may)  # type: ignore[arg-type]
        return state

    def _opened(self, words: Tensor, state: MaskedState) -> Tensor:
        return self._told(torch.full_like(words, self.mask)[:, None], state)

    def _stepped(self, words: Tensor, state: MaskedState) -> Tensor:
        state.past.advance(len(words), words.device)
        return self._told(torch.stack([words, torch.full_like(words, self.mask)], 1), state)

    def _told(self, ids: Tensor, state: MaskedState) -> Tensor:
        """What stands at the [MASK] that each text ends with. ids (R, 1 or 2) -> (R, V)."""
        assert state.shift is not None
        looking, newest, keys = among_different(state.past, state.shift)
        number = torch.arange(2, device=ids.device)[-ids.size(1) :]
        position = newest + number
        itself = (number == 1)[None, None, :, None].expand(len(ids), 1, -1, 1)  # [MASK] is not seen by the word before it
        looking = torch.cat([looking.expand(-1, -1, ids.size(1), -1), itself], -1)  # (R, 1, 1 or 2, L + 1)
        # A text that has ended may go on beyond the table until it leaves the batch.
        inside = position if self.encoder.longest is None else position.clamp(max=self.encoder.longest - 1)
        x = self.encoder.embedding(Rows(ids, torch.ones_like(ids), inside), torch.full_like(ids, TARGET), None)
        may = self.encoder.relation(addable(looking, x.dtype), position, torch.cat([keys, position[:, -1:]], 1), like=x)
        state.past.glancing = True
        for layer, cache in zip(self.encoder.layers, state.caches, strict=True):  # type: ignore[arg-type]
            x = layer(x, may, cache)
        return word_scores(self.output, self.heads["masked"].features(x[:, -1]))  # type: ignore[operator]
