"""A loaded T5 that fills in missing spans of text, as in its pretraining (Raffel et al. 2020, section 3.1.4)."""

import math
from collections.abc import Iterable
from pathlib import Path
from typing import ClassVar, Literal

from qkv.base.errors import ConfigError, DataError
from qkv.base.hardware import choose_device
from qkv.decoding.config import DecodingConfig
from qkv.folder.networks import read_translator_run
from qkv.inference.arguments import require_count, require_texts
from qkv.inference.engines import OwnEngine
from qkv.inference.text_encoder import MaskPrediction
from qkv.text.check import normalise
from qkv.text.tokenizer import MASK, Tokenizer

MAX_SPAN = 20  # tokens
MIN_BEAM = 4  # hypotheses searched, where fewer predictions are wanted


class Infiller:
    """A T5's run: `fill` predicts a span of text for each [MASK].

    >>> infiller = qkv.load("runs/t5-mini")
    >>> infiller.fill(["Paris is [MASK] of France."], top=1)
    [[[MaskPrediction(word='the capital', probability=0.61)]]]
    """

    loads_as: ClassVar[Literal["infiller"]] = "infiller"

    def __init__(self, engine: OwnEngine, tokenizer: Tokenizer, folder: Path):
        self.engine, self.tokenizer, self.folder = engine, tokenizer, folder

    def __repr__(self) -> str:
        return f"Infiller({str(self.folder)!r}: t5, on {self.engine.device})"

    def fill(self, texts: Iterable[str], top: int = 5) -> list[list[list[MaskPrediction]]]:
        """Return, for each [MASK] of each text, the `top` most probable spans, best first.

        A probability is that of all spans of a text together.

        >>> infiller.fill(["[MASK] is the capital of [MASK]."])
        """
        require_count(top, "fill", "top")
        return [self._fill(*self.encode(text), top) for text in require_texts(texts, "fill")]

    def _fill(self, source: list[int], spans: int, top: int) -> list[list[MaskPrediction]]:
        """Return the most probable spans of one text."""
        max_length = 1 + spans * (1 + MAX_SPAN)
        beam = DecodingConfig(beam=max(top, MIN_BEAM), n_best=top, length_penalty=0, max_ratio=0, max_extra=max_length)
        (hypotheses,) = self.engine.decode([source], beam, prefixes=[self.tokenizer.sentinels[:1]])
        found: list[dict[str, float]] = [{} for _ in range(spans)]
        for hypothesis in hypotheses:
            for predictions, span in zip(found, self.split_spans(hypothesis.ids, spans), strict=True):
                predictions.setdefault(span, math.exp(hypothesis.logprob))
        return [[MaskPrediction(*pair) for pair in predictions.items()] for predictions in found]

    def encode_gap(self, before: str, after: str = "") -> list[int]:
        """Return the ids of a text with a gap, for `fill_gap`."""
        if MASK in before + after:
            raise DataError(f"the text has {MASK} where text is to be filled in, beside the gap; leave it out")
        return self.encode(f"{before}{MASK}{after}")[0]

    def fill_gap(self, source: list[int], config: DecodingConfig, number: int = 0) -> tuple[list[int], bool]:
        """Return the tokens of one text for a gap, and whether it ended by itself; samples depend on the number and the seed."""
        begun = [self.tokenizer.sentinels[:1]]
        room = config.model_copy(update={"max_extra": config.max_extra + 2})  # for the sentinels around the text
        ((found,),) = self.engine.decode([source], room, prefixes=begun, first=number)
        text, others = found.ids[1:], set(self.tokenizer.sentinels)
        end = next((index for index, token in enumerate(text) if token in others), None)
        return text[: config.max_extra if end is None else end], found.finished or end is not None

    def encode(self, text: str) -> tuple[list[int], int]:
        """Return the ids of a text, with a sentinel for each [MASK], and the number of sentinels."""
        sentinels = iter(self.tokenizer.sentinels)
        spans, most = text.count(MASK), len(self.tokenizer.sentinels)
        if not spans:
            raise DataError(f"there is no {MASK} in the text; write {MASK} where text is to be filled in")
        if spans > most:
            raise DataError(f"the text has {spans} {MASK}, and this model's tokenizer has {most} sentinels; shorten it")
        pad = self.tokenizer.pad  # no text is encoded as padding
        ids = self.tokenizer.encode_masked(normalise(text), pad)
        return [*(next(sentinels) if token == pad else token for token in ids), self.tokenizer.eos], spans

    def split_spans(self, ids: list[int], count: int) -> list[str]:
        """Return the text after each of the first sentinels of an output; "" where a sentinel is missing."""
        found: list[list[int]] = [[] for _ in range(count)]
        number = {token: index for index, token in enumerate(self.tokenizer.sentinels)}
        span = 0
        for token in ids:
            span = number.get(token, span)
            if token not in number and span < count:
                found[span].append(token)
        return [self.tokenizer.decode(tokens).strip() for tokens in found]


def load_infiller(run: str | Path, device: str = "auto", step: int | None = None) -> Infiller:
    """Load the run of a T5, pretrained or imported; one that is still in training with its newest checkpoint, and a warning."""
    read = read_translator_run(Path(run), step=step)
    if not read.tokenizer.sentinels:
        raise ConfigError(f"{run}: its tokenizer has no sentinels, with which a T5 fills in text; use qkv translate")
    read.weights_file.warn_if_unfinished()
    return Infiller(OwnEngine(read.model().to(choose_device(device)), read.tokenizers.target), read.tokenizer, Path(run))
