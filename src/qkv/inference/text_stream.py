"""The text of an output while its tokens arrive."""

from collections.abc import Sequence

from qkv.text.tokenizer import Tokenizer

INCOMPLETE = "\ufffd"  # stands for a character whose bytes are not all there yet


class TextStream:
    """The text of one continuation while its tokens arrive: that of all ids together, without the prompt's.

    Only the newest ids are decoded, because the whole text again for each token would take longer and longer. A piece of text
    is settled when it ends with a whole character; the ids of the one before stay with those that follow, for the sake of
    decoders that treat the first id of a text in another way.
    """

    def __init__(self, tokenizer: Tokenizer, prompt: Sequence[int], stop: Sequence[str]):
        self.tokenizer, self.stop = tokenizer, stop
        self.text, self.stopped, self.read = "", False, 0
        self._settled = ""  # text that further ids do not change
        self._newest = list(prompt)  # the ids that are decoded
        self._seen = len(tokenizer.decode(prompt))  # how much of their text is the prompt's or settled
        self._unsettled = 0  # how many of them are not

    def append(self, tokens: Sequence[int]) -> bool:
        """Append tokens; return whether the text ends there, at a stop string."""
        self._newest += tokens
        self._unsettled += len(tokens)
        newest = self.tokenizer.decode(self._newest)
        self.text = self._settled + newest[self._seen :]
        if len(newest) > self._seen and not newest.endswith(INCOMPLETE):
            self._settled, self._newest = self.text, self._newest[-self._unsettled :]
            self._seen, self._unsettled = len(self.tokenizer.decode(self._newest)), 0
        found = [position for position in map(self.text.find, self.stop) if position >= 0]
        if found:
            self.text, self.stopped = self.text[: min(found)], True
        return self.stopped

    def new_text(self, last: bool = False) -> str:
        """Return the text since the last call; before the end, without an incomplete character or the start of a stop string."""
        text = self.text
        if not last and not self.stopped:
            text = text.rstrip(INCOMPLETE)
            begun = [size for stop in self.stop for size in range(1, len(stop)) if text.endswith(stop[:size])]
            text = text[: len(text) - max(begun, default=0)]
        new, self.read = text[self.read :], max(self.read, len(text))
        return new
