"""Imports point one way, the rooms for text do without torch, and nothing beyond the core is needed to import qkv."""

import ast
import importlib.util
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import qkv

ROOT = Path(qkv.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))

ROOMS = "base text data parts models objectives decoding training lens vectors report"
MAY_IMPORT = {
    "base": "",
    "text": "base",
    "data": "base text",
    "parts": "base",
    "models": "base parts",
    "objectives": "base text data parts",
    "decoding": "base parts",
    "training": "base data",
    "lens": "base text parts decoding vectors",
    "vectors": "base text data",
    "report": "base text training",
    "recipes": ROOMS,
    "folder": f"{ROOMS} recipes",
    "interop": f"{ROOMS} recipes folder",
    "inference": f"{ROOMS} recipes folder interop",
    "jobs": f"{ROOMS} recipes folder interop inference",
    "bench": f"{ROOMS} recipes folder interop inference jobs",
    "serving": f"{ROOMS} recipes folder interop inference",
    "distributed": f"{ROOMS} recipes folder interop inference jobs",
    "claims": f"{ROOMS} recipes folder interop inference jobs distributed",
}
SERVING = {"fastapi", "starlette", "uvicorn", "h11", "prometheus_client"}  # packages that a service is made of
ABOVE_ALL = {"__init__", "__main__", "cli"}  # these may import everything

IMPORT_TEXT = """
import importlib, pkgutil, qkv.text
for found in pkgutil.walk_packages(qkv.text.__path__, "qkv.text."):
    importlib.import_module(found.name)
"""


def room_of(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imported(path: Path, tree: ast.AST) -> Iterator[str]:
    """Full names of all modules that are imported anywhere inside the tree, relative ones resolved."""
    package = ".".join(("qkv", *path.relative_to(ROOT).parts[:-1]))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            name = importlib.util.resolve_name("." * node.level + (node.module or ""), package)
            # `from qkv import data` imports a room by its alias.
            yield from (f"qkv.{alias.name}" for alias in node.names) if name == "qkv" else [name]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_one_way(path: Path) -> None:
    here = room_of(path)
    if here in ABOVE_ALL:
        return
    assert here in MAY_IMPORT, f"{here} is a new room: say here and in docs/architecture.md what it may import"
    names = imported(path, ast.parse(path.read_text()))
    rooms = {name.split(".")[1] for name in names if name.startswith("qkv.")}
    strangers = rooms - {here} - set(MAY_IMPORT[here].split())
    assert not strangers, f"{path}: {here} may not import {strangers}"


def test_the_rule_sees_every_way_to_import() -> None:
    inside = "def f():\n    from qkv.text.check import check"
    code = f"import qkv.data.order\nfrom qkv import lens\nfrom ..parts import masks\n{inside}"
    found = set(imported(ROOT / "base" / "new.py", ast.parse(code)))
    assert found == {"qkv.data.order", "qkv.lens", "qkv.parts", "qkv.text.check"}


def modules_after(code: str) -> set[str]:
    """What a fresh interpreter has imported after running the code."""
    command = [sys.executable, "-c", f"{code}\nimport sys; print(*sys.modules)"]
    return set(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())


def test_text_does_without_torch() -> None:
    modules = modules_after(IMPORT_TEXT)
    assert {f"qkv.text.{path.stem}" for path in (ROOT / "text").glob("[!_]*.py")} <= modules
    assert "torch" not in modules


def test_importing_qkv_does_not_wait_for_torch() -> None:
    modules = modules_after("import qkv")
    assert "qkv" in modules
    assert "torch" not in modules


def test_only_the_core_is_imported_at_the_top_of_a_module() -> None:
    project = tomllib.loads((ROOT.parents[1] / "pyproject.toml").read_text())["project"]
    core = {re.split(r"\W", needed)[0].lower() for needed in project["dependencies"]}
    core = {"yaml" if name == "pyyaml" else name for name in core}
    for path in FILES:
        top = ast.parse(path.read_text())
        top.body = [node for node in top.body if isinstance(node, ast.Import | ast.ImportFrom)]
        names = {name.split(".")[0] for name in imported(path, top)}
        # torch for a GPU brings Triton along, and parts/kernels/__init__.py imports its kernels only where that is there; numba
        # is built on llvmlite.
        known = core | {"triton", "llvmlite"} if path.parent.name == "kernels" else core
        # Nothing imports the service but its own verb, when it is used.
        known = known | SERVING if room_of(path) == "serving" else known
        strangers = names - known - sys.stdlib_module_names - {"qkv"}
        assert not strangers, f"{path}: {strangers} is not a core dependency; import it where it is used"
