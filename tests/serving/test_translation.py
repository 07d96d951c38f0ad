"""Translation over HTTP beyond plain texts: HTML, files, pivots, streams and detected languages."""

import io
import json
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from libretranslatepy import LibreTranslateAPI
from service_runs import Running, code_of, texts_of, write_translator

import qkv.serving.downloads
from qkv.base.errors import ConfigError
from qkv.folder.language_profiles import ProfilePair, save_language_profiles
from qkv.inference.file_translation import FilePlan, PlannedFile, translate_plan
from qkv.serving.registry import TRANSLATE, ModelRegistry, load_models
from qkv.serving.service_config import name_and_languages, read_config, without_model
from qkv.text.language_profile import LanguageProfile
from qkv.text.translatable import SUFFIXES, ReadOptions, parse_translatable
from qkv.text.translatable.inline import with_spans_of

GERMAN = ["Wir gehen nach Hause.", "Wo ist der Bahnhof?", "Das ist ein schönes Haus.", "Ich habe heute keine Zeit."] * 5
ENGLISH = ["We are going home.", "Where is the station?", "That is a beautiful house.", "I have no time today."] * 5
PAGE = (
    '<p>red <b>bird</b> sings</p>\n<p title="old tree">rain <a href="x">falls</a></p>\n<script>let red = "bird";</script>'
    "<ul><li>old tree</li><li>42</li></ul>"
)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> ModelRegistry:
    """Translators de-en and en-fr, which know their languages, and en-xx, which does not."""
    folder = tmp_path_factory.mktemp("routes")
    german, english = LanguageProfile.of(GERMAN), LanguageProfile.of(ENGLISH)
    for source, target, profiles in (("de", "en", (german, english)), ("en", "fr", (english, None)), ("en", "xx", None)):
        write_translator(folder / f"{source}-{target}", (source, target))
        if profiles:
            save_language_profiles(folder / f"{source}-{target}", ProfilePair(*profiles))
    return load_models([str(folder / name) for name in ("de-en", "en-fr", "en-xx")], "cpu")


@pytest.fixture(scope="module")
def served(models: ModelRegistry) -> Iterator[Running]:
    with Running(models) as running:
        yield running


def translator(models: ModelRegistry, name: str) -> Any:
    return models.find(name, TRANSLATE).handler.translator


def upload(served: Running, name: str, content: bytes, **fields: str) -> Any:
    return served.client.post("/translate_file", files={"file": (name, content)}, data=fields)


def test_languages_are_told_with_pivots(served: Running) -> None:
    found = {one["code"]: one["targets"] for one in served.client.get("/languages").json()}
    assert found == {"de": ["en", "fr", "xx"], "en": ["fr", "xx"]}


def test_two_models_translate_one_after_the_other(served: Running, models: ModelRegistry) -> None:
    texts = ["red bird sings", "rain falls\nold tree"]
    found = served.said("/translate", q=texts, source="de", target="fr", alternatives=1)
    between = served.said("/translate", q=texts, source="de", target="en")["translatedText"]
    assert found["translatedText"] == served.said("/translate", q=between, model="en-fr")["translatedText"]
    assert found["pivot"] == "en" and len(found["alternatives"][0]) == 1
    assert served.refused("/translate", q="sun", source="de", target="fr", glossary={"sun": "sol"}) == (400, "unsupported")
    assert served.refused("/translate", q="sun", source="de", target="fr", confidence=True) == (400, "no_confidence")
    assert served.refused("/translate", q="sun", source="de", target="fr", model="de-en") == (400, "languages")
    assert served.refused("/translate", q="sun", source="fr", target="de") == (400, "languages")


def test_the_case_of_a_language_code_does_not_matter(served: Running) -> None:
    wanted = served.said("/translate", q="red bird", source="de", target="fr")
    assert served.said("/translate", q="red bird", source="DE", target="Fr") == wanted
    found = served.said("/translate", q="Ich gehe heute nach Hause.", source="Auto", target="FR")
    assert found["detectedLanguage"]["language"] == "de"


