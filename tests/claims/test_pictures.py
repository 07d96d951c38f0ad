"""Pictures: nothing is cut or overlaps, however long titles and names are."""

import re
from types import SimpleNamespace
from typing import Any

from qkv.claims.pictures import WIDTH, curves, strip

TITLE = "loss on held-out texts of a length that nobody has ever seen in training, nats a token"


def result(names: list[str]) -> Any:
    figures = {name: {"x": [0.001234, 0.002345, 0.00345], "curve": [[1.0, 2.0], [1.5, 2.5], [1.0, 3.0]]} for name in names}
    claim = SimpleNamespace(units={"x": TITLE, "curve": TITLE})
    return SimpleNamespace(
        figures=figures, seeds=[1, 2, 3], named=SimpleNamespace(claim=claim), values=lambda name, figure: figures[name][figure]
    )


def test_long_titles_wrap_and_move_the_drawing_down() -> None:
    short = strip("x").draw(result(["a", "b"]))
    assert short.label.startswith(TITLE)
    lines = re.findall('class="title" x="16" y="([0-9]+)">([^<]*)', short.body)
    assert [int(y) for y, _ in lines] == [16, 35] and " ".join(text for _, text in lines) == TITLE
    assert all(8.4 * len(text) < WIDTH - 16 for _, text in lines), "15 px bold are about 8.4 px a letter"
    assert "translate(0 19)" in short.body


def test_long_names_of_a_legend_stand_under_each_other() -> None:
    def places(names: list[str]) -> list[tuple[str, str]]:
        body = curves("curve", [1, 2], "x").draw(result(names)).body
        return re.findall(r'<text x="([0-9.]+)" y="([0-9.]+)">(?:' + "|".join(names) + ")<", body)

    assert len({y for _, y in places(["a", "b", "c"])}) == 2, "short names share lines"
    long = places(["with norms and feed-forward", "b", "c"])
    assert len({x for x, _ in long}) == 1 and len({y for _, y in long}) == 3
