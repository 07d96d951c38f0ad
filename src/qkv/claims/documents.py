"""The results in docs/claims.md, made from the records of claims that were run.

A folder of runs seldom holds all claims: the page keeps what it says of the others.
"""

import re
from collections.abc import Iterable
from pathlib import Path

from qkv.base.errors import ConfigError
from qkv.base.files import atomic_file
from qkv.claims.claim import TOPICS, claim_names, find_claim
from qkv.claims.record import Record, best_record, cost, figures_table, shown_verdict

BEGIN, END = "<!-- verdicts -->", "<!-- end of verdicts -->"
PICTURES = Path("pictures/claims")  # beside the page
ROW = re.compile(r"^\| \[([\w-]+)\]\(#.*$", re.MULTILINE)
SECTION = re.compile(r"^### ([\w-]+)$.*?(?=^### |\Z)", re.MULTILINE | re.DOTALL)
Records = dict[str, dict[str, tuple[Record, str]]]


def verdicts_table(rows: Iterable[str]) -> str:
    """Return a Markdown table of verdicts; names lead to sections of the same page."""
    return "\n".join(["| claim | statement | verdict | seeds | size | cost | date |", "|---|---|---|---:|---|---:|---|", *rows])


def in_order(records: Records) -> list[tuple[Record, str]]:
    """Return each claim at its largest size with its picture, by topic and name."""
    return sorted(map(best_record, records.values()), key=lambda one: (TOPICS.index(one[0]["topic"]), one[0]["name"]))


def verdict_row(record: Record) -> str:
    """Return a claim's row of the table."""
    return (
        f"| [{record['name']}](#{record['name']}) | {record['statement']} | **{shown_verdict(record)}** | "
        f"{len(record['seeds'])} | {record['size']} | {cost(record)} | {record['facts']['date']} |"
    )


def _section(record: Record) -> str:
    """Return the section of one claim: picture, prediction, figures, findings, command."""
    facts, settings = record["facts"], ", ".join(f"{name} {value}" for name, value in record["settings"].items())
    return "\n".join(
        [
            f"### {record['name']}",
            f"{record['statement']} **{shown_verdict(record)}**: {record['reason']}.",
            "",
            f"![{record['units'][next(iter(record['units']))]}]({PICTURES / record['name']}.svg)",
            "",
            f"Predicted: {record['prediction']}",
            "",
            figures_table(record),
            f"`{record['command']}`; {settings}; {facts['device']}, {facts['date']}. {record['changes']}",
            "",
        ]
    )


def replace_results(records: Records, page: Path) -> Path:
    """Put the claims that were run between the marks of a page: the table, sections, and pictures beside the page.

    Claims that the page has and `records` has not keep their rows, sections and pictures.
    """
    text = page.read_text(encoding="utf-8") if page.is_file() else ""
    before, begin, rest = text.partition(BEGIN)
    old, end, after = rest.partition(END)
    if not (begin and end):
        raise ConfigError(f"{page}: has no lines {BEGIN} and {END}; put them where the table belongs")
    rows = {match[1]: match[0] for match in ROW.finditer(old)}
    sections = {match[1]: match[0] for match in SECTION.finditer(old)}
    topics = {name: find_claim(name).claim.topic for name in claim_names()}
    for record, picture in in_order(records):
        name = record["name"]
        rows[name], sections[name], topics[name] = verdict_row(record), _section(record), record["topic"]
        with atomic_file(page.parent / PICTURES / f"{name}.svg") as aside:
            aside.write_text(picture, encoding="utf-8")
    order = {topic: number for number, topic in enumerate(TOPICS)}
    names = sorted(rows, key=lambda name: (order.get(topics.get(name, ""), len(TOPICS)), name))  # a user's own claims last
    results = "\n".join(
        [verdicts_table(rows[name] for name in names), "", *(sections[name].rstrip("\n") + "\n" for name in names)]
    )
    with atomic_file(page) as aside:
        aside.write_text(f"{before}{BEGIN}\n{results}{END}{after}", encoding="utf-8")
    return page