def test_languages_of_one_script_are_told_apart(served: Running) -> None:
    for code, text in {"de": "Ich gehe heute nach Hause.", "en": "I am going to the station."}.items():
        first, *_ = served.said("/detect", q=text)
        assert first["language"] == code and first["confidence"] > 90
        found = served.said("/translate", q=text, source="auto", target="fr")
        assert found["detectedLanguage"]["language"] == code and ("pivot" in found) == (code == "de")
    assert served.refused("/translate", q="42", source="auto", target="fr") == (400, "languages")
    assert LibreTranslateAPI(served.url).detect("Das ist ein schönes Haus")[0]["language"] == "de"


def test_languages_that_a_run_does_not_name_can_be_given(models: ModelRegistry, tmp_path: Path) -> None:
    write_translator(tmp_path / "mine", languages=None)
    unnamed = load_models([str(tmp_path / "mine")], "cpu").all
    declared = BILINGUAL["c.xlf"].encode()
    with Running(ModelRegistry([*models.all, *unnamed])) as served:
        refused = served.post("/translate", q="sun", source="es", target="it")
        assert code_of(refused) == "languages" and "mine does not name its languages: name it as model" in refused.json()["error"]
        wanted = served.said("/translate", q="sun", model="mine")
        assert any("name them by --languages mine=en,de" in line for line in served.service.description())
        told = upload(served, "c.xlf", declared, model="mine").json()  # whatever languages it declares
        assert told["translated"] == 1 and "_" not in told["translatedFileUrl"].rpartition("/")[2]
        assert upload(served, "d.tmx", BILINGUAL["d.tmx"].encode(), model="mine").json()["error"].endswith("choose one that does")
    with Running(ModelRegistry([*models.all, *unnamed], {"mine": ("es", "it")})) as served:
        assert served.said("/translate", q="sun", source="es", target="it") == wanted
        assert code_of(upload(served, "c.xlf", declared, model="mine")) == "unsuitable"
        assert not any("--languages" in line for line in served.service.description())


def test_languages_are_given_by_option_and_file(tmp_path: Path, models: ModelRegistry) -> None:
    file = tmp_path / "serve.yaml"
    file.write_text("models: {a: runs/a, b: runs/b}\nlanguages: {a: [en, de], b: [de, en]}\n")
    config = read_config(file, {"languages": dict([name_and_languages("b=de, fr")])})
    assert config.languages == {"a": ("en", "de"), "b": ("de", "fr")}
    assert without_model(config, "b").languages == {"a": ("en", "de")}
    with pytest.raises(ConfigError, match="languages of 'c', which is not served; give those of a, b, as NAME=en,de"):
        read_config(file, {"languages": {"c": ("en", "de")}})
    for wrong in ("en,de", "a=en", "a=en-de", "a=en,de,fr", "a=en,", "a=de,de"):
        with pytest.raises(ConfigError, match=f"--languages {wrong}: the name of a model and its two languages"):
            name_and_languages(wrong)


