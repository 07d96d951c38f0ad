"""A lesson: six steps from "words become vectors" to the output, with a model's own numbers and sentences, as an offline page."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qkv.base.errors import ConfigError
from qkv.base.files import atomic_file
from qkv.lens.lesson.inputs import head_step, vectors_step
from qkv.lens.lesson.material import Material
from qkv.lens.lesson.outputs import layers_step, output_step
from qkv.lens.lesson.page import render_lesson
from qkv.lens.lesson.scores import scores_step
from qkv.lens.lesson.sums import sum_step
from qkv.lens.page import write_page

STEPS = (vectors_step, head_step, scores_step, sum_step, layers_step, output_step)


@dataclass(frozen=True, repr=False)
class Lesson:
    """A lesson on one or more sentences; `save` writes the page, a notebook's reader opens it in a browser.

    >>> qkv.lesson("runs/mine", ["A dog runs."]).save("lesson.html")
    """

    run: str  # its name
    date: str
    materials: Sequence[Material]

    def json(self) -> dict[str, Any]:
        """Return everything as lists, strings and numbers, rounded to four digits."""
        head = self.materials[0].head
        return {
            "view": "lesson",
            "run": self.run,
            "date": self.date,
            "kind": head.kind,
            "model": head.model,
            "examples": [{"text": one.text, "steps": [step(one).json() for step in STEPS]} for one in self.materials],
        }

    def save(self, path: str | Path) -> Path:
        """Write the lesson, one HTML file that works offline; or the values alone, if the name ends with .json."""
        if not isinstance(path, str | Path) or Path(path).suffix not in (".html", ".json"):
            raise ConfigError(f"save {path}: the name must end with .html or .json, which chooses the format")
        if Path(path).suffix == ".json":
            return write_page(self.json(), Path(path))
        with atomic_file(Path(path)) as aside:
            aside.write_text(render_lesson(self.json()), encoding="utf-8", errors="replace")
        return Path(path)

    def __repr__(self) -> str:
        """Return one line."""
        sentences = ", ".join(repr(one.text) for one in self.materials)
        return f"Lesson({self.run}: {sentences}; .save('lesson.html'), .json())"
