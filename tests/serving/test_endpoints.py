"""Endpoints: they answer as the models do; each mistake gets its own status and code."""

import html
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families
from service_runs import Running, code_of, texts_of, write_translator

from encoder_runs import write_run
from qkv.lens.view import look
from qkv.serving.docs_page import docs_page
from qkv.serving.examples import find_examples
from qkv.serving.registry import COMPLETE, EMBED, LOOK, NEIGHBOURS, TRANSLATE, ModelRegistry, load_models
from qkv.text.treebank import TextWithHeads


def translator(models: ModelRegistry) -> Any:
    return models.find("en-la", TRANSLATE).handler.translator


def encoder(models: ModelRegistry, name: str) -> Any:
    return models.find(name, EMBED).handler.encoder


def generator(models: ModelRegistry) -> Any:
    return models.find("gpt", COMPLETE).handler.generator


def test_translations_are_the_translators(running: Running, models: ModelRegistry) -> None:
    texts = [*texts_of(5), "", "sun " * 40]
    told = running.said("/translate", q=texts, source="en", target="la")
    assert told == {"translatedText": translator(models).translate(texts)}
    assert running.said("/translate", q=texts[0], source="en", target="la")["translatedText"] == told["translatedText"][0]


def test_lines_stay_lines(running: Running, models: ModelRegistry) -> None:
    lines = ["red bird", "", "old tree falls", "42"]
    told = running.said("/translate", q="\n".join(lines))
    assert told["translatedText"] == "\n".join(translator(models).translate(lines))


def test_texts_without_letters_stay_as_they_are(running: Running) -> None:
    texts = ["42", "---\n%d %%", "7"]
    assert running.said("/translate", q=texts)["translatedText"] == texts


def test_alternatives_with_scores(running: Running, models: ModelRegistry) -> None:
    texts = ["red bird sings", "rain falls"]
    outputs = translator(models).n_best(texts, n_best=3, beam=3)
    told = running.said("/translate", q=texts, source="auto", target="la", alternatives=2)
    assert told["translatedText"] == [each[0].text for each in outputs]
    assert told["alternatives"] == [[one.text for one in each[1:]] for each in outputs]
    np.testing.assert_allclose(told["scores"], [[one.score for one in each] for each in outputs], rtol=1e-4)
    assert told["detectedLanguage"] == [{"language": "en", "confidence": 100.0}] * 2


def test_a_glossary_is_kept_to(running: Running, models: ModelRegistry) -> None:
    texts, glossary = ["red bird sings", "rain falls\nold bird", "old tree"], {"bird": ["tree", "sun"], "rain": "="}
    told = running.said("/translate", q=texts, glossary=glossary)
    outputs = translator(models).n_best(texts[:1], glossary=glossary)[0]
    assert told["missingTerms"] == [[term.source for term in outputs[0].missing_terms], [], []]
    assert told["translatedText"][0] == translator(models).translate(texts[:1], glossary=glossary)[0]
    assert "rain" in told["translatedText"][1].lower() and len(told["translatedText"][1].split("\n")) == 2
    assert told["translatedText"][2] == running.said("/translate", q=texts[2])["translatedText"]


def test_a_key_that_is_not_known_is_named_unless_it_may_be_anybodys_text(running: Running) -> None:
    for given, told in {"secret": "unknown field secret;", "My name is Anna": "unknown field;"}.items():
        answer = running.post("/translate", **{"q": "sun", given: 1})
        assert answer.status_code == 400 and told in answer.json()["error"] and "Anna" not in answer.text


def test_forms_are_read(running: Running) -> None:
    body = {"q": ["red bird", "old tree"], "source": "en", "target": "la", "alternatives": "1"}
    told = running.client.post("/translate", data=body)
    assert told.json() == running.said("/translate", **{**body, "alternatives": 1})
    assert (
        code_of(running.client.post("/translate", content="q", headers={"content-type": "multipart/form-data"})) == "content_type"
    )


def test_languages(running: Running) -> None:
    assert running.client.get("/languages").json() == [{"code": "en", "name": "English", "targets": ["la"]}]
    settings = running.client.get("/frontend/settings").json()
    assert settings["language"]["source"] == {"code": "en", "name": "English"} and not settings["keyRequired"]
    assert running.said("/detect", q="sun") == [{"language": "en", "confidence": 100.0}]
    assert running.said("/detect", q="太阳") == [{"language": "en", "confidence": 0.0}]


