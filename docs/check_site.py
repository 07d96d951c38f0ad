"""Check the built site in a browser: accessibility, phones, search in both languages.

python docs/check_site.py build/site
"""

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

AXE = Path(__file__).parents[1] / "tests" / "javascript" / "node_modules" / "axe-core" / "axe.min.js"
PAGES = [
    "index.html",
    "tutorials/first-translator.html",
    "translate.html",
    "concepts/attention.html",
    "family/bert.html",
    "reference/claims.html",
    "reference/keys.html",
    "reference/python.html",
    "results/family.html",
    "zh/index.html",
    "zh/concepts.html",
    "zh/family/ernie.html",
    "zh/tutorials/transformer-from-scratch.html",
]
SEARCHES = {
    "label smoothing": "recipes.html",
    "glossary": "translate.html",
    "注意力": "zh/concepts.html",
    "分词": "zh/chinese-text.html",
}
DESKTOP, PHONE = {"width": 1280, "height": 900}, {"width": 360, "height": 740}


def problems(site: Path, browser: Any) -> Iterator[str]:
    """Yield what is wrong, one line each."""
    for theme, viewport in (("light", DESKTOP), ("dark", PHONE)):
        page = browser.new_context(color_scheme=theme, viewport=viewport).new_page()
        failed: list[str] = []
        page.on("pageerror", lambda error, failed=failed: failed.append(str(error)))
        for name in PAGES:
            page.goto((site / name).resolve().as_uri())
            if AXE.is_file():
                page.evaluate(AXE.read_text(encoding="utf-8"))
                for one in page.evaluate("async () => (await axe.run()).violations"):
                    where = one["nodes"][0]
                    yield f"{name}, {theme}: {one['id']}: {one['help']}: {where['html'][:150]} {where['failureSummary'][:200]!r}"
            wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
            if wide > 0:
                yield f"{name}: {wide} pixels wider than a screen of {viewport['width']}"
        yield from failed
        page.context.close()
    page = browser.new_page()
    for words, wanted in SEARCHES.items():
        page.goto(f"{(site / 'search.html').resolve().as_uri()}?q={words}")
        page.wait_for_selector("#search-results ul.search li a")
        found = [one.get_attribute("href").split("?")[0].split("#")[0] for one in page.locator("#search-results li a").all()]
        if wanted not in found[:5]:
            yield f"search for {words!r} finds {', '.join(found[:5])} first, and not {wanted}"


def main() -> int:
    """Print what is wrong, and return 1 if something is."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        print("chromium is not installed: the site is not checked")
        return 0
    if not AXE.is_file():
        print("axe-core is not installed: accessibility of the site is not checked")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        found = [*problems(Path(sys.argv[1]), browser)]
    print(*found, f"{len(PAGES)} pages and {len(SEARCHES)} searches, {len(found)} problems", sep="\n")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
