"""Imported Marian checkpoints and exported Transformers give the same translations, tokenizers included."""

import json
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

from encoder_runs import LINES, own_tokenizer
from marian_folders import CODE, corpus, transformers, write_checkpoint
from qkv.base.config import dump_yaml
from qkv.base.errors import CheckpointError, ConfigError, QkvWarning
from qkv.data.corpora import Tokenizers
from qkv.folder.run import WEIGHTS, save_config, save_tokenizers
from qkv.inference.load import load_translator
from qkv.interop.export import export
from qkv.interop.huggingface.runs import import_huggingface
from qkv.jobs.prepared_pairs import prepare
from qkv.jobs.train import train
from qkv.jobs.translation import new_translator
from qkv.recipes import RECIPE, TranslationRecipe, parse_recipe
from qkv.text.tokenizer import Tokenizer
from qkv.training.checkpoints import named_weights, save_weights
from qkv.training.progress import Progress

TEXTS = [*corpus(0)[:3], "ein Größe"]
GREEDY: dict[str, Any] = {"beam": 1, "max_ratio": 0, "max_extra": 12}
BEAM: dict[str, Any] = {**GREEDY, "beam": 3, "length_penalty": 0.0}


def their_texts(folder: Path, texts: list[str], subfolder: str = "", beams: int = 1) -> list[str]:
    """Return transformers' translations; a beam ranks by log-probability."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about an optional package
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        target = transformers.AutoTokenizer.from_pretrained(folder, subfolder=subfolder)
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    never = {"suppress_tokens": [model.config.pad_token_id, model.config.decoder_start_token_id]}
    way = {"max_new_tokens": 12, "do_sample": False, "num_beams": beams, **never}
    way |= {"length_penalty": 0.0, "early_stopping": "never"} if beams > 1 else {}
    made = [model.generate(**tokenizer(text, return_tensors="pt"), **way) for text in texts]
    return [target.decode(ids[0], skip_special_tokens=True) for ids in made]


def our_texts(run: Path, texts: list[str], **options: Any) -> list[str]:
    found = load_translator(run, "cpu").translate(texts, precision="float32", **options)
    return [" ".join(text.replace("<unk>", "").split()) for text in found]


def spaced(texts: list[str]) -> list[str]:
    return [" ".join(text.split()) for text in texts]


@pytest.mark.parametrize(
    "options",
    [{}, {"lacking": 9}, {"same": True, "more": 3}, {"apart": True, "lacking": 5}],
    ids=["one vocabulary", "pieces without numbers", "one tokenizer", "two vocabularies"],
)
def test_a_checkpoint_of_theirs_as_a_run_and_back(options: dict[str, Any], tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "hf", **options)
    run = import_huggingface(folder, tmp_path / "run")
    assert isinstance(run.recipe, TranslationRecipe) and run.recipe.source_format.eos
    assert run.recipe.decoding.beam == 3 and run.recipe.data.languages == ("en", "de")
    wanted = spaced(their_texts(folder, TEXTS))
    assert our_texts(tmp_path / "run", TEXTS, **GREEDY) == wanted
    assert len({*wanted}) > 2 and all(map(len, wanted))
    assert our_texts(tmp_path / "run", TEXTS, **BEAM) == spaced(their_texts(folder, TEXTS, beams=3))
    export(tmp_path / "run", "hf", tmp_path / "back")
    subfolder = "" if run.tokenizers.shared else "target"
    assert spaced(their_texts(tmp_path / "back", TEXTS, subfolder)) == wanted
    import_huggingface(tmp_path / "back", tmp_path / "again")
    assert our_texts(tmp_path / "again", TEXTS, **GREEDY) == wanted


@pytest.mark.parametrize("options", [{"lacking": 9}, {"apart": True}], ids=["one vocabulary", "two vocabularies"])
def test_a_checkpoint_of_theirs_adapted_here_and_given_back(
    options: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QKV_CACHE", str(tmp_path / "cache"))
    folder = write_checkpoint(tmp_path / "hf", **options)
    run = import_huggingface(folder, tmp_path / "run")
    pairs = "".join(f"{source}\t{target}\n" for source, target in zip(corpus(0)[:60], corpus(1)[:60], strict=True))
    (tmp_path / "pairs.tsv").write_text(pairs)
    given = {"start": str(tmp_path / "run"), "data.train": str(tmp_path / "pairs.tsv"), "data.dev": str(tmp_path / "pairs.tsv")}
    given |= {"training.steps": 30, "training.learning_rate": 0.01, "training.device": "cpu", "training.precision": "float32"}
    train("adapt", tmp_path / "adapted", settings={**given, "score_dev": 2})
    wanted = our_texts(tmp_path / "adapted", TEXTS, **GREEDY)
    assert any(wanted) and wanted != our_texts(tmp_path / "run", TEXTS, **GREEDY)  # it has learned something else
    export(tmp_path / "adapted", "hf", tmp_path / "back")
    subfolder = "" if run.tokenizers.shared else "target"
    assert spaced(their_texts(tmp_path / "back", TEXTS, subfolder)) == wanted
    assert spaced(their_texts(tmp_path / "back", TEXTS, subfolder, beams=3)) == our_texts(tmp_path / "adapted", TEXTS, **BEAM)


def test_codes_tell_the_language(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "hf", codes=True)
    import_huggingface(folder, tmp_path / "run")
    texts = [f"{CODE} {text}" for text in TEXTS]
    assert our_texts(tmp_path / "run", texts, **GREEDY) == spaced(their_texts(folder, texts))
    translator = load_translator(tmp_path / "run", "cpu")
    parts = [part.ids for part in translator.segmenter.cut(f"{CODE} " + " ".join(corpus(0)[:9]))]
    assert len(parts) > 1 and all(ids[0] == parts[0][0] for ids in parts)  # every piece of a long text
    with pytest.warns(QkvWarning, match=f"1 of 1 texts have no task prefix.*begin them with one of '{CODE}'"):
        translator.translate(TEXTS[:1])
    export(tmp_path / "run", "hf", tmp_path / "back")
    again = import_huggingface(tmp_path / "back", tmp_path / "again")
    assert again.recipe.data.prefixes == (CODE,)


def write_own(folder: Path, tied: str = "all", closed: bool = False, **options: Any) -> Path:
    """Write the run of a Transformer with random weights and sharp distributions."""
    source = own_tokenizer("bpe")
    target = source if tied == "all" else own_tokenizer("unigram")
    files = {"shared": {"file": "tokenizer.json"}} if tied == "all" else {side: {"file": "x"} for side in ("source", "target")}
    shape = {"width": 24, "feedforward": 40, "heads": 3, "encoder_layers": 1, "decoder_layers": 2, "tied": tied, **options}
    values: dict[str, Any] = {
        "data": {"train": "x", "dev": "x", "max_tokens": 40, "source_eos": closed},
        "tokenizer": files, "model": shape, "training": {"steps": 1}, "decoding": {"beam": 1},
    }  # fmt: skip
    recipe, tokenizers = parse_recipe(values, "here"), Tokenizers(source, target)
    assert isinstance(recipe, TranslationRecipe)
    model = new_translator(recipe, tokenizers)
    torch.manual_seed(2)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.normal_(1.0 if "norm.weight" in name else 0.0, 0.05 if "norm.bias" in name else 0.6)
    folder.mkdir()
    save_tokenizers(folder, tokenizers)
    save_config(folder, recipe, tokenizers, [])
    (folder / RECIPE).write_text(dump_yaml(recipe), encoding="utf-8")
    save_weights(folder / WEIGHTS, named_weights(model))
    return folder


@pytest.mark.parametrize(
    ("tied", "closed", "options"),
    [
        ("all", False, {"activation": "relu"}),
        ("target", True, {"activation": "gelu", "output_bias": True}),
        ("none", False, {"activation": "silu"}),
    ],
)
def test_one_of_ours_in_transformers_and_back(tied: str, closed: bool, options: dict[str, Any], tmp_path: Path) -> None:
    run = write_own(tmp_path / "run", tied, closed, **options)
    export(run, "hf", tmp_path / "hf")
    wanted = our_texts(run, LINES[:3], **GREEDY)
    assert len({*wanted}) > 1
    found = their_texts(tmp_path / "hf", LINES[:3], "" if tied == "all" else "target")
    assert spaced(found) == wanted
    again = import_huggingface(tmp_path / "hf", tmp_path / "again")
    assert again.recipe.data.source_eos == closed  # type: ignore[union-attr]
    assert our_texts(tmp_path / "again", LINES[:3], **GREEDY) == wanted


def test_trained_here_with_ends_after_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QKV_CACHE", str(tmp_path / "cache"))
    pairs = "".join(f"{source}\t{target}\n" for source, target in zip(corpus(0)[:60], corpus(1)[:60], strict=True))
    (tmp_path / "pairs.tsv").write_text(pairs)
    values: dict[str, Any] = {
        "data": {"train": str(tmp_path / "pairs.tsv"), "dev": str(tmp_path / "pairs.tsv"), "source_eos": True},
        "tokenizer": {"source": {"vocab": 80}, "target": {"vocab": 90, "kind": "unigram"}},
        "model": {
            "width": 16, "feedforward": 24, "heads": 2, "encoder_layers": 1, "decoder_layers": 1, "tied": "target",
            "activation": "silu", "output_bias": True,
        },
        "training": {"steps": 3, "batch_tokens": 256, "device": "cpu", "precision": "float32"}, "score_dev": 2,
    }  # fmt: skip
    recipe = parse_recipe(values, "here")
    train(recipe, tmp_path / "run")
    assert isinstance(recipe, TranslationRecipe)
    data = prepare(recipe, tmp_path / "run", Progress())
    assert (data.dev_pairs.source[0][-1], data.train[0].source[0][-1]) == (Tokenizer.eos, Tokenizer.eos)
    assert load_translator(tmp_path / "run", "cpu").segmenter.cut(TEXTS[0])[0].ids[-1] == Tokenizer.eos
    export(tmp_path / "run", "hf", tmp_path / "hf")
    wanted = our_texts(tmp_path / "run", TEXTS, **GREEDY)
    assert any(wanted) and spaced(their_texts(tmp_path / "hf", TEXTS, "target")) == wanted


def test_one_table_for_two_vocabularies_is_refused(tmp_path: Path) -> None:
    values: dict[str, Any] = {
        "data": {"train": "x", "dev": "x"}, "tokenizer": {side: {"file": "x"} for side in ("source", "target")},
        "model": {"tied": "all"}, "training": {"steps": 1},
    }  # fmt: skip
    recipe, tokenizers = parse_recipe(values, "here"), Tokenizers(own_tokenizer("bpe"), own_tokenizer("unigram"))
    assert isinstance(recipe, TranslationRecipe)
    with pytest.raises(ConfigError, match=r"model\.tied=all needs one vocabulary, and these two tokenizers have two"):
        new_translator(recipe, tokenizers)


def test_what_cannot_be_written_or_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"run: transformers' marian has no model\.norm=pre, only post; use ctranslate2 or onnx or qkv itself"
    ):
        export(write_own(tmp_path / "run", norm="pre"), "hf", tmp_path / "hf")
    assert not (tmp_path / "hf").exists()
    folder = write_checkpoint(tmp_path / "theirs")
    import_huggingface(folder, tmp_path / "imported")
    with pytest.raises(ConfigError, match="onnx cannot use the tokenizer of an imported translator; use hf"):
        export(tmp_path / "imported", "onnx", tmp_path / "onnx")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"decoder_start_token_id": -1}))
    with pytest.raises(CheckpointError, match=r"theirs: decoder_start_token_id=-1 in config\.json is not one of the \d+ tokens"):
        import_huggingface(folder, tmp_path / "new")
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "source.spm").unlink()
    with pytest.raises(CheckpointError, match=r"no source\.spm there, and no tokenizer\.json; save the tokenizer beside"):
        import_huggingface(folder, tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_an_adapter_of_an_imported_model_translates_alike_in_transformers(tmp_path: Path) -> None:
    import_huggingface(write_checkpoint(tmp_path / "theirs"), tmp_path / "base")
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("".join(f"{source}\t{target}\n" for source, target in zip(corpus(0)[:9], corpus(1)[:9], strict=True)))
    settings = {"start": tmp_path / "base", "model.adapter.rank": 2, "data.train": pairs, "data.dev": pairs}
    training = {"steps": 5, "learning_rate": 0.05, "warmup": 1, "precision": "float32"}
    train("adapt", tmp_path / "adapter", settings={**settings, "training": training})
    wanted = our_texts(tmp_path / "adapter", TEXTS, **GREEDY)
    assert wanted != our_texts(tmp_path / "base", TEXTS, **GREEDY)
    export(tmp_path / "adapter", "hf", tmp_path / "hf")
    assert spaced(their_texts(tmp_path / "hf", TEXTS)) == wanted
