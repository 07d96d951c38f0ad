"""The inspector of an encoder: a text or a pair of texts, and the prediction that is explained.

The prediction is the token for the first [MASK], or the class or number of a fine-tuned model; otherwise attention is shown
alone.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from qkv.base.errors import ConfigError, DataError
from qkv.base.rows import Rows, padded_rows
from qkv.data.inputs import LabelledTexts
from qkv.data.trees import TokensWithHeads, add_special_tokens, encode_with_heads
from qkv.inference.encoder_explainer import EncoderExplainer
from qkv.inference.engines import pad, padded_heads
from qkv.lens.inspectors import SelfAttentionInspector
from qkv.lens.tokenized_text import tokenized_text
from qkv.lens.view import LINFORMER, NO_ATTENTION
from qkv.text.check import normalise
from qkv.text.tokenizer import MASK
from qkv.text.treebank import TextWithHeads

if TYPE_CHECKING:
    from qkv.inference.text_encoder import TextEncoder


class ExplainedPrediction(NamedTuple):
    """A prediction for a text, and the function that scores it."""

    output: str | None = None
    description: str | None = None  # the same in words, for the page
    score: Callable[[], Tensor] | None = None  # runs the model and returns the log-probability, or the number
    labels: Callable[[], dict[str, float]] | None = None  # runs the model: the probability of each label, or the number


def inspect_encoder(text_encoder: "TextEncoder", text: str, pair: str | None) -> SelfAttentionInspector:
    """Return an encoder with an encoded text, or pair of texts, and its prediction."""
    encoder, tokenizer = text_encoder.model.encoder, text_encoder.tokenizer
    attention = getattr(encoder.config, "attention", None)  # a T5's is full, and no key of its config
    if encoder.config.reads_characters:
        raise ConfigError(NO_ATTENTION)
    if attention is not None and attention.one_text_per_row:
        raise ConfigError(LINFORMER)
    given = {"the text": text} if pair is None else {"the first text": text, "the second text": pair}
    parts = [_encode(text_encoder, one, name) for name, one in given.items()]
    if text_encoder.trees:
        ids: list[int] = add_special_tokens(parts, tokenizer)  # type: ignore[arg-type]
    else:
        ids = [tokenizer.bos, *(token for part in parts for token in [*part, tokenizer.eos])]
    if encoder.longest is not None and len(ids) > encoder.longest:
        raise DataError(f"the text has {len(ids):,} tokens, and this model reads {encoder.longest:,} at most; shorten it")
    rows = padded_rows(*pad([ids], text_encoder.device), padded_heads([ids], text_encoder.device))
    segment = (rows.position >= len(ids) - len(parts[-1]) - 1).long() if pair is not None else None
    prediction = ExplainedPrediction()
    if text_encoder.recipe.job == "finetuning":
        prediction = _finetuned_prediction(text_encoder, rows, segment)
    elif "masked" in text_encoder.model.heads and tokenizer.has_mask and bool((rows.ids == tokenizer.mask).any()):
        prediction = _mask_prediction(text_encoder, rows, segment)
    # An XLNet reads a text's first token last.
    texts = {"source": tokenized_text(tokenizer, [*ids[1:], ids[0]] if encoder.summary_last else ids)}
    kind, heads = encoder.config.kind, text_encoder.model.heads
    head = dict(heads.items()).get("masked")
    explained = {"output": prediction.output, "attributed": prediction.description, "score": prediction.score}
    inputs: Any = {"rows": rows, "segment": segment, "texts": texts, "tokenizer": tokenizer, "head": head, **explained}
    explainer = None if prediction.score is None else EncoderExplainer(text_encoder, rows, segment, texts["source"])
    return SelfAttentionInspector("encoder", kind, encoder, labels=prediction.labels, explainer=explainer, **inputs)


def _encode(text_encoder: "TextEncoder", text: str, name: str) -> list[int] | TokensWithHeads:
    """Return the ids of a text, without special tokens."""
    tokenizer = text_encoder.tokenizer
    if text_encoder.trees:
        ids: list[int] | TokensWithHeads = encode_with_heads(tokenizer, TextWithHeads.coerce(text, name))
    else:
        text = normalise(text)
        ids = tokenizer.encode_masked(text) if MASK in text and tokenizer.has_mask else tokenizer.encode(text)
    if not ids:
        raise DataError("the text is empty; give a text to look at")
    return ids


def _mask_prediction(text_encoder: "TextEncoder", rows: Rows, segment: Tensor | None) -> ExplainedPrediction:
    """Predict the most probable token for the first [MASK]."""
    model, tokenizer = text_encoder.model, text_encoder.tokenizer
    position = int((rows.ids[0] == tokenizer.mask).nonzero()[0])

    def log_probabilities() -> Tensor:
        logits = model.heads["masked"](model.encoder(rows, segment)[0, position : position + 1])[0]
        return logits[: len(tokenizer)].float().log_softmax(-1)  # the model's vocabulary may be rounded up

    with torch.no_grad():
        best = int(log_probabilities().argmax())
    word = tokenizer.decode([best]).strip() or tokenizer.pieces([best])[0]
    return ExplainedPrediction(word, f"the prediction “{word}” for the first {MASK}", lambda: log_probabilities()[best])


def _finetuned_prediction(text_encoder: "TextEncoder", rows: Rows, segment: Tensor | None) -> ExplainedPrediction:
    """Predict the class or the number of a text with a fine-tuned model."""
    segment = torch.zeros_like(rows.ids) if segment is None else segment
    first = rows.ids.new_zeros(1, 1)
    labelled = LabelledTexts(rows.ids, rows.text, rows.position, segment, first, first, rows.head)

    def output() -> Tensor:
        return text_encoder.task.outputs(text_encoder.model, labelled)[0, 0]

    names = text_encoder.run.network.label_names

    def labels() -> dict[str, float]:
        values = output().flatten().tolist()
        return dict(zip(names if len(names) == len(values) else map(str, range(len(values))), values, strict=True))

    with torch.no_grad():
        explained = text_encoder.task.explain(output(), names)
    if explained is None:
        return ExplainedPrediction()
    return ExplainedPrediction(explained.output, explained.description, lambda: explained.value(output()), labels)
