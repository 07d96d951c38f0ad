"""The laboratory's endpoints: their answers are those of the Python functions; long views let others pass; limits hold."""

import socket
import threading
from pathlib import Path
from typing import Any

import pytest
from service_runs import WORDS, Running, write_translator

import qkv
from encoder_runs import write_run
from inspected_models import TRANSLATORS, tokenizer
from qkv.inference.attribute import attribute
from qkv.inference.laboratory import layers, patch, steps
from qkv.lens.changes import FixedWeight, SoftmaxTemperature, WithoutHead, WithoutLayer
from qkv.lens.word_edits import DeleteWord, MoveWord, ReplaceWord
from qkv.serving import laboratory
from qkv.serving.registry import ModelRegistry, load_models
from qkv.vectors.views import map_words, neighbours_through_training, view_analogy
from qkv.vectors.word_vectors import WordVectors
from translator_runs import write_pairs_run

TEXTS = {"en-la": "red bird sings", "bert": "Paris is the [MASK] of France.", "gpt": "The quick brown fox"}
ALL = {"look", "arithmetic", "change", "layers", "attribute", "patch"}


@pytest.fixture(scope="module")
def loaded(folders: list[str]) -> dict[str, Any]:
    return {Path(folder).name: qkv.load(folder, "cpu") for folder in folders if Path(folder).name in TEXTS}


def assert_same(answered: Any, wanted: Any) -> None:
    """Compare plain values; numbers may differ in the last of their digits."""
    if isinstance(wanted, dict):
        assert answered.keys() == wanted.keys()
        for name, value in wanted.items():
            assert_same(answered[name], value)
    elif isinstance(wanted, list | tuple):
        assert len(answered) == len(wanted)
        for one, other in zip(answered, wanted, strict=True):
            assert_same(one, other)
    else:
        assert answered == (pytest.approx(wanted, abs=2e-4) if isinstance(wanted, float) else wanted)


@pytest.mark.parametrize("model", TEXTS)
def test_answers_are_those_of_the_python_functions(model: str, running: Running, loaded: dict[str, Any]) -> None:
    run, text, given = loaded[model], TEXTS[model], {"model": model, "text": TEXTS[model]}
    assert_same(running.said("/look", **given), qkv.look(run, text).json())
    assert_same(running.said("/arithmetic", **given, layer=0, head=1), qkv.arithmetic(run, text, layer=0, head=1).json())
    assert_same(running.said("/layers", **given, top=3), layers(run, text, top=3).json())
    for method in ("gradient", "integrated", "occlusion"):
        assert_same(running.said("/attribute", **given, method=method), attribute(run, text, method=method).json())
    other = text.replace("red", "old").replace("Paris", "Rome").replace("quick", "lazy")
    assert_same(running.said("/patch", **given, other=other), patch(run, text, other).json())
    if model != "bert":
        assert_same(running.said("/steps", **given, beam=3, top=2), steps(run, text, 2, beam=3).json())
        sampled = {"sampling": True, "temperature": 0.7, "top_k": 5, "seed": 2}
        assert_same(running.said("/steps", **given, **sampled), steps(run, text, **sampled).json())


def test_changes_are_those_of_the_python_function(running: Running, loaded: dict[str, Any]) -> None:
    text, cross = "red bird sings", "decoder.0.cross"
    pairs: list[tuple[dict[str, Any], Any]] = [
        ({"change": "head", "attention": cross, "head": 1}, WithoutHead(cross, 1)),
        ({"change": "layer", "layer": "encoder.0"}, WithoutLayer("encoder.0")),
        ({"change": "weight", "attention": cross, "query": 0, "key": 1, "value": 0.5}, FixedWeight(cross, 0, 1, 0.5)),
        ({"change": "temperature", "value": 2}, SoftmaxTemperature(2)),
        ({"change": "replace", "word": 1, "text": "tree"}, ReplaceWord(1, "tree")),
        ({"change": "delete", "word": 0}, DeleteWord(0)),
        ({"change": "move", "word": 2.0, "to": 0}, MoveWord(2, 0)),
    ]
    for sent, wanted in pairs:
        answered = running.said("/change", text=text, changes=[sent])
        assert_same(answered, qkv.change(loaded["en-la"], text, [wanted]).json())
        named = {name: value for name, value in answered["changes"][0].items() if name != "says"}
        assert {**named, **sent} == named  # what comes back can be sent again
        assert running.said("/change", text=text, changes=[named])["changes"] == answered["changes"]
    one = running.said("/change", text=text, changes=[pairs[0][0]], maps=[cross])
    assert [found["name"] for found in one["after"]["maps"]] == [cross]
    assert not running.said("/change", text=text, changes=[pairs[0][0]], maps=[])["after"]["maps"]


def test_snapshots_and_measured_heads(running: Running, loaded: dict[str, Any]) -> None:
    wanted = qkv.look_through_training(loaded["en-la"], "red bird", device="cpu").json()
    assert_same(running.said("/through_training", text="red bird"), wanted)
    assert running.said("/heads") == loaded["bert"].head_effects.json()
    assert running.said("/look", model="bert", text="the fox")["effects"] == running.said("/heads")