def test_html_is_translated_as_a_file_is(served: Running, models: ModelRegistry, tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text(PAGE)
    wanted = translator(models, "en-fr").translate_files([tmp_path / "page.html"]).content.decode()
    found = served.said("/translate", q=PAGE, source="en", target="fr", format="html")
    assert found == {"translatedText": wanted} and '<script>let red = "bird";</script>' in wanted and wanted != PAGE
    several = served.said("/translate", q=[PAGE, "<hr>", ""], source="en", target="fr", format="html", alternatives=1)
    assert several["translatedText"] == [wanted, "<hr>", ""] and len(several["alternatives"][0]) == 1
    twice = served.said("/translate", q=PAGE, source="de", target="fr", format="html")
    between = served.said("/translate", q=PAGE, source="de", target="en", format="html")["translatedText"]
    assert twice["translatedText"] == served.said("/translate", q=between, model="en-fr", format="html")["translatedText"]


def test_files_are_translated_and_fetched(served: Running, models: ModelRegistry, tmp_path: Path) -> None:
    for name, content in {"a page.html": PAGE.encode(), "b.srt": b"1\n00:00:01,000 --> 00:00:02,000\nred bird\n"}.items():
        (tmp_path / name).write_bytes(content)
        found = upload(served, name, content, source="en", target="fr").json()
        fetched = served.client.get(found["translatedFileUrl"])
        assert fetched.content == translator(models, "en-fr").translate_files([tmp_path / name]).content
        assert fetched.headers["content-disposition"].startswith("attachment") and "fr" in fetched.headers["content-disposition"]
        assert fetched.headers["content-type"] == "application/octet-stream" and found["translated"] >= 1
    (tmp_path / "c.txt").write_text("red bird\n")
    terms = {"bird": "tree"}
    told = upload(served, "c.txt", b"red bird\n", source="en", target="fr", model="en-fr", glossary=json.dumps(terms)).json()
    wanted = translator(models, "en-fr").translate_files([tmp_path / "c.txt"], glossary=terms).content
    assert served.client.get(told["translatedFileUrl"]).content == wanted and b"tree" in wanted.lower()
    twice = upload(served, "c.txt", b"rain falls\n", source="de", target="fr").json()
    assert twice["pivot"] == "en" and served.client.get(twice["translatedFileUrl"]).text.endswith("\n")
    empty = upload(served, "d.txt", b"", source="en", target="fr").json()
    assert served.client.get(empty["translatedFileUrl"]).content == b"" and empty["translated"] == 0


BILINGUAL = {
    "a.po": 'msgid ""\nmsgstr "Language: fr\\n"\n\nmsgid "red bird"\nmsgstr ""\n\nmsgid "sun"\nmsgstr "Sonne"\n',
    "b.po": 'msgid "old tree"\nmsgstr ""\n\nmsgid "{name} sings"\nmsgstr ""\n',
    "c.xlf": '<xliff version="1.2"><file source-language="de" target-language="fr"><body><trans-unit id="1">'
    '<source>red <g id="1">bird</g> sings</source></trans-unit></body></file></xliff>',
    "d.tmx": '<tmx version="1.4"><header/><body><tu><tuv xml:lang="de"><seg>rain falls</seg></tuv></tu></body></tmx>',
    "e.csv": "source,target\nold tree,\nsun,Sonne\n",
    "f.tsv": "red bird\t\nrain falls\t\n",
}


@pytest.mark.parametrize("name", BILINGUAL)
def test_files_with_two_languages_are_read_once_for_both_models(served: Running, models: ModelRegistry, name: str) -> None:
    def translate(texts: list[str]) -> list[str]:
        between = translator(models, "de-en").translate(texts)
        return translator(models, "en-fr").translate(list(map(with_spans_of, texts, between)))

    parsed = parse_translatable(Path(name), BILINGUAL[name].encode(), SUFFIXES[Path(name).suffix], ReadOptions(("de", "fr")))
    file = PlannedFile(Path(name), None, parsed, [not segment.translated for segment in parsed.segments])
    wanted = translate_plan(FilePlan([file]), translate)
    found = upload(served, name, BILINGUAL[name].encode(), source="de", target="fr")
    assert found.status_code == 200, found.text
    fetched = served.client.get(found.json()["translatedFileUrl"]).content
    assert fetched == wanted.content != BILINGUAL[name].encode()
    assert (found.json()["translated"], found.json()["left"]) == (wanted.translated, wanted.left)


def test_files_that_cannot_be_translated_are_refused(models: ModelRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("word/document.xml", b" " * (1 << 26) + b"<")
    with Running(models, file_bytes=100_000, characters=9_999) as served:
        fields = {"source": "en", "target": "fr"}
        cases = [
            (upload(served, "a.exe", b"MZ", **fields), 400, "unsupported_format"),
            (upload(served, "a.docx", b"no archive", **fields), 400, "unsuitable"),
            (upload(served, "a.docx", packed.getvalue(), **fields), 400, "body_too_large"),
            (upload(served, "a.txt", b"a" * 100_001, **fields), 413, "body_too_large"),
            (upload(served, "a.txt", b"sun " * 20_000, **fields), 400, "text_too_long"),
            (upload(served, "a.txt", b"4\n" * 10_000, **fields), 400, "text_too_long"),  # lines, before it is parsed
            (upload(served, "a.html", b"<p>a</p>" * 10_000, **fields), 400, "text_too_long"),
            (upload(served, "a.txt", b"sun", **fields, colour="red"), 400, "invalid_request"),
            (upload(served, "a.txt", b"sun", source="en", target="de"), 400, "languages"),
            (upload(served, "a.txt", b"sun", **fields, glossary="{"), 400, "invalid_request"),
            (upload(served, "a.txt", b"sun", **fields, glossary='{"a": " "}'), 400, "invalid_glossary"),
            (served.client.post("/translate_file", data={"source": "en"}), 415, "content_type"),
            (served.client.post("/translate_file", files={"other": b"a"}), 400, "invalid_request"),
            (served.client.get("/download_file/..%2Fa"), 404, "not_found"),
            (served.client.get(f"/download_file/{'0' * 32}.a.txt"), 404, "not_found"),
        ]
        assert [(answer.status_code, code_of(answer)) for answer, *_ in cases] == [tuple(wanted) for _, *wanted in cases]
        url = upload(served, "a.txt", b"sun", **fields).json()["translatedFileUrl"]
        monkeypatch.setattr(qkv.serving.downloads, "SECONDS", -1)
        assert served.client.get(url).status_code == 404
        folder = served.service.downloads._folder
    assert not folder.exists()


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("a.po", 'msgid ""\nmsgstr "Language: it\\n"\n', "its language is it, not fr; choose a model that translates to it"),
        ("a.xlf", BILINGUAL["c.xlf"], "is de -> fr, not en -> fr; choose a model of these languages"),
        ("a.tmx", BILINGUAL["d.tmx"], "no unit has a text in en; it has de; choose a model of these languages"),
        ("a.csv", "one,two,three\nsun,rain,tree\n" * 3, "which of its 3 columns are source and target? its first row is"),
        ("a.srt", "no times", "not SubRip"),
        ("a.json", "{", "not valid JSON"),
        ("a.txt", "sun\0", "is a binary file"),
    ],
)
def test_refusals_of_files_are_for_clients(served: Running, name: str, content: str, problem: str) -> None:
    answer = upload(served, name, content.encode(), source="en", target="fr")
    assert answer.status_code == 400 and problem in answer.json()["error"]
    assert answer.json()["error"].startswith("the file") and not re.search(r"--\w|\bruns?\b|recipe|qkv", answer.json()["error"])


def test_translations_are_streamed_sentence_by_sentence(served: Running) -> None:
    texts = [*texts_of(3), "red bird. Old tree falls. " * 3 + "\n\nrain\n", "", "sun " * 60]
    ask = {"q": texts, "source": "en", "target": "fr", "alternatives": 1}
    answer = served.client.post("/translate", json={**ask, "stream": True})
    assert answer.headers["content-type"].startswith("text/event-stream")
    *pieces, whole, end = (line.removeprefix("data: ") for line in answer.text.split("\n\n") if line)
    joined = [""] * len(texts)
    for piece in map(json.loads, pieces):
        joined[piece["index"]] += piece["text"]
    assert end == "[DONE]" and json.loads(whole) == served.said("/translate", **ask)
    assert joined == json.loads(whole)["translatedText"] and len(pieces) > len(texts)
    assert all(worker.active == 0 for worker in served.service.workers.values())
