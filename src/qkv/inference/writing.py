"""Traced decoding of loaded runs: the search for one output, with all that it considered."""

from typing import TYPE_CHECKING, Any

import torch

from qkv.base.errors import ConfigError
from qkv.decoding.config import DecodingConfig
from qkv.decoding.hypothesis import Hypothesis
from qkv.decoding.search import Search, decoding_precision
from qkv.decoding.trace import SearchTrace
from qkv.inference.engines import OwnEngine
from qkv.inference.text_generator import Prompt, TextGenerator
from qkv.lens.steps import Writing
from qkv.lens.tokenized_text import tokenized_text

if TYPE_CHECKING:
    from qkv.inference.translator import Translator

MAX_BEAM = 50  # a tree with more hypotheses side by side is not readable
NEW_TOKENS = 20  # of a GPT by default


def trace_translation(loaded: "Translator", text: str, top: int, **options: Any) -> Writing:
    """Translate a text in one part; options are the keys of `decoding` in a recipe."""
    config = _checked(loaded.decoding(**options))
    engine = loaded.engine
    if not isinstance(engine, OwnEngine):
        raise ConfigError("only qkv's own engine shows its search; load the run itself, without another engine")
    if loaded.trees:
        raise ConfigError("this model reads texts with heads, whose search cannot be shown; use another run")
    part = loaded.in_one_part(text)
    if not loaded.can_begin(part, config):
        raise ConfigError(
            "the search of this text cannot be shown: it has spans to protect, or coverage_penalty is set; leave them out"
        )
    search = engine.begin([part.ids], config, [None])
    source = tokenized_text(loaded.tokenizers.source, part.ids)
    return Writing(
        "translator", loaded.recipe.model.kind, source, loaded.tokenizers.target, [], config, *_run(search, config, top)
    )


def trace_generation(loaded: TextGenerator, text: str, top: int, max_new_tokens: int = NEW_TOKENS, **options: Any) -> Writing:
    """Continue a text; options are the keys of `decoding` in a recipe."""
    config = _checked(loaded.decoding(max_new_tokens, **options))
    prompt = Prompt(loaded.prompt(text))
    search = loaded.begin([prompt], config, [None], piece=len(prompt.ids)).search
    source = tokenized_text(loaded.tokenizer, prompt.ids)
    traced = _run(search, config, top)
    return Writing("generator", loaded.recipe.model.kind, source, loaded.tokenizer, prompt.ids, config, *traced)


def _checked(config: DecodingConfig) -> DecodingConfig:
    if config.sampling and config.n_best > 1:
        raise ConfigError("one sample is shown; leave n_best out")
    if config.searches and config.beam > MAX_BEAM:
        raise ConfigError(f"a tree of {config.beam} hypotheses side by side cannot be shown; set beam to {MAX_BEAM} or less")
    return config


@torch.inference_mode()
def _run(search: Search, config: DecodingConfig, top: int) -> tuple[SearchTrace, list[Hypothesis]]:
    """Run a search to its end; return its record and the hypotheses that it found, best first."""
    trace = search.batch.trace = SearchTrace(top)
    found: list[Hypothesis] = []
    with decoding_precision(config.precision, search.batch.device):
        while len(search):
            found += [one for _, hypotheses in search.step() for one in hypotheses]
    return trace, found
