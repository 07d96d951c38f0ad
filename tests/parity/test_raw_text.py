"""The tokenizers of exported runs give the ids that qkv gives for raw text, in transformers and in the tokenizers library."""

import sys
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer as Library

sys.path.insert(0, str(Path(__file__).parents[1]))

from encoder_runs import LINES, SHAPE, own_tokenizer, randomised, write_model, write_run
from qkv.inference.infiller import load_infiller
from qkv.inference.load import load_translator
from qkv.inference.segmenter import TextOptions
from qkv.inference.text_encoder import load_text_encoder
from qkv.inference.text_generator import load_text_generator
from qkv.interop.export import export
from qkv.models.gpt import Gpt, GptConfig
from qkv.models.xlnet import Xlnet, XlnetConfig
from qkv.parts.heads import ModelWithHeads
from qkv.text.tokenizer import TokenizerConfig, train_tokenizer
from raw_texts import raw_texts
from translator_runs import T5, TRANSFORMER, write_pairs_run

transformers = pytest.importorskip("transformers")


def their_ids(folder: Path, texts: list[str]) -> list[list[int]]:
    """Return the ids of AutoTokenizer; those of the library are the same."""
    tokenizer, library = transformers.AutoTokenizer.from_pretrained(folder), Library.from_file(str(folder / "tokenizer.json"))
    found = [tokenizer(text)["input_ids"] for text in texts]
    assert [library.encode(text).ids for text in texts] == found
    return found


def assert_same(texts: list[str], ours: list[list[int]], theirs: list[list[int]]) -> None:
    for text, one, other in zip(texts, ours, theirs, strict=True):
        assert one == other, ascii(text)


@pytest.mark.parametrize("kind", ["wordpiece", "bpe", "byte-bpe", "unigram", "characters", "words"])
@pytest.mark.parametrize("lowercase", [False, True])
def test_an_encoder(kind: str, lowercase: bool, tmp_path: Path) -> None:
    special = ("[MASK]",)
    config = TokenizerConfig(kind=kind, vocab=300, lowercase=lowercase, special_tokens=special)  # type: ignore[arg-type]
    run = write_run(tmp_path / "run", tokenizer=train_tokenizer(config, LINES * 10))
    folder, encoder = export(run, "hf", tmp_path / "hf"), load_text_encoder(run, "cpu")
    texts = raw_texts(400, seed=3)
    assert_same(texts, encoder._encode([text[:40] for text in texts]), their_ids(folder, [text[:40] for text in texts]))
    masked = [text for text in raw_texts(900, seed=4, masks=True) if "[MASK]" in text]
    assert len(masked) > 300
    assert_same(masked, [encoder.masked(text) for text in masked], their_ids(folder, masked))


def test_labels_of_raw_text(tmp_path: Path) -> None:
    """Exported classifiers give the labels and the probabilities that qkv gives."""
    run = write_run(tmp_path / "run", heads=("pooler", "classes"), labels=("no", "yes"), objective="classification")
    folder = export(run, "hf", tmp_path / "hf")
    texts = [" A quick fox . ", "Paris\tis\nthe capital ", "\u00a0Le cafe\u0301", "Rome  "]
    said = transformers.pipeline("text-classification", str(folder), device="cpu")(texts)
    found = load_text_encoder(run, "cpu").predict(texts)
    assert [one["label"] for one in said] == [one.label for one in found]
    assert [one["score"] for one in said] == pytest.approx([one.probability for one in found], abs=1e-5)


def test_an_xlnet(tmp_path: Path) -> None:
    tokenizer, c = own_tokenizer("unigram"), XlnetConfig(**SHAPE)
    model = randomised(ModelWithHeads(Xlnet(c, len(tokenizer)), ("language_model",), 1))
    run = write_model(tmp_path / "run", model, c.model_dump(mode="json"), tokenizer, objective="permutation")
    texts = raw_texts(300, seed=5)
    ours = [ids[1:] + ids[:1] for ids in load_text_encoder(run, "cpu")._encode(texts)]  # theirs has the first token at the end
    assert_same(texts, ours, their_ids(export(run, "hf", tmp_path / "hf"), texts))