def test_hidden_words(running: Running, models: ModelRegistry) -> None:
    text = "Paris is the [MASK] of [MASK]."
    guessed = encoder(models, "bert").fill([text], 3)[0]
    told = running.said("/fill", text=text, top=3)["masks"]
    assert [[one["word"] for one in mask] for mask in told] == [[one.word for one in mask] for mask in guessed]
    assert told[0][0]["probability"] == pytest.approx(guessed[0][0].probability, rel=1e-4)


def test_predictions(running: Running, models: ModelRegistry) -> None:
    texts = ["the lazy dog", "the fox"]
    told = running.said("/predict", model="classes", texts=texts)["predictions"]
    assert [one["label"] for one in told] == [one.label for one in encoder(models, "classes").predict(texts)]
    (tagged,) = running.said("/predict", model="tags", texts=["Paris is old"])["predictions"]
    assert tagged["tags"] == encoder(models, "tags").predict([["Paris", "is", "old"]])[0]
    (answered,) = running.said("/predict", model="answers", texts=[["who jumps", "The fox jumps."]])["predictions"]
    assert answered["text"] in "The fox jumps."
    refused = running.post("/predict", model="classes", texts=["the fox", ["the fox", "the dog", "it"]])
    assert refused.status_code == 400 and refused.json()["error"] == "text 1 must be a text, and it is a list of 3"


def test_what_attention_did(running: Running) -> None:
    for model, kind in {"en-la": "translator", "bert": "encoder", "gpt": "generator"}.items():
        told = running.said("/look", model=model, text="red bird")
        assert told["kind"] == kind and told["maps"][0]["heads"]
        for row in told["maps"][0]["heads"][0]:
            assert sum(row) == pytest.approx(1, abs=0.01)


def test_what_attention_did_with_a_tree(running: Running, tmp_path: Path) -> None:
    write_translator(tmp_path / "trees", positions="structural")
    write_run(tmp_path / "tags", heads=("tags",), labels=("O", "NAME"), objective="tagging", positions="structural")
    models = load_models([str(tmp_path / name) for name in ("trees", "tags")], "cpu")
    assert {model.name: model.can(LOOK) for model in models.all} == {"trees": True, "tags": True}
    text, heads = "red bird sings", [2, 3, 0]
    with Running(models) as served:
        assert all(one["trees"] for one in served.client.get("/models").json())
        for name in models.by_name:
            told = served.said("/look", model=name, text=text, heads=heads)
            assert told == json.loads(json.dumps(look(models.find(name, LOOK).handler.loaded, TextWithHeads(text, heads)).json()))
            assert told["maps"] != served.said("/look", model=name, text=text, heads=[0, 1, 1])["maps"]
            for wrong in ({}, {"heads": [2, 3]}, {"heads": [2, 1, 0]}):
                assert served.refused("/look", model=name, text=text, **wrong)[0] == 400
            assert 'give {"text": "good dogs", "heads": [2, 0]}' in served.post("/look", model=name, text=text).json()["error"]
        assert served.said("/look", model="tags", text=text, heads=heads, target="old tree", target_heads=[2, 0])
        assert served.said("/look", model="trees", text=text, heads=heads, target="old tree")
        assert served.refused("/look", model="tags", text=text, heads=heads, target="old tree") == (400, "invalid_value")
        assert served.refused("/look", model="trees", text=text, heads=heads, target="a", target_heads=[0]) == (
            400,
            "invalid_value",
        )
    assert running.refused("/look", model="bert", text=text, heads=heads) == (400, "invalid_value")
    assert not any(one["trees"] for one in running.client.get("/models").json())


def test_words(running: Running, models: ModelRegistry) -> None:
    vectors = models.find("words", NEIGHBOURS).handler.vectors
    told = running.said("/neighbours", word="sun", top=3)["neighbours"]
    assert {one["word"]: one["similarity"] for one in told} == pytest.approx(dict(vectors.most_similar("sun", topn=3)))
    mapped = running.said("/map", words=["sun", "rain", "never", "tree"])
    assert [point["word"] for point in mapped["points"]] == ["sun", "rain", "tree"] and mapped["missing"] == ["never"]


