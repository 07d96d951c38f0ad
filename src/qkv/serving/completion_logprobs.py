"""Log-probabilities of tokens in the format of OpenAI's completions."""

from collections.abc import Sequence
from typing import Any

from qkv.decoding.logprobs import TokenLogprob
from qkv.inference.text_stream import INCOMPLETE
from qkv.serving.fair_threads import giving_way
from qkv.text.tokenizer import Tokenizer


class LogprobWriter:
    """Writes the tokens of one text, in several calls where it is streamed; it knows where the next token begins."""

    def __init__(self, tokenizer: Tokenizer, before: Sequence[int] = (), offset: int = 0):
        """`before` are the ids before the first token, `offset` the length of the text that is returned before it."""
        self.tokenizer, self.offset = tokenizer, offset
        self._context = list(before[-1:])
        self._incomplete: list[int] = []  # tokens since the last whole character

    def write(self, tokens: Sequence[TokenLogprob | None], ids: Sequence[int], alternatives: int, end: int | None = None) -> Any:
        """Return the log-probabilities of the next tokens, `ids`; None for one that has none.

        Tokens that begin at `end` or later are left out: a stop string removed them from the text.
        """
        found: dict[str, Any] = {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}
        for token, one in giving_way(zip(ids, tokens, strict=True)):
            if self._incomplete and not self._is_part(token):  # what is before it is no character, and shown as U+FFFD
                self._advance()
            offset, context = self.offset, [*self._context, *self._incomplete]
            if end is not None and offset >= end:
                break
            found["tokens"].append(self._append(token))
            found["token_logprobs"].append(None if one is None else one.logprob)
            found["text_offset"].append(offset)
            top = {self._text(other, context): logprob for other, logprob in reversed(one.top)} if one else {}
            if one is not None and alternatives:
                top.setdefault(found["tokens"][-1], one.logprob)
            found["top_logprobs"].append(dict(sorted(top.items(), key=lambda pair: -pair[1])) or None)
        return found if alternatives else {**found, "top_logprobs": None}

    def _append(self, token: int) -> str:
        """Return the text of the next token, and advance if a character ends with it."""
        shown = self._text(token, self._context)
        self._incomplete.append(token)
        if not self._decoded(self._incomplete, self._context).endswith(INCOMPLETE):
            self._advance()
        return shown

    def _advance(self) -> None:
        self.offset += len(self._decoded(self._incomplete, self._context))
        self._context, self._incomplete = self._incomplete[-1:], []

    def _is_part(self, token: int) -> bool:
        """Return whether a token has parts of a character only."""
        return INCOMPLETE in self._decoded([token], self._context)

    def _text(self, token: int, context: Sequence[int]) -> str:
        text = self._decoded([token], context)
        return text if text and INCOMPLETE not in text else self._bytes(token)

    def _decoded(self, ids: Sequence[int], context: Sequence[int]) -> str:
        return self.tokenizer.decode([*context, *ids])[len(self.tokenizer.decode(context)) :]

    def _bytes(self, token: int) -> str:
        """Return the name of a special token, or the bytes of a part of a character, as OpenAI writes them."""
        piece = self.tokenizer.pieces([token])[0]
        return piece if token in self.tokenizer.special_ids else f"bytes:{piece}"
