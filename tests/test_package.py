"""The package: one version, one address, and metadata that package indexes accept."""

import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

import qkv

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
ADDRESS = PROJECT["project"]["urls"]["Repository"]


def test_the_version_stands_in_the_package_alone() -> None:
    assert "version" not in PROJECT["project"] and PROJECT["project"]["dynamic"] == ["version"]
    assert PROJECT["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "qkv.__version__"}
    line = next(line for line in (ROOT / "src/qkv/__init__.py").read_text().splitlines() if line.startswith("__version__"))
    assert line == f'__version__ = "{qkv.__version__}"'  # a plain text, which setuptools reads without an import
    assert re.fullmatch(r"\d+\.\d+\.\d+((a|b|rc)\d+)?(\.dev\d+)?", qkv.__version__)


def test_the_changelog_has_the_version() -> None:
    released = qkv.__version__.partition(".dev")[0]
    assert f"\n## [{released}] - " in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8") or released != qkv.__version__


def test_the_version_is_printed() -> None:
    code = "import sys; from qkv.cli import main; sys.argv = ['qkv', '--version']; main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"qkv {qkv.__version__}\n", "")


def test_every_address_of_the_project_is_that_of_pyproject() -> None:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("not a checkout of git")
    texts = {".md", ".cff", ".yml", ".yaml", ".py", ".toml"}
    files = [ROOT / name for name in listed.stdout.split("\0") if Path(name).suffix in texts]
    pattern = r"(?:github\.com|gitlab\.com)/qkv[\w-]*/[\w-]+"
    found = {match for file in files if file.exists() for match in re.findall(pattern, file.read_text(encoding="utf-8"))}
    assert {f"https://{match}" for match in found} == {ADDRESS}


def test_the_wheel_has_every_file_of_the_package(tmp_path: Path) -> None:
    pytest.importorskip("setuptools", minversion="77", reason="pyproject.toml asks for setuptools 77")
    listed = subprocess.run(["git", "ls-files", "-z", "src/qkv"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("not a checkout of git")
    wanted = {name for name in listed.stdout.split("\0") if name and (ROOT / name).exists()}
    for name in [*wanted, "pyproject.toml", "README.md", "LICENSE"]:
        target = tmp_path / "source" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, target)
    code = f"from setuptools import build_meta; build_meta.build_wheel({str(tmp_path)!r})"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path / "source", capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.name == f"qkv-{qkv.__version__}-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as file:
        found = {name for name in file.namelist() if not name.startswith(f"qkv-{qkv.__version__}.dist-info/")}
    assert found == {name.removeprefix("src/") for name in wanted}
