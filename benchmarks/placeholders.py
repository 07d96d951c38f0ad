"""Placeholders and tags through translators: how many survive, whether markup stays well formed, and whether they are in place.

    python demos/homeassistant.py --to de
    python benchmarks/placeholders.py runs/before runs/after --data demo-data/homeassistant-en-de/test.tsv

`runs/before` is one that was trained with data.protect=false; a run that was taught sentinels has hardly seen a placeholder as
text, so that its figures without protection say little.

Two sets are made from the pairs of the file. `placeholders`: the pairs that have the same placeholders, tags or addresses on both
sides. `tags`: pairs without any, with tags like those of XLIFF, <g id="1">...</g>, around a word that occurs once on both sides,
spelled the same (names, numbers, terms), and <x id="2"/> before another such word.

Each run translates both sets with protection off and on. The table has:

    all once     share of texts in which the same spans are found, each as often, as in the source
    malformed    texts in which a tag is broken, or tags are not nested
    in place     share of the spans that stand beside the right word: the word before or after it (or the edge of the text) is
                 that of the reference; a pair of tags must hold the reference's word, and nothing else
    BLEU         of the texts with their spans
"""

import argparse
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import qkv
from qkv.text.protected_text import compile_patterns, find_spans
from qkv.text.translation_metrics import score_corpus

WORD = re.compile(r"\w+")
PLAIN_WORD = re.compile(r"(?<![\w-])\w{2,}(?![\w-])")
TAG = re.compile(r"<(/?)([\w:.-]+)[^<>]*?(/?)>")
Pair = tuple[str, str]


def spans_of(text: str) -> Counter[str]:
    return Counter(text[span.start : span.end] for span in find_spans(text, compile_patterns()))


def tagged(pairs: list[Pair]) -> Iterator[Pair]:
    """Put tags around, and a point before, words that occur once on both sides."""
    for source, target in pairs:
        counts = [Counter(PLAIN_WORD.findall(text)) for text in (source, target)]
        words = [word for word in counts[0] if counts[0][word] == counts[1][word] == 1]
        if spans_of(source) or spans_of(target) or not words:
            continue
        pair = [re.sub(rf"(?<![\w-]){words[0]}(?![\w-])", f'<g id="1">{words[0]}</g>', text) for text in (source, target)]
        if len(words) > 1:
            pair = [re.sub(rf"(?<![\w-]){words[1]}(?![\w-])", f'<x id="2"/>{words[1]}', text) for text in pair]
        yield pair[0], pair[1]


def is_well_formed(text: str) -> bool:
    """Return whether all signs < and > belong to tags, and these are nested; void elements of HTML need no end."""
    stack = []
    for end, name, alone in TAG.findall(text):
        if not alone and name not in ("br", "hr", "img", "wbr", "input"):
            if not end:
                stack.append(name)
            elif not stack or stack.pop() != name:
                return False
    return not stack and not set("<>") & set(TAG.sub("", text))


def neighbours(text: str, span: str) -> tuple[str, str]:
    """Return the word before a span and the word after it, in lower case; "" at the edges of a text."""
    before, _, after = text.partition(span)
    words = [WORD.findall(TAG.sub(" ", side).lower()) for side in (before, after)]
    return (words[0][-1] if words[0] else "", words[1][0] if words[1] else "")


def in_place(output: str, reference: str, span: str) -> bool:
    """Return whether a span of the reference stands where it belongs in the output; see above."""
    if span not in output:
        return False
    opening = TAG.fullmatch(span)
    closing = f"</{opening[2]}>" if opening else ""
    if closing in reference and opening and not opening[1] and not opening[3]:
        inside = [text.partition(span)[2].partition(closing)[0].strip() for text in (output, reference)]
        return inside[0] == inside[1]
    return any(got == wanted for got, wanted in zip(neighbours(output, span), neighbours(reference, span), strict=True))


def measure(outputs: list[str], pairs: list[Pair], language: str | None) -> list[str]:
    """Return the columns of a row of the table."""
    once = sum(spans_of(output) == spans_of(source) for output, (source, _) in zip(outputs, pairs, strict=True))
    checked = [output for output, (source, _) in zip(outputs, pairs, strict=True) if is_well_formed(source)]
    broken = sum(not is_well_formed(output) for output in checked)
    placed = [
        in_place(output, target, span)
        for output, (_, target) in zip(outputs, pairs, strict=True)
        for span, count in spans_of(target).items()
        if count == 1 and not span.startswith("</")
    ]
    bleu = score_corpus(outputs, [[target] for _, target in pairs], ["bleu"], language)[0].value
    return [f"{100 * once / len(outputs):.2f} %", f"{broken:,} of {len(checked):,}",
            f"{100 * sum(placed) / max(1, len(placed)):.1f} %", f"{bleu:.1f}"]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+")
    parser.add_argument("--data", required=True, type=Path, help="test pairs, one per line, with a tab between the sides")
    parser.add_argument("--engine", default=None)
    parser.add_argument("--limit", type=int, default=2000, help="pairs of each set, at most")
    given = parser.parse_args()
    lines = [line.split("\t")[:2] for line in given.data.read_text(encoding="utf-8").splitlines() if "\t" in line]
    pairs = [(source, target) for source, target in lines]
    sets = {
        "placeholders": [pair for pair in pairs if spans_of(pair[0]) and spans_of(pair[0]) == spans_of(pair[1])],
        "tags": list(tagged(pairs)),
    }
    print("| run | set | texts | protection | all once | malformed | in place | BLEU |\n|---|---|--:|---|--:|--:|--:|--:|")
    for run in given.runs:
        translator = qkv.load(run, engine=given.engine)
        languages = translator.recipe.data.languages
        for name, found in sets.items():
            chosen = found[: given.limit]
            for protect in (None, ()):
                outputs = translator.translate([source for source, _ in chosen], protect=protect)
                row = measure(outputs, chosen, languages[1] if languages else None)
                print(
                    f"| {run} | {name} | {len(chosen):,} | {'off' if protect is None else 'on'} | {' | '.join(row)} |", flush=True
                )


if __name__ == "__main__":
    main()