def test_vectors_of_texts(running: Running, models: ModelRegistry) -> None:
    texts = ["the fox", "Paris is the capital of France", ""]
    told = running.said("/v1/embeddings", model="bert", input=texts)
    found = [one["embedding"] for one in told["data"]]
    np.testing.assert_allclose(found, encoder(models, "bert").embed(texts, normalise=True), atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, atol=1e-5)  # as clients of OpenAI's API expect
    lengths = [len(ids) + 2 for ids in encoder(models, "bert").tokenizer.encode_batch(texts)]
    assert told["usage"]["total_tokens"] == sum(lengths)


def test_completions_are_the_generators(running: Running, models: ModelRegistry) -> None:
    prompts = ["The quick", "Paris is the capital"]
    told = running.said("/v1/completions", model="gpt", prompt=prompts, temperature=0, max_tokens=9)
    wanted = [one.text for (one,) in generator(models).generate(prompts, max_new_tokens=9)]
    assert [one["text"] for one in told["choices"]] == wanted
    assert told["usage"]["completion_tokens"] == sum(
        len(one.ids) for (one,) in generator(models).generate(prompts, max_new_tokens=9)
    )
    echoed = running.said("/v1/completions", model="gpt", prompt=prompts[0], temperature=0, max_tokens=9, echo=True)
    assert echoed["choices"][0]["text"] == prompts[0] + wanted[0]


def test_seeds_and_stops(running: Running) -> None:
    ask = {"model": "gpt", "prompt": "The quick", "max_tokens": 12}
    drawn = [one["text"] for one in running.said("/v1/completions", **ask, seed=3, n=3)["choices"]]
    assert len(set(drawn)) == 3
    assert [one["text"] for one in running.said("/v1/completions", **ask, seed=3, n=2)["choices"]] == drawn[:2]
    assert len({running.said("/v1/completions", **ask)["choices"][0]["text"] for _ in range(4)}) > 1
    stopped = running.said("/v1/completions", **ask, seed=3, stop=drawn[0][2:4])["choices"][0]
    assert stopped["text"] == drawn[0][: drawn[0].index(drawn[0][2:4])] and stopped["finish_reason"] == "stop"


def test_models_are_told(running: Running) -> None:
    told = {one["id"]: one for one in running.client.get("/models").json()}
    assert told["en-la"]["languages"] == ["en", "la"] and told["en-la"]["can"][:2] == ["translate", "look"]
    assert told["bert"]["can"][:3] == ["embed", "fill", "look"] and told["words"]["can"][:2] == ["neighbours", "map"]
    assert told["classes"]["can"][:3] == ["embed", "predict", "look"] and told["gpt"]["parameters"] > 1000
    takes = {name: told[name]["takes"] for name in ("classes", "tags", "answers", "bert", "gpt")}
    assert takes == {"classes": "text", "tags": "words", "answers": "question", "bert": None, "gpt": None}
    assert [one["id"] for one in running.client.get("/v1/models").json()["data"]] == list(told)


