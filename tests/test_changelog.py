"""CHANGELOG.md has the form of Keep a Changelog, so that people and release tools find what changed."""

import re
from itertools import pairwise
from pathlib import Path

import pytest

TEXT = (Path(__file__).parents[1] / "CHANGELOG.md").read_text(encoding="utf-8")
SECTIONS = ["Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"]
VERSIONS = dict(re.findall(r"^## ([^\n]+)\n(.*?)(?=^## |^\[Unreleased\]:|\Z)", TEXT, re.MULTILINE | re.DOTALL))


def faults(version: str, text: str) -> list[str]:
    """Return what is wrong with the entries of a version."""
    names = re.findall(r"^### (.+)$", text, re.MULTILINE)
    found = [f"unknown section {name}" for name in names if name not in SECTIONS]
    if not found and names != sorted(set(names), key=SECTIONS.index):
        found.append(f"sections are to stand once and in the order {', '.join(SECTIONS)}; got {', '.join(names)}")
    if re.search(r"^- ", text.partition("### ")[0], re.MULTILINE):
        found.append("an entry stands above the first section")
    bodies = re.split(r"^### .*\n", text, flags=re.MULTILINE)[1:]
    found += [f"section {name} has no entry" for name, body in zip(names, bodies, strict=True) if "- " not in body]
    return [f"{version}: {fault}" for fault in found]


@pytest.mark.parametrize("version", VERSIONS)
def test_entries_stand_in_the_sections_of_the_form(version: str) -> None:
    assert faults(version, VERSIONS[version]) == []


def test_versions_are_dated_and_the_newest_stands_first() -> None:
    first, *released = VERSIONS
    assert first == "[Unreleased]" and released
    matches = [re.fullmatch(r"\[(\d+)\.(\d+)\.(\d+)\] - (\d{4}-\d{2}-\d{2})", version) for version in released]
    assert all(matches), released
    numbers = [tuple(int(part) for part in match.groups()[:3]) for match in matches if match]
    assert all(newer > older for newer, older in pairwise(numbers)), released


def test_every_version_has_a_link() -> None:
    names = [re.findall(r"\[(.+?)\]", version)[0] for version in VERSIONS]
    links = dict(re.findall(r"^\[(.+?)\]: (\S+)$", TEXT, re.MULTILINE))
    assert list(links) == names
    assert links["Unreleased"].endswith(f"compare/v{names[1]}...HEAD")
    assert all(links[name].endswith(f"/v{name}") for name in names[1:])


def test_faults_of_the_form_are_found() -> None:
    text = "- loose\n### Fixed\n- one\n### Added\n- two\n### Added\n"
    assert len(faults("x", text)) == 3  # order, a loose entry, an empty section
    assert faults("x", "### News\n- one\n") == ["x: unknown section News"]
