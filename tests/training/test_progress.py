"""Counting texts on stderr: a bar on a terminal, lines elsewhere where they are wanted."""

import io

import pytest
from rich.console import Console

from qkv.training.progress import Progress


def test_without_a_terminal_lines_are_printed_where_they_are_wanted(capsys: pytest.CaptureFixture[str]) -> None:
    for log, shown in ((False, False), (True, True)):
        progress = Progress()
        with progress.count("texts", first=2, log=log) as show:
            show(1_500, 3_000)  # too soon after the beginning for a line
            show(3_000, 3_000)
        said = capsys.readouterr().err.splitlines()
        assert [line.split("  ")[0] for line in said] == ["3,000 of 3,000 texts"] * shown


@pytest.mark.parametrize("total", [None, 4])
def test_a_terminal_has_a_bar_that_goes_away(total: int | None) -> None:
    progress = Progress()
    progress.console, progress.live = Console(file=io.StringIO(), force_terminal=True, width=80), True
    with progress.count("lines") as show:
        show(3, total)
    written = progress.console.file.getvalue()  # type: ignore[attr-defined]
    assert f"3/{total or '?'}" in written and "lines/s" in written and written.endswith("\x1b[1A\x1b[2K")
