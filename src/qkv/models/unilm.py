"""UniLM (Dong et al. 2019, "Unified Language Model Pre-training for Natural Language Understanding and Generation").

BERT's network, which attention masks turn into an encoder, a language model in either direction, or a sequence-to-sequence model
(section 2.2). The segments of a text select its mask (section 2.1; `parts/modes.py`); there are six, as in the authors' code.
Departure: no dropout on attention probabilities, see bert.py.

`UnilmTranslator` predicts targets from sources (sections 2.4 and 3.1). A source and its target are one text, laid out as in
pretraining: bos, source, eos, target, eos. To decode, the model reads [MASK] after the tokens so far, predicts the token there,
and that token replaces [MASK]. A step therefore reads two tokens, the last one and a new [MASK]; the caches keep only the former.
B batch, S source length, T target length, D width, R hypotheses, V vocabulary.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from pydantic import field_validator
from torch import Tensor, nn

from qkv.base.rows import Rows, map_tensors
from qkv.models.bert import SIZES, Bert
from qkv.models.family import Family
from qkv.parts.attention_kinds import only_full
from qkv.parts.cache import KVCache, LayerCache
from qkv.parts.decoding_weights import IncrementalDecoder
from qkv.parts.dot_product import additive
from qkv.parts.encoder import EncoderConfig
from qkv.parts.heads import ModelWithHeads, states_at
from qkv.parts.masks import AttentionMask, DenseMask, tokens_and_probes
from qkv.parts.modes import LEFT_TO_RIGHT, SOURCE, TARGET, join_source_and_target, visible_range
from qkv.parts.stepping import PromptState, left_padded, left_padded_step, token_logits
from qkv.parts.token_scores import ControlTokens, TokenScores, masked_each, score_with_head, scored_tokens


class UnilmConfig(EncoderConfig):
    """The shape of a UniLM; the defaults are BERT base's."""

    kind: Literal["unilm"] = "unilm"
    one_vocabulary: ClassVar[bool] = True
    source_bos: ClassVar[bool] = True
    source_eos: ClassVar[bool] = True
    takes_adapters: ClassVar[bool] = True
    # Only schemes that decoding can use: a text that is being generated has neither a known length nor a tree.
    positions: Literal["none", "learned", "relative", "rotary", "alibi"] = "learned"
    segments: Literal[6] = 6  # of all four modes, see parts/modes.py

    def check_translation(self, max_tokens: int) -> None:
        key = "twice data.max_tokens, as source and target are one text,"
        self.check_texts(2 * max_tokens, key, segments=6)

    _full_attention_only = field_validator("attention")(only_full)


class Unilm(Bert):
    """A BERT whose segments select the attention mask of each text; without segments a token attends to its whole text."""

    def attention_mask(self, rows: Rows, segment: Tensor | None, like: Tensor) -> AttentionMask:
        if segment is None:
            return super().attention_mask(rows, segment, like)
        return DenseMask(visible_range(rows.text, segment).dense())

    def left_context_states(self, rows: Rows, mask: int) -> Tensor:
        """Return the hidden state of [MASK] in place of each token, given only the tokens before it. -> (B, T, D).

        Each token gets a [MASK] beside it to which no other token attends, so that one pass replaces T passes over prefixes.
        """
        length = rows.ids.size(1)
        doubled = map_tensors(rows, lambda values: torch.cat([values, values], 1))
        doubled = doubled._replace(ids=torch.cat([rows.ids, torch.full_like(rows.ids, mask)], 1))
        x = self.projection(self.embedding(doubled, torch.full_like(doubled.ids, LEFT_TO_RIGHT), None))
        rule = tokens_and_probes(doubled.text, doubled.position, length)
        dense = DenseMask(rule.dense(len(x), 2 * length, 2 * length, x.device))
        return deque(self.layers_over(x, doubled, dense), maxlen=1).pop()[:, length:]


@dataclass(kw_only=True)
class MaskedState(PromptState):
    """The state of a decoding UniLM; the first step has no token to cache, because the target is still empty."""

    join = replace = None  # type: ignore[assignment]  # a new row has no token yet where others have one
    first_step: Callable[[Tensor, Any], Tensor]  # tokens (R,), of which it uses only the shape, and this state -> logits (R, V)
    started: bool = False

    def step(self, tokens: Tensor) -> Tensor:
        """Return the logits of the next tokens (R, V)."""
        if self.started:
            return super().step(tokens)
        self.started = True
        return self.first_step(tokens, self)


