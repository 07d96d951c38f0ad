"""Runs of a T5: pretrained on spans, fine-tuned from there on two tasks, resumed, used; refused recipes."""

import json
import random
from pathlib import Path
from typing import Any

import pytest
import torch

from qkv.base.config import with_settings
from qkv.base.errors import ConfigError, DataError, QkvError, QkvWarning
from qkv.folder.networks import read_translator_run
from qkv.inference.infiller import Infiller, load_infiller
from qkv.inference.load import load, load_translator, look
from qkv.inference.text_encoder import load_text_encoder
from qkv.inference.translator import Translator
from qkv.jobs.perplexity import measure_perplexity, read_pretrained_run
from qkv.jobs.train import train
from qkv.jobs.translation import mixing_rates
from qkv.recipes import Recipe, parse_recipe
from qkv.serving.registry import load_models
from qkv.training.checkpoints import load_weights
from qkv.training.log import read_metrics

WORDS = ["the", "cat", "dog", "sat", "on", "mat", "a", "big", "red", "house", "runs", "over", "green", "hill", "sleeps"]
MODEL = {"kind": "t5", "width": 32, "feedforward": 48, "heads": 2, "head_width": 16, "encoder_layers": 1, "decoder_layers": 1}
TRAINING = {
    "steps": 4, "batch_tokens": 256, "learning_rate": 0.002, "warmup": 2, "validate_every": 2, "save_every": 2,
    "averaging": "none", "device": "cpu", "precision": "float32",
}  # fmt: skip


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Raw text, and pairs of two tasks."""
    folder, rng = tmp_path_factory.mktemp("texts"), random.Random(1)
    some = [" ".join(rng.choices(WORDS, k=rng.randint(3, 25))) for _ in range(120)]
    (folder / "text.txt").write_text("\n\n".join(some))
    for name, turn in (("copy", 1), ("reverse", -1)):
        pairs = [rng.choices(WORDS, k=rng.randint(2, 4)) for _ in range(60)]
        (folder / f"{name}.tsv").write_text("".join(f"{' '.join(words)}\t{' '.join(words[::turn])}\n" for words in pairs))
    return folder


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QKV_CACHE", str(tmp_path / "cache"))


def spans_recipe(texts: Path, *settings: str) -> Recipe:
    values = {
        "data": {"text": str(texts / "text.txt"), "length": 16}, "tokenizer": {"kind": "words", "vocab": 60, "sentinels": 6},
        "model": MODEL, "objective": {"kind": "spans"}, "training": TRAINING,
    }  # fmt: skip
    return parse_recipe(with_settings(values, list(settings)), "recipe")


def pairs_recipe(texts: Path, *settings: str, **parts: Any) -> Recipe:
    tasks = [{"pairs": str(texts / f"{name}.tsv"), "prefix": f"{name}:", "weight": 0.5} for name in ("copy", "reverse")]
    values = {
        "data": {"train": tasks, "dev": tasks, "check": {"identical": "keep"}}, "training": TRAINING, "score_dev": 2,
        "objective": {"smoothing": 0.0}, **parts,
    }  # fmt: skip
    return parse_recipe(with_settings(values, list(settings)), "recipe")


def refused(kind: type[QkvError], told: str, make: Any) -> None:
    with pytest.raises(kind, match=told) as caught:
        make()
    assert "\n" not in str(caught.value)


def test_spans_then_two_tasks_then_used(texts: Path, tmp_path: Path) -> None:
    train(spans_recipe(texts), tmp_path / "spans")
    pretrained = read_translator_run(tmp_path / "spans")
    assert len(pretrained.tokenizer.sentinels) == 6
    refused(
        ConfigError,
        r"is a text infiller \(t5, trained for spans\), not a translator",
        lambda: load_translator(tmp_path / "spans"),
    )
    refused(ConfigError, "is a text infiller, and engine", lambda: load(tmp_path / "spans", engine="onnx"))
    refused(
        ConfigError,
        "and qkv look is not for it; use qkv fill or qkv evaluate, or train a translator with start=",
        lambda: look(tmp_path / "spans", "the cat"),
    )
    assert load_models([str(tmp_path / "spans")], "cpu").all[0].handler.abilities == ["fill", "complete"]
    refused(
        ConfigError,
        r"\(t5, trained for spans\), not an encoder or a language model; use qkv fill",
        lambda: load_text_encoder(tmp_path / "spans"),
    )
    start = str(tmp_path / "spans")
    infiller = load(start, "cpu")
    assert isinstance(infiller, Infiller)
    _what_is_lost_is_restored(infiller)
    scored = measure_perplexity(read_pretrained_run(tmp_path / "spans"), device="cpu")
    result = json.loads((tmp_path / "spans" / "result.json").read_text())
    assert scored.documents and scored.scores["loss"] == pytest.approx(result["scores"]["dev_loss"], abs=1e-4)
    _dropped_tokens_are_reported(tmp_path / "spans", scored.scores, result["scores"])
    train(
        pairs_recipe(texts, "training.learning_rate=1.0e-9", start=start, model={"kind": "t5", "dropout": 0.3}),
        tmp_path / "pairs",
    )
    found = read_translator_run(tmp_path / "pairs")
    assert found.config == pretrained.config.model_copy(update={"dropout": 0.3})
    for name, weight in found.weights.items():  # which hardly anything was learned beyond
        torch.testing.assert_close(weight, pretrained.weights[name], rtol=0, atol=1e-6)
    translator = load(tmp_path / "pairs", "cpu")
    assert isinstance(translator, Translator)
    (part,) = translator.segmenter.cut("copy: the cat")
    ids = part.ids
    assert ids[-1] == translator.tokenizers.source.eos and len(translator.translate(["copy: the cat", ""])) == 2
    _every_piece_tells_the_task(translator)
    _texts_without_a_task_are_told_of_once(translator)
    train(spans_recipe(texts, f"start={start}", "tokenizer=null", "model={kind: t5}"), tmp_path / "further")
    assert read_translator_run(tmp_path / "further").config == pretrained.config


def _dropped_tokens_are_reported(run: Path, scored: dict[str, float], final: dict[str, float]) -> None:
    assert scored["span_loss"] == pytest.approx(final["dev_span_loss"], abs=1e-4) and final["dev_span_loss"] > final["dev_loss"]
    lines = read_metrics(run)
    assert all("span_loss" in line for line in lines if "loss" in line)
    assert all({"dev_span_loss", "dev_source_gain"} <= line.keys() for line in lines if "dev_loss" in line)
    report = (run / "report.html").read_text()
    assert "Span loss" in report and ">span loss<" in report and "Source gain" in report


def _what_is_lost_is_restored(infiller: Infiller) -> None:
    encode, sentinels = infiller.tokenizer.encode, infiller.tokenizer.sentinels
    source, holes = infiller.encode("the [MASK] sat on [MASK]")
    assert (source, holes) == ([*encode("the"), sentinels[0], *encode("sat on"), sentinels[1], infiller.tokenizer.eos], 2)
    said = [sentinels[0], *encode("big cat"), sentinels[1], *encode("a mat"), sentinels[2], *encode("red")]
    assert infiller.split_spans(said, 2) == ["big cat", "a mat"]  # and not what comes after the last sentinel
    assert infiller.split_spans(said[:3], 2) == ["big cat", ""]
    found = infiller.fill(["the [MASK] sat on [MASK]"], top=6)[0]
    assert len(found) == 2 and all(1 <= len(guesses) <= 6 for guesses in found)
    for guesses in found:
        chances = [guess.probability for guess in guesses]
        assert chances == sorted(chances, reverse=True) and chances[-1] > 0 and chances[0] < 1
        assert len({guess.word for guess in guesses}) == len(guesses)
    refused(DataError, r"there is no \[MASK\] in the text", lambda: infiller.fill(["the cat"]))
    refused(
        DataError,
        r"the text has 7 \[MASK\], and this model's tokenizer has 6 sentinels",
        lambda: infiller.fill(["[MASK] a " * 7]),
    )


def _every_piece_tells_the_task(translator: Translator) -> None:
    data = translator.recipe.data.model_copy(update={"max_tokens": 8})
    short = Translator(translator.engine, translator.tokenizers, translator.recipe.model_copy(update={"data": data}))
    text, encode = " ".join(WORDS), short.tokenizers.source.encode
    (task,), words = encode("copy:"), encode(text)
    pieces = [part.ids for part in short.segmenter.cut(f"copy: {text}")]
    assert len(pieces) > 2 and all(ids[0] == task for ids in pieces)
    assert [word for ids in pieces for word in ids[1:-1]] == words
    assert [word for part in short.segmenter.cut(text) for word in part.ids[:-1]] == words  # which tells none


def _texts_without_a_task_are_told_of_once(translator: Translator) -> None:
    with pytest.warns(QkvWarning, match=r"1 of 3 texts have no task prefix, .* begin them with one of 'copy:', 'reverse:'"):
        translator.translate(["copy: the cat", "the cat", ""])
    translator.translate(["the cat"])  # a second warning would be an error


def test_an_interrupted_run_goes_on_as_if_nothing_had_happened(texts: Path, tmp_path: Path) -> None:
    for make, name in ((spans_recipe, "spans"), (pairs_recipe, "pairs")):
        more = {} if name == "spans" else {"model": MODEL, "tokenizer": {"shared": {"kind": "words", "vocab": 60}}}
        train(make(texts, **more), tmp_path / name)
        for settings in (["training.steps=2"], []):
            train(make(texts, "training.keep_checkpoints=true", *settings, **more), tmp_path / f"{name}-again")
        one, other = (load_weights(tmp_path / run / "model.safetensors") for run in (name, f"{name}-again"))
        assert one.keys() == other.keys() and all(torch.equal(one[key], other[key]) for key in one)


# What is refused


def test_no_sentinels(texts: Path, tmp_path: Path) -> None:
    refused(
        ConfigError,
        "span corruption needs sentinels.*set tokenizer.sentinels=100",
        lambda: spans_recipe(texts, "tokenizer.sentinels=0"),
    )
    train(pairs_recipe(texts, model=MODEL, tokenizer={"shared": {"kind": "words", "vocab": 60}}), tmp_path / "run")
    refused(ConfigError, "its tokenizer has no sentinels, .* use qkv translate", lambda: load_infiller(tmp_path / "run"))
    file = tmp_path / "run" / "tokenizer.json"
    recipe = spans_recipe(texts, f"tokenizer={{file: {file}}}")
    refused(
        ConfigError,
        r"this tokenizer has no sentinel \(<extra_id_0>\), which span corruption needs",
        lambda: train(recipe, tmp_path / "spans"),
    )
    few = spans_recipe(texts, "tokenizer.sentinels=1")
    refused(ConfigError, "the tokenizer has 1 sentinels, texts of 16 tokens need 2", lambda: train(few, tmp_path / "short-span"))


CORPORA = {
    "[{pairs: a.tsv, prefix: 'one:'}, {pairs: b.tsv}]": "b.tsv has no prefix, and other corpora have one; give each a prefix",
    "[{pairs: a.tsv, prefix: 'one:', weight: 0}]": r"data\.train\.0\.weight",
    "[{pairs: a.tsv, prefix: 'one:', weight: -1}]": r"data\.train\.0\.weight",
}


def test_a_task_that_is_scored_but_not_taught(texts: Path) -> None:
    new: dict[str, Any] = {"model": MODEL, "tokenizer": {"shared": {"kind": "words"}}}
    told = "c.tsv has the prefix 'copi:', and none of data.train has; use one of 'copy:', 'reverse:'"
    for part in ("dev", "test"):
        refused(
            ConfigError, told, lambda part=part: pairs_recipe(texts, f"data.{part}=[{{pairs: c.tsv, prefix: 'copi:'}}]", **new)
        )


@pytest.mark.parametrize("corpora", CORPORA)
def test_tasks_that_cannot_be_mixed(corpora: str, texts: Path) -> None:
    new: dict[str, Any] = {"model": MODEL, "tokenizer": {"shared": {"kind": "words"}}}
    refused(ConfigError, CORPORA[corpora], lambda: pairs_recipe(texts, f"data.train={corpora}", **new))


def test_what_does_not_go_together(texts: Path, tmp_path: Path) -> None:
    shared = {"shared": {"kind": "words"}}
    apart = {"source": {"kind": "words"}, "target": {"kind": "words"}}
    refused(
        ConfigError,
        "a t5 reads and writes one vocabulary; give tokenizer.shared",
        lambda: pairs_recipe(texts, model=MODEL, tokenizer=apart),
    )
    refused(
        ConfigError,
        "the tokenizer is taken from start; leave tokenizer out",
        lambda: pairs_recipe(texts, start="runs/a", tokenizer=shared),
    )
    refused(ConfigError, "for a new translator, tokenizer: shared", lambda: pairs_recipe(texts, model=MODEL))
    refused(ConfigError, "model.kind 'bert' is not one of t5", lambda: spans_recipe(texts, "model.kind=bert"))
    train(pairs_recipe(texts, model=MODEL, tokenizer=shared), tmp_path / "t5")
    wider = pairs_recipe(texts, start=str(tmp_path / "t5"), model={"kind": "t5", "width": 64})
    refused(ConfigError, "model.width 64: not what .* has; leave model out", lambda: train(wider, tmp_path / "wider"))
    train(pairs_recipe(texts, model={"kind": "rnn", "width": 8, "embedding_width": 8}, tokenizer=shared), tmp_path / "rnn")
    other = pairs_recipe(texts, start=str(tmp_path / "rnn"), model={"kind": "t5"})
    refused(
        ConfigError,
        "is of model.kind rnn, and model.kind t5 starts from a run of its own kind",
        lambda: train(other, tmp_path / "other"),
    )
    unilm = pairs_recipe(texts, start=str(tmp_path / "t5"), model={"kind": "unilm"}, objective={"kind": "masked-translation"})
    refused(
        ConfigError,
        "is of model.kind t5, and model.kind unilm starts from a run of its own kind",
        lambda: train(unilm, tmp_path / "other"),
    )


def test_no_corpus_counts_for_more_than_the_limit(texts: Path) -> None:
    new: dict[str, Any] = {"model": MODEL, "tokenizer": {"shared": {"kind": "words"}}}
    data = pairs_recipe(texts, **new).data
    assert mixing_rates(data, [1000, 10]) == [0.5, 0.5]  # type: ignore[arg-type]
    limited = pairs_recipe(texts, "data.mixing_limit=100", **new).data
    assert mixing_rates(limited, [1000, 10]) == [0.05, 0.5]  # type: ignore[arg-type]


def test_a_file_to_be_scored_gets_the_one_prefix_there_is(texts: Path) -> None:
    new: dict[str, Any] = {"model": MODEL, "tokenizer": {"shared": {"kind": "words"}}}
    one = [{"pairs": str(texts / "copy.tsv"), "prefix": "copy:"}]
    several = pairs_recipe(texts, **new).data
    single = pairs_recipe(texts, **new, data={"train": one, "dev": one}).data
    assert (several.only_prefix, single.only_prefix) == ("", "copy:")  # type: ignore[union-attr]
