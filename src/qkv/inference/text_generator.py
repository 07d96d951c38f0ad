"""A GPT, ready to be used: it goes on with prompts, told word by word to whoever listens."""

import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import torch
from torch import Tensor

from qkv.base.config import parse
from qkv.base.errors import ConfigError, DataError, QkvWarning
from qkv.base.hardware import choose_device
from qkv.base.rows import padded_rows
from qkv.decoding.config import DecodingConfig
from qkv.decoding.hypothesis import Hypothesis
from qkv.decoding.search import batches_by_length, decode
from qkv.folder.networks import NetworkRun, read_network_run
from qkv.folder.run import read_recipe
from qkv.inference.engines import pad
from qkv.inference.text_scores import score_texts
from qkv.lens.inspectors import Inspector, SelfAttentionInspector
from qkv.lens.tokenized_text import tokenized_text
from qkv.models.gpt import CausalLM
from qkv.parts.decoding_weights import PreparedModel
from qkv.parts.heads import ModelWithHeads
from qkv.parts.token_scores import ScoringMode
from qkv.recipes.abilities import require
from qkv.text.tokenizer import Tokenizer

LOOKED = 12  # tokens that are added to a text before it is looked at
NEW = 200  # tokens that are added at most, when nobody says how many
HALF = "\ufffd"  # how a character shows of which not all bytes are there yet
Tell = Callable[[str], object]  # given each piece of a text as it is made; the text ends there if it answers STOP
STOP = "stop"


class Written(NamedTuple):
    """What was added to a prompt."""

    text: str
    ids: list[int]
    ended: bool  # by itself or by a stop string, not because there was no more room


@dataclass(frozen=True)
class Prompt:
    """What a text begins with, and when it ends."""

    ids: list[int]
    number: int = 0  # in the whole job: samples are drawn by it and the seed
    stop: Sequence[str] = ()  # the text ends before the first of these
    tell: Tell | None = None
    longest: int | None = None  # tokens that are added at most, where that is less than the way of decoding says


class Telling:
    """The text of one output while it grows: what of it can be told already, and whether it holds a stop string."""

    def __init__(self, tokenizer: Tokenizer, prompt: list[int], stop: Sequence[str]):
        self.tokenizer, self.stop = tokenizer, stop
        self.ids, self.before, self.told = list(prompt), len(tokenizer.decode(prompt)), 0
        self.text, self.stopped = "", False

    def hear(self, words: Sequence[int]) -> bool:
        """Some words more; whether the text ends with them."""
        self.ids += words
        self.text = self.tokenizer.decode(self.ids)[self.before :]
        found = [position for position in map(self.text.find, self.stop) if position >= 0]
        if found:
            self.text, self.stopped = self.text[: min(found)], True
        return self.stopped

    def news(self, last: bool = False) -> str:
        """What was not told yet; but for the last time, without what may still become another character or a stop string."""
        text = self.text
        if not last and not self.stopped:
            text = text.rstrip(HALF)
            begun = [size for stop in self.stop for size in range(1, len(stop)) if text.endswith(stop[:size])]
            text = text[: len(text) - max(begun, default=0)]
        new, self.told = text[self.told :], max(self.told, len(text))
        return new


