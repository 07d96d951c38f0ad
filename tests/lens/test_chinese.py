"""Every text that a page shows has a Chinese one: those in the modules, and the fixed sentences that come from Python."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import qkv
from qkv.inference.head_effects import LOG_PROBABILITY
from qkv.lens.arithmetic import words as arithmetic
from qkv.lens.head_patterns import DESCRIPTIONS

SOURCE = Path(qkv.__file__).parent
VIEWER = SOURCE / "lens" / "viewer"
STRING = r'"(?:[^"\\\n]|\\.)*"'
SAID = re.compile(r"(?<![.\w])say(?:With)?\(")
CONSTANT = re.compile(r"^(?:export )?const ([A-Z_]+) = \{(.*?)\};?$", re.MULTILINE | re.DOTALL)
WORDS = {"analogy_view", "map_view", "neighbours_view"}
LABORATORY = {"arithmetic", "change", "patch", "layers", "steps", "training", "heads", "attribution_view", "laboratory"}


def area(path: Path) -> str:
    """Return the table that a module's texts belong to."""
    if path.parent != VIEWER:
        return path.parent.name if path.parent.name != "page" else ("page" if "serving" in path.parts else "lesson")
    if path.stem in WORDS:
        return "words"
    return "laboratory" if path.stem in LABORATORY or path.stem.split("_")[0] in LABORATORY else "attention"


def modules() -> list[Path]:
    """Return all modules of pages that are ours and have texts."""
    found = [*SOURCE.joinpath("lens").rglob("*.js"), *SOURCE.joinpath("serving", "page").glob("*.js")]
    return sorted(path for path in found if path.parent.name != "chinese")


def known() -> set[str]:
    """Return the English of all Chinese texts."""
    tables = (path.read_text(encoding="utf-8") for path in (VIEWER / "chinese").glob("*.js"))
    keys = (re.findall(rf"^\s*({STRING}):", text, re.MULTILINE) for text in tables)
    return {json.loads(key) for found in keys for key in found}


def arguments(text: str) -> Iterator[str]:
    """Yield the first argument of each call of say: up to the comma or the bracket that ends it."""
    for call in SAID.finditer(text):
        depth, end = 0, call.end()
        plain = re.sub(STRING, lambda found: "_" * len(found.group()), text[end : end + 1000])
        for offset, char in enumerate(plain):
            depth += (char in "([{") - (char in ")]}")
            if depth < 0 or (depth == 0 and char == ","):
                yield text[end : end + offset]
                break


def said(path: Path) -> set[str]:
    """Return the texts that a module passes to say: literals, and values of constants such as TITLES[name]."""
    constants = {}
    for other in modules():
        if other.parent == path.parent:
            constants |= dict(CONSTANT.findall(other.read_text(encoding="utf-8")))
    found = set()
    for argument in arguments(path.read_text(encoding="utf-8")):
        for name in re.findall(r"\b([A-Z_]{3,})[\[.]", argument):
            found |= {json.loads(one) for one in re.findall(rf":\s*({STRING})", constants.get(name, ""))}
        found |= {json.loads(one) for one in re.findall(STRING, re.sub(r"===? *" + STRING, "", argument))}
    return found


def python_sentences(name: str) -> set[str]:
    """Return the fixed sentences from Python that the views of an area show."""
    if name == "attention":
        return {LOG_PROBABILITY, *DESCRIPTIONS, *DESCRIPTIONS.values()}
    if name == "laboratory":
        tables = [value for value in vars(arithmetic).values() if isinstance(value, dict)]
        words = [one for table in tables for one in table.values() if isinstance(one, arithmetic.StepWords)]
        return {text for one in words for text in (one.title, one.says)}
    return set()


AREAS = sorted({area(path) for path in modules()})


@pytest.mark.parametrize("name", AREAS)
def test_every_text_has_a_chinese_one(name: str) -> None:
    texts = {text for path in modules() if area(path) == name for text in said(path)} | python_sentences(name)
    missing = sorted(texts - known())
    assert not missing, "\n".join(missing)


def test_texts_are_found(tmp_path: Path) -> None:
    path = tmp_path / "one.js"
    path.write_text(
        'const NAMES = { a: "one", "b c": "two" };\nsay(x === "no" ? "three" : `no`, { a: say("four") });\n'
        'sayWith(\n  "five (5), {a}",\n  { b: "no" },\n);\nsay(NAMES[name] || "six");\n'
    )
    found = set()
    text = path.read_text()
    for argument in arguments(text):
        found.add(argument.strip())
    assert found == {'x === "no" ? "three" : `no`', '"four"', '"five (5), {a}"', 'NAMES[name] || "six"'}


def test_the_same_places_are_filled_in() -> None:
    text = "\n".join(path.read_text(encoding="utf-8") for path in (VIEWER / "chinese").glob("*.js"))
    for english, chinese in re.findall(rf"^\s*({STRING}):\s*({STRING}),?$", text, re.MULTILINE):
        assert set(re.findall(r"\{\w+\}", english)) == set(re.findall(r"\{\w+\}", chinese)), english
