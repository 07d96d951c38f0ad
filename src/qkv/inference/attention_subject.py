"""What of an encoder is looked at: a text or a pair of texts, and what the model says of it.

What it says is its guess for the first [MASK], or the class or number that it was fine-tuned to give; of anything else nothing is
explained, and attention is shown alone.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from qkv.base.errors import ConfigError, DataError
from qkv.base.rows import Rows, padded_rows
from qkv.data.inputs import LabelledTexts
from qkv.data.trees import TokensWithHeads, add_special_tokens, encode_with_heads
from qkv.inference.engines import pad, padded_heads
from qkv.lens.inspectors import SelfAttentionInspector
from qkv.lens.tokenized_text import tokenized_text
from qkv.lens.view import LINFORMER, NO_ATTENTION
from qkv.objectives import OBJECTIVES
from qkv.text.check import normalise
from qkv.text.tokenizer import MASK, Tokenizer
from qkv.text.treebank import TextWithHeads

if TYPE_CHECKING:
    pass

if TYPE_CHECKING:
    from qkv.inference.text_encoder import TextEncoder

EMPTY = "the text is empty; write what is to be looked at"


class Said(NamedTuple):
    """What a model says of a text."""

    output: str | None = None
    what: str | None = None  # the same with what it is, for people
    score: Callable[[], Tensor] | None = None  # computed anew, by a pass over the text


def subject_of(text_encoder: "TextEncoder", text: str, pair: str | None) -> SelfAttentionInspector:
    """An encoder's text, or pair of texts, to be looked at."""
    encoder, tokenizer = text_encoder.model.encoder, text_encoder.tokenizer
    attention = getattr(encoder.config, "attention", None)  # T5's is full, and no key of its config
    if encoder.config.reads_characters:
        raise ConfigError(NO_ATTENTION)
    if attention is not None and attention.one_text_per_row:
        raise ConfigError(LINFORMER)
    given = {"the text": text} if pair is None else {"the first text": text, "the second text": pair}
    ids: list[int]
    if text_encoder.trees:
        leaves = [_leaves(tokenizer, one, name) for name, one in given.items()]
        ids, last = add_special_tokens(leaves, tokenizer), len(leaves[-1])
    else:
        parts = [_ids(tokenizer, one) for one in given.values()]
        ids, last = [tokenizer.bos, *(number for part in parts for number in [*part, tokenizer.eos])], len(parts[-1])
    if encoder.longest is not None and len(ids) > encoder.longest:
        raise DataError(f"the text has {len(ids):,} tokens, and this model reads {encoder.longest:,} at most; shorten it")
    rows = padded_rows(*pad([ids], text_encoder.device), padded_heads([ids], text_encoder.device))
    second = len(ids) - last - 1 if pair is not None else len(ids)
    segment = (rows.position >= second).long() if pair is not None else None
    output, what, score = _said(text_encoder, rows, segment)
    # An XLNet reads a text's first token last.
    texts = {"source": tokenized_text(tokenizer, [*ids[1:], ids[0]] if encoder.summary_last else ids)}
    return SelfAttentionInspector("encoder", encoder.config.kind, encoder, rows, segment, texts, output, what, score)


def _ids(tokenizer: Tokenizer, text: str) -> list[int]:
    tidy = normalise(text)
    if not tidy:
        raise DataError(EMPTY)
    return tokenizer.encode_masked(tidy) if MASK in tidy and tokenizer.has_mask else tokenizer.encode(tidy)


def _leaves(tokenizer: Tokenizer, text: str, name: str) -> TokensWithHeads:
    """The ids of a text with a tree."""
    found = encode_with_heads(tokenizer, TextWithHeads.coerce(text, name))
    if not found:
        raise DataError(EMPTY)
    return found


def _said(text_encoder: "TextEncoder", rows: Rows, segment: Tensor | None) -> Said:
    tokenizer = text_encoder.tokenizer
    if text_encoder.recipe.job == "finetuning":
        return _predicted(text_encoder, rows, segment)
    if "masked" in text_encoder.model.heads and tokenizer.has_mask and bool((rows.ids == tokenizer.mask).any()):
        return _guessed(text_encoder, rows, segment)
    return Said()


def _guessed(text_encoder: "TextEncoder", rows: Rows, segment: Tensor | None) -> Said:
    """The likeliest word for the first [MASK]."""
    model, tokenizer = text_encoder.model, text_encoder.tokenizer
    position = int((rows.ids[0] == tokenizer.mask).nonzero()[0])

    def chances() -> Tensor:
        scores = model.heads["masked"](model.encoder(rows, segment)[0, position : position + 1])[0]
        return scores[: len(tokenizer)].float().log_softmax(-1)  # the model's vocabulary may be rounded up

    with torch.no_grad():
        best = int(chances().argmax())
    word = tokenizer.decode([best]).strip() or tokenizer.pieces([best])[0]
    return Said(word, f"the guess “{word}” for the first {MASK}", lambda: chances()[best])


def _predicted(text_encoder: "TextEncoder", rows: Rows, segment: Tensor | None) -> Said:
    """The class or the number that a fine-tuned model gives."""
    recipe = text_encoder.finetuned()
    if recipe.objective.kind not in ("classification", "regression"):
        return Said()
    parts = torch.zeros_like(rows.ids) if segment is None else segment
    first = rows.ids.new_zeros(1, 1)
    given = LabelledTexts(rows.ids, rows.text, rows.position, parts, first, first, rows.head)
    objective = OBJECTIVES[recipe.objective.kind].build(recipe.objective, text_encoder.tokenizer)

    def outputs() -> Tensor:
        return objective.outputs(text_encoder.model, given)[0, 0]

    with torch.no_grad():
        told = outputs()
    if recipe.objective.kind == "regression":
        number = f"{float(told):.3f}"
        return Said(number, f"the number {number}", outputs)
    best, labels = int(told.argmax()), text_encoder.run.network.label_names
    label = labels[best] if labels else str(best)
    return Said(f"{label} ({float(told[best]):.0%})", f"the class “{label}”", lambda: outputs()[best].log())