MISTAKES: list[tuple[str, dict[str, Any], int, str]] = [
    ("/translate", {"q": "sun", "source": "en", "target": "xx"}, 400, "languages"),
    ("/translate", {"q": "sun", "format": "pdf"}, 400, "invalid_request"),
    ("/translate", {"q": "sun", "format": "html", "stream": True}, 400, "unsupported"),
    ("/translate", {"q": "sun", "alternatives": 11}, 400, "too_many_alternatives"),
    ("/translate", {"q": "sun", "glossary": {"sun": " "}}, 400, "invalid_glossary"),
    ("/translate", {"q": "sun", "glossary": {"sun": "sol"}, "soft": True}, 400, "unsupported"),
    ("/translate", {"q": "sun", "soft": True}, 400, "unsupported"),
    ("/translate", {"q": "sun", "glossary": {"sun": ""}}, 400, "invalid_request"),
    ("/translate", {"q": "sun", "glossary": {"sun": 3}}, 400, "invalid_request"),
    ("/translate", {"q": "sun", "glossary": {str(i): "x" for i in range(1001)}}, 400, "invalid_request"),
    ("/translate", {"q": ["sun"] * 300}, 400, "too_many_texts"),
    ("/translate", {"q": "sun " * 20_000}, 400, "text_too_long"),
    ("/translate", {"q": "a" + "\u0301\u0323" * 20}, 400, "too_many_marks"),
    ("/translate", {"q": "sun", "model": "../en-la"}, 404, "model_not_found"),
    ("/translate", {"q": "sun", "model": "bert"}, 400, "model_cannot"),
    ("/translate", {"q": "sun", "colour": 1}, 400, "invalid_request"),
    ("/translate", {}, 400, "invalid_request"),
    ("/fill", {"text": "no word is hidden"}, 400, "unsuitable"),
    ("/fill", {"text": ""}, 400, "invalid_request"),
    ("/look", {"text": ""}, 400, "invalid_request"),
    ("/neighbours", {"word": ""}, 400, "invalid_request"),
    ("/predict", {"model": "classes", "texts": [""]}, 400, "invalid_request"),
    ("/v1/completions", {"model": "gpt", "prompt": ""}, 400, "invalid_request"),
    ("/v1/completions", {"model": "gpt", "prompt": "a", "seed": 2**53 + 1}, 400, "invalid_request"),
    ("/fill", {"text": "[MASK] " * 65}, 400, "too_many_masks"),
    ("/fill", {"text": "[MASK]", "top": 0}, 400, "invalid_request"),
    ("/predict", {"model": "answers", "texts": ["no context"]}, 400, "invalid_value"),
    ("/predict", {"model": "tags", "texts": [[" "]]}, 400, "invalid_value"),
    ("/look", {"text": "sun " * 200}, 400, "text_too_long"),
    ("/neighbours", {"word": "never"}, 400, "unsuitable"),
    ("/map", {"words": []}, 400, "invalid_request"),
    ("/v1/embeddings", {"model": "bert", "input": []}, 400, "invalid_request"),
    ("/v1/completions", {"model": "gpt", "prompt": []}, 400, "invalid_request"),
    ("/v1/embeddings", {"model": "bert", "input": "fox " * 100}, 400, "text_too_long"),
    ("/v1/embeddings", {"model": "bert", "input": "fox", "dimensions": 3000}, 400, "invalid_value"),
    ("/v1/completions", {"model": "gpt", "prompt": " "}, 400, "unsuitable"),
    ("/v1/completions", {"model": "gpt", "prompt": "fox " * 100}, 400, "unsuitable"),
    ("/v1/completions", {"model": "gpt", "prompt": "a", "max_tokens": 2000}, 400, "too_many_tokens"),
    ("/v1/completions", {"model": "gpt", "prompt": "a", "logprobs": 21}, 400, "invalid_request"),
    ("/v1/completions", {"model": "gpt", "prompt": "a", "logprobs": 1, "echo": True, "stream": True}, 400, "unsupported"),
    ("/v1/completions", {"model": "gpt", "prompt": "a", "suffix": "b"}, 400, "unsupported"),
    ("/v1/completions", {"model": "gpt", "prompt": [999_999]}, 400, "unsuitable"),
    ("/v1/completions", {"model": "gpt", "prompt": [1, "a"]}, 400, "invalid_request"),
    ("/v1/completions", {"model": "gpt", "prompt": "a", "presence_penalty": 3}, 400, "invalid_request"),
    ("/v1/completions", {"model": "gpt", "prompt": "a", "stop": ""}, 400, "invalid_request"),
    ("/v1/completions", {"model": "gpt", "prompt": ["a"] * 200, "n": 2}, 400, "too_many_texts"),
    ("/v1/completions", {"model": "gpt", "prompt": " ", "stream": True}, 400, "unsuitable"),
    ("/nothing", {}, 404, "not_found"),
]


@pytest.mark.parametrize(("path", "body", "status", "code"), MISTAKES, ids=[str(number) for number in range(len(MISTAKES))])
def test_mistakes(running: Running, path: str, body: dict[str, Any], status: int, code: str) -> None:
    assert running.refused(path, **body) == (status, code)


def test_limits_are_described_and_hold(running: Running) -> None:
    schemas = running.client.get("/openapi.json").json()["components"]["schemas"]
    translate, complete = (schemas[name]["properties"] for name in ("TranslateRequest", "CompletionRequest"))
    most = translate["alternatives"]["maximum"]
    assert running.said("/translate", q="sun", alternatives=float(most))["alternatives"]
    assert running.refused("/translate", q="sun", alternatives=most + 1) == (400, "too_many_alternatives")
    assert [one.get("maxLength", one.get("maxItems")) for one in translate["q"]["anyOf"]] == [50_000, 256]
    assert complete["max_tokens"]["anyOf"][0]["maximum"] == 1024 and schemas["FillRequest"]["properties"]["text"]["pattern"]
    bounds = complete["seed"]["anyOf"][0]
    ask = {"model": "gpt", "prompt": "a", "max_tokens": 3}
    seeds = (bounds["minimum"], -1, 0, bounds["maximum"])
    drawn = [running.said("/v1/completions", **ask, seed=seed)["choices"] for seed in seeds]
    assert drawn[1] == running.said("/v1/completions", **ask, seed=-1)["choices"] and drawn[1] != drawn[2]
    assert running.said("/translate", q=["", "sun"])["translatedText"][0] == ""


