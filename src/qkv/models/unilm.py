"""UniLM (Dong et al. 2019, "Unified Language Model Pre-training for Natural Language Understanding and Generation").

BERT's network; attention masks decide what it is: an encoder, a language model in either direction, or a sequence-to-sequence
model (section 2.2). The segments of a text say which of them reads it (section 2.1; `parts/modes.py`); there are six, as in the
authors' code. Attention probabilities are not dropped out, see bert.py.

`UnilmTranslator` turns sources into targets (sections 2.4 and 3.1). A source and its target are one text with the frame that texts
have in pretraining: bos, source, eos, target, eos. To decode, [MASK] is put after the written tokens, the model predicts the token
there, and that token takes its place. A step therefore reads two tokens, the last one and a new [MASK]; the caches keep only the
former.
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

from qkv.base.rows import Rows, on_each
from qkv.models.bert import SIZES as OF_BERT
from qkv.models.bert import Bert
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
    # A text's length is not known while it is written, nor has it a tree.
    positions: Literal["none", "learned", "relative", "rotary", "alibi"] = "learned"
    segments: Literal[6] = 6  # the parts of texts, in all ways to read them

    def check_translation(self, max_tokens: int) -> None:
        key = "twice data.max_tokens, as source and target are one text,"
        self.check_texts(2 * max_tokens, key, segments=6)

    _all_that_it_may_see = field_validator("attention")(only_full)


SIZES: dict[str, dict[str, Any]] = OF_BERT


class Unilm(Bert):
    """Reads rows of texts, each in the way that its segments say; without segments a token sees its whole text."""

    def attention_mask(self, rows: Rows, segment: Tensor | None, like: Tensor) -> AttentionMask:
        if segment is None:
            return super().attention_mask(rows, segment, like)
        return DenseMask(visible_range(rows.text, segment).dense())

    def before(self, rows: Rows, mask: int) -> Tensor:
        """What is known of each token from those before it in its text, as if each was the last one and [MASK]. -> (B, T, D).

        A [MASK] that nobody else sees stands beside every token, so that one pass does what T passes over beginnings would.
        """
        both = on_each(rows, lambda values: torch.cat([values, values], 1))
        length = rows.ids.size(1)
        both = both._replace(ids=torch.cat([rows.ids, torch.full_like(rows.ids, mask)], 1))
        x = self.projection(self.embedding(both, torch.full_like(both.ids, LEFT_TO_RIGHT), None))
        rule = tokens_and_probes(both.text, both.position, length)
        probing = DenseMask(rule.dense(len(x), 2 * length, 2 * length, x.device))
        return deque(self.layers_over(x, both, probing), maxlen=1).pop()[:, length:]


@dataclass(kw_only=True)
class MaskedState(PromptState):
    """The state of a UniLM that writes targets; the first step has no token to cache, as the target is still empty."""

    first: Callable[[Tensor, Any], Tensor]  # the first step: tokens (R,), which it ignores, this state -> logits (R, V)
    begun: bool = False

    def step(self, tokens: Tensor) -> Tensor:
        """Return the logits of the next tokens (R, V)."""
        if self.begun:
            return super().step(tokens)
        self.begun = True
        return self.first(tokens, self)


class UnilmTranslator(IncrementalDecoder, ModelWithHeads):
    """Reads sources, tells the masked words of targets; `start` and `step` decode with caches."""

    joins_source_and_target = True  # both are one text to the network

    def __init__(self, c: UnilmConfig, vocab: int, mask: int):
        super().__init__(Unilm(c, vocab), ("masked",))
        self.mask = mask  # the id of [MASK]
        words, head = self.encoder.embedding.token_embedding, self.heads["masked"]
        self.output = nn.Linear(words.embedding_dim, vocab, device="meta")
        self.output.weight, self.output.bias = words.weight, head.bias  # type: ignore[assignment]

    def forward(self, source: Rows, target: Rows) -> Tensor:
        """What is known at each target place. -> (B, T, D)."""
        rows, segment, where = join_source_and_target(source, target)
        return states_at(self.encoder(rows, segment), where)

    @property
    def target_embedding(self) -> nn.Embedding:
        """The one embedding of both sides."""
        return self.encoder.embedding.token_embedding

    source_embedding = target_embedding

    @property
    def longest(self) -> int | None:
        """Tokens that source and target may each have; None where there is no limit."""
        return None if self.encoder.longest is None else self.encoder.longest // 2

    def start(self, ids: Tensor, keep: Tensor, max_length: int, attention: bool = False) -> MaskedState:
        """Read sources padded at their ends, (B, S), and make room for `max_length` target tokens each."""
        model = self.in_compute_dtype()
        with torch.autocast(ids.device.type, enabled=False):
            return model._prefill(ids, keep, max_length)

    def _prefill(self, ids: Tensor, keep: Tensor, max_length: int) -> MaskedState:
        if not ids.size(1):  # at least one position of padding
            ids, keep = F.pad(ids, (0, 1)), F.pad(keep, (0, 1))
        shift, cache = ids.size(1) - keep.sum(1), KVCache(ids.size(1) + max_length)
        state = MaskedState(
            run=self._decode_step,
            first=self._first_step,
            cache=cache,
            layer_caches=[LayerCache(cache) for _ in self.encoder.layers],
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

    def _first_step(self, tokens: Tensor, state: MaskedState) -> Tensor:
        return self._logits_at_mask(torch.full_like(tokens, self.mask)[:, None], state)

    def _decode_step(self, tokens: Tensor, state: MaskedState) -> Tensor:
        """Return the logits (R, V) that follow the newest tokens (R,)."""
        state.cache.advance(len(tokens), tokens.device)
        return self._logits_at_mask(torch.stack([tokens, torch.full_like(tokens, self.mask)], 1), state)

    def _logits_at_mask(self, ids: Tensor, state: MaskedState) -> Tensor:
        """Return the logits at the [MASK] that each text ends with. ids (R, 1 or 2) -> (R, V)."""
        assert state.shift is not None
        mask, newest, keys = left_padded_step(state.cache, state.shift)
        number = torch.arange(2, device=ids.device)[-ids.size(1) :]
        position = newest + number
        itself = (number == 1)[None, None, :, None].expand(len(ids), 1, -1, 1)  # the token before [MASK] does not see it
        mask = torch.cat([mask.expand(-1, -1, ids.size(1), -1), itself], -1)  # (R, 1, 1 or 2, L + 1)
        # A text that has ended may run beyond the table until it leaves the batch.
        inside = position if self.encoder.longest is None else position.clamp(max=self.encoder.longest - 1)
        x = self.encoder.embedding(Rows(ids, torch.ones_like(ids), inside), torch.full_like(ids, TARGET), None)
        keys = torch.cat([keys, position[:, -1:]], 1)
        context = self.encoder.position_scheme.context(DenseMask(additive(mask, x.dtype)), position, keys, like=x).masked_step()
        for layer, cache in zip(self.encoder.layers, state.layer_caches, strict=True):
            x = layer(x, context, cache)
        return token_logits(self.output, self.heads["masked"].features(x[:, -1]))  # type: ignore[operator]


def score_left(model: ModelWithHeads, rows: Rows, control: ControlTokens) -> TokenScores:
    """Score each token given those before it, with [MASK] in its place and the left-to-right segment."""
    unilm: Any = model.encoder
    return score_with_head(model, "masked", unilm.before(rows, control.mask), scored_tokens(rows, control))


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
