"""A T5, ready to restore what a text has lost: spans of any length, as in its pretraining (Raffel et al. 2020, section 3.1.4)."""

import math
from pathlib import Path
from typing import ClassVar, Literal

from qkv.base.errors import ConfigError, DataError
from qkv.base.hardware import choose_device
from qkv.decoding.config import DecodingConfig
from qkv.folder.networks import read_translator_run
from qkv.inference.engines import OwnEngine
from qkv.inference.text_encoder import Guess
from qkv.text.check import normalise
from qkv.text.tokenizer import MASK, Tokenizer

LONGEST = 20  # tokens of a span
WIDEST = 4  # beam, where fewer guesses are asked for


class Infiller:
    """A T5's run: `fill` says what stood at each [MASK]."""

    loads_as: ClassVar[Literal["infiller"]] = "infiller"

    def __init__(self, engine: OwnEngine, tokenizer: Tokenizer):
        self.engine, self.tokenizer = engine, tokenizer

    def fill(self, text: str, top: int = 5) -> list[list[Guess]]:
        """For each [MASK] in a text what may have stood there, likeliest first; a probability is that of all spans together."""
        source, holes = self.holed(text)
        room = 1 + holes * (1 + LONGEST)
        beam = DecodingConfig(beam=max(top, WIDEST), n_best=top, length_penalty=0, max_ratio=0, max_extra=room)
        (found,) = self.engine.decode([source], beam, prefixes=[self.tokenizer.sentinels[:1]])
        guesses: list[dict[str, float]] = [{} for _ in range(holes)]
        for hypothesis in found:
            for said, span in zip(guesses, self.spans(hypothesis.ids, holes), strict=True):
                said.setdefault(span, math.exp(hypothesis.logprob))
        return [[Guess(*guess) for guess in said.items()] for said in guesses]

    def holed(self, text: str) -> tuple[list[int], int]:
        """Token ids of a text with a sentinel for each [MASK], and how many there are."""
        sentinels = iter(self.tokenizer.sentinels)
        holes, most = text.count(MASK), len(self.tokenizer.sentinels)
        if not holes:
            raise DataError(f"there is no {MASK} in the text; write {MASK} where something is to be restored")
        if holes > most:
            raise DataError(f"the text has {holes} {MASK}, and this model's tokenizer has {most} sentinels; shorten it")
        pad = self.tokenizer.pad  # which no text becomes
        ids = self.tokenizer.encode_masked(normalise(text), pad)
        return [*(next(sentinels) if word == pad else word for word in ids), self.tokenizer.eos], holes

    def spans(self, ids: list[int], holes: int) -> list[str]:
        """The text after each of the first sentinels; nothing where one is not said."""
        found: list[list[int]] = [[] for _ in range(holes)]
        number = {word: position for position, word in enumerate(self.tokenizer.sentinels)}
        here = 0
        for word in ids:
            here = number.get(word, here)
            if word not in number and here < holes:
                found[here].append(word)
        return [self.tokenizer.decode(span).strip() for span in found]


def load_infiller(run: str | Path, device: str = "auto") -> Infiller:
    """Load the run of a T5, pretrained or imported; an unfinished one with its newest checkpoint."""
    read = read_translator_run(Path(run))
    if not read.tokenizer.sentinels:
        raise ConfigError(f"{run}: its tokenizer has no sentinels, with which a T5 fills in text; use qkv translate")
    return Infiller(OwnEngine(read.model().to(choose_device(device)), read.tokenizers.target), read.tokenizer)
