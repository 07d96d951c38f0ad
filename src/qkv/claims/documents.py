"""The table of verdicts in docs/claims.md, made from the records of claims that were run."""

from pathlib import Path

from qkv.base.errors import ConfigError
from qkv.base.files import atomic_file
from qkv.claims.claim import TOPICS
from qkv.claims.record import Record, best_record, cost, shown_verdict

BEGIN, END = "<!-- verdicts -->", "<!-- end of verdicts -->"
PICTURES = Path("pictures/claims")  # beside the page
Records = dict[str, dict[str, tuple[Record, str]]]


def verdicts_table(records: Records, pictures: Path | None = None) -> str:
    """Return a Markdown table of the verdicts, by topic, with links to pictures if they are somewhere."""
    rows = ["| claim | statement | verdict | seeds | size | cost | date |", "|---|---|---|---:|---|---:|---|"]
    best = sorted((best_record(sizes)[0] for sizes in records.values()), key=lambda r: (TOPICS.index(r["topic"]), r["name"]))
    for one in best:
        link = f"[{one['name']}]({pictures / one['name']}.svg)" if pictures else one["name"]
        size = f"{one['size']}, {one['facts']['device']}"
        rows.append(
            f"| {link} | {one['statement']} | **{shown_verdict(one)}**: {one['reason']} | {len(one['seeds'])} | {size} | "
            f"{cost(one)} | {one['facts']['date']} |"
        )
    return "\n".join(rows)


def replace_table(records: Records, page: Path) -> Path:
    """Replace the table between the marks of a page, and write the pictures beside it."""
    text = page.read_text(encoding="utf-8") if page.is_file() else ""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ConfigError(f"{page}: has no lines {BEGIN} and {END}; put them where the table belongs")
    for sizes in records.values():
        record, picture = best_record(sizes)
        with atomic_file(page.parent / PICTURES / f"{record['name']}.svg") as aside:
            aside.write_text(picture, encoding="utf-8")
    with atomic_file(page) as aside:
        aside.write_text(f"{before}{BEGIN}\n{verdicts_table(records, PICTURES)}\n{END}{after}", encoding="utf-8")
    return page
