"""Write a glossary for data.glossary: the reliable word pairs of a training corpus, without those of a test set.

python benchmarks/mine_glossary.py TRAIN OUT [TEST]     TRAIN, TEST: source and target, separated by a tab

The words are found as benchmarks/glossary.py finds those that it tests; with TEST, the source words of its pairs are left out, so
that a run which is trained with OUT meets the terms of the test for the first time.
"""

import sys
from pathlib import Path

from glossary import TRAIN_PAIRS, mine, read_pairs


def main(train: str, out: str, test: str | None = None) -> None:
    """Write the glossary."""
    pairs = read_pairs(train, TRAIN_PAIRS)
    terms = mine(pairs, pairs)
    tested = mine(pairs, read_pairs(test, TRAIN_PAIRS)) if test else {}
    kept = {source: target for source, target in terms.items() if source not in tested}
    Path(out).write_text("".join(f"{source}\t{target}\n" for source, target in kept.items()), encoding="utf-8")
    print(f"{out}: {len(kept):,} terms; {len(terms) - len(kept):,} that the test has are left out")


if __name__ == "__main__":
    main(*sys.argv[1:])
