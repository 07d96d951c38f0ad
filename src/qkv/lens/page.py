"""One HTML file with the viewer, its style and the values of a view; it works offline."""

import base64
import hashlib
import html
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from qkv.base.errors import ConfigError
from qkv.base.files import atomic_file
from qkv.lens.bundle import bundle
from qkv.lens.packed_weights import pack_weights

VIEWER = Path(__file__).parent / "viewer"
START = 'QkvViewer.showPage(document.getElementById("viewer"), JSON.parse(document.getElementById("view").textContent));'
STYLES = ("viewer.css", "laboratory.css", "words.css")
BODY = "body{margin:1rem auto;padding:0 1rem;max-width:70rem}"
DARK = ":root{color-scheme:light dark}@media(prefers-color-scheme:dark){body{background:rgb(22 25 32)}}"
COMMANDS = {  # by the kind of view, where they differ
    None: "look",
    "analogy": "vectors",
    "attribution": "attribute",
    "map": "vectors",
    "neighbours": "vectors",
    "training": "look",
}
HEIGHT = 720  # of the frame in a notebook, in pixels


def render_page(view: dict[str, Any]) -> str:
    """Return the HTML of a page, from the result of a view's `json()`."""
    scripts = [bundle(VIEWER / "viewer.js", "QkvViewer"), START]
    styles = [*((VIEWER / name).read_text(encoding="utf-8") for name in STYLES), BODY + DARK]
    policy = f"default-src 'none'; script-src {_csp_hashes(scripts)}; style-src {_csp_hashes(styles)}; img-src data:"
    words = view.get("words", {})
    tokens = view["texts"]["source"] if view.get("view") == "arithmetic" else view.get("source")
    texts = (words.get("source") if isinstance(words, dict) else words) or tokens or view.get("question")
    command = COMMANDS.get(view.get("view"), view.get("view"))
    text = " ".join(texts or [view.get("model", "")]).replace("▁", "")  # marks of tokens that begin a word
    title = html.escape(f"{text[:80]} · qkv {command}")
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en">',
            "<head>",
            '<meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
            f"<title>{title}</title>",
            *(f"<style>{text}</style>" for text in styles),
            "</head>",
            "<body>",
            f'<main id="viewer" data-made="{datetime.now(UTC).date().isoformat()}"></main>',
            f'<script id="view" type="application/json">{inline_json(pack_weights(view))}</script>',
            *(f"<script>{text}</script>" for text in scripts),
            "</body>",
            "</html>",
            "",
        ]
    )


def inline_json(values: Any) -> str:
    """Return JSON for a script element; nothing in it can end the element."""
    text = json.dumps(values, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for char in "<>&\u2028\u2029":
        text = text.replace(char, f"\\u{ord(char):04x}")
    return text


def write_page(view: dict[str, Any], path: Path) -> Path:
    """Write the page, or the values alone if the name ends with .json, atomically."""
    text = json.dumps(view, ensure_ascii=False, allow_nan=False) if path.suffix == ".json" else render_page(view)
    with atomic_file(path) as aside:
        aside.write_text(text, encoding="utf-8", errors="replace")
    return path


def save_view(view: dict[str, Any], path: str | Path) -> Path:
    """Write the page of a view to a file whose name ends with .html, or its values to one that ends with .json."""
    if not isinstance(path, str | Path):
        raise ConfigError(f"save takes the path of a file, got {type(path).__name__}; give one that ends with .html or .json")
    if Path(path).suffix not in (".html", ".json"):
        raise ConfigError(f"save {path}: the name must end with .html or .json, which chooses the format")
    return write_page(view, Path(path))


def notebook_frame(view: dict[str, Any]) -> str:
    """Return the page in a sandboxed iframe, for a notebook."""
    source = html.escape(render_page(view), quote=True)
    style = f"width:100%;height:{HEIGHT}px;border:0"
    allowed = 'sandbox="allow-scripts allow-downloads" allow="fullscreen"'
    return f'<iframe srcdoc="{source}" {allowed} style="{style}" title="qkv look"></iframe>'


def _csp_hashes(texts: list[str]) -> str:
    """Return the sources of a content security policy that allow exactly these scripts or styles."""
    digests = (base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in texts)
    return " ".join(f"'sha256-{digest}'" for digest in digests)