def test_words(running: Running, folders: list[str]) -> None:
    folder = next(Path(folder) for folder in folders if folder.endswith("words"))
    vectors = WordVectors.load(folder)
    question = dict(zip(("first", "second", "third"), WORDS, strict=False))
    wanted = view_analogy(vectors, ("sun", "rain", "tree"), 4, "mul").json()
    assert_same(running.said("/analogy", **question, top=4, method="mul"), wanted)
    for method in ("pca", "tsne"):
        wanted = {**map_words(vectors, [WORDS[:5]], method).json(), "missing": []}
        first = running.said("/projector", count=5, method=method)
        assert_same(first, wanted)
        assert running.said("/projector", count=5, method=method) == first  # which is remembered
        assert_same(
            running.said("/projector", words=[*WORDS[:5], "never", "sun"], method=method), {**wanted, "missing": ["never"]}
        )
    followed = running.said("/neighbours_through_training", words=["sun", "red"], top=3)
    assert_same(followed, neighbours_through_training(folder, ["sun", "red"], 3).json())


def test_abilities_are_those_of_the_model(running: Running, tmp_path: Path) -> None:
    can = {one["id"]: {*one["can"]} for one in running.client.get("/models").json()}
    assert can["en-la"] == ALL | {"translate", "steps", "through_training"}
    assert can["bert"] == ALL | {"embed", "fill", "heads"}
    assert can["gpt"] == ALL | {"complete", "steps"}
    assert can["words"] == {"neighbours", "map", "analogy", "projector", "neighbours_through_training"}
    rnn = write_pairs_run(tmp_path / "rnn", TRANSLATORS["rnn"], tokenizer(), tokenizer(), decoding={"max_extra": 3})
    runs = [str(rnn), str(write_translator(tmp_path / "trees", positions="structural"))]
    classes = write_run(tmp_path / "classes", heads=("pooler", "classes"), labels=("bad", "good"), objective="classification")
    found = {model.name: {*model.handler.abilities} for model in load_models([*runs, str(classes)], "cpu").all}
    assert found["rnn"] >= {"arithmetic", "change", "steps", "attribute"} and not found["rnn"] & {"patch", "layers"}
    assert not found["trees"] & {"patch", "steps", "translate"} and "change" in found["trees"]
    assert "attribute" in found["classes"] and not found["classes"] & {"layers", "patch", "steps", "heads"}


MISTAKES: list[tuple[str, dict[str, Any], str]] = [
    ("/arithmetic", {"text": ""}, "invalid_request"),
    ("/arithmetic", {"text": "sun", "layer": 9}, "unsuitable"),
    ("/arithmetic", {"text": "sun", "layer": -1}, "invalid_request"),
    ("/arithmetic", {"text": "sun", "part": "middle"}, "invalid_request"),
    ("/arithmetic", {"text": "sun " * 200}, "text_too_long"),
    ("/arithmetic", {"text": "sun", "model": "words"}, "model_cannot"),
    ("/change", {"text": "sun", "changes": [{"change": "head", "attention": "decoder.7.cross"}]}, "unsuitable"),
    ("/change", {"text": "sun", "changes": [{"change": "head", "attention": "decoder.0.cross", "head": 9}]}, "unsuitable"),
    ("/change", {"text": "sun", "changes": [{"change": "tail"}]}, "invalid_request"),
    ("/change", {"text": "sun", "changes": [{"change": "delete"}]}, "invalid_request"),
    ("/change", {"text": "sun", "changes": [{"change": "delete", "word": 5}]}, "unsuitable"),
    ("/change", {"text": "sun", "changes": [{"change": "delete", "word": 0}] * 33}, "invalid_request"),
    ("/change", {"text": "sun", "changes": [{"change": "delete", "word": 0, "says": "x"}]}, "invalid_request"),
    ("/change", {"text": "sun", "changes": [{"change": "replace", "word": 0, "text": "x " * 25_001}]}, "text_too_long"),
    ("/change", {"text": "sun", "changes": [{"change": "replace", "word": 0, "text": "sun " * 99}]}, "unsuitable"),
    ("/change", {"text": "sun", "maps": ["nothing"]}, "unsuitable"),
    ("/patch", {"text": "red bird", "other": "red bird"}, "unsuitable"),
    ("/patch", {"text": "red bird", "other": "old bird falls"}, "unsuitable"),
    ("/patch", {"text": "red bird", "other": "old bird", "position": 99}, "unsuitable"),
    ("/patch", {"model": "bert", "text": "the fox", "other": "the dog"}, "unsuitable"),
    ("/patch", {"text": "red bird"}, "invalid_request"),
    ("/layers", {"model": "bert", "text": "no mask"}, "unsuitable"),
    ("/layers", {"text": "sun", "top": 101}, "invalid_request"),
    ("/steps", {"text": "sun", "beam": 17}, "invalid_request"),
    ("/steps", {"text": "sun", "max_new_tokens": 3}, "invalid_value"),
    ("/steps", {"text": "sun", "model": "bert"}, "model_cannot"),
    ("/attribute", {"text": "sun", "method": "guess"}, "invalid_request"),
    ("/attribute", {"text": "sun", "word": 99}, "unsuitable"),
    ("/attribute", {"text": "sun", "instead": "rain"}, "unsuitable"),
    ("/through_training", {"text": "sun", "layer": 5}, "unsuitable"),
    ("/through_training", {"text": "sun", "model": "gpt"}, "model_cannot"),
    ("/heads", {"model": "gpt"}, "model_cannot"),
    ("/analogy", {"first": "sun", "second": "sun", "third": "rain"}, "unsuitable"),
    ("/analogy", {"first": "sun", "second": "never", "third": "rain"}, "unsuitable"),
    ("/projector", {"words": ["sun", "never"]}, "unsuitable"),
    ("/projector", {"count": 2001}, "invalid_request"),
    ("/projector", {"words": ["sun"] * 2001}, "invalid_request"),
    ("/neighbours_through_training", {"words": ["never"]}, "unsuitable"),
    ("/neighbours_through_training", {"words": []}, "invalid_request"),
]


