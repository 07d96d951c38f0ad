"""GPT and GPT-2: a decoder-only Transformer that predicts the next token.

Radford et al. 2018, "Improving Language Understanding by Generative Pre-Training", section 3.1: a norm after each sub-layer
(`norm: post`). Radford et al. 2019, "Language Models are Unsupervised Multitask Learners", section 2.3: a norm before each
sub-layer and one at the end (`norm: pre`), and initial weights of layers that add to the residual path divided by the square root
of the number of such layers. Positions are learned; the output layer is the token embedding. GELU is the tanh approximation, as
in the authors' code. Departure: no dropout on attention probabilities, see bert.py.
B batch, T length, D width, R prompts, V vocabulary.
"""

import math
from typing import Any, ClassVar, Literal, Self

import torch
import torch.nn.functional as F
from pydantic import Field, field_validator
from torch import Tensor, nn

from qkv.base import graphs
from qkv.base.rows import Rows, next_tokens
from qkv.models.family import Family
from qkv.parts.attention_kinds import make_attention, only_full
from qkv.parts.cache import KVCache, LayerCache
from qkv.parts.context import AttentionContext
from qkv.parts.decoding_weights import IncrementalDecoder, MadeWeights
from qkv.parts.dot_product import additive, is_recording
from qkv.parts.encoder import EncoderLayer, StackConfig, TokenPositionEmbedding, TransformerStack
from qkv.parts.heads import ModelWithHeads
from qkv.parts.masks import DenseMask, packed_mask
from qkv.parts.prompt_graphs import PromptRecorder
from qkv.parts.residual import FinalNorm
from qkv.parts.stepping import UnreadPromptState, left_padded, left_padded_step, token_logits
from qkv.parts.token_scores import ControlTokens, TokenScores, score_with_weights


class GptConfig(StackConfig):
    """The shape of a GPT; the defaults are GPT-2's smallest."""

    kind: Literal["gpt"] = "gpt"
    causal: ClassVar[bool] = True
    norm: Literal["pre", "post"] = "pre"  # pre is GPT-2's, post the first GPT's
    activation: Literal["gelu", "gelu-tanh", "relu", "tanh"] = "gelu-tanh"
    # Sinusoids and counts are much larger than the embeddings, which have neither a norm nor a scale here.
    positions: Literal["none", "learned", "relative", "rotary", "alibi"] = "learned"
    max_positions: int = Field(default=1024, gt=0)  # longest text in tokens, if positions are learned
    epsilon: float = Field(default=1e-5, gt=0)  # added to the variance in norms

    _full_attention_only = field_validator("attention")(only_full)


SIZES: dict[str, dict[str, Any]] = {
    "mini": {"width": 256, "feedforward": 1024, "heads": 4, "layers": 4, "max_positions": 256},
    "first": {"norm": "post", "max_positions": 512},
    "small": {},
    "medium": {"width": 1024, "feedforward": 4096, "heads": 16, "layers": 24},
    "large": {"width": 1280, "feedforward": 5120, "heads": 20, "layers": 36},
    "xl": {"width": 1600, "feedforward": 6400, "heads": 25, "layers": 48},
}


class Gpt(TransformerStack):
    """A causal Transformer; every token attends to itself and earlier tokens of its text."""

    causal = True
    summary = "last"

    def __init__(self, c: GptConfig, vocab: int):
        super().__init__(c, TokenPositionEmbedding(c, vocab, c.width))
        self.layers = nn.ModuleList(
            EncoderLayer(make_attention(c), c.width, c.feedforward, c.activation, c.norm, c.dropout, c.epsilon)
            for _ in range(c.layers)
        )
        self.norm = FinalNorm(c.width, eps=c.epsilon) if c.norm == "pre" else nn.Identity()
        self._initialise(c)

    def _initialise(self, c: GptConfig, deviation: float = 0.02) -> None:
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=deviation)
            if isinstance(module, nn.Linear):
                nn.init.zeros_(module.bias)
        if c.norm == "pre":
            for layer in self.layers:
                for residual in (layer.attention.out, layer.feedforward.down):  # type: ignore[union-attr]
                    nn.init.normal_(residual.weight, std=deviation / math.sqrt(2 * c.layers))  # type: ignore[union-attr, arg-type]

    def layer(self, number: int, x: Tensor, context: AttentionContext) -> Tensor:
        x = self.layers[number](x, context)
        return self.norm(x) if number == self.config.layers - 1 else x

    def logits(self, hidden: Tensor) -> Tensor:
        """Return the logits of every token. (..., D) -> (..., V)."""
        return F.linear(hidden, self.embedding.token_embedding.weight)


