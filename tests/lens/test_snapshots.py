"""A text through training: the same texts at each snapshot, its own output, maps within a limit, the loss beside them."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

import qkv
from inspected_models import TRANSLATORS, generator, reader, tokenizer
from qkv.base.errors import ConfigError, DataError
from qkv.base.snapshots import snapshot_path
from qkv.inference.attribute import attribute
from qkv.lens import snapshots
from qkv.lens.inspectors import AttentionMap
from qkv.lens.snapshots import choose_maps, loss_around, training_curve
from translator_runs import write_pairs_run

LOG = [{"step": 2, "loss": 3.0, "other": 1}, {"step": 2, "dev_loss": 2.5, "dev_bleu": 1.0}, {"step": 5, "loss": 2.0}]


def with_snapshots(run: Path) -> Path:
    """Add snapshots to a run: other weights at step 1, its own at step 4; and a log."""
    weights = load_file(run / "model.safetensors")
    (run / "snapshots").mkdir()
    torch.manual_seed(3)
    save_file({name: torch.randn_like(t).half() for name, t in weights.items()}, snapshot_path(run, 1))
    save_file({name: t.half() for name, t in weights.items()}, snapshot_path(run, 4))
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in LOG))
    return run


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, str]]:
    folder = tmp_path_factory.mktemp("runs")
    gpt, bert = generator(folder), reader("bert", folder)
    pairs = write_pairs_run(folder / "pairs", TRANSLATORS["transformer"], tokenizer(), tokenizer(), decoding={"max_extra": 3})
    return {
        "translator": (with_snapshots(pairs), "The quick brown fox."),
        "generator": (with_snapshots(gpt.folder), "The quick brown"),
        "encoder": (with_snapshots(bert.folder), "Paris is the [MASK] of France."),
    }


@pytest.mark.parametrize("kind", ["translator", "generator", "encoder"])
def test_the_last_snapshot_is_the_model_itself_in_half_precision(kind: str, runs: dict[str, tuple[Path, str]]) -> None:
    run, text = runs[kind]
    seen, final = qkv.look_through_training(run, text), qkv.look(run, text)
    assert [one.step for one in seen.snapshots] == [1, 4] and [one.loss for one in seen.snapshots] == [3.0, 2.0]
    first, last = seen.snapshots
    fixed = qkv.look(run, text, None if kind == "encoder" else final.output)
    assert [one.name for one in last.maps] == [one.name for one in fixed.maps] == [one.name for one in first.maps]
    for name, one, other, wrong in zip(fixed.maps, last.maps, fixed.maps, first.maps, strict=True):
        torch.testing.assert_close(one.weights, other.weights, rtol=0.02, atol=2e-3, msg=name.name)
        assert one.weights.shape == wrong.weights.shape  # the same texts are read
    assert any(
        not torch.allclose(one.weights, other.weights, atol=0.05) for one, other in zip(first.maps, last.maps, strict=True)
    )
    assert last.output == final.output
    loaded: Any = qkv.load(run, step=1)
    assert first.output == loaded.inspect(text).output


def test_probabilities_and_predictions(runs: dict[str, tuple[Path, str]]) -> None:
    run, text = runs["translator"]
    last = qkv.look_through_training(run, text).snapshots[-1]
    inspector: Any = qkv.load(run, step=4)
    inspector = inspector.inspect(text, qkv.look(run, text).output)
    with torch.no_grad():
        wanted = [
            float(row.softmax(-1)[token]) for row, token in zip(inspector.logits(), inspector.texts["target"].ids, strict=True)
        ]
    assert last.probabilities is not None and last.probabilities.tolist() == pytest.approx(wanted, abs=1e-5)
    run, text = runs["generator"]
    gpt = qkv.look_through_training(run, text).json()["snapshots"][-1]
    assert gpt["probabilities"][0] is None and all(0 <= p <= 1 for p in gpt["probabilities"][1:])
    run, text = runs["encoder"]
    bert = qkv.look_through_training(run, text).snapshots[-1]
    encoder: Any = qkv.load(run, step=4)
    (filled,) = encoder.fill([text])[0]
    assert bert.predictions is not None and bert.probabilities is None
    assert [word for word, _ in bert.predictions[0]] == [one.word for one in filled]


def test_values_a_page_and_a_picture(runs: dict[str, tuple[Path, str]], tmp_path: Path) -> None:
    from qkv.lens.figures import draw_training

    run, text = runs["translator"]
    seen = qkv.look_through_training(qkv.load(run), text, part="cross", layer=1)
    values = json.loads(seen.save(tmp_path / "values.json").read_text())
    assert values == json.loads(json.dumps(seen.json())) and values["view"] == "training" and values["steps"] == [1, 4]
    assert values["losses"] == [[2, 3.0], [5, 2.0]] and values["scores"] == [{"step": 2, "dev_loss": 2.5, "dev_bleu": 1.0}]
    assert [one["name"] for one in values["snapshots"][0]["maps"]] == ["decoder.1.cross"]
    assert '"view":"training"' in seen.save(tmp_path / "page.html").read_text()
    draw_training(seen, tmp_path / "a.png", head=2)
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    assert "TrainingView(transformer: 'The quick brown fox .' at steps 1, 4" in repr(seen)
    with pytest.raises(ConfigError, match="it has 1 to 2"):
        draw_training(seen, tmp_path / "b.png", head=3)
    with pytest.raises(ConfigError, match="must end with"):
        seen.save("page.txt")


def test_maps_are_chosen_within_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    def one(name: str, part: str, layer: int) -> AttentionMap:
        return AttentionMap(name, part, layer, "source", "source", torch.zeros(2, 3, 3))

    maps = [one("e0", "encoder", 0), one("e1", "encoder", 1), one("c0", "cross", 0), one("c1", "cross", 1)]
    for limit, wanted in ((4 * 18 * 5, ["e0", "e1", "c0", "c1"]), (2 * 18 * 5, ["c0", "c1"]), (18 * 5, ["c1"])):
        monkeypatch.setattr(snapshots, "MAX_WEIGHTS", limit)
        assert choose_maps(maps, 5) == wanted
    assert choose_maps(maps, 5, "encoder", 0) == ["e0"] and choose_maps(maps, 5, "encoder") == ["e1"]
    monkeypatch.setattr(snapshots, "MAX_WEIGHTS", 18 * 5 - 1)
    with pytest.raises(DataError, match="90 weights in 5 snapshots, and 89 can be shown"):
        choose_maps(maps, 5)
    with pytest.raises(ConfigError, match="no part 'decoder' in this model; it has cross, encoder"):
        choose_maps(maps, 5, "decoder")
    with pytest.raises(ConfigError, match="no layer 2 in this model; it has 0, 1"):
        choose_maps(maps, 5, layer=2)


def test_the_curve_has_few_points_and_ends_with_the_last() -> None:
    losses, _ = training_curve([{"step": n, "loss": float(n)} for n in range(1, 1001)])
    assert len(losses) <= 301 and losses[0] == (1, 1.0) and losses[-1] == (1000, 1000.0)
    assert loss_around(losses, 0) == 1.0 and loss_around(losses, 5000) == 1000.0 and loss_around([], 3) is None


def test_a_run_without_snapshots_is_refused(tmp_path: Path) -> None:
    encoder = reader("bert", tmp_path)
    with pytest.raises(ConfigError, match="has no snapshots of its training; train a run with"):
        qkv.look_through_training(encoder, "a fox")
    with pytest.raises(ConfigError, match="has no snapshots of its training"):
        qkv.load(encoder.folder, step=3)


def test_attributions_as_values_and_pictures(runs: dict[str, tuple[Path, str]], tmp_path: Path) -> None:
    run, text = runs["encoder"]
    seen = attribute(run, text, method="occlusion")
    values = json.loads(seen.save(tmp_path / "values.json").read_text())
    assert values["replaced_by"] == "[MASK]" and values["attribution"]["method"] == "occlusion"
    assert sum(one["value"] for one in values["by_word"]) == pytest.approx(sum(values["attribution"]["values"]), abs=2e-3)
    assert [one["word"] for one in values["by_word"]][1:3] == ["Paris", "is"]
    assert seen.save(tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    assert repr(seen).startswith("AttributionView(occlusion, the prediction")
    run, text = runs["translator"]
    values = attribute(qkv.load(run), text, "Le café", "integrated", word=1).json()
    assert values["attribution"]["of"] == "“café”" and values["attribution"]["completeness"]["complete"]
    assert [values["target_words"][position] for position in values["attribution"]["positions"]] == [1] * len(
        values["attribution"]["positions"]
    )
    for wrong in ({"method": "shap"}, {"text": " "}, {"run": 3}):
        with pytest.raises((ConfigError, DataError)):
            attribute(**{"run": run, "text": text, **wrong})
