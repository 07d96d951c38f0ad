"""Steps after a layer: what it passes on, and after the last layer the norm and the most probable tokens."""

from collections.abc import Iterator

from torch import Tensor, nn

from qkv.lens.arithmetic.attending import AttendingToken
from qkv.lens.arithmetic.attention import Head
from qkv.lens.arithmetic.layers import layer_of
from qkv.lens.arithmetic.steps import Step, TokenProbabilities, norm_step, vector
from qkv.lens.inspectors import ENCODER, AttentionMap, EncoderDecoderInspector, Inspector
from qkv.lens.trace import Trace
from qkv.parts.convolution import SourceAttention
from qkv.parts.heads import MaskedLanguageModelHead
from qkv.parts.recurrent import RecurrentAttention
from qkv.text.tokenizer import Tokenizer

TOP = 10  # most probable tokens


def output_steps(
    inspector: Inspector, trace: Trace, attention: AttentionMap, head: Head, token: AttendingToken, last: bool
) -> Iterator[Step]:
    """Yield what becomes of the output of the head's layer, which may be the last one."""
    i = head.position
    if isinstance(head.call.module, RecurrentAttention):
        x = trace[0].output[0, i]
    elif isinstance(head.call.module, SourceAttention):
        x = trace.called("decoder_output" if last else f"decoder.{attention.layer}").output[0, i]
        if last:
            yield Step("output_projection", (vector("x", "x", x),))
    else:
        x = layer_of(trace, head.call)[-1].output[0, i]
        if last:
            norm = _final_norm(inspector, attention.part)
            if norm is not None:
                yield norm_step("final_norm", norm, x)
                x = norm(x)
    if not last:
        yield Step("pass_on", (vector("x", "x", x),))
    elif token.predict is not None:
        yield _logits(token, x, inspector.tokenizer)
    else:
        to_decoder = attention.part == ENCODER and isinstance(inspector, EncoderDecoderInspector)
        yield Step("pass_to_decoder" if to_decoder else "output", (vector("x", "x", x),))


def _final_norm(inspector: Inspector, part: str) -> nn.Module | None:
    """Return the norm after the last layer, which models with norms before their sub-layers have."""
    side = "encoder_norm" if part == ENCODER else "decoder_norm"
    norm = getattr(inspector.network, side if isinstance(inspector, EncoderDecoderInspector) else "norm", None)
    return None if isinstance(norm, nn.Identity) else norm


def _logits(token: AttendingToken, x: Tensor, tokenizer: Tokenizer) -> Step:
    """Return the most probable tokens for an output vector (D,), and the token that the text has there."""
    assert token.predict is not None
    logits = token.predict(x[None])[0, : len(tokenizer)].float().cpu()  # the model's vocabulary may be rounded up
    probabilities = logits.softmax(-1)
    ids = probabilities.topk(min(TOP, len(tokenizer))).indices.tolist()
    if token.predicted is not None and token.predicted not in ids:
        ids.append(token.predicted)
    given = None if token.predicted is None else ids.index(token.predicted)
    found = TokenProbabilities("tokens", "p", tokenizer.pieces(ids), logits[ids], probabilities[ids], given)
    return Step("logits_masked" if isinstance(token.predict, MaskedLanguageModelHead) else "logits", (found,))
