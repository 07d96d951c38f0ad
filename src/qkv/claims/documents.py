"""The results in docs/claims.md, made from the records of claims that were run."""

from pathlib import Path

from qkv.base.errors import ConfigError
from qkv.base.files import atomic_file
from qkv.claims.claim import TOPICS
from qkv.claims.record import Record, best_record, cost, figures_table, shown_verdict

BEGIN, END = "<!-- verdicts -->", "<!-- end of verdicts -->"
PICTURES = Path("pictures/claims")  # beside the page
Records = dict[str, dict[str, tuple[Record, str]]]


def verdicts_table(records: Records) -> str:
    """Return a Markdown table of the verdicts, by topic; names lead to sections of the same page."""
    rows = ["| claim | statement | verdict | seeds | size | cost | date |", "|---|---|---|---:|---|---:|---|"]
    for one, _ in in_order(records):
        rows.append(
            f"| [{one['name']}](#{one['name']}) | {one['statement']} | **{shown_verdict(one)}** | {len(one['seeds'])} | "
            f"{one['size']} | {cost(one)} | {one['facts']['date']} |"
        )
    return "\n".join(rows)


def in_order(records: Records) -> list[tuple[Record, str]]:
    """Return each claim at its largest size with its picture, by topic and name."""
    return sorted(map(best_record, records.values()), key=lambda one: (TOPICS.index(one[0]["topic"]), one[0]["name"]))


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
    """Replace what stands between the marks of a page: the table, and a section for each claim; write pictures beside it."""
    text = page.read_text(encoding="utf-8") if page.is_file() else ""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ConfigError(f"{page}: has no lines {BEGIN} and {END}; put them where the table belongs")
    for record, picture in in_order(records):
        with atomic_file(page.parent / PICTURES / f"{record['name']}.svg") as aside:
            aside.write_text(picture, encoding="utf-8")
    results = "\n".join([verdicts_table(records), "", *(_section(record) for record, _ in in_order(records))])
    with atomic_file(page) as aside:
        aside.write_text(f"{before}{BEGIN}\n{results}{END}{after}", encoding="utf-8")
    return page
