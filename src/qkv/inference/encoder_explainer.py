"""What an encoder's prediction is explained by: the word for a [MASK], or the class or number of a fine-tuned model."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from qkv.base.errors import ConfigError
from qkv.base.rows import Rows
from qkv.data.inputs import LabelledTexts
from qkv.lens.explained import MAX_TOKENS, Explained, OutputQuestion, source_rows, tokens_of_word
from qkv.lens.tokenized_text import TokenizedText
from qkv.text.tokenizer import MASK

if TYPE_CHECKING:
    from qkv.inference.text_encoder import TextEncoder


@dataclass(frozen=True)
class EncoderExplainer:
    """A text encoder with a text; called with the number of a [MASK], from 0, and with another answer to compare with."""

    text_encoder: "TextEncoder"
    rows: Rows
    segment: Tensor | None
    source: TokenizedText  # in the order in which the model reads it

    def __call__(self, word: int | None = None, instead: str | None = None) -> Explained:
        """Return what explains the prediction."""
        if self.text_encoder.recipe.job == "finetuning":
            return self.explain_label(word, instead)
        return self.explain_mask(word or 0, instead)

    def explain_mask(self, number: int, instead: str | None) -> Explained:
        """Return what explains the most probable token for a [MASK], by itself or against another token."""
        model, tokenizer = self.text_encoder.model, self.text_encoder.tokenizer
        masks = (self.rows.ids[0] == tokenizer.mask).nonzero()[:, 0].tolist()
        if not 0 <= number < len(masks):
            raise ConfigError(f"the text has {len(masks)} {MASK} and no more; choose one of them, counted from the first")

        def logits(rows: Rows) -> Tensor:
            hidden = model.encoder(rows, self.segments(rows))[:, masks[number]]
            return model.heads["masked"](hidden)[:, : len(tokenizer)]  # the model's vocabulary may be rounded up

        with torch.no_grad():
            best = int(logits(self.rows)[0].argmax())
        name = tokenizer.decode([best]).strip() or tokenizer.pieces([best])[0]
        where = f"the first {MASK}" if number == 0 else f"{MASK} {number + 1}"
        of = f"the prediction “{name}” for {where}" if instead is None else f"“{name}” instead of “{instead}” for {where}"
        read_at = [n for n, token in enumerate(self.source.ids) if token == tokenizer.mask][number]
        question = OutputQuestion(of, [read_at], [best], None if instead is None else self.other_token(instead, best))
        return self.explained(of, [read_at], lambda rows, outputs: question.score(logits(rows)[:, None], outputs))

    def other_token(self, word: str, best: int) -> int:
        """Return the token of a word that might stand for a [MASK]."""
        first, *rest = tokens_of_word(self.text_encoder.tokenizer, word)
        if rest:
            raise ConfigError(
                f"“{word}” is {len(rest) + 1} tokens in this model's vocabulary, and a {MASK} stands for one; choose another word"
            )
        if first == best:
            raise ConfigError(f"“{word}” is what the model predicts itself; choose another word to compare it with")
        return first

    def explain_label(self, word: int | None, instead: str | None) -> Explained:
        """Return what explains the class or the number that a fine-tuned model predicts."""
        encoder = self.text_encoder
        if word is not None:
            raise ConfigError("a fine-tuned model has one prediction for a text, not one for each word; leave the word out")

        def outputs_of(rows: Rows) -> Tensor:
            segment = self.segments(rows)
            segment = torch.zeros_like(rows.ids) if segment is None else segment
            first = rows.ids.new_zeros(len(rows.ids), 1)
            labelled = LabelledTexts(rows.ids, rows.text, rows.position, segment, first, first, rows.head)
            return encoder.task.outputs(encoder.model, labelled)[:, 0]

        with torch.no_grad():
            label = encoder.task.explain(outputs_of(self.rows)[0], encoder.run.network.label_names, instead)
        if label is None:
            raise ConfigError("this task has no single output for a text that could be attributed")
        explained = label
        return self.explained(
            label.description, [0], lambda rows, _: torch.stack([explained.value(one) for one in outputs_of(rows)])[:, None]
        )

    def explained(self, of: str, positions: list[int], score: Callable[[Rows, Tensor], Tensor]) -> Explained:
        """Return outputs whose score comes from rows of changed texts."""
        encoder, tokenizer = self.text_encoder.model.encoder, self.text_encoder.tokenizer

        def scores(sources: Sequence[Sequence[int]], outputs: Tensor) -> Tensor:
            if encoder.summary_last:  # it reads the first token of its rows last
                sources = [[source[-1], *source[:-1]] for source in sources]
            return score(source_rows(sources, self.rows), outputs)

        length, hidden = len(self.source.ids), tokenizer.mask if tokenizer.has_mask else tokenizer.unk
        together = max(1, MAX_TOKENS // length)
        embedding = encoder.embedding.token_embedding
        return Explained(of, self.source, length, positions, embedding, scores, together, tokenizer.unk, hidden)

    def segments(self, rows: Rows) -> Tensor | None:
        """Return the segments of changed texts, which have the length of the text itself."""
        return None if self.segment is None else self.segment.expand(len(rows.ids), -1)
