"""Modules bundled into one script do what they do as modules."""

import shutil
import subprocess
from pathlib import Path

import pytest

from qkv.lens.bundle import bundle
from qkv.lens.page import VIEWER

NODE = pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
FILES = {
    "entry.js": 'import { twice } from "./sums.js";\nexport { one } from "./one.js";\n\nexport const four = twice(2);\n',
    "sums.js": 'import {\n  one,\n} from "./one.js";\n\nconst two = one + one;\nexport const twice = (n) => two * n;\n',
    "one.js": "export const one = 1;\n",
}


def write(folder: Path, changes: dict[str, str] | None = None) -> Path:
    for name, text in {**FILES, **(changes or {})}.items():
        (folder / name).write_text(text, encoding="utf-8")
    return folder / "entry.js"


@NODE
def test_a_bundle_computes_what_its_modules_compute(tmp_path: Path) -> None:
    script = "const window = {};\n" + bundle(write(tmp_path), "Sums") + "console.log(JSON.stringify(window.Sums));"
    found = subprocess.run(["node", "-"], input=script, capture_output=True, text=True, check=True)
    assert found.stdout.strip() == '{"four":4,"one":1}'


def test_what_is_not_bundled_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"sums\.js has an import or an export of a form that is not bundled"):
        bundle(write(tmp_path, {"sums.js": 'import "./one.js";\nexport const twice = 2;\n'}), "Sums")
    with pytest.raises(ValueError, match=r"sums\.js imports itself"):
        bundle(write(tmp_path, {"one.js": 'import { twice } from "./sums.js";\nexport const one = 1;\n'}), "Sums")


@NODE
def test_the_viewer_is_bundled(tmp_path: Path) -> None:
    script = tmp_path / "viewer.js"
    script.write_text(bundle(VIEWER / "viewer.js", "QkvViewer"), encoding="utf-8")
    assert subprocess.run(["node", "--check", str(script)], check=True).returncode == 0
