"""A loaded GPT: it continues prompts, and streams the text while it is generated."""

import sys
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
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
from qkv.decoding.logprobs import LogprobRecord
from qkv.decoding.search import batches_by_length, begin_search, decode, decoding_precision
from qkv.folder.networks import NetworkRun, read_network_run
from qkv.folder.run import read_recipe
from qkv.inference.arguments import require_text, require_texts
from qkv.inference.engines import pad
from qkv.inference.growing import GrowingOutput, GrowingOutputs
from qkv.inference.head_effects import known_effects
from qkv.inference.prompt_reader import PromptReader
from qkv.inference.text_scores import score_texts
from qkv.inference.text_stream import TextStream
from qkv.lens.explained import explain_continuation
from qkv.lens.head_effects import HeadEffects
from qkv.lens.inspectors import Inspector, SelfAttentionInspector
from qkv.lens.tokenized_text import tokenized_text
from qkv.models.gpt import CausalLM
from qkv.parts.decoding_weights import PreparedModel
from qkv.parts.heads import ModelWithHeads
from qkv.parts.token_scores import ScoringMode
from qkv.recipes.abilities import require
from qkv.text.tokenizer import Tokenizer

INSPECTED_TOKENS = 12  # generated for a text that `qkv.look` shows
MAX_NEW_TOKENS = 200  # by default
TextCallback = Callable[[str], object]  # receives each new piece of a text


class GeneratedText(NamedTuple):
    """The continuation of a prompt."""

    text: str
    ids: list[int]
    ended: bool  # by an end token or a stop string, not by the limit of tokens


@dataclass(frozen=True)
class Prompt:
    """A tokenised prompt, and when its continuation ends."""

    ids: list[int]
    number: int = 0  # in the whole job: samples depend on it and on the seed
    stop: Sequence[str] = ()  # the text ends before the first of these
    on_text: TextCallback | None = None
    max_new_tokens: int | None = None  # where it is less than the decoding config's
    record: LogprobRecord | None = None  # receives the log-probabilities of the new tokens
    prompt_record: LogprobRecord | None = None  # receives those of the prompt's tokens, from the second one on
    on_token: Callable[[int], object] | None = None  # receives each new token but the end, and makes the text itself