def test_openai_reads_its_own_errors(running: Running) -> None:
    told = running.post("/v1/completions", model="gpt", prompt="a", top_p=7).json()["error"]
    assert told["type"] == "invalid_request_error" and told["param"] == "top_p" and "less than or equal to 1" in told["message"]
    for path, body, said in (
        (
            "/v1/embeddings",
            {"model": "bert", "input": [5, -6]},
            "input must be a text, a list of texts, the token ids of a text, or",
        ),
        ("/v1/completions", {"model": "gpt"}, "prompt: field required"),
        (
            "/v1/completions",
            {"model": "gpt", "prompt": "a", "logit_bias": {"5": 1}},
            "logit_bias: biases are not supported; leave",
        ),
        ("/v1/completions", {"model": "gpt", "prompt": "a", "tools": []}, "the body: unknown field tools; leave it out"),
    ):
        assert running.post(path, **body).json()["error"]["message"].startswith(said)


def test_json_that_is_sent_as_a_form(running: Running) -> None:
    """As curl does it without a header."""
    answer = running.client.post(
        "/translate", content='{"q": "sun"}', headers={"content-type": "application/x-www-form-urlencoded"}
    )
    assert answer.status_code == 400 and "send application/json" in answer.json()["error"]


def test_places_are_given_back(running: Running) -> None:
    for worker in running.service.workers.values():
        assert worker.active == 0 and worker.waiting == 0


def test_metrics(running: Running) -> None:
    running.said("/translate", q="red bird")
    answer = running.client.get("/metrics")
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    families = list(text_string_to_metric_families(answer.text))
    samples = {(one.name, *sorted(one.labels.items())): one.value for family in families for one in family.samples}
    path, model = ("path", "/translate"), ("model", "en-la")
    assert samples["qkv_requests_total", path, ("status", "200")] >= 1
    assert samples["qkv_prompt_tokens_total", model] >= 2 and samples["qkv_generated_tokens_total", model] >= 1
    assert samples["qkv_batch_units_count", model] >= 1
    assert samples["qkv_request_seconds_bucket", ("le", "+Inf"), path] == samples["qkv_request_seconds_count", path]
    assert samples["qkv_requests_inside", model] == 0


def test_the_api_is_told_in_words(running: Running) -> None:
    told = running.client.get("/docs").text
    assert "<code>alternatives</code></th><td>whole number from 0 to 10</td><td>default 0</td>" in told
    assert "<code>q</code></th><td>text or list of text</td><td>required</td>" in told
    assert "list of {word, probability}" in told and "<code>text/event-stream</code>" in told and "Retry-After" in told


def test_the_examples_of_the_api_work(running: Running, models: ModelRegistry) -> None:
    examples = find_examples(models)
    page = running.client.get("/docs").text
    for path, example in examples.items():
        assert example.fields is not None
        if path in ("/translate_file", "/download_file/{name}") or path.startswith("/admin/"):
            continue
        asked = running.client.get(path.format(**example.fields)) if "{" in path else running.post(path, **example.fields)
        assert asked.status_code == 200, (path, asked.text)
        assert "{" in path or f"{html.escape(example.body)}</textarea>" in page
    without = find_examples(ModelRegistry([models.named("words")]))
    assert without["/translate"].fields is None and without["/map"].fields is not None
    page = docs_page(running.client.get("/openapi.json").json(), without)
    assert 'id="post-map"' in page and 'id="post-predict"' not in page and "serve a fine-tuned encoder" in page


def test_the_pages_need_nothing_from_elsewhere(running: Running) -> None:
    for path in ("/", "/docs"):
        page = running.client.get(path)
        assert page.status_code == 200 and page.headers["content-type"].startswith("text/html")
        assert "//" not in page.text.replace("<!doctype html>", "").split("</head>")[0]
        assert "<script>" not in page.text and "<style" not in page.text and " style=" not in page.text
        assert "default-src 'none'" in page.headers["content-security-policy"]
    assert "/v1/completions" in running.client.get("/docs").text
    assert running.client.get("/page/docs.css").status_code == 200
    assert running.client.get("/page/..%2f..%2fhttp.py").status_code == 404
