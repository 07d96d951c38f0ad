"""Runs of models with sparse or Linformer attention: trained, resumed, used, and the combinations that are refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import qkv
from encoder_recipes import finetuning_values, pretraining_values, write_examples, write_text
from qkv.base.errors import ConfigError
from qkv.inference.text_encoder import TextEncoder, load_text_encoder
from qkv.interop.export import export, export_to_cache
from qkv.jobs.train import train
from qkv.lens.capture import capture
from qkv.parts.sparse import BlockSparseMask
from qkv.recipes import parse_recipe
from qkv.text.examples import ExamplesConfig, read_examples
from workbench import WORDS, metrics_without_times, recipe_values, weights, write_corpus

KINDS: dict[str, dict[str, Any]] = {
    "window": {"kind": "window", "radius": 4},
    "bigbird": {"kind": "bigbird", "radius": 2, "global_tokens": 1, "random_blocks": 1, "block_size": 16},
    "linformer": {"kind": "linformer", "projected_length": 8},
}
# A warm-up within 30 % of the steps, so that learning rates do not depend on their number.
FEW = {"steps": 4, "save_every": 2, "validate_every": 4, "schedule": "inverse-sqrt", "warmup": 1, "batch_tokens": 128}
every_kind = pytest.mark.parametrize("kind", KINDS)
pytestmark = pytest.mark.filterwarnings("ignore:.*the most that .* was trained on:qkv.base.errors.QkvWarning")


def trained(values: dict[str, Any], attention: Any, run: Path, **training: Any) -> Path:
    """Train a recipe with other attention and other training settings; return the run."""
    values = {**values, "model": {**values["model"], "attention": attention}}
    values["training"] = {k: v for k, v in {**values["training"], **FEW, **training}.items() if k != "epochs"}
    return train(parse_recipe(values, "recipe"), run)


def losses(run: Path) -> list[float]:
    return [line["loss"] for line in metrics_without_times(run) if "loss" in line]


def finetuning(folder: Path, kind: str = "classification") -> dict[str, Any]:
    return finetuning_values(kind, write_examples(folder, kind, 40))


@every_kind
@pytest.mark.parametrize("objective", ["next", "order", "replaced", "ernie"])
def test_every_encoder_is_pretrained(tmp_path: Path, kind: str, objective: str) -> None:
    values = pretraining_values(objective, write_text(tmp_path / "text.txt", 30))
    if objective == "ernie":
        values["objective"] = {"kind": "ernie", "tasks": [{"task": "capital"}]}
    run = trained(values, KINDS[kind], tmp_path / "run")
    assert np.isfinite(losses(run)).all() and len(losses(run)) == 4
    assert np.isfinite(load_text_encoder(run, "cpu").embed(["The small bird grows.", "The ship."])).all()


@every_kind
@pytest.mark.parametrize("task", ["classification", "regression", "tagging", "answering"])
def test_every_task_is_fine_tuned(tmp_path: Path, kind: str, task: str) -> None:
    values = finetuning(tmp_path, task)
    reader: Any = qkv.load(trained(values, KINDS[kind], tmp_path / "run"), "cpu")
    examples = read_examples(reader.task.readers, ExamplesConfig(files=(values["data"]["dev"],)))
    assert len(reader.predict(examples)) == len(examples)
    assert all(np.isfinite(value) for value in reader.evaluate(examples).values())


@every_kind
def test_a_run_that_stops_and_goes_on_is_the_same(tmp_path: Path, kind: str) -> None:
    values = finetuning(tmp_path)
    # The end of a run is validated too: validations at every second step are the same for 6 and for 8 steps.
    whole = trained(values, KINDS[kind], tmp_path / "whole", steps=8, validate_every=2)
    trained(values, KINDS[kind], tmp_path / "parts", steps=6, validate_every=2, keep_checkpoints=True)
    parts = trained(values, KINDS[kind], tmp_path / "parts", steps=8, validate_every=2)
    assert losses(parts) == losses(whole) and weights(parts) == weights(whole)


@every_kind
def test_predictions_do_not_depend_on_the_batch(tmp_path: Path, kind: str) -> None:
    reader = load_text_encoder(trained(finetuning(tmp_path), KINDS[kind], tmp_path / "run"), "cpu")
    texts = ["The small bird grows.", "The old ship floats. The red rose grows. The salt burns.", "Bread."]
    together, apart = reader.predict(texts), [reader.predict([text])[0] for text in texts]
    assert [one.label for one in together] == [one.label for one in apart]
    assert [one.probability for one in together] == pytest.approx([one.probability for one in apart], abs=1e-6)


@every_kind
def test_a_translator(tmp_path: Path, kind: str) -> None:
    write_corpus(tmp_path, pairs=60)
    run = trained(recipe_values(tmp_path), KINDS[kind], tmp_path / "run")
    translator: Any = qkv.load(run, "cpu")
    assert np.isfinite(losses(run)).all() and len(translator.translate(["sun rain", "old bird sings"])) == 2
    says = rf"has no model\.attention={kind}, only full.*; use onnx or qkv itself$"
    for to, name in (("ctranslate2", "ctranslate2"), ("hf", "transformers' marian")):
        with pytest.raises(ConfigError, match=f"run: {name} {says}"):
            export(run, to, tmp_path / "out")
    with pytest.raises(ConfigError, match=f"run: ctranslate2 {says}"):
        export_to_cache(run, "ctranslate2", "float32")
    copy: Any = qkv.load(export(run, "onnx", tmp_path / "out"))
    lines = ["sun rain", "old bird sings", "", " ".join(WORDS * 3), " ".join(WORDS * 60)]  # the last one is translated in parts
    for options in ({"beam": 1}, {"beam": 4}):
        assert copy.translate(lines, **options) == translator.translate(lines, **options)


def test_it_is_not_written_for_transformers(tmp_path: Path) -> None:
    run = trained(finetuning(tmp_path), "window", tmp_path / "run")
    with pytest.raises(
        ConfigError, match=r"run: transformers' bert has no model\.attention=window, only full attention; use qkv itself$"
    ):
        export(run, "hf", tmp_path / "out")
    assert not (tmp_path / "out").exists()


@every_kind
def test_the_lens_looks_into_a_run(tmp_path: Path, kind: str) -> None:
    reader: TextEncoder = load_text_encoder(trained(finetuning(tmp_path), KINDS[kind], tmp_path / "run"), "cpu")
    with capture(reader.model) as seen:
        reader.embed(["The small bird grows in the small tree."])
    assert list(seen) == [f"encoder.layers.{number}.attention" for number in range(2)]
    assert all(shown.shape[-1] == (8 if kind == "linformer" else shown.shape[-2]) for shown in seen.values())


@every_kind
def test_long_texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """Texts have thousands of tokens; no matrix of all pairs is made."""
    monkeypatch.setattr(BlockSparseMask, "dense", None)
    for part, count in {"train": 6, "dev": 3}.items():
        texts = [("good " if number % 2 else "bad ") * (1300 if number % 3 else 5) for number in range(count)]
        lines = [f"{text.strip()}\t{text.split()[0]}\n" for text in texts]
        (tmp_path / f"{part}.tsv").write_text("text\tlabel\n" + "".join(lines))
    values = finetuning_values("classification", {part: str(tmp_path / f"{part}.tsv") for part in ("train", "dev")})
    values["data"]["length"] = values["model"]["max_positions"] = 4096
    values["tokenizer"] = {"kind": "characters", "vocab": 40}
    values["model"] = {**values["model"], "width": 8, "layers": 1}
    run = trained(values, kind, tmp_path / "run", steps=2, batch_tokens=4096)
    assert np.isfinite(losses(run)).all()
    (said,) = load_text_encoder(run, "cpu").predict(["good " * 700])
    assert said.label in ("good", "bad")


def test_what_was_trained_with_full_attention_is_read_through_a_window(tmp_path: Path) -> None:
    """Full and window attention have the same weights; Linformer has others."""
    begun = trained(pretraining_values("next", write_text(tmp_path / "text.txt", 30)), "full", tmp_path / "begun")
    values = {**finetuning(tmp_path), "start": str(begun)}
    values.pop("tokenizer", None)
    values["model"] = {"kind": "bert"}
    run = trained(values, KINDS["window"], tmp_path / "run")
    assert load_text_encoder(run, "cpu").run.network.config.attention.kind == "window" and np.isfinite(losses(run)).all()
    with pytest.raises(ConfigError, match=r"model\.attention .*: not what .* has"):
        trained(values, KINDS["linformer"], tmp_path / "other")


@pytest.mark.parametrize(("attention", "told"), [("window", True), (KINDS["window"], False), ("bigbird", True), ("full", False)])
def test_sparse_attention_that_shows_all_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], attention: Any, told: bool
) -> None:
    trained(finetuning(tmp_path), attention, tmp_path / "run")
    assert ("shows every position all of a text" in " ".join(capsys.readouterr().err.split())) == told
