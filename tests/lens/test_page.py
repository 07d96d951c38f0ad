"""The page works offline, holds the values of the view, and no text can break out of its element."""

import base64
import hashlib
import html
import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from inspected_models import TEXT, translator
from qkv.lens.packed_weights import pack_weights, unpack_weights
from qkv.lens.page import VIEWER, inline_json, notebook_frame, render_page
from qkv.lens.view import look

NASTY = ["</script><script>alert(1)</script>", "<!--", "]]>", "&lt;", "\u2028\u2029", "\\u003c", '"', "</SCRIPT >", "\x00"]


@pytest.fixture(scope="module")
def told() -> dict[str, Any]:
    return look(translator("transformer"), TEXT).json()


def data_in(text: str) -> Any:
    """What a browser's JSON.parse would find: everything up to the first thing that ends the element."""
    begun = text.split('<script id="view" type="application/json">', 1)[1]
    return unpack_weights(json.loads(re.split("</script", begun, maxsplit=1, flags=re.IGNORECASE)[0]))


def test_what_was_seen_is_in_the_page(told: dict[str, Any]) -> None:
    assert data_in(render_page(told)) == told


def test_weights_are_packed_and_nothing_else(told: dict[str, Any]) -> None:
    text = render_page(told)
    assert '"heads":[{"packed":"' in text and len(text) < len(json.dumps(told)) + len(render_page({"words": {"source": ["x"]}}))
    others = {"heads": [3, 3, 0], "text": {"heads": None}}
    others |= {"rows": [{"heads": [[[-0.5]], [[0.123456]], [[7.0]]]}], "empty": {"heads": []}}
    assert pack_weights(others) == others


def test_no_text_ends_its_element(told: dict[str, Any]) -> None:
    changed = {**told, "source": NASTY, "words": {"source": NASTY}, "output": "".join(NASTY)}
    text = render_page(changed)
    assert data_in(text) == changed
    assert text.count("<script") == 3 and "alert(1)</script>" not in text  # the data, the viewer, the call
    assert not set("<>&\u2028\u2029") & set(inline_json(NASTY))
    assert "<script" not in text.split("<title>")[1].split("</title>")[0]


def test_only_the_pages_own_scripts_and_styles_may_run(told: dict[str, Any]) -> None:
    text = render_page(told)
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]+)"', text)
    assert policy.startswith("default-src 'none'") and "unsafe" not in policy
    inside = re.findall(r"<script>(.*?)</script>|<style>(.*?)</style>", text, flags=re.DOTALL)
    for found in inside:
        digest = base64.b64encode(hashlib.sha256("".join(found).encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy
    assert len(inside) == policy.count("sha256") == 6


def test_nothing_is_fetched(told: dict[str, Any]) -> None:
    text = render_page(told)
    assert set(re.findall(r"https?://[^\"' ]+", text)) == {"http://www.w3.org/2000/svg"}  # a name, not an address
    assert not re.search(r"\b(src|href)=|@import|url\(|fetch\(|XMLHttpRequest|import\(", text)


def test_the_viewer_writes_text_as_text() -> None:
    script = (VIEWER / "viewer.js").read_text(encoding="utf-8")
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function|\.cssText|\"style\"", script
    )
    assert "</script" not in script.lower() and "</style" not in (VIEWER / "viewer.css").read_text(encoding="utf-8").lower()


def test_a_notebook_gets_a_frame_that_can_do_nothing_to_it(told: dict[str, Any]) -> None:
    found = notebook_frame(told)
    (inside,) = re.findall(r'srcdoc="([^"]*)"', found)
    assert html.unescape(inside) == render_page(told)
    assert re.findall(r'sandbox="([^"]*)"', found) == ["allow-scripts allow-downloads"]
    assert look(translator("transformer"), TEXT)._repr_html_() == found


def test_saved_whole(told: dict[str, Any], tmp_path: Path) -> None:
    path = look(translator("transformer"), TEXT).save(tmp_path / "new" / "page.html")
    assert path.read_text(encoding="utf-8") == render_page(told)
    assert [found.name for found in path.parent.iterdir()] == ["page.html"]


def test_the_viewer_is_packed_with_the_rest() -> None:
    values = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))
    packed = {path for pattern in values["tool"]["setuptools"]["package-data"]["qkv"] for path in VIEWER.parents[1].glob(pattern)}
    assert set(VIEWER.iterdir()) <= packed