@pytest.mark.parametrize(("path", "body", "code"), MISTAKES, ids=[f"{path} {n}" for n, (path, _, _) in enumerate(MISTAKES)])
def test_mistakes_are_one_line(path: str, body: dict[str, Any], code: str, running: Running) -> None:
    answer = running.post(path, **body)
    assert (answer.status_code, answer.json()["code"]) == (400, code), answer.text
    assert "\n" not in answer.json()["error"] and len(answer.json()["error"]) > 10


def test_grids_are_limited_by_their_work(models: ModelRegistry) -> None:
    with Running(models, patch_tokens=30) as running:
        refused = running.post("/patch", text="red bird sings", other="old bird sings")
        assert refused.status_code == 400 and "send shorter texts" in refused.json()["error"]


def test_a_change_beside_a_translation_changes_only_its_own_answer(running: Running) -> None:
    changes = [{"change": "temperature", "value": 0.05}, {"change": "layer", "layer": "encoder.0"}]
    alone = running.said("/translate", q="red bird sings")
    first = running.said("/change", text="red bird sings", changes=changes)
    answers: list[Any] = []

    def ask(path: str, body: dict[str, Any]) -> None:
        answers.extend((path, running.said(path, **body)) for _ in range(6))

    bodies = {"/translate": {"q": "red bird sings"}, "/change": {"text": "red bird sings", "changes": changes}}
    threads = [threading.Thread(target=ask, args=one) for one in bodies.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [one for path, one in answers if path == "/translate"] == [alone] * 6
    assert [one for path, one in answers if path == "/change"] == [first] * 6


def test_a_change_in_one_thread_leaves_the_model_of_another_as_it_is(loaded: dict[str, Any]) -> None:
    """As processes that share a loaded model do it: a view beside a translation."""
    run, text = loaded["en-la"], "red bird sings"
    alone, changes = run.translate([text]), [WithoutHead("decoder.0.cross"), WithoutLayer("decoder.0"), SoftmaxTemperature(0.1)]
    wanted, found = qkv.change(run, text, changes).json(), []
    ready = threading.Barrier(2)

    def translate() -> None:
        ready.wait()
        found.extend(run.translate([text]) for _ in range(10))

    thread = threading.Thread(target=translate)
    thread.start()
    ready.wait()
    for _ in range(5):
        assert qkv.change(run, text, changes).json() == wanted
    thread.join()
    assert found == [alone] * 10


def test_short_requests_pass_a_long_view(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """A translation is answered between two steps of a view, which would wait for it for ever otherwise."""
    begun, translated = threading.Event(), threading.Event()

    def view(*_: Any) -> Any:
        while not translated.is_set():
            begun.set()
            yield
        return qkv.look(running.service.models.named("en-la").handler.loaded, "sun")

    monkeypatch.setattr(laboratory, "look_in_steps", view)
    answers: list[Any] = []
    thread = threading.Thread(target=lambda: answers.append(running.said("/through_training", text="red bird")))
    thread.start()
    assert begun.wait(60)
    assert running.said("/translate", q="red bird")["translatedText"]
    translated.set()
    thread.join()
    assert answers[0]["kind"] == "translator"


def test_a_view_ends_when_its_client_is_gone(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, closed = threading.Event(), threading.Event()

    def endless(*_: Any) -> Any:
        try:
            while True:
                begun.set()
                yield
        finally:
            closed.set()

    monkeypatch.setattr(laboratory, "look_in_steps", endless)
    body = b'{"text": "red bird"}'
    head = f"POST /through_training HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    with socket.create_connection(("127.0.0.1", running.port)) as connection:
        connection.sendall(head.encode() + b"\r\n\r\n" + body)
        assert begun.wait(60)
    assert closed.wait(60)