class TextGenerator:
    """A GPT's run: `generate` continues prompts, `score` returns log-probabilities of texts.

    >>> generator = qkv.load("runs/gpt-mini")
    >>> generator.generate(["Once upon a time"], max_new_tokens=5)
    [[GeneratedText(text=' there was a little girl', ids=[...], ended=False)]]
    """

    loads_as: ClassVar[Literal["generator"]] = "generator"
    trees = False  # prompts have no heads

    def __init__(self, run: NetworkRun, device: torch.device):
        self.run, self.device = run, device
        self.tokenizer, self.recipe = run.tokenizer, run.recipe

    @property
    def folder(self) -> Path:
        """The folder of the run."""
        return self.run.folder

    def __repr__(self) -> str:
        return f"TextGenerator({str(self.run.folder)!r}: {self.recipe.model.kind}, on {self.device})"

    @cached_property
    def model(self) -> ModelWithHeads:
        """The network, with heads if it has any."""
        return self.run.network.model().to(self.device)

    @cached_property
    def causal_lm(self) -> CausalLM:
        """The network as a language model that decodes token by token."""
        return CausalLM(self.model.encoder).eval()

    @cached_property
    def decoder(self) -> PreparedModel:
        """The language model with its decoding weights."""
        return PreparedModel(self.causal_lm)

    def score(self, texts: Iterable[str], how: ScoringMode | None = None) -> list[float]:
        """Return the log-probability of each text in nats, without its end: the sum over its tokens.

        >>> generator.score(["Paris is big.", "Paris are big."])
        [-17.2, -24.9]
        """
        return score_texts(self.run, self.model, texts, how)

    def generate(
        self,
        prompts: Iterable[str],
        max_new_tokens: int = MAX_NEW_TOKENS,
        stop: Sequence[str] = (),
        on_text: TextCallback | None = None,
        first: int = 0,
        **options: Any,
    ) -> list[list[GeneratedText]]:
        """Return the continuations of each prompt: one, or `n_best` samples.

        Options are the keys of `decoding` in a recipe; decoding is greedy unless `sampling` is true. A text ends before the first
        string of `stop`. `on_text` receives the continuation of a single prompt piece by piece, while it is generated.
        `first` is the number of the first prompt in a larger job: samples depend on it and on the seed.

        >>> generator.generate(["Once upon a time"], sampling=True, temperature=0.8, stop=["\\n"])[0][0].text
        ' there was a little girl.'
        """
        prompts = require_texts(prompts, "generate", "prompt")
        config = self.decoding(max_new_tokens, **options)
        if any(not text for text in require_texts(stop, "stop", "string")):
            raise ConfigError("a stop string is empty, and every text would end at once; leave it out")
        if stop and config.searches:
            raise ConfigError("beam search revises its tokens, so that no string can stop a text; set beam: 1 or sampling: true")
        if on_text is not None and (len(prompts) != 1 or config.n_best > 1):
            raise ConfigError("on_text needs a single text to stream; give one prompt and n_best: 1")
        given = [Prompt(self.prompt(text), number, stop, on_text) for number, text in enumerate(prompts, first)]
        self._warn_of_long_texts([prompt.ids for prompt in given], max_new_tokens)
        return self.continue_prompts(given, config)

    def continue_prompts(self, prompts: Sequence[Prompt], config: DecodingConfig) -> list[list[GeneratedText]]:
        """Return the continuations of tokenised prompts, in batches of similar length."""
        found: list[list[GeneratedText]] = [[] for _ in prompts]
        for batch in batches_by_length([len(prompt.ids) for prompt in prompts], config.batch_tokens):
            for number, texts in zip(batch, self._generate_batch([prompts[number] for number in batch], config), strict=True):
                found[number] = texts
        return found

    @cached_property
    def head_effects(self) -> HeadEffects | None:
        """What the model loses without each head, where `qkv heads` has measured it with these weights."""
        return known_effects(self.run.folder)

    def inspect(self, text: str, target: str | None = None) -> Inspector:
        """Return the model with an encoded text and its continuation, or the given one, for `qkv.look`."""
        prompt, gpt = self.prompt(text), self.causal_lm.gpt
        if target is None:
            room = INSPECTED_TOKENS if gpt.longest is None else min(INSPECTED_TOKENS, gpt.longest - len(prompt))
            more = self.generate([text], room)[0][0].ids
        else:
            more = self.prompt(text + target)[len(prompt) :]
        ids = [*prompt, *more]
        rows = padded_rows(*pad([ids], self.device))

        def score() -> Tensor:
            return gpt.logits(gpt(rows)[0, len(prompt) - 1]).float().log_softmax(-1)[more[0]]

        output = self.tokenizer.decode(ids)[len(self.tokenizer.decode(prompt)) :]
        description = f"the next token, {self.tokenizer.pieces(more[:1])[0]}" if more else None
        texts = {"source": tokenized_text(self.tokenizer, ids)}
        inputs = "generator", "gpt", gpt, rows, None, texts, self.tokenizer, output
        explainer = partial(explain_continuation, gpt, rows, texts["source"], self.tokenizer, len(prompt))
        explained = (score, explainer) if more else (None, None)
        return SelfAttentionInspector(*inputs, description, explained[0], gpt.logits, explained[1], len(prompt))

    def decoding(self, max_new_tokens: int = MAX_NEW_TOKENS, **options: Any) -> DecodingConfig:
        """Return the config of decoding with these options.

        >>> generator.decoding(100, sampling=True, top_p=0.9)
        """
        if not isinstance(max_new_tokens, int) or max_new_tokens < 1:
            raise ConfigError(f"max_new_tokens {max_new_tokens} is not a number of tokens; give 1 or more")
        return parse(DecodingConfig, {"beam": 1, "max_ratio": 0, "max_extra": max_new_tokens, **options}, "decoding")

    def prompt(self, text: str) -> list[int]:
        """Return the ids of a prompt, after bos if the tokenizer adds it.

        >>> generator.prompt("Once upon a time")
        [1026, 883, 257, 640]
        """
        require_text(text, "prompt")
        ids = self.tokenizer.encode(text)
        if not ids or not text.strip():
            raise DataError("the prompt is empty; give the beginning of a text")
        return self.check_prompt([self.tokenizer.bos, *ids] if self.tokenizer.adds_bos else ids)

    def check_prompt(self, ids: list[int]) -> list[int]:
        """Return the ids of a prompt; refuse one that is empty or too long, or has ids that the tokenizer does not know."""
        most = self.causal_lm.longest
        if not ids:
            raise DataError("the prompt is empty; give the beginning of a text")
        for wrong in (token for token in ids if not 0 <= token < len(self.tokenizer)):
            raise DataError(f"the prompt has the id {wrong}, and the tokenizer has {len(self.tokenizer):,}; use its own ids")
        if most is not None and len(ids) >= most:
            raise DataError(
                f"the prompt has {len(ids):,} tokens, and this model reads {most:,} together with its continuation; shorten it"
            )
        return ids

    def _warn_of_long_texts(self, prompts: Sequence[list[int]], max_new_tokens: int) -> None:
        """Warn that texts may become longer than any in training: position embeddings beyond are untrained."""
        most, positions = self.run.trained_length, self.causal_lm.longest
        length = max((len(ids) for ids in prompts), default=0) + max_new_tokens
        if most is not None and positions is not None and min(length, positions) > most:
            warnings.warn(
                f"a text may reach {min(length, positions):,} tokens, and {self.run.folder} was trained on {most:,} at most; "
                "what comes after that is unreliable",
                QkvWarning,
                stacklevel=4,
            )

    @torch.inference_mode()
    def begin(self, prompts: Sequence[Prompt], config: DecodingConfig, owners: Sequence[Any], piece: int) -> GrowingOutputs:
        """Return the continuations of prompts while they grow, each for its owner.

        The first steps read the prompts, at most `piece` tokens of all together in a step.
        """
        growing = [_GrowingText(prompt, owner, self.tokenizer) for prompt, owner in zip(prompts, owners, strict=True)]
        ids, keep = pad([prompt.ids[:-1] for prompt in prompts], self.device)
        with decoding_precision(config.precision, self.device):
            model, options = self._reader(prompts, piece), self._options(prompts, config)
            on_token = None if config.searches else _GrowingText.add  # a beam takes tokens back
            search = begin_search(model, ids, keep, config, **options, on_token=on_token, owners=growing)

        def result(text: _GrowingText, hypotheses: list[Hypothesis]) -> GeneratedText:
            text.end()
            return self.generated(text.source, hypotheses[0])

        return GrowingOutputs(search, result)

    def _reader(self, prompts: Sequence[Prompt], piece: int | None = None) -> PromptReader:
        """Return the model with what is wanted of prompts while it reads them."""
        for prompt in prompts:
            for record in (prompt.record, prompt.prompt_record):
                if record is not None:
                    record.tokens.clear()  # of an attempt that failed
        gpt, records = self.causal_lm.gpt, [prompt.prompt_record for prompt in prompts]
        return PromptReader(self.decoder, gpt, [prompt.ids for prompt in prompts], records, piece)

    def _options(self, prompts: Sequence[Prompt], config: DecodingConfig) -> dict[str, Any]:
        """Return what decoding must know of prompts."""
        return {
            "bos": self.tokenizer.bos,
            "eos": self.tokenizer.eos,
            "pad": self.tokenizer.pad,
            "seed": config.seed,
            "index": [prompt.number for prompt in prompts],
            "allowed": [self.text_tokens] * len(prompts),
            "last_tokens": [prompt.ids[-1] for prompt in prompts],
            "max_lengths": [self.most_tokens(prompt) for prompt in prompts],
            "records": [prompt.record for prompt in prompts] if any(prompt.record for prompt in prompts) else None,
        }

    @torch.inference_mode()
    def _generate_batch(self, prompts: Sequence[Prompt], config: DecodingConfig) -> list[list[GeneratedText]]:
        """Decode a batch of prompts, and stream each to its callback."""
        growing = [_GrowingText(prompt, None, self.tokenizer) for prompt in prompts for _ in range(config.n_best)]
        listens = any(prompt.stop or prompt.on_text or prompt.on_token for prompt in prompts)
        on_token = (lambda row, token: growing[row].add(token)) if listens else None
        ids, keep = pad([prompt.ids[:-1] for prompt in prompts], self.device)
        hypotheses = decode(self._reader(prompts), ids, keep, config, **self._options(prompts, config), on_token=on_token)
        for text in growing:
            text.end()
        return [[self.generated(prompt, one) for one in several] for prompt, several in zip(prompts, hypotheses, strict=True)]

    def generated(self, prompt: Prompt, hypothesis: Hypothesis) -> GeneratedText:
        """Return the text of a continuation, unless its tokens were passed on for somebody else to make it."""
        if prompt.on_token is not None and not prompt.stop:
            return GeneratedText("", hypothesis.ids, hypothesis.finished)
        stream = TextStream(self.tokenizer, prompt.ids, prompt.stop)
        stopped = stream.append(hypothesis.ids)
        return GeneratedText(stream.text, hypothesis.ids, hypothesis.finished or stopped)

    def most_tokens(self, prompt: Prompt) -> int:
        """Return how many tokens may follow a prompt."""
        positions = self.causal_lm.longest or sys.maxsize
        return min(prompt.max_new_tokens or sys.maxsize, positions - len(prompt.ids))

    @cached_property
    def text_tokens(self) -> Tensor:
        """The tokens that may be generated: no control tokens, and none beyond the tokenizer's where a vocabulary is
        rounded up.
        """
        return torch.tensor([token for token in range(len(self.tokenizer)) if token not in self.tokenizer.special_ids])


