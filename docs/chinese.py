"""Chinese tutorials: the code and outputs of the English notebooks, with the texts of zh/tutorials/NAME.md.

A text file has the Chinese of each text cell, in order, separated by lines of `%%`.
"""

import json
from pathlib import Path

TUTORIALS = Path(__file__).parent / "tutorials"
TEXTS = Path(__file__).parent / "zh" / "tutorials"


def other_language(page: str) -> str:
    """Return the name that a page of the site would have in the other language."""
    if page.startswith("zh/"):
        return {"zh/concepts": "concepts/index"}.get(page, page.removeprefix("zh/"))
    return "zh/concepts" if page.startswith("concepts/") else f"zh/{page}"


def write(folder: Path = TEXTS) -> None:
    """Write a notebook for each file of texts."""
    for path in sorted(TEXTS.glob("*.md")):
        text = json.dumps(notebook(path), ensure_ascii=False, indent=1)
        target = folder / f"{path.stem}.ipynb"
        if not target.exists() or target.read_text(encoding="utf-8") != text:  # Sphinx reads only what has changed
            target.write_text(text, encoding="utf-8")


def notebook(path: Path) -> dict[str, object]:
    """Return the English notebook of the same name with these texts."""
    found = json.loads((TUTORIALS / f"{path.stem}.ipynb").read_text(encoding="utf-8"))
    texts = [text.strip() for text in path.read_text(encoding="utf-8").split("\n%%\n")]
    cells = [cell for cell in found["cells"] if cell["cell_type"] == "markdown"]
    if len(texts) != len(cells):
        raise ValueError(f"{path.name} has {len(texts)} texts, and the notebook {len(cells)} text cells")
    for cell, text in zip(cells, texts, strict=True):
        cell["source"] = text
    return found