class TextGenerator:
    """A GPT's run: `generate` goes on with prompts, `score` tells how likely texts are."""

    loads_as: ClassVar[Literal["generator"]] = "generator"
    trees = False  # what it goes on with has no heads

    def __init__(self, run: NetworkRun, device: torch.device):
        self.run, self.device = run, device
        self.tokenizer, self.recipe = run.tokenizer, run.recipe

    @cached_property
    def model(self) -> ModelWithHeads:
        return self.run.network.model().to(self.device)

    @cached_property
    def writer(self) -> CausalLM:
        return CausalLM(self.model.encoder).eval()

    @cached_property
    def decoder(self) -> PreparedModel:
        """The model with its decoding weights."""
        return PreparedModel(self.writer)

    def score(self, texts: Sequence[str], how: ScoringMode | None = None) -> list[float]:
        """The log-probability of each text, in nats, without its end: the sum over its tokens, each from those before it."""
        return score_texts(self.run, self.model, texts, how)

    def generate(
        self, prompts: Sequence[str], longest: int = NEW, stop: Sequence[str] = (), tell: Tell | None = None, **options: Any
    ) -> list[list[Written]]:
        """What comes after each prompt: one text, or as many samples as `n_best` says; up to `longest` tokens each.

        Options are the keys of `decoding` in a recipe; greedy unless `sampling` is true. A text ends before the first of the
        strings in `stop`. `tell` is given the text of a single prompt piece by piece, as it is made.
        """
        if isinstance(prompts, str):
            raise TypeError("generate takes a list of prompts; for one prompt, give [prompt]")
        config = self.decoding(longest, **options)
        _check_listening(prompts, stop, tell, config)
        given = [Prompt(self.prompt(text), number, stop, tell) for number, text in enumerate(prompts)]
        self._warn_of_places([prompt.ids for prompt in given], longest)
        return self.go_on(given, config)

    def go_on(self, prompts: Sequence[Prompt], config: DecodingConfig) -> list[list[Written]]:
        """What comes after each prompt; with n_best above 1 nobody is told of it before it is done."""
        found: list[list[Written]] = [[] for _ in prompts]
        for batch in batches_by_length([len(prompt.ids) for prompt in prompts], config.batch_tokens):
            for number, written in zip(batch, self._batch([prompts[number] for number in batch], config), strict=True):
                found[number] = written
        return found

    def inspect(self, text: str, target: str | None = None) -> Inspector:
        """Return the model with an encoded text and its continuation, or the given one, for `qkv.look`."""
        prompt, gpt = self.prompt(text), self.writer.gpt
        if target is None:
            room = LOOKED if gpt.longest is None else min(LOOKED, gpt.longest - len(prompt))
            more = self.generate([text], room)[0][0].ids
        else:
            more = self.prompt(text + target)[len(prompt) :]
        ids = [*prompt, *more]
        rows = padded_rows(*pad([ids], self.device))

        def score() -> Tensor:
            return gpt.logits(gpt(rows)[0, len(prompt) - 1]).float().log_softmax(-1)[more[0]]

        output = self.tokenizer.decode(ids)[len(self.tokenizer.decode(prompt)) :]
        said = f"the next token, {self.tokenizer.pieces(more[:1])[0]}" if more else None
        texts = {"source": tokenized_text(self.tokenizer, ids)}
        return SelfAttentionInspector("generator", "gpt", gpt, rows, None, texts, output, said, score if more else None)

    def decoding(self, longest: int = NEW, **options: Any) -> DecodingConfig:
        """The way of decoding; no more than `longest` tokens are added."""
        if longest < 1:
            raise ConfigError(f"{longest} tokens are none to add; choose 1 or more")
        return parse(DecodingConfig, {"beam": 1, "max_ratio": 0, "max_extra": longest, **options}, "decoding")

    def prompt(self, text: str) -> list[int]:
        """The ids of a prompt, after the tokenizer's beginning where its texts have that."""
        ids, most = self.tokenizer.encode(text), self.writer.longest
        if not ids or not text.strip():
            raise DataError("the prompt is empty; write how the text is to begin")
        ids = [self.tokenizer.bos, *ids] if self.tokenizer.adds_bos else ids
        if most is not None and len(ids) >= most:
            raise DataError(f"the prompt has {len(ids):,} tokens, and this model reads {most:,} with what it adds; shorten it")
        return ids

    def _warn_of_places(self, prompts: Sequence[list[int]], longest: int) -> None:
        """Say that texts may become longer than any in training: of learned places beyond nothing was learned."""
        most, positions = self.run.trained_length, self.writer.longest
        radius = max((len(ids) for ids in prompts), default=0) + longest
        if most is not None and positions is not None and min(radius, positions) > most:
            told = f"a text may reach {min(radius, positions):,} tokens, and {self.run.folder} was trained on {most:,} at most"
            warnings.warn(f"{told}; what comes after that is not to be relied on", QkvWarning, stacklevel=4)

    @torch.inference_mode()
    def _batch(self, prompts: Sequence[Prompt], config: DecodingConfig) -> list[list[Written]]:
        texts = [Telling(self.tokenizer, prompt.ids, prompt.stop) for prompt in prompts for _ in range(config.n_best)]

        def listen(row: int, word: int) -> bool:
            ends, tell = texts[row].hear([word]), prompts[row // config.n_best].tell
            return (tell is not None and tell(texts[row].news()) == STOP) or ends

        ids, keep = pad([prompt.ids[:-1] for prompt in prompts], self.device)
        found = decode(
            self.decoder,
            ids,
            keep,
            config,
            bos=self.tokenizer.bos,
            eos=self.tokenizer.eos,
            pad=self.tokenizer.pad,
            seed=config.seed,
            index=[prompt.number for prompt in prompts],
            allowed=[self._spelled] * len(prompts),
            last_tokens=[prompt.ids[-1] for prompt in prompts],
            max_lengths=self._room(prompts),
            on_token=listen if any(prompt.stop or prompt.tell for prompt in prompts) else None,
        )
        for prompt, text in zip(prompts, texts[:: config.n_best], strict=True):
            if prompt.tell is not None:
                prompt.tell(text.news(last=True))
        return [[self._written(prompt, one) for one in some] for prompt, some in zip(prompts, found, strict=True)]

    def _room(self, prompts: Sequence[Prompt]) -> list[int]:
        """How many tokens may be added to each prompt, whatever the way of decoding says."""
        positions = self.writer.longest or sys.maxsize
        return [min(prompt.longest or sys.maxsize, positions - len(prompt.ids)) for prompt in prompts]

    @cached_property
    def _spelled(self) -> Tensor:
        """The words that can be written: no control tokens, and none beyond the tokenizer's where a vocabulary is rounded up."""
        return torch.tensor([word for word in range(len(self.tokenizer)) if word not in self.tokenizer.special_ids])

    def _written(self, prompt: Prompt, found: Hypothesis) -> Written:
        telling = Telling(self.tokenizer, prompt.ids, prompt.stop)
        stopped = telling.hear(found.ids)
        return Written(telling.text, found.ids, found.finished or stopped)


def _check_listening(prompts: Sequence[str], stop: Sequence[str], tell: Tell | None, config: DecodingConfig) -> None:
    if any(not text for text in stop):
        raise ConfigError("a stop string is empty, and every text would end at once; leave it out")
    if stop and config.searches:
        raise ConfigError("in beam search words are taken back, so that no string can stop a text; set beam: 1 or sampling: true")
    if tell is not None and (len(prompts) != 1 or config.n_best > 1):
        raise ConfigError("only a single text can be told as it is made; give one prompt and n_best: 1")


def load_text_generator(run: str | Path, device: str = "auto") -> TextGenerator:
    """A GPT's run, ready to use; one never finished is used as of its newest checkpoint."""
    chosen = choose_device(device)
    return TextGenerator(read_generator(Path(run)), chosen)


def read_generator(run: Path) -> NetworkRun:
    """Read the run of a GPT."""
    require(read_recipe(run), run, "generator")
    return read_network_run(run)
