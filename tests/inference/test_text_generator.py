"""A loaded GPT continues prompts: independent of the batch, by its seed, until a stop string, streamed."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import qkv
from encoder_runs import LINES, write_model
from qkv.base.errors import ConfigError, DataError, QkvWarning
from qkv.base.rows import padded_rows
from qkv.inference.text_encoder import load_text_encoder
from qkv.inference.text_generator import Prompt, TextGenerator, load_text_generator
from qkv.models.gpt import Gpt, GptConfig
from qkv.parts.heads import ModelWithHeads
from qkv.text.tokenizer import Tokenizer, TokenizerConfig, train_tokenizer

SHAPE: dict[str, Any] = {"width": 32, "feedforward": 48, "heads": 4, "layers": 2, "max_positions": 60}
PROMPTS = ["The quick", "Paris is the capital of France, and", "a", "设置"]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train_tokenizer(TokenizerConfig(kind="byte-bpe", vocab=340), LINES * 10)


@pytest.fixture(scope="module")
def run(tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the run of an untrained GPT with peaked distributions."""
    c = GptConfig(**SHAPE)
    torch.manual_seed(3)
    model = ModelWithHeads(Gpt(c, len(tokenizer)), ())
    with torch.no_grad():
        for parameter in model.parameters():
            nn.init.normal_(parameter, 1.0 if parameter.dim() == 1 else 0.0, 0.3)
        model.encoder.embedding.token_embedding.weight[tokenizer.eos] -= 1.0  # so that most texts go on for a while
    return write_model(tmp_path_factory.mktemp("gpt") / "run", model, c.model_dump(mode="json"), tokenizer, objective="causal")


@pytest.fixture(scope="module")
def generator(run: Path) -> TextGenerator:
    return load_text_generator(run, "cpu")


def texts(generator: TextGenerator, prompts: list[str], **options: Any) -> list[str]:
    return [one.text for (one,) in generator.generate(prompts, **{"max_new_tokens": 20, **options})]


def test_prompts_together_and_alone(generator: TextGenerator) -> None:
    one_by_one = [texts(generator, [prompt])[0] for prompt in PROMPTS]
    assert texts(generator, PROMPTS) == one_by_one and len(set(one_by_one)) == len(one_by_one)
    assert texts(generator, PROMPTS, batch_tokens=3) == one_by_one


def test_prompts_that_are_read_between_the_layers_of_others(generator: TextGenerator) -> None:
    given = [Prompt(generator.prompt(prompt), number, max_new_tokens=20) for number, prompt in enumerate(PROMPTS)]
    config = generator.decoding(20, sampling=True, seed=5)
    expected = [found for (found,) in generator.continue_prompts(given, config)]
    running = generator.begin(given[:2], config, [0, 1], 256)
    found: dict[int, Any] = dict(running.step())
    read = []

    def meanwhile() -> None:
        if len(read) < 2:
            number = 2 + len(read)
            read.append(generator.begin(given[number : number + 1], config, [number], 256))
            found.update(read[-1].step())

    found.update(running.step(meanwhile))
    assert len(read) == 2 and not any(other.reading for other in read)
    for other in read:
        running.join(other)
    while len(running):
        found.update(running.step())
    assert [found[number] for number in range(4)] == expected


def test_a_text_is_what_its_tokens_are(generator: TextGenerator, tokenizer: Tokenizer) -> None:
    for prompt, (one,) in zip(PROMPTS, generator.generate(PROMPTS, max_new_tokens=9), strict=True):
        assert prompt + one.text == tokenizer.decode([*tokenizer.encode(prompt), *one.ids])
        assert len(one.ids) == 9 or one.ended


def test_samples_depend_on_the_seed_alone(generator: TextGenerator) -> None:
    way = {"sampling": True, "temperature": 1.5, "top_k": 50, "top_p": 0.95}
    first = texts(generator, PROMPTS[:1], **way, seed=5)
    assert texts(generator, PROMPTS[:1], **way, seed=5) == first != texts(generator, PROMPTS[:1], **way, seed=6)
    several = generator.generate(PROMPTS[:1], max_new_tokens=20, **way, seed=5, n_best=3)[0]
    assert len({one.text for one in several}) == 3 and first[0] in [one.text for one in several]


def test_a_penalty_makes_repetition_rarer(generator: TextGenerator) -> None:
    def different(penalty: float) -> int:
        return sum(len(set(one.ids)) for (one,) in generator.generate(PROMPTS, max_new_tokens=30, repetition_penalty=penalty))

    assert different(5.0) > different(1.0)


def test_a_beam_finds_what_is_at_least_as_likely(generator: TextGenerator, tokenizer: Tokenizer) -> None:
    def likelihood(ids: list[int]) -> float:
        known, told = tokenizer.encode(PROMPTS[0]), torch.tensor([[tokenizer.bos, *tokenizer.encode(PROMPTS[0]), *ids]])
        gpt = generator.causal_lm.gpt
        scores = gpt.logits(gpt(padded_rows(told, torch.ones_like(told).bool()))).log_softmax(-1)[0, len(known) : -1]
        return float(scores.gather(1, torch.tensor(ids)[:, None]).sum())

    with torch.no_grad():
        greedy, best = (
            generator.generate(PROMPTS[:1], max_new_tokens=6, beam=beam, length_penalty=0)[0][0].ids for beam in (1, 8)
        )
        assert likelihood(best) >= likelihood(greedy)


