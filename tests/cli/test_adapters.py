"""Adapters at the command line: train, translate, evaluate, merge; mistakes are one line."""

import json
from pathlib import Path

from workbench import Commands


def test_from_training_to_a_merged_run(commands: Commands, recipe: Path, run: Path, other: Path, tmp_path: Path) -> None:
    data = recipe.parent
    adapter = tmp_path / "adapter"
    keys = {"start": run, "model.adapter": "{rank: 4}", "data.train": data / "train.tsv", "data.dev": data / "dev.tsv",
            "data.test": data / "test.tsv", "training.steps": 20, "training.device": "cpu", "metrics": "chrf"}  # fmt: skip
    settings = [word for key, value in keys.items() for word in ("--set", f"{key}={value}")]
    done = commands.run("train", "adapt", *settings, "--out", adapter)
    assert done.code == 0, done.err
    assert (adapter / "model.safetensors").stat().st_size < (run / "model.safetensors").stat().st_size / 2
    text = b"sun rain\nold tree\n"
    over_base = commands.run("translate", run, "--adapter", adapter, stdin=text)
    assert over_base.code == 0 and len(over_base.out.splitlines()) == 2, over_base.err
    assert commands.run("translate", adapter, stdin=text).out == over_base.out
    merged = commands.run("merge", adapter, "--out", tmp_path / "merged")
    assert merged.code == 0 and "merged: a complete run" in merged.out, merged.err
    assert commands.run("translate", tmp_path / "merged", stdin=text).out == over_base.out
    scored = commands.run("evaluate", adapter, "--json", "--metrics", "chrf")
    trained = json.loads((adapter / "result.json").read_text())
    assert json.loads(scored.out)["scores"] == trained["scores"], scored.err
    assert "is an adapter of another model than" in commands.run("translate", other, "--adapter", adapter).complaint()
    assert "exists already" in commands.run("merge", adapter, "--out", tmp_path / "merged").complaint()
    assert "not an adapter" in commands.run("merge", run, "--out", tmp_path / "new").complaint()
