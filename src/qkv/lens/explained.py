"""Outputs that attribution explains: which tokens of a model's output, against which others, and their scores.

A score is a log-probability, or, for "why this word and not that one", the difference of two logits. B sources, M outputs.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from qkv.base.errors import ConfigError
from qkv.base.rows import Rows, padded_rows
from qkv.lens.tokenized_text import TokenizedText
from qkv.text.tokenizer import Tokenizer

MAX_TOKENS = 2048  # in a batch whose gradients are computed

Scores = Callable[[Sequence[Sequence[int]], Tensor], Tensor]  # sources and numbers of outputs, (B, M) -> (B, M)


@dataclass(frozen=True)
class Explained:
    """Outputs of a model with scores that depend on a source."""

    of: str  # the outputs, for people
    source: TokenizedText
    length: int  # tokens of the source that the model reads before the outputs
    positions: list[int]  # of the explained tokens in the text that they belong to
    embedding: nn.Module  # its first call looks up the source's tokens
    scores: Scores
    together: int  # outputs that one pass can have
    unknown: int  # token in the place of a word that cannot be left out: the only one
    replacement: int | None = None  # token in the place of an occluded word; None leaves the word out


class OutputQuestion(NamedTuple):
    """Tokens to explain; `against` is the token that the only one is compared with."""

    of: str
    positions: list[int]
    tokens: list[int]
    against: int | None = None

    def score(self, logits: Tensor, outputs: Tensor) -> Tensor:
        """Return the scores of some outputs from their logits. (B, M, V), (B, M) -> (B, M)."""
        tokens = torch.tensor(self.tokens, device=logits.device)[outputs.to(logits.device)]
        logits = logits.float()
        if self.against is not None:
            return logits.gather(-1, tokens[..., None])[..., 0] - logits[..., self.against]
        return logits.log_softmax(-1).gather(-1, tokens[..., None])[..., 0]


def ask(text: TokenizedText, tokenizer: Tokenizer, word: int, instead: str | None, what: str) -> OutputQuestion:
    """Return the question why a text has a word, or why it has it instead of another one. `what` names the text in errors."""
    if not 0 <= word < len(text.words):
        raise ConfigError(f"{what} has {len(text.words)} words, and no other than these: {' '.join(text.words)}")
    own = [position for position, number in enumerate(text.word_ids) if number == word]
    tokens = [text.ids[position] for position in own]
    if instead is None:
        return OutputQuestion(f"“{text.words[word]}”", own, tokens)
    other = tokens_of_word(tokenizer, instead)
    common = next((n for n, pair in enumerate(zip(tokens, other, strict=False)) if pair[0] != pair[1]), None)
    if common is None:
        same = "is the same" if tokens == other else "begins with the other one"
        raise ConfigError(
            f"of “{text.words[word]}” and “{instead}” one {same}, so no token tells them apart; choose another word"
        )
    of = f"“{text.words[word]}” instead of “{instead}”"
    return OutputQuestion(of, [own[common]], [tokens[common]], other[common])


def tokens_of_word(tokenizer: Tokenizer, word: str) -> list[int]:
    """Return the tokens of a word inside a sentence; refuse one that the vocabulary cannot spell."""
    found = tokenizer.encode_words([word])[0]
    if tokenizer.unk in found or not word.strip():
        raise ConfigError(f"{word!r} is not a word that this model's vocabulary can write; choose another one")
    return found


def source_rows(sources: Sequence[Sequence[int]], like: Rows) -> Rows:
    """Lay out changed sources as rows; heads of trees and the device are those of the row that they were made from."""
    width = max(map(len, sources))
    ids = torch.tensor([[*source, *[0] * (width - len(source))] for source in sources])
    keep = torch.arange(width) < torch.tensor([len(source) for source in sources])[:, None]
    device = like.ids.device
    return padded_rows(ids.to(device), keep.to(device), None if like.head is None else like.head.expand(len(ids), -1))


def explain_continuation(
    gpt: Any, rows: Rows, text: TokenizedText, tokenizer: Tokenizer, prompt: int, word: int | None, instead: str | None
) -> Explained:
    """Explain a word of a GPT's text by the tokens before it: the first token after the prompt, unless a word is given."""
    if word is None and instead is None:
        piece = tokenizer.pieces(text.ids[prompt : prompt + 1])[0]
        question = OutputQuestion(f"the next token, {piece}", [prompt], text.ids[prompt : prompt + 1])
    else:
        number = text.word_ids[prompt] if word is None else word
        question = ask(text, tokenizer, -1 if number is None else number, instead, "the text")
    before = question.positions[0]
    if before == 0:
        raise ConfigError("nothing stands before the first word, so nothing explains it; choose a later one")
    after = text.ids[before : question.positions[-1]]  # tokens of the word itself, which its next ones depend on

    def scores(sources: Sequence[Sequence[int]], outputs: Tensor) -> Tensor:
        given = source_rows([[*source, *after] for source in sources], rows)
        hidden = gpt(given)  # (B, T, D)
        ends = torch.tensor([len(source) - 1 for source in sources])[:, None]
        offsets = torch.tensor([position - before for position in question.positions])[outputs]
        at = torch.arange(len(sources))[:, None]
        return question.score(gpt.logits(hidden[at, ends + offsets])[..., : len(tokenizer)], outputs)

    together = max(1, MAX_TOKENS // len(text.ids))
    embedding = gpt.embedding.token_embedding
    return Explained(question.of, text, before, question.positions, embedding, scores, together, tokenizer.unk)