def test_a_stop_string_ends_a_text_before_it(generator: TextGenerator) -> None:
    whole = texts(generator, PROMPTS)
    stop = whole[1][7:9]
    found = generator.generate(PROMPTS, max_new_tokens=20, stop=[stop, "never there"])
    for text, (one,) in zip(whole, found, strict=True):
        assert one.text == text.partition(stop)[0] and (one.ended or stop not in text)
    assert found[1][0].ended and len(found[1][0].ids) < 20


@pytest.mark.parametrize("stop", [(), ("e", "qu"), ("not there at all",)])
def test_the_streamed_pieces_are_the_text(generator: TextGenerator, stop: tuple[str, ...]) -> None:
    for prompt in PROMPTS:
        told: list[str] = []
        ((one,),) = generator.generate([prompt], max_new_tokens=20, stop=stop, on_text=told.append)
        assert "".join(told) == one.text
        assert len(told) > 1 and (stop or sum(map(bool, told)) > 5)


def test_qkv_load_gives_it(run: Path) -> None:
    assert isinstance(qkv.load(run, "cpu"), TextGenerator)
    with pytest.raises(ConfigError, match="is a language model, and engine and precision are for translators; leave them out"):
        qkv.load(run, "cpu", engine="onnx")


def test_the_last_token_stands_for_a_text(run: Path) -> None:
    """The last token is taken in padded batches too; the first has seen nothing but itself."""
    reader = load_text_encoder(run, "cpu")
    found = reader.embed(PROMPTS, pooling="cls")
    for prompt, vector in zip(PROMPTS, found, strict=True):
        ids = torch.tensor([[reader.tokenizer.bos, *reader.tokenizer.encode(prompt), reader.tokenizer.eos]])
        with torch.no_grad():
            hidden = reader.model.encoder(padded_rows(ids, torch.ones_like(ids).bool()))
        np.testing.assert_allclose(vector, hidden[0, -1], atol=1e-5)
    assert np.abs(found[0] - found[1]).max() > 0.1


MISTAKES: list[tuple[list[str], dict[str, Any], type[Exception], str]] = [
    ([""], {}, DataError, "the prompt is empty; give the beginning of a text"),
    ([" \n"], {}, DataError, "the prompt is empty"),
    (
        ["word " * 100],
        {},
        DataError,
        r"the prompt has \d+ tokens, and this model reads 60 together with its continuation; shorten it",
    ),
    (["a"], {"sampling": True, "top_p": 1.5}, ConfigError, "top_p: input should be less than or equal to 1, got 1.5"),
    (
        ["a"],
        {"sampling": True, "temperature": 0},
        ConfigError,
        "temperature: must be above 0, .* and sampling out, got 0",
    ),
    (
        ["a"],
        {"sampling": True, "temperature": -1},
        ConfigError,
        "temperature: must be above 0, .* and sampling out, got -1",
    ),
    (["a"], {"temperature": 0.5}, ConfigError, "temperature acts in sampling only"),
    (["a"], {"repetition_penalty": 0}, ConfigError, "repetition_penalty: input should be greater than 0"),
    (["a"], {"beam": 3, "repetition_penalty": 2}, ConfigError, "repetition_penalty acts in greedy search and in sampling"),
    (["a"], {"max_new_tokens": 0}, ConfigError, "max_new_tokens 0 is not a number of tokens; give 1 or more"),
    (["a"], {"stop": [""]}, ConfigError, "a stop string is empty"),
    (
        ["a"],
        {"stop": ["b"], "beam": 2},
        ConfigError,
        "beam search revises its tokens, so that no string can stop a text; set beam: 1",
    ),
    (["a", "b"], {"on_text": print}, ConfigError, "on_text needs a single text to stream"),
]


@pytest.mark.parametrize(("prompts", "options", "kind", "told"), MISTAKES, ids=[str(number) for number in range(len(MISTAKES))])
def test_mistakes(
    generator: TextGenerator, prompts: list[str], options: dict[str, Any], kind: type[Exception], told: str
) -> None:
    with pytest.raises(kind, match=told) as refused:
        generator.generate(prompts, **options)
    assert "\n" not in str(refused.value)


def test_texts_end_with_the_positions(generator: TextGenerator) -> None:
    prompts = ["word " * 9, "a"]
    lengths = [len(generator.prompt(prompt)) for prompt in prompts]
    found = generator.generate(prompts, max_new_tokens=100)
    for length, (one,) in zip(lengths, found, strict=True):
        assert length + len(one.ids) == 60 or one.ended


def test_longer_texts_than_in_training_are_warned_of(generator: TextGenerator) -> None:
    knows = TextGenerator(generator.run._replace(trained_length=16), generator.device)
    with pytest.warns(QkvWarning, match="a text may reach 60 tokens, and .* was trained on 16 at most"):
        knows.generate(["a"], max_new_tokens=100)
