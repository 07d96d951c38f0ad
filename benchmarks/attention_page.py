"""Size of the page of a large model's attention, and the time until a browser shows it.

python benchmarks/attention_page.py --layers 12 --heads 12 --tokens 128

The model is an encoder with random weights: what it attends to does not matter here. The browser is the system's chromium, by
playwright. Times are the medians of `--repeats` loads from a file: until the first head is painted, until every head on the
screen is, and, after scrolling to the end, until the last one is.
"""

import argparse
import json
import platform
import shutil
import statistics
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from qkv.lens.page import render_page

PAINTED = "[...document.querySelectorAll('canvas.heat')].filter((c) => c.dataset.painted).length"
SEEN = """
() => {
  const pictures = [...document.querySelectorAll('canvas.heat')];
  const shown = pictures.filter((c) => c.getBoundingClientRect().top < innerHeight);
  return shown.length > 0 && shown.every((c) => c.dataset.painted);
}
"""
ALL = "() => [...document.querySelectorAll('canvas.heat')].every((c) => c.dataset.painted)"


def large_view(layers: int, heads: int, tokens: int) -> dict[str, Any]:
    """Return the values of a view with random attention."""
    generator = torch.Generator().manual_seed(0)
    words = [f"word{number}" for number in range(tokens)]
    maps = []
    for layer in range(layers):
        scores = 3 * torch.randn(heads, tokens, tokens, generator=generator)
        weights = scores.softmax(-1).double().mul(1e4).round().div(1e4).tolist()
        maps.append(
            {
                "name": f"encoder.{layer}.self",
                "part": "encoder",
                "layer": layer,
                "rows": "source",
                "columns": "source",
                "heads": weights,
            }
        )
    numbers = list(range(tokens))
    nothing = "target read output target_words read_words rollout attribution alignment positions effects about"
    texts = {"source": words, "source_words": numbers, "words": {"source": words}}
    points = {"source": torch.randn(tokens, 2, generator=generator).tolist()}
    shown = {"kind": "encoder", "model": "bert", **texts, "maps": maps, "patterns": [], "points": points}
    return {**dict.fromkeys(nothing.split()), **shown}


def times(page: Any, address: str) -> dict[str, float]:
    """Open the page once and return seconds."""
    begun = time.perf_counter()
    page.goto(address, wait_until="commit")
    found = {}
    page.wait_for_function(f"() => {PAINTED} > 0", polling=10)
    found["first head"] = time.perf_counter() - begun
    page.wait_for_function(SEEN, polling=10)
    found["heads on the screen"] = time.perf_counter() - begun
    while not page.evaluate(ALL):
        page.mouse.wheel(0, 600)
        page.wait_for_timeout(30)
    found["all heads, scrolling"] = time.perf_counter() - begun
    return found


def main() -> None:
    """Measure, and print a line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, value in (("layers", 12), ("heads", 12), ("tokens", 128), ("repeats", 5)):
        parser.add_argument(f"--{name}", type=int, default=value)
    given = parser.parse_args()
    from playwright.sync_api import sync_playwright

    view = large_view(given.layers, given.heads, given.tokens)
    begun = time.perf_counter()
    text = render_page(view)
    rendering = time.perf_counter() - begun
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        path = Path(folder) / "page.html"
        path.write_text(text, encoding="utf-8")
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        runs = []
        for _ in range(given.repeats):
            page = browser.new_page(viewport={"width": 1200, "height": 900})
            runs.append(times(page, path.as_uri()))
            page.close()
        version = browser.version
        browser.close()
    result = {
        **vars(given),
        "weights": given.layers * given.heads * given.tokens**2,
        "megabytes": round(len(text.encode()) / 1e6, 2),
        "megabytes of its JSON": round(len(json.dumps(view)) / 1e6, 2),
        "seconds": {"written": round(rendering, 2), **{k: round(statistics.median(r[k] for r in runs), 2) for k in runs[0]}},
        "chromium": version,
        "machine": platform.processor() or platform.machine(),
        "date": datetime.now(UTC).date().isoformat(),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