class CausalLM(IncrementalDecoder):
    """A GPT that continues prompts: the first `step` of a state reads them, each further one reads one more token of each."""

    def __init__(self, gpt: Gpt):
        super().__init__()
        self.gpt = gpt
        embedding = gpt.embedding.token_embedding
        self.output = nn.Linear(embedding.embedding_dim, embedding.num_embeddings, bias=False, device="meta")
        self.output.weight = embedding.weight
        self.prompt_recorder: PromptRecorder | None = None  # of decoding weights, which stay where they are

    def prepare_decoding(self, dtype: torch.dtype, made: MadeWeights | None = None) -> Self:
        copied = super().prepare_decoding(dtype, made)
        copied.prompt_recorder = PromptRecorder(self.longest)
        return copied

    @property
    def longest(self) -> int | None:
        """The longest text in tokens, with its prompt; None without a limit."""
        return self.gpt.longest

    def start(
        self, ids: Tensor, keep: Tensor, max_length: int, attention: bool = False, piece: int | None = None
    ) -> UnreadPromptState:
        """Return a state for prompts without their last tokens, padded at the end, (R, T), and `max_length` more tokens.

        It has read nothing yet. With a `piece`, prompts of more tokens than that, in all, are read in several steps.
        """
        model = self.in_compute_dtype()
        with torch.autocast(ids.device.type, enabled=False):
            return model._unread(ids, keep, max_length, piece)

    def _unread(self, ids: Tensor, keep: Tensor, max_length: int, piece: int | None) -> UnreadPromptState:
        shift = ids.size(1) - keep.sum(1)
        cache = KVCache(ids.size(1) + max_length)
        positions = torch.arange(min(cache.max_length, self.longest or cache.max_length), device=ids.device)
        return UnreadPromptState(
            run=self._decode_step,
            cache=cache,
            layer_caches=[LayerCache(cache) for _ in self.gpt.layers],
            rows=len(ids),
            positions=self.gpt.embedding.positions(positions[None])[0].to(self.output.weight.dtype),
            fused=self.gpt.position_scheme.fused,
            shift=shift if bool(shift.any()) else None,
            read=self._read,
            piece=piece,
            unread=left_padded(ids, shift).ids,
        )

    def _read(self, ids: Tensor, state: UnreadPromptState) -> Tensor:
        """Read the next tokens of prompts (R, T); return the logits (R, V) that follow them."""
        whole = not state.cache.length and state.on_read is None
        if whole and self.prompt_recorder is not None and graphs.usable(ids) and not is_recording():
            found = self.prompt_recorder.read(self._read_whole, ids, state.shift)
            if found is not None:
                logits, kv = found
                state.cache.prefill(*ids.shape)
                for cache, log in zip(state.layer_caches, kv, strict=True):
                    cache.log = log
                return logits
        return self._read_now(ids, state)

    def _read_whole(self, ids: Tensor, shift: Tensor) -> tuple[Tensor, Tensor]:
        """Read whole prompts (R, T), padded at the beginning; return the logits (R, V) and each layer's log."""
        cache = KVCache(ids.size(1))
        state = UnreadPromptState(
            run=self._decode_step,
            cache=cache,
            layer_caches=[LayerCache(cache) for _ in self.gpt.layers],
            rows=len(ids),
            positions=self.output.weight,
            shift=shift,
            read=self._read_now,
            piece=None,
            unread=None,
        )
        logits = self._read_now(ids, state)
        return logits, torch.stack([layer.log for layer in state.layer_caches if layer.log is not None])

    def _read_now(self, ids: Tensor, state: UnreadPromptState) -> Tensor:
        """Read the next tokens of prompts without a graph."""
        c, cached = self.gpt.config, state.cache.length
        numbers = torch.arange(cached + ids.size(1), device=ids.device).expand(len(ids), -1)
        numbers = numbers if state.shift is None else numbers - state.shift[:, None]
        text, position = (numbers >= 0).long(), numbers.clamp(min=0)  # (R, L): of all tokens so far
        rows = Rows(ids, text[:, cached:], position[:, cached:])
        with torch.autocast(ids.device.type, enabled=False):
            x = self.gpt.embedding(rows, None, None)
            mask = packed_mask(rows.text, text, c.width // c.heads, like=x, causal=True)
            context = self.gpt.position_scheme.context(mask, rows.position, position, like=x)
            x = self.gpt.norm(state.prefill(self.gpt.layers, x, context.prefill()))
            if state.on_read is not None:
                state.on_read(cached, x)
            return token_logits(self.output, x[:, -1])

    def _decode_step(self, tokens: Tensor, state: UnreadPromptState) -> Tensor:
        """Return the logits (R, V) that follow the newest tokens (R,)."""
        state.cache.advance(len(tokens), tokens.device)
        x = self.gpt.embedding.token_embedding(tokens)[:, None]  # (R, 1, D)
        if state.shift is None:
            x = x + state.cache.at_newest(state.positions)
            context: AttentionContext = self.gpt.position_scheme.decode_context(state.cache, like=x)
        else:
            mask, position, keys = left_padded_step(state.cache, state.shift)
            # A finished text may run beyond the table until it leaves the batch.
            x = x + F.embedding(position.clamp(max=len(state.positions) - 1), state.positions)
            scheme = self.gpt.position_scheme
            context = scheme.context(DenseMask(additive(mask, x.dtype)), position, keys, like=x)
            context = context.decode_step(state.shift, scheme.fused)
        for layer, cache in zip(self.gpt.layers, state.layer_caches, strict=True):
            x = layer(x, context, cache)
            if state.between_layers is not None:
                state.between_layers()
        return token_logits(self.output, self.gpt.norm(x)[:, 0])


def score_left(model: ModelWithHeads, rows: Rows, control: ControlTokens) -> TokenScores:
    """Score each token given the tokens before it."""
    gpt: Any = model.encoder
    return score_with_weights(gpt(rows), gpt.embedding.token_embedding.weight, None, next_tokens(rows))


FAMILY = Family(
    kind="gpt",
    config=GptConfig,
    network=Gpt,
    sizes=SIZES,
    objectives=("causal",),
    loads_as="generator",
    token_scores={"left": score_left},
    scoring_head=None,
    fills=False,
)
