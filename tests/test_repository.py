"""Workflows, templates and the citation file: what they name exists, so that the first release does not find out."""

import re
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

import qkv
from qkv.cli.app import app

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
TEMPLATES = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))


def read(path: Path) -> dict[Any, Any]:
    """Return a workflow; YAML 1.1 reads its key `on` as true."""
    found: dict[Any, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return found


def steps(path: Path) -> list[dict[str, Any]]:
    return [step for job in read(path)["jobs"].values() for step in job["steps"]]


def commands(path: Path) -> list[str]:
    return [line for step in steps(path) for line in step.get("run", "").splitlines()]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_what_a_workflow_calls_exists(path: Path) -> None:
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    verbs = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    for line in commands(path):
        assert all((ROOT / name).is_file() for name in re.findall(r"(?:^|\s)(\.ci/\S+)", line)), line
        assert all((ROOT / name).exists() for name in re.findall(r"\s(tests/\S+)", line)), line
        assert all(name in targets for name in re.findall(r"^make (\S+)", line)), line
        assert all(name in verbs for name in re.findall(r"^qkv (\S+)", line)), line
        assert all((ROOT / name).is_file() for name in re.findall(r"-c (\S+\.txt)", line)), line


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_may_read_alone_and_names_versions(path: Path) -> None:
    assert read(path)["permissions"] == {"contents": "read"}
    assert all(re.fullmatch(r"[\w.-]+/[\w.-]+@(v\d+|release/v\d+)", step["uses"]) for step in steps(path) if "uses" in step)
    assert all("run" in step or "uses" in step for step in steps(path))


def test_a_release_is_checked_before_it_is_published() -> None:
    release = read(ROOT / ".github" / "workflows" / "release.yml")
    assert release[True] == {"push": {"tags": ["v*"]}}
    assert release["jobs"]["publish"]["needs"] == "build" and release["jobs"]["publish"]["permissions"] == {"id-token": "write"}
    assert {".ci/run", "DIST=dist .ci/package", "make sbom"} <= set(commands(ROOT / ".github" / "workflows" / "release.yml"))
    assert not re.search(r"password|secrets\.", (ROOT / ".github" / "workflows" / "release.yml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_a_template_for_issues_has_what_the_form_needs(path: Path) -> None:
    form = read(path)
    assert form["name"] and form["description"]
    ids = [field["id"] for field in form["body"]]
    assert len(ids) == len(set(ids)) and all(field["attributes"]["label"] for field in form["body"])


def test_the_citation_is_of_this_version() -> None:
    citation = read(ROOT / "CITATION.cff")
    assert citation["cff-version"] == "1.2.0" and citation["license"] == "Apache-2.0"
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert f"## [{citation['version']}] - {citation['date-released']}" in changelog
    assert citation["version"] == qkv.__version__ or ".dev" in qkv.__version__
