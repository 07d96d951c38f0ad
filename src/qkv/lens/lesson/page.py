"""The page of a lesson: one HTML file with its scripts, styles and values, which works offline."""

import html
from pathlib import Path
from typing import Any

from qkv.lens.bundle import bundle
from qkv.lens.page import VIEWER, _csp_hashes, inline_json

PAGE = Path(__file__).parent / "page"
START = 'QkvLesson.start(document.getElementById("lesson"), JSON.parse(document.getElementById("values").textContent));'


def render_lesson(lesson: dict[str, Any]) -> str:
    """Return the HTML of the page, from the result of `Lesson.json()`."""
    scripts = [bundle(PAGE / "lesson.js", "QkvLesson"), START]
    styles = [path.read_text(encoding="utf-8") for path in (VIEWER / "viewer.css", PAGE / "lesson.css", PAGE / "print.css")]
    policy = f"default-src 'none'; script-src {_csp_hashes(scripts)}; style-src {_csp_hashes(styles)}; img-src data:"
    title = html.escape(f"{lesson['run']} · qkv lesson")
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
            '<div id="lesson"></div>',
            f'<script id="values" type="application/json">{inline_json(lesson)}</script>',
            *(f"<script>{text}</script>" for text in scripts),
            "</body>",
            "</html>",
            "",
        ]
    )
