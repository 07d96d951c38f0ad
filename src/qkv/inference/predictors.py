"""Predictors of loaded runs: a model with a text, as patching and the predictions of each layer use it.

B copies of a text, P predicted tokens, D width.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from qkv.base.errors import ConfigError, DataError
from qkv.base.rows import Rows, map_tensors, padded_rows
from qkv.inference.engines import OwnEngine, pad
from qkv.lens.inspectors import Inspector
from qkv.lens.patching import Contrast, check_texts, choose_tokens
from qkv.lens.predictor import Predictor, encoder_decoder_sites, stack_sites
from qkv.lens.tokenized_text import tokenized_text
from qkv.text.check import normalise
from qkv.text.tokenizer import MASK
from qkv.text.treebank import TextWithHeads

if TYPE_CHECKING:
    from qkv.inference.text_encoder import TextEncoder
    from qkv.inference.text_generator import TextGenerator
    from qkv.inference.translator import Translator

AnyLoaded = Any  # a Translator, TextEncoder or TextGenerator


def make_predictor(loaded: AnyLoaded, text: str, target: str | None = None) -> Predictor:
    """Return a loaded run with a text, as it predicts every token of a translation, every [MASK], or each next token.

    `target` replaces a translator's own translation, and continues the text of a GPT.
    """
    if loaded.loads_as == "translator":
        return translator_predictor(loaded, loaded.inspect(text, target))
    if loaded.loads_as == "generator":
        return generator_predictor(loaded, loaded.prompt(text + (target or "")))
    if target is not None:
        raise ConfigError("an encoder predicts each [MASK] of one text, and takes no target; leave it out")
    return encoder_predictor(loaded, text)


def generator_predictor(loaded: "TextGenerator", ids: list[int], positions: Sequence[int] | None = None) -> Predictor:
    """Return a GPT with a text, as it predicts the token after each position, or after some."""
    gpt: Any = loaded.causal_lm.gpt
    rows = padded_rows(*pad([ids], loaded.device))
    positions = range(len(ids)) if positions is None else positions

    def select(states: Tensor) -> Tensor:
        return states[:, list(positions)]

    def run(copies: int) -> Tensor:
        return select(gpt(_copies(rows, copies)))

    layers, attentions = stack_sites(gpt, "source")
    texts = {"source": tokenized_text(loaded.tokenizer, ids)}
    return Predictor(
        "generator", "gpt", gpt, run, select, gpt.norm, gpt.logits, layers, attentions, texts, "source", positions, None,
        loaded.tokenizer,
    )  # fmt: skip


def encoder_predictor(loaded: "TextEncoder", text: str) -> Predictor:
    """Return an encoder with a text, as it predicts the token of each [MASK]."""
    if loaded.trees:
        raise ConfigError("this model reads texts with heads, and a [MASK] has none; use another run")
    model, tokenizer = loaded.fill_model, loaded.tokenizer
    encoder: Any = model.encoder
    head, ids = model.heads[encoder.fill_head], loaded.masked(text)
    rows = padded_rows(*pad([ids], loaded.device))
    masked = rows.ids == loaded.mask_id
    shown = [tokenizer.mask if tokenizer.has_mask and token == loaded.mask_id else token for token in ids]
    first = 1 if encoder.summary_last else 0  # an XLNet reads a text's first token last
    shown, positions = [*shown[first:], *shown[:first]], [n - first for n in masked[0].nonzero()[:, 0].tolist()]

    def select(states: Tensor) -> Tensor:
        return states[:, -len(ids) :][:, positions]  # an XLNet's second stream, which predicts, comes last

    def run(copies: int) -> Tensor:
        return encoder.states_at_masked(_copies(rows, copies), masked.expand(copies, -1)).unflatten(0, (copies, -1))

    def output(states: Tensor) -> Tensor:
        return head(states.flatten(0, -2)).unflatten(0, states.shape[:-1])

    layers, attentions = stack_sites(encoder, "source")
    norm = torch.nn.Identity()  # encoders with a head for tokens have a norm after every sub-layer
    texts = {"source": tokenized_text(tokenizer, shown)}
    return Predictor(
        "encoder", encoder.config.kind, encoder, run, select, norm, output, layers, attentions, texts, "source", positions, None,
        tokenizer,
    )  # fmt: skip


def translator_predictor(loaded: "Translator", inspector: Inspector, last_only: bool = False) -> Predictor:
    """Return a translator with a source and a target, as it predicts each token of the target, or only the last one."""
    make = _joined_predictor if inspector.network.joins_source_and_target else _encoder_decoder_predictor
    return make(loaded, inspector, last_only)


def _encoder_decoder_predictor(loaded: "Translator", inspector: Any, last_only: bool) -> Predictor:
    network, source, read, texts = inspector.network, inspector.source, inspector.read, inspector.texts
    labels = texts["target"].ids
    positions = range(len(labels))[-1:] if last_only else range(len(labels))

    def select(states: Tensor) -> Tensor:
        return states[:, list(positions)]

    def run(copies: int) -> Tensor:
        return select(network(_copies(source, copies), _copies(read, copies)))

    layers, attentions = encoder_decoder_sites(inspector)
    norm = getattr(network, "decoder_norm", None) or network.decoder_output  # a convolution has a linear layer there
    return Predictor(
        "translator", inspector.model, network, run, select, norm, network.logits, layers, attentions,
        {name: texts[name] for name in ("source", "read")}, "read", positions, [labels[n] for n in positions],
        loaded.tokenizers.target,
    )  # fmt: skip


def _joined_predictor(loaded: "Translator", inspector: Any, last_only: bool) -> Predictor:
    """Return a UniLM; it reads a text for each token of the target: the source, the tokens before, and [MASK]."""
    network, source = inspector.network, inspector.source
    labels, size = inspector.texts["target"].ids, source.ids.size(1)
    numbers = range(len(labels))[-1:] if last_only else range(len(labels))
    begun = [[*labels[:n], network.mask] for n in numbers]
    targets = padded_rows(*pad(begun, source.ids.device))  # (P, T)
    positions = [size + n for n in numbers]

    def select(states: Tensor) -> Tensor:
        each = states.unflatten(0, (-1, len(begun)))  # (B, P, S + T, D)
        return each[:, torch.arange(len(begun)), positions]

    def run(copies: int) -> Tensor:
        states = network(_copies(source, copies * len(begun)), map_tensors(targets, lambda x: x.repeat(copies, 1)))
        return states.unflatten(0, (copies, -1))[:, torch.arange(len(begun)), list(numbers)]

    def output(states: Tensor) -> Tensor:
        return network.heads["masked"](states.flatten(0, -2)).unflatten(0, states.shape[:-1])

    layers, attentions = stack_sites(network.encoder, "read")
    read = [*source.ids[0].tolist(), *begun[-1]]
    texts = {"source": inspector.texts["source"], "read": tokenized_text(loaded.tokenizers.target, read)}
    return Predictor(
        "translator", inspector.model, network.encoder, run, select, torch.nn.Identity(), output, layers, attentions, texts,
        "read", positions, [labels[n] for n in numbers], loaded.tokenizers.target,
    )  # fmt: skip


def _copies(rows: Rows, copies: int) -> Rows:
    """Return copies of one row."""
    return map_tensors(rows, lambda values: values.expand(copies, -1))


# Contrasts: two texts, and the tokens by which their predictions differ


@torch.no_grad()
def make_contrast(
    loaded: AnyLoaded,
    text: str,
    other: str,
    answer: str | None = None,
    instead: str | None = None,
    target: str | None = None,
) -> Contrast:
    """Return a loaded run with two texts, and the tokens of the words that one predicts and the other does not.

    A GPT predicts the next token, an encoder its only [MASK], a translator the first token in which its translations differ; with
    `answer`, a word of its translation, or of `target` in its place.
    """
    if loaded.loads_as == "translator":
        return _translator_contrast(loaded, text, other, answer, instead, target)
    if target is not None:
        raise ConfigError("target is for translators: the translation that has the answer; leave it out")
    if loaded.loads_as == "generator":
        clean, corrupted = (
            generator_predictor(loaded, ids, [len(ids) - 1]) for ids in (loaded.prompt(one) for one in (text, other))
        )
        return Contrast(clean, corrupted, _next_token(loaded, text, answer), _next_token(loaded, text, instead))
    clean, corrupted = encoder_predictor(loaded, text), encoder_predictor(loaded, other)
    if len(clean.positions) != 1 or len(corrupted.positions) != 1:
        raise DataError(f"each text needs exactly one {MASK}, which is predicted; leave the others out")
    return Contrast(clean, corrupted, _mask_token(loaded, text, answer), _mask_token(loaded, text, instead))


def _next_token(loaded: "TextGenerator", text: str, word: str | None) -> int | None:
    """Return the first token of a word that follows a text; a space is put between them where neither has one."""
    if word is None:
        return None
    prompt = loaded.prompt(text)
    for joined in (f"{text} {word}", text + word) if word[:1].isalnum() and not text[-1:].isspace() else (text + word,):
        ids = loaded.prompt(joined)
        if len(ids) > len(prompt) and ids[: len(prompt)] == prompt and loaded.tokenizer.pieces(ids[len(prompt) :])[0] != "▁":
            return ids[len(prompt)]
    raise DataError(
        f"after this text, {word!r} does not begin with a token of its own; give another word, and no space at the text's end"
    )


def _mask_token(loaded: "TextEncoder", text: str, word: str | None) -> int | None:
    """Return the token of a word in the place of [MASK]."""
    if word is None:
        return None
    ids = loaded.masked(text)
    at = ids.index(loaded.mask_id)
    written = loaded.tokenizer.encode(normalise(text.replace(MASK, word, 1)))
    if len(written) != len(ids) - 2 or written[: at - 1] != ids[1:at] or written[at:] != ids[at + 1 : -1]:
        raise DataError(f"{word!r} is more than one token of this model, and a {MASK} stands for one; give another word")
    return written[at - 1]


def _translator_contrast(
    loaded: "Translator", text: str, other: str, answer: str | None, instead: str | None, target: str | None
) -> Contrast:
    engine, tokenizers = loaded.engine, loaded.tokenizers
    if not isinstance(engine, OwnEngine):
        raise ConfigError("only qkv's own engine shows what is inside a model; load the run itself, without another engine")
    if instead is not None and answer is None:
        raise ConfigError("the alternative needs an answer, whose place in the translation it takes; give both")
    given = [TextWithHeads.coerce(one, "the text") if loaded.trees else one for one in (text, other)]
    parts = [loaded.in_one_part(one) for one in given]
    check_texts(*(tokenized_text(tokenizers.source, part.ids) for part in parts))
    if target is None:
        written = [found[0].hypothesis.ids for found in loaded.translate_parts(parts, loaded.decoding())]
    else:
        written = [tokenizers.target.encode(normalise(target))] * 2

    def predictor(side: int, target: list[int], last_only: bool = True) -> Predictor:
        inspector = engine.inspect(loaded.recipe.model.kind, tokenizers, parts[side].ids, target, "")
        return translator_predictor(loaded, inspector, last_only)

    clean, alternative = ([*ids, tokenizers.target.eos] for ids in written)
    second: int | None
    if answer is not None:
        at, first, second = _answer_tokens(loaded, written[0], answer, instead)
    elif clean != alternative:
        at = first_difference(clean, alternative)
        first, second = clean[at], alternative[at]
    else:
        whole = [predictor(side, written[0], False) for side in (0, 1)]
        at, first, second = _largest_gain([each.logits(each.run(1))[0] for each in whole], clean)
    prefix = written[0][:at]
    return Contrast(predictor(0, prefix), predictor(1, prefix), first, second)


def _answer_tokens(loaded: "Translator", written: list[int], answer: str, instead: str | None) -> tuple[int, int, int | None]:
    """Return the position of a word of a translation, and the tokens there: its own, and that of the word instead of it."""
    tokenizer = loaded.tokenizers.target
    text = tokenized_text(tokenizer, written)
    if answer not in text.words:
        raise DataError(f"the translation is “{tokenizer.decode(written)}”, which has no word “{answer}”; give a word of it")
    word = text.words.index(answer)
    at = text.word_ids.index(word)
    if instead is None:
        return at, written[at], None
    before = tokenizer.decode(written[:at])
    begun, replaced = (tokenizer.encode(f"{before} {one}".strip()) for one in (answer, instead))
    at = first_difference(begun, replaced)
    if at >= min(len(begun), len(replaced)) or begun[:at] != written[:at]:
        raise DataError(f"“{answer}” and “{instead}” do not begin with different tokens; give other words")
    return at, begun[at], replaced[at]


def _largest_gain(logits: Sequence[Tensor], written: list[int]) -> tuple[int, int, int]:
    """Return position, answer and alternative where the logits (T, V) of a translation differ most for two sources."""
    (clean, other), found = logits, []
    for at, answer in enumerate(written):
        _, instead = choose_tokens(clean[at], other[at], answer, None)
        change = (clean[at] - other[at])[[answer, instead]]
        found.append((float(change[0] - change[1]), at, answer, instead))
    return max(found)[1:]


def first_difference(first: Sequence[int], second: Sequence[int]) -> int:
    """Return the first position at which two lists differ."""
    pairs = zip(first, second, strict=False)
    return next((n for n, (one, two) in enumerate(pairs) if one != two), min(len(first), len(second)))