class _GrowingText(GrowingOutput):
    """The continuation of a prompt while it grows, and whom it is for."""

    source: Prompt

    def __init__(self, prompt: Prompt, owner: Any, tokenizer: Tokenizer):
        super().__init__(prompt, owner)
        self.stream = TextStream(tokenizer, prompt.ids, prompt.stop) if prompt.stop or prompt.on_text else None

    def add(self, token: int) -> bool:
        """Add a token, and pass it or new text on; return whether the text ends there."""
        if self.source.on_token is not None:
            self.source.on_token(token)
        if self.stream is None:
            return False
        stopped = self.stream.append([token])
        if self.source.on_text is not None:
            self.source.on_text(self.stream.new_text())
        return stopped

    def end(self) -> None:
        """Pass the rest of the text on."""
        if self.stream is not None and self.source.on_text is not None:
            self.source.on_text(self.stream.new_text(last=True))


def load_text_generator(run: str | Path, device: str = "auto", step: int | None = None) -> TextGenerator:
    """Load the run of a GPT; one that is still in training with its newest checkpoint, and a warning."""
    chosen = choose_device(device)
    require(read_recipe(Path(run)), run, "generator")
    found = read_network_run(Path(run), step)
    found.weights_file.warn_if_unfinished()
    return TextGenerator(found, chosen)