@pytest.mark.parametrize("kind", ["byte-bpe", "bpe"])
def test_a_prompt_keeps_its_white_space(kind: Any, tmp_path: Path) -> None:
    tokenizer = train_tokenizer(TokenizerConfig(kind=kind, vocab=340), LINES * 9)
    c = GptConfig(width=16, feedforward=16, heads=2, layers=1, max_positions=200)
    model = randomised(ModelWithHeads(Gpt(c, len(tokenizer)), ()))
    run = write_model(tmp_path / "run", model, c.model_dump(mode="json"), tokenizer, objective="causal")
    texts, generator = [text for text in raw_texts(400, seed=6) if text.strip()], load_text_generator(run, "cpu")
    assert generator.prompt("a ") != generator.prompt("a") and generator.prompt("a\nb") != generator.prompt("a b")
    assert_same(texts, [generator.prompt(text) for text in texts], their_ids(export(run, "hf", tmp_path / "hf"), texts))


WHOLE = TextOptions(split="never", protect=None)  # other programs read a text as it is


def source_ids(run: Path, texts: list[str], end: int | None) -> list[list[int]]:
    """Return the ids of sources as the translator encodes them; an empty text has no part."""
    translator, found = load_translator(run, "cpu"), []
    for text in texts:
        parts = [part.ids for part in translator.segmenter.cut(text, WHOLE)]
        assert len(parts) <= 1
        found.append(parts[0] if parts else [end] if end is not None else [])
    return found


@pytest.mark.parametrize("ends", [False, True])
@pytest.mark.parametrize("shared", [False, True])
def test_a_translator(shared: bool, ends: bool, tmp_path: Path) -> None:
    source = own_tokenizer("bpe", False)
    target = source if shared else own_tokenizer("unigram", True)
    data = {"train": "x", "dev": "x", "max_tokens": 200, "source_eos": ends}
    model = {**TRANSFORMER, "tied": "all" if shared else "none"}
    run = write_pairs_run(tmp_path / "run", model, source, target, data=data)
    texts, folder = raw_texts(300, seed=7), export(run, "hf", tmp_path / "hf")
    assert_same(texts, source_ids(run, texts, source.eos if ends else None), their_ids(folder, texts))
    if not shared:
        wanted = [[*ids, target.eos] for ids in target.encode_batch([text.strip() for text in LINES])]
        assert their_ids(folder / "target", [f"\t{text} \n" for text in LINES]) == wanted


@pytest.mark.parametrize("to", ["ctranslate2", "onnx"])
def test_a_translator_for_other_engines(to: str, tmp_path: Path) -> None:
    for package in {"ctranslate2": ["ctranslate2"], "onnx": ["onnx", "onnxscript"]}[to]:
        pytest.importorskip(package)
    run = write_pairs_run(
        tmp_path / "run", {**TRANSFORMER, "tied": "none"}, own_tokenizer("bpe", False), own_tokenizer("unigram")
    )
    folder, texts = export(run, to, tmp_path / to), raw_texts(300, seed=8)
    library = Library.from_file(str(folder / "tokenizer-source.json"))
    ours = source_ids(run, texts, None)
    assert_same(texts, ours, [library.encode(text).ids for text in texts])
    assert_same(texts, ours, source_ids(folder, texts, None))


def test_a_t5_and_its_sentinels(tmp_path: Path) -> None:
    tokenizer = train_tokenizer(TokenizerConfig(kind="unigram", vocab=200, sentinels=20), LINES * 9)
    pretrained = {"data": {"text": "x", "length": 200}, "objective": {"kind": "spans"}}
    run = write_pairs_run(tmp_path / "run", T5, tokenizer, tokenizer, tokenizer={"file": "x"}, **pretrained)
    folder, infiller, texts = export(run, "hf", tmp_path / "hf"), load_infiller(run, "cpu"), raw_texts(300, seed=9)
    wanted = [[*tokenizer.encode(text), tokenizer.eos] for text in LINES]
    assert their_ids(folder, [f" {text}\n" for text in LINES]) == wanted
    assert_same(
        texts,
        [[*infiller.encode(f"[MASK] {text}")[0]] for text in texts],
        their_ids(folder, [f"<extra_id_0> {text}" for text in texts]),
    )
    spaced = " The [MASK]\tfox  [MASK]  over\n"
    theirs = spaced.replace("[MASK]", "<extra_id_0>", 1).replace("[MASK]", "<extra_id_1>")
    assert their_ids(folder, [theirs]) == [infiller.encode(spaced)[0]]
