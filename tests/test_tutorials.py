"""Tutorials run: the code of each notebook, in order, at tiny size."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

TUTORIALS = Path(__file__).parents[1] / "docs" / "tutorials"
NOTEBOOKS = sorted(TUTORIALS.glob("*.ipynb"))


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_code_of_a_tutorial_runs(notebook: Path, tmp_path: Path) -> None:
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    code = "\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    assert "QKV_TINY" in code, "a tutorial must say what is smaller in tests"
    script = tmp_path / "tutorial.py"
    script.write_text(code, encoding="utf-8")
    environment = {**os.environ, "QKV_TINY": "1", "MPLBACKEND": "Agg"}
    run = subprocess.run([sys.executable, str(script)], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr[-2000:]


def test_notebooks_hold_the_outputs_of_a_full_run() -> None:
    """The site shows them; code that prints or draws must have an output."""
    for notebook in NOTEBOOKS:
        for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]:
            if cell["cell_type"] == "code" and any(word in "".join(cell["source"]) for word in ("print(", "plt.show()")):
                assert cell["outputs"], f"{notebook.name}: run it, and save it with its outputs"
