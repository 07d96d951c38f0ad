"""The results in docs/claims.md, made from the records of claims that were run.

A folder of runs seldom holds all claims: the page keeps what it says of the others. A claim that was run at CPU and at GPU size
has a row and a section for each; a quick run is shown where there is nothing else.
"""

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from qkv.base.errors import ConfigError
from qkv.base.files import atomic_file
from qkv.claims.claim import SIZES, TOPICS, claim_names, find_claim
from qkv.claims.record import Record, best_record, cost, figures_table, shown_verdict

BEGIN, END = "<!-- verdicts -->", "<!-- end of verdicts -->"
PICTURES, FIGURES = Path("pictures/claims"), Path("figures/claims")  # beside the page
ON_GPU = " at GPU size"  # behind the name in the heading of a section
ROW = re.compile(
    r"^\| \[([\w-]+)\]\(#([\w-]+)\) \|.*?\| \*\*(.+?)\*\* \| (\d+) \| (quick|cpu|gpu) \| (.+?) \| (.+?) \|$", re.MULTILINE
)
SECTION = re.compile(rf"^### ([\w-]+)({ON_GPU})?$.*?(?=^### |\Z)", re.MULTILINE | re.DOTALL)
Records = dict[str, dict[str, tuple[Record, str]]]
PUBLISHED = Path(__file__).parent / "published.json"
Shown = tuple[str, str]  # name of a claim and size


class Row(NamedTuple):
    """The row of a claim at one size in the table of a page."""

    name: str
    anchor: str
    verdict: str
    seeds: str
    size: str
    cost: str
    date: str


def table_rows(page: Path) -> list[Row]:
    """Read the table of a page."""
    return [Row(*groups) for groups in ROW.findall(page.read_text(encoding="utf-8"))]


def publish(page: Path) -> None:
    """Write the verdicts of a page at CPU size into the package, for the list of claims that were not run yet."""
    rows = {row.name: f"{row.verdict}, {row.date}, {row.cost}" for row in table_rows(page) if row.size == "cpu"}
    with atomic_file(PUBLISHED) as aside:
        aside.write_text(json.dumps(rows, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def verdicts_table(rows: Iterable[str]) -> str:
    """Return a Markdown table of verdicts; names lead to sections of the same page."""
    return "\n".join(["| claim | statement | verdict | seeds | size | cost | date |", "|---|---|---|---:|---|---:|---|", *rows])


def in_order(records: Records) -> list[tuple[Record, str]]:
    """Return each claim at its best size (see `best_record`) with its picture, by topic and name."""
    return sorted(map(best_record, records.values()), key=lambda one: (TOPICS.index(one[0]["topic"]), one[0]["name"]))


def shown_records(records: Records) -> list[tuple[Record, str]]:
    """Return each claim at CPU and at GPU size with its pictures, by topic and name; a quick run where there is neither."""
    found = []
    for record, picture in in_order(records):
        sizes = records[record["name"]]
        found += [sizes[size] for size in ("cpu", "gpu") if size in sizes] or [(record, picture)]
    return found


def verdict_row(record: Record) -> str:
    """Return the row of a claim at one size."""
    large = record["size"] == "gpu"
    anchor = record["name"] + (ON_GPU.replace(" ", "-").lower() if large else "")
    statement = "The same, larger, on a GPU." if large else record["statement"]
    return (
        f"| [{record['name']}](#{anchor}) | {statement} | **{shown_verdict(record)}** | "
        f"{len(record['seeds'])} | {record['size']} | {cost(record)} | {record['facts']['date']} |"
    )


def _file_name(record: Record) -> str:
    return f"{record['name']}{'-gpu' if record['size'] == 'gpu' else ''}"


def _section(record: Record) -> str:
    """Return the section of one claim at one size: picture, prediction, figures, findings, command."""
    facts = record["facts"]
    settings = "".join(f"{name} {value}, " for name, value in record["settings"].items())
    return "\n".join(
        [
            f"### {record['name']}{ON_GPU if record['size'] == 'gpu' else ''}",
            f"{record['statement']} **{shown_verdict(record)}**: {record['reason']}.",
            "",
            f"![{record['units'][next(iter(record['units']))]}]({PICTURES / _file_name(record)}.svg)",
            "",
            f"Predicted: {record['prediction']}",
            "",
            *([f"Changed after earlier figures: {record['revised']}", ""] if record["revised"] else []),
            figures_table(record),
            f"`{record['command']}`; {settings}{facts['device']}, {facts['date']}; "
            f"[figures of each seed]({FIGURES / _file_name(record)}.json). {record['changes']}",
            "",
        ]
    )


def _write_beside(page: Path, record: Record, picture: str) -> None:
    """Write the picture, and the figures of each seed, that the section of a claim shows."""
    kept = {key: record[key] for key in ("name", "size", "seeds", "settings", "variants", "facts", "figures")}
    for path, text in (
        (PICTURES / f"{_file_name(record)}.svg", picture),
        (FIGURES / f"{_file_name(record)}.json", json.dumps(kept)),
    ):
        with atomic_file(page.parent / path) as aside:
            aside.write_text(text.rstrip("\n") + "\n", encoding="utf-8")


def replace_results(records: Records, page: Path) -> Path:
    """Put the claims that were run between the marks of a page: the table, and sections; pictures and figures beside the page.

    Claims that the page has and `records` has not keep their rows, sections, pictures and figures.
    """
    text = page.read_text(encoding="utf-8") if page.is_file() else ""
    before, begin, rest = text.partition(BEGIN)
    old, end, after = rest.partition(END)
    if not (begin and end):
        raise ConfigError(f"{page}: has no lines {BEGIN} and {END}; put them where the table belongs")
    rows = {(match[1], match[5]): match[0] for match in ROW.finditer(old)}
    headings = {(match[1], bool(match[2])): match[0] for match in SECTION.finditer(old)}
    sections = {(name, size): headings[name, size == "gpu"] for name, size in rows}
    topics = {name: find_claim(name).claim.topic for name in claim_names()}
    for record, picture in shown_records(records):
        name, size = record["name"], record["size"]
        if size == "quick" and any(name == other and kept != "quick" for other, kept in rows):
            continue
        rows.pop((name, "quick"), None)
        rows[name, size], sections[name, size], topics[name] = verdict_row(record), _section(record), record["topic"]
        _write_beside(page, record, picture)
    order = {topic: number for number, topic in enumerate(TOPICS)}

    def place(one: Shown) -> tuple[int, str, int]:
        return order.get(topics.get(one[0], ""), len(TOPICS)), one[0], SIZES.index(one[1])  # a user's own claims last

    shown = sorted(rows, key=place)
    results = "\n".join([verdicts_table(rows[one] for one in shown), "", *(sections[one].rstrip("\n") + "\n" for one in shown)])
    with atomic_file(page) as aside:
        aside.write_text(f"{before}{BEGIN}\n{results}{END}{after}", encoding="utf-8")
    return page