class UnilmTranslator(IncrementalDecoder, ModelWithHeads):
    """A UniLM that predicts the masked tokens of targets; `start` and the state's `step` decode with caches."""

    joins_source_and_target = True  # the network reads both as one text

    def __init__(self, c: UnilmConfig, vocab: int, mask: int):
        super().__init__(Unilm(c, vocab), ("masked",))
        self.mask = mask  # the id of [MASK]
        embedding, head = self.encoder.embedding.token_embedding, self.heads["masked"]
        self.output = nn.Linear(embedding.embedding_dim, vocab, device="meta")
        self.output.weight, self.output.bias = embedding.weight, head.bias  # type: ignore[assignment]

    def forward(self, source: Rows, target: Rows) -> Tensor:
        """Return the hidden states at target positions. source (B, S), target (B, T) -> (B, T, D)."""
        rows, segment, positions = join_source_and_target(source, target)
        return states_at(self.encoder(rows, segment), positions)

    @property
    def target_embedding(self) -> nn.Embedding:
        """The token embedding, which source and target share."""
        return self.encoder.embedding.token_embedding

    source_embedding = target_embedding

    @property
    def longest(self) -> int | None:
        """The longest source and the longest target in tokens; None without a limit."""
        return None if self.encoder.longest is None else self.encoder.longest // 2

    def start(self, ids: Tensor, keep: Tensor, max_length: int, attention: bool = False) -> MaskedState:
        """Read sources padded at the end, (B, S), and allocate caches for `max_length` target tokens each."""
        model = self.in_compute_dtype()
        with torch.autocast(ids.device.type, enabled=False):
            return model._prefill(ids, keep, max_length)

    def _prefill(self, ids: Tensor, keep: Tensor, max_length: int) -> MaskedState:
        if not ids.size(1):  # at least one position of padding
            ids, keep = F.pad(ids, (0, 1)), F.pad(keep, (0, 1))
        shift, cache = ids.size(1) - keep.sum(1), KVCache(ids.size(1) + max_length)
        state = MaskedState(
            run=self._decode_step,
            first_step=lambda tokens, state: self._logits_at_mask(torch.full_like(tokens, self.mask)[:, None], state),
            cache=cache,
            layer_caches=[LayerCache(cache) for _ in self.encoder.layers],
            rows=len(ids),
            positions=self.encoder.embedding.segment_embedding.weight,  # for its dtype and device
            fused=False,
            shift=shift,
        )
        rows = left_padded(ids, shift)
        x = self.encoder.embedding(rows, torch.full_like(rows.ids, SOURCE), None)
        mask = self.encoder.attention_mask(rows, None, like=x)
        context = self.encoder.position_scheme.context_of_rows(mask, rows, like=x)
        state.prefill(self.encoder.layers, x, context.prefill())
        return state

    def _decode_step(self, tokens: Tensor, state: MaskedState) -> Tensor:
        """Return the logits (R, V) that follow the newest tokens (R,)."""
        state.cache.advance(len(tokens), tokens.device)
        return self._logits_at_mask(torch.stack([tokens, torch.full_like(tokens, self.mask)], 1), state)

    def _logits_at_mask(self, ids: Tensor, state: MaskedState) -> Tensor:
        """Return the logits at the [MASK] at the end of each text. ids (R, 1 or 2) -> (R, V)."""
        assert state.shift is not None
        mask, newest, keys = left_padded_step(state.cache, state.shift)
        number = torch.arange(2, device=ids.device)[-ids.size(1) :]
        position = newest + number
        to_mask = (number == 1)[None, None, :, None].expand(len(ids), 1, -1, 1)  # the token before [MASK] does not attend to it
        mask = torch.cat([mask.expand(-1, -1, ids.size(1), -1), to_mask], -1)  # (R, 1, 1 or 2, L + 1)
        # A finished text may run beyond the table until it leaves the batch.
        clamped = position if self.encoder.longest is None else position.clamp(max=self.encoder.longest - 1)
        x = self.encoder.embedding(Rows(ids, torch.ones_like(ids), clamped), torch.full_like(ids, TARGET), None)
        keys = torch.cat([keys, position[:, -1:]], 1)
        context = self.encoder.position_scheme.context(DenseMask(additive(mask, x.dtype)), position, keys, like=x).masked_step()
        for layer, cache in zip(self.encoder.layers, state.layer_caches, strict=True):
            x = layer(x, context, cache)
        return token_logits(self.output, self.heads["masked"].features(x[:, -1]))  # type: ignore[operator]


def score_left(model: ModelWithHeads, rows: Rows, control: ControlTokens) -> TokenScores:
    """Score each token given the tokens before it, with [MASK] in its place, as a left-to-right language model."""
    unilm: Any = model.encoder
    return score_with_head(model, "masked", unilm.left_context_states(rows, control.mask), scored_tokens(rows, control))


FAMILY = Family(
    kind="unilm",
    config=UnilmConfig,
    network=Unilm,
    translator=lambda config, source, target, mask: UnilmTranslator(config, target, -1 if mask is None else mask),
    sizes=SIZES,
    objectives=("unilm", "masked-translation"),
    loads_as="encoder",
    token_scores={"each": masked_each, "left": score_left},
)
