"""Options of OpenAI's completions: log-probabilities, penalties, token ids, suffixes; and vectors cut to fewer dimensions."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import openai
import pytest
import torch
from service_runs import Running

from qkv.base.rows import padded_rows
from qkv.inference.engines import pad
from qkv.inference.text_generator import Prompt
from qkv.parts.stepping import UnreadPromptState
from qkv.serving.registry import COMPLETE, ModelRegistry


@pytest.fixture(scope="module")
def client(running: Running) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{running.url}/v1", api_key="any", max_retries=0) as client:
        yield client


def generator(models: ModelRegistry) -> Any:
    handler: Any = models.find("gpt", COMPLETE).handler
    return handler.generator


@torch.inference_mode()
def own_logprobs(models: ModelRegistry, ids: list[int]) -> torch.Tensor:
    """The model's log-probabilities after each of these tokens, computed at once. -> (T, V)."""
    gpt = generator(models).causal_lm.gpt
    return gpt.logits(gpt(padded_rows(*pad([ids], torch.device("cpu"))))[0]).float().log_softmax(-1)


def test_long_prompts_are_read_in_pieces(models: ModelRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    pieces: list[int] = []
    read_piece = UnreadPromptState.read_piece
    monkeypatch.setattr(UnreadPromptState, "read_piece", lambda self: read_piece(self) or pieces.append(self.rows))
    own = generator(models)
    prompts = [(own.prompt("The quick brown fox") * 20)[:length] for length in (40, 3, 44, 8, 9)]
    with Running(ModelRegistry([models.find("gpt", COMPLETE)]), batch_tokens=64) as service, ThreadPoolExecutor(5) as pool:
        ask = {"model": "gpt", "max_tokens": 12, "temperature": 0, "seed": 1}
        answers = list(pool.map(lambda ids: service.said("/v1/completions", prompt=ids, **ask), prompts))
        echoed = service.said("/v1/completions", prompt=prompts[0], echo=True, logprobs=1, **ask)["choices"][0]["logprobs"]
    assert len(pieces) >= 4 + 5 and set(pieces) == {1}  # of 8 tokens; the last one is read with the first step
    wanted = own_logprobs(models, prompts[0])[:-1].gather(1, torch.tensor(prompts[0][1:])[:, None])[:, 0]
    np.testing.assert_allclose(echoed["token_logprobs"][1 : len(prompts[0])], wanted, atol=1e-3)
    config = own.decoding(12)
    for prompt, answer in zip(prompts, answers, strict=True):
        ((alone,),) = own.continue_prompts([Prompt(prompt, 0)], config)
        assert answer["choices"][0]["text"] == alone.text


@pytest.mark.parametrize("stop", [None, "e"])
def test_generated_tokens_are_counted_apart_from_prompts(running: Running, client: openai.OpenAI, stop: str | None) -> None:
    def counted() -> list[float]:
        names = ("qkv_prompt_tokens_total", "qkv_generated_tokens_total")
        return [running.service.metrics.registry.get_sample_value(name, {"model": "gpt"}) or 0.0 for name in names]

    ask: Any = {"model": "gpt", "prompt": ["The quick", "the"], "max_tokens": 12, "seed": 1, "stop": stop}
    before = counted()
    usage = client.completions.create(**ask).usage
    whole = counted()
    assert usage is not None and usage.completion_tokens > 2
    assert [now - then for now, then in zip(whole, before, strict=True)] == [usage.prompt_tokens, usage.completion_tokens]
    assert list(client.completions.create(**ask, stream=True))
    assert [now - then for now, then in zip(counted(), whole, strict=True)] == [usage.prompt_tokens, usage.completion_tokens]


def check_offsets(text: str, told: dict[str, Any]) -> None:
    for token, offset in zip(told["tokens"], told["text_offset"], strict=True):
        assert token.startswith(("bytes:", text[offset : offset + len(token)] or "\0"))


def test_log_probabilities_are_the_model_s(client: openai.OpenAI, models: ModelRegistry) -> None:
    options: dict[str, Any] = {"frequency_penalty": 1.0}
    new = generator(models).generate(["The quick"], 9, **options)[0][0].ids
    ids, ask = [*generator(models).prompt("The quick"), *new], {"model": "gpt", "prompt": "The quick", "temperature": 0}
    (choice,) = client.completions.create(**ask, **options, max_tokens=9, logprobs=3, echo=True).choices
    told = choice.logprobs.model_dump() if choice.logprobs else {}
    wanted = own_logprobs(models, ids)
    assert len(told["tokens"]) == len(ids) - 1  # without the bos that is added
    own = [float(wanted[position, token]) for position, token in enumerate(ids[1:])]
    np.testing.assert_allclose(told["token_logprobs"], own, atol=1e-3)
    for top, row, token, value in zip(told["top_logprobs"], wanted, told["tokens"], own, strict=False):
        assert max(top.values()) == pytest.approx(float(row.max()), abs=1e-3)
        assert len(top) in (3, 4) and top[token] == pytest.approx(value, abs=1e-3)
    check_offsets(choice.text, told)
    assert client.completions.create(**ask, max_tokens=9).choices[0].logprobs is None
    (choice,) = client.completions.create(**{**ask, "prompt": ids[:3]}, max_tokens=1, logprobs=0, echo=True).choices
    told = choice.logprobs.model_dump() if choice.logprobs else {}
    assert told["token_logprobs"][0] is None and told["top_logprobs"] is None
    np.testing.assert_allclose(told["token_logprobs"][1:3], own[:2], atol=1e-3)
    scored = client.completions.create(**{**ask, "prompt": ids[:3]}, max_tokens=0, logprobs=0, echo=True, logit_bias={})
    (choice,), usage = scored.choices, scored.usage
    assert choice.logprobs is not None and choice.logprobs.token_logprobs == told["token_logprobs"][:3]
    assert choice.text == generator(models).tokenizer.decode(ids[:3]) and choice.finish_reason == "length"
    assert usage is not None and (usage.prompt_tokens, usage.completion_tokens) == (3, 0)
    nothing = list(client.completions.create(**ask, max_tokens=0, logprobs=1, stream=True))
    assert [choice.text for chunk in nothing for choice in chunk.choices] == [""]


def test_streamed_log_probabilities_are_the_same(client: openai.OpenAI) -> None:
    ask: dict[str, Any] = {"model": "gpt", "prompt": "The quick", "max_tokens": 12, "logprobs": 2, "seed": 4, "n": 2}
    for more in ({}, {"stop": ["e", "t"]}):
        whole = client.completions.create(**ask, **more)
        parts: list[dict[str, list[Any]]] = [{}, {}]
        for chunk in client.completions.create(**ask, **more, stream=True):
            for choice in chunk.choices:
                for name, values in (choice.logprobs.model_dump() if choice.logprobs else {}).items():
                    parts[choice.index].setdefault(name, []).extend(values)
        for choice, joined in zip(whole.choices, parts, strict=True):
            assert choice.logprobs is not None
            wanted = choice.logprobs.model_dump()
            check_offsets(choice.text, wanted)
            assert {name: joined.get(name, []) for name in wanted} == wanted


def test_prompts_may_be_token_ids(client: openai.OpenAI, models: ModelRegistry) -> None:
    texts = ["The quick", "Paris is"]
    ids = [generator(models).prompt(text) for text in texts]
    ask: dict[str, Any] = {"model": "gpt", "max_tokens": 6, "temperature": 0, "echo": True}
    wanted = client.completions.create(**ask, prompt=texts)
    found = client.completions.create(**ask, prompt=ids)
    assert [one.text for one in found.choices] == [one.text for one in wanted.choices] and found.usage == wanted.usage
    assert client.completions.create(**ask, prompt=ids[0]).choices[0].text == wanted.choices[0].text


def test_penalties_are_those_of_decoding(client: openai.OpenAI, models: ModelRegistry) -> None:
    ask: dict[str, Any] = {"model": "gpt", "prompt": "The quick", "max_tokens": 30, "temperature": 0}
    plain = generator(models).generate(["The quick"], 30)[0][0]
    for penalties in ({"frequency_penalty": 2.0}, {"presence_penalty": 2.0}, {"presence_penalty": -2.0}):
        wanted = generator(models).generate(["The quick"], 30, **penalties)[0][0]
        assert client.completions.create(**ask, **penalties).choices[0].text == wanted.text != plain.text


def test_a_t5_fills_in_text(client: openai.OpenAI, running: Running, models: ModelRegistry) -> None:
    handler: Any = models.find("t5", COMPLETE).handler
    (wanted,) = handler.infiller.fill(["red [MASK] sings [MASK]"], 2)
    found = running.said("/fill", model="t5", text="red [MASK] sings [MASK]", top=2)["masks"]
    assert [[one["word"] for one in mask] for mask in found] == [[one.word for one in mask] for mask in wanted]
    ask: dict[str, Any] = {"model": "t5", "prompt": "red ", "suffix": " sings", "max_tokens": 5}
    once = client.completions.create(**ask, temperature=0, presence_penalty=0.5)
    assert once.usage is not None and once.usage.completion_tokens <= 5 and once.choices[0].finish_reason in ("stop", "length")
    several = client.completions.create(**ask, seed=3, n=3)
    streamed = ["", "", ""]
    for chunk in client.completions.create(**ask, seed=3, n=3, stream=True):
        for choice in chunk.choices:
            streamed[choice.index] += choice.text
    assert streamed == [one.text for one in several.choices]
    for wrong in ({"prompt": [5]}, {"logprobs": 1}, {"prompt": "a [MASK]"}, {"prompt": " ", "suffix": ""}):
        assert running.refused("/v1/completions", **{**ask, **wrong})[0] == 400


def test_vectors_may_be_shorter(client: openai.OpenAI) -> None:
    whole = np.array(client.embeddings.create(model="bert", input="the fox").data[0].embedding)
    short = np.array(client.embeddings.create(model="bert", input="the fox", dimensions=5).data[0].embedding)
    np.testing.assert_allclose(short, whole[:5] / np.linalg.norm(whole[:5]), atol=1e-6)
