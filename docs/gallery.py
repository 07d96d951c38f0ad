"""The gallery of claims on the site: a card for each claim with its verdict and picture, with filters by topic and verdict.

Words come from the claims' files, verdicts and pictures from claims.md, which `qkv claims table --into docs/claims.md` writes.
"""

import html
import re
from pathlib import Path

from qkv.claims.claim import TOPICS, NamedClaim, claim_names, find_claim
from qkv.claims.documents import Row, table_rows
from qkv.claims.verdict import VERDICTS

DOCS = Path(__file__).parent
PRELIMINARY = re.compile(r"(quick|\d of \d+ seeds)\)$")
OPEN = "not run yet"


def gallery_page() -> str:
    """Return the page, Markdown with the cards in HTML."""
    rows: dict[str, list[Row]] = {}  # of a claim, the largest size with all seeds first
    for row in table_rows(DOCS / "claims.md"):
        rows.setdefault(row.name, []).insert(0, row)
    for some in rows.values():
        some.sort(key=lambda row: PRELIMINARY.search(row.verdict) is not None)
    claims = sorted(map(find_claim, claim_names()), key=lambda one: (TOPICS.index(one.claim.topic), one.name))
    cards = [_card(one, rows.get(one.name, [])) for one in claims]
    return "\n".join(
        [
            "# The gallery of claims",
            "",
            f"{len(claims)} sentences that papers and people say about attention, each as a small experiment: "
            f"{len(rows)} have been run with five seeds or three. [Claims](../claims.md) has all figures.",
            "",
            f'<div class="claims-filters">{_filter("topic", TOPICS)}{_filter("verdict", (*VERDICTS, OPEN))}'
            '<p class="claims-count" aria-live="polite"></p></div>',
            "",
            f'<div class="claims-cards">{"".join(cards)}</div>',
            "",
        ]
    )


def _filter(key: str, values: tuple[str, ...]) -> str:
    buttons = "".join(
        f'<button type="button" data-key="{key}" data-value="{value}">{value or "all"}</button>' for value in ("", *values)
    )
    return f'<div role="group" aria-label="{key}"><span>{key}</span>{buttons}</div>'


def _card(named: NamedClaim, rows: list[Row]) -> str:
    claim, verdict = named.claim, rows[0].verdict if rows else OPEN
    kind = next(one for one in (*sorted(VERDICTS, key=len, reverse=True), OPEN) if verdict.startswith(one))
    picture = DOCS / "pictures" / "claims" / f"{named.name}{'-gpu' if rows and rows[0].size == 'gpu' else ''}.svg"
    shown = f'<img src="../_images/{picture.name}" alt="figures of {named.name}" loading="lazy">' if picture.is_file() else ""
    facts = "; ".join(
        f"{f'at size {row.size} {html.escape(row.verdict)}, ' if len(rows) > 1 else ''}{row.seeds} seeds, {row.cost}, {row.date} "
        f'<a href="../claims.html#{row.anchor}">all figures</a>'
        for row in rows
    )
    return (
        f'<article data-topic="{claim.topic}" data-verdict="{kind}"><p class="claims-kind"><b class="{kind.replace(" ", "-")}">'
        f"{html.escape(verdict)}</b> {claim.topic}</p><h2>{html.escape(claim.statement)}</h2>{shown}"
        f'<p>{html.escape(claim.explanation)}</p><p class="claims-formula">{html.escape(claim.formula)}</p>'
        f'<p class="claims-facts">{html.escape(claim.source)}. {facts}</p>'
        f"<p><code>qkv claims run {named.name}</code></p></article>"
    )
