"""One HTML file with all that it shows: the viewer, its style and what was seen. It asks nothing of the network."""

import base64
import hashlib
import html
import json
from pathlib import Path
from typing import Any

from qkv.base.files import atomic_file

VIEWER = Path(__file__).parent / "viewer"
START = 'QkvViewer.show(document.getElementById("viewer"), JSON.parse(document.getElementById("looked").textContent));'
BODY = "body{margin:1rem auto;padding:0 1rem;max-width:70rem}"
DARK = ":root{color-scheme:light dark}@media(prefers-color-scheme:dark){body{background:rgb(22 25 32)}}"
HEIGHT = 720  # of the frame in a notebook, in pixels


def page(looked: dict[str, Any]) -> str:
    """The file's content, of what `Looked.json()` gives."""
    script, style = (VIEWER / name for name in ("viewer.js", "viewer.css"))
    scripts = [script.read_text(encoding="utf-8"), START]
    styles = [style.read_text(encoding="utf-8"), BODY + DARK]
    policy = f"default-src 'none'; script-src {_hashes(scripts)}; style-src {_hashes(styles)}"
    title = html.escape(" ".join(looked["words"]["source"])[:80])
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en">',
            "<head>",
            '<meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
            f"<title>{title} · qkv look</title>",
            *(f"<style>{text}</style>" for text in styles),
            "</head>",
            "<body>",
            '<main id="viewer"></main>',
            f'<script id="looked" type="application/json">{inlined(looked)}</script>',
            *(f"<script>{text}</script>" for text in scripts),
            "</body>",
            "</html>",
            "",
        ]
    )


def inlined(values: Any) -> str:
    """JSON that can stand inside a page: nothing in it can end the element that it is in."""
    told = json.dumps(values, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for char in "<>&\u2028\u2029":
        told = told.replace(char, f"\\u{ord(char):04x}")
    return told


def write_page(looked: dict[str, Any], path: Path) -> Path:
    """Write the page, or the values alone where the name ends with .json; whole or not at all."""
    text = json.dumps(looked, ensure_ascii=False, allow_nan=False) if path.suffix == ".json" else page(looked)
    with atomic_file(path) as aside:
        aside.write_text(text, encoding="utf-8", errors="replace")
    return path


def frame(looked: dict[str, Any]) -> str:
    """The page inside another, such as a notebook, to which it can do nothing."""
    inside = html.escape(page(looked), quote=True)
    style = f"width:100%;height:{HEIGHT}px;border:0"
    return f'<iframe srcdoc="{inside}" sandbox="allow-scripts" style="{style}" title="qkv look"></iframe>'


def _hashes(texts: list[str]) -> str:
    """How a policy names scripts and styles that may be used: by what they are."""
    digests = (base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in texts)
    return " ".join(f"'sha256-{digest}'" for digest in digests)
