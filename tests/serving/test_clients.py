"""The packages that people use for LibreTranslate and OpenAI, against a running service."""

import urllib.error
from collections.abc import Iterator

import numpy as np
import openai
import pytest
from libretranslatepy import LibreTranslateAPI
from service_runs import Running

from qkv.serving.authentication import digest
from qkv.serving.registry import EMBED, ModelRegistry
from qkv.serving.settings import ApiKey


@pytest.fixture
def client(running: Running) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{running.url}/v1", api_key="any", max_retries=0) as client:
        yield client


def test_libretranslate(running: Running) -> None:
    client = LibreTranslateAPI(running.url)
    assert client.languages() == [{"code": "en", "name": "English", "targets": ["la"]}]
    assert client.detect("sun") == [{"language": "en", "confidence": 100.0}]
    found = client.translate("red bird sings & falls", "en", "la")
    assert found == running.said("/translate", q="red bird sings & falls")["translatedText"]
    with pytest.raises(urllib.error.HTTPError) as refused:
        client.translate("sun", "en", "xx")
    with refused.value as error:
        assert error.code == 400


def test_libretranslate_with_a_key(models: ModelRegistry) -> None:
    with Running(models, keys=(ApiKey(name="anna", digest=digest("mine")),)) as running:
        assert LibreTranslateAPI(running.url, api_key="mine").translate("sun", "en", "la")
        with pytest.raises(urllib.error.HTTPError) as refused:
            LibreTranslateAPI(running.url, api_key="other").translate("sun", "en", "la")
        with refused.value as error:
            assert error.code == 401


def test_openai_models(client: openai.OpenAI) -> None:
    assert "gpt" in [model.id for model in client.models.list()]
    assert client.models.retrieve("gpt").id == "gpt"
    with pytest.raises(openai.NotFoundError, match="no model of that name"):
        client.models.retrieve("gpt-5")


def test_openai_vectors(client: openai.OpenAI, running: Running, models: ModelRegistry) -> None:
    texts = ["the fox", "the dog"]
    found = client.embeddings.create(model="bert", input=texts)  # as base64, which is what this client asks for
    plain = running.said("/v1/embeddings", model="bert", input=texts)
    np.testing.assert_allclose([one.embedding for one in found.data], [one["embedding"] for one in plain["data"]], rtol=1e-6)
    ids = [models.find("bert", EMBED).handler.tokenizer.encode(text) for text in texts]  # which some clients send instead
    for given, wanted in ((ids, found.data), (ids[1], found.data[1:])):
        same = client.embeddings.create(model="bert", input=given)
        np.testing.assert_allclose([one.embedding for one in same.data], [one.embedding for one in wanted], atol=1e-6)
        assert same.usage.prompt_tokens == sum(map(len, ids if given is ids else ids[1:])) + 2 * len(wanted)


def test_openai_completions(client: openai.OpenAI) -> None:
    ask = {"model": "gpt", "prompt": "The quick", "max_tokens": 12, "seed": 5}
    whole = client.completions.create(**ask, n=2)
    assert len(whole.choices) == 2 and whole.usage is not None and whole.usage.completion_tokens <= 24
    texts, reasons, usage = ["", ""], ["", ""], None
    for chunk in client.completions.create(**ask, n=2, stream=True, stream_options={"include_usage": True}):
        usage = chunk.usage or usage
        for choice in chunk.choices:
            texts[choice.index] += choice.text
            reasons[choice.index] = choice.finish_reason or reasons[choice.index]
    assert texts == [choice.text for choice in whole.choices] and usage == whole.usage
    assert reasons == [choice.finish_reason for choice in whole.choices]


def test_openai_mistakes(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError, match="no model of that name"):
        client.completions.create(model="gpt-5", prompt="a")
    with pytest.raises(openai.BadRequestError, match="max_tokens"):
        client.completions.create(model="gpt", prompt="a", max_tokens=-1)
    with pytest.raises(openai.BadRequestError, match="logit_bias"):
        client.completions.create(model="gpt", prompt="a", logit_bias={"5": 1})
    with pytest.raises(openai.NotFoundError, match="/v1/completions"):
        client.chat.completions.create(model="gpt", messages=[{"role": "user", "content": "a"}])
    with pytest.raises(openai.BadRequestError, match="token id 99999"):
        client.embeddings.create(model="bert", input=[[5, 99999]])
