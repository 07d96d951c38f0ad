"""The handler of a pretrained T5, which fills in missing text."""

from collections.abc import Sequence
from typing import Any

from qkv.base.config import parse
from qkv.decoding.config import DecodingConfig
from qkv.inference.infiller import Infiller
from qkv.inference.text_generator import GeneratedText, Prompt
from qkv.serving.batching import BatchItem, PreparedRequest
from qkv.serving.errors import invalid
from qkv.serving.handlers import CompletionHandler, check_masks, count_parameters

MOST_TOKENS = 2048  # that it reads at once; its positions have no limit, but memory grows quadratically


class InfillHandler(CompletionHandler):
    """Predicts a span of text for each [MASK], and completes a text before a suffix."""

    kind = "infiller"
    has_logprobs = False

    def __init__(self, infiller: Infiller):
        self.infiller, self.tokenizer = infiller, infiller.tokenizer
        self.parameters = count_parameters(infiller.engine.model)
        self.abilities = ["fill", "complete"]

    def try_out(self) -> bool:
        self.infiller.fill_gap(self.infiller.encode_gap("a", "b"), self.decoding(2), 0)
        return True  # decoding raises an error where a number is not finite

    def fill(self, text: str, top: int) -> PreparedRequest:
        """Prepare the most probable spans for each [MASK]."""
        check_masks(text)
        length = len(_check_length(self.infiller.encode(text)[0], "text"))
        return PreparedRequest(("fill", top), [BatchItem(text, length, length * top)], lambda results: results[0])

    def prompt(self, given: str | list[int], suffix: str | None) -> list[int]:
        if not isinstance(given, str):
            raise invalid("a T5 reads texts, not token ids; send the prompt as a text", "prompt", "unsupported")
        if not given.strip() and not (suffix or "").strip():
            raise invalid("the prompt is empty; give the beginning of a text, or what follows it in suffix", "prompt")
        return _check_length(self.infiller.encode_gap(given, suffix or ""), "prompt")

    def decoding(self, max_new_tokens: int, **options: Any) -> DecodingConfig:
        values = {"beam": 1, "length_penalty": 0.0, "max_ratio": 0, "max_extra": max_new_tokens, **options}
        return parse(DecodingConfig, values, "decoding")

    def compute(self, key: Any, items: Sequence[BatchItem]) -> Sequence[Any]:
        if key[0] == "fill":
            return self.infiller.fill([item.value for item in items], key[1])
        return [self._complete(item.value, key[1]) for item in items]

    def _complete(self, prompt: Prompt, config: DecodingConfig) -> GeneratedText:
        limited = config.model_copy(update={"max_extra": min(config.max_extra, prompt.max_new_tokens or config.max_extra)})
        ids, ended = self.infiller.fill_gap(prompt.ids, limited, prompt.number)
        text = self.tokenizer.decode(ids)
        found = [position for position in map(text.find, prompt.stop) if position >= 0]
        text = text[: min(found)] if found else text
        if prompt.on_text is not None:
            prompt.on_text(text)
        return GeneratedText(text, ids, ended or bool(found))


def _check_length(ids: list[int], param: str) -> list[int]:
    if len(ids) > MOST_TOKENS:
        raise invalid(f"the text has {len(ids):,} tokens; send {MOST_TOKENS:,} at most", param, "text_too_long")
    return ids
