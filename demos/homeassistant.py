"""Translation: makes demo-data/homeassistant-en-TO/{train,dev,test}.tsv from Home Assistant's interface texts.

    python demos/homeassistant.py --to de

Downloads the wheel `homeassistant` (63 MB) with pip, once, and reads it without unpacking. Each of its components has
an `en.json` and a translation; texts with the same key make a pair. Whole components are held out, and a held-out pair
whose English text also stands in another part (ignoring case and punctuation) is dropped: the same "Failed to connect"
is everywhere.

Licence of the data: Apache-2.0, Copyright the Home Assistant Authors.
"""

import argparse
import hashlib
import json
import re
import subprocess
import sys
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

VERSION = "2026.10.4"
TEST, DEV = 0.08, 0.05  # shares of the components, and about those of the pairs
LEAST = 100  # a language with fewer translated components has too little text to learn from
FILE = re.compile(r"homeassistant/components/([^/]+)/translations/([^/]+)\.json")
PLACEHOLDER = re.compile(r"\{\w+\}")
LETTER = re.compile(r"[^\W\d_]")

Pair = tuple[str, str]


def fail(line: str) -> SystemExit:
    """One line on stderr and exit code 2."""
    print(line, file=sys.stderr)
    return SystemExit(2)


def wheel_in(folder: Path) -> Path:
    """The wheel, downloaded if it is not there yet."""
    wheel = folder / f"homeassistant-{VERSION}-py3-none-any.whl"
    if not wheel.exists():
        print(f"downloading homeassistant {VERSION} (63 MB)", flush=True)
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--ignore-requires-python"]
        done = subprocess.run([*pip, "--dest", str(folder), f"homeassistant=={VERSION}"])
        if done.returncode or not wheel.exists():
            raise fail(f"pip could not download homeassistant=={VERSION}; check the network and try again")
    return wheel


def catalogues(wheel: zipfile.ZipFile) -> dict[str, dict[str, str]]:
    """For each language, the file name of each component's translation."""
    languages: dict[str, dict[str, str]] = {}
    for name in wheel.namelist():
        if found := FILE.fullmatch(name):
            languages.setdefault(found[2], {})[found[1]] = name
    return languages


def flatten(tree: dict[str, Any], path: str = "") -> Iterator[tuple[str, str]]:
    """The texts of a catalogue, each with its dotted key."""
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from flatten(value, f"{path}{key}.")
        elif isinstance(value, str):
            yield path + key, value


def read_pairs(wheel: zipfile.ZipFile, to: str) -> Iterator[tuple[str, str, str]]:
    """(component, English, translation) for every key that both catalogues of a component have."""
    languages = catalogues(wheel)
    for component, file in sorted(languages[to].items()):
        if component in languages["en"]:
            english = dict(flatten(json.loads(wheel.read(languages["en"][component]))))
            for key, text in flatten(json.loads(wheel.read(file))):
                if key in english:
                    yield component, " ".join(english[key].split()), " ".join(text.split())


def fault(source: str, target: str) -> str:
    """Why a pair teaches nothing about translation, or nothing at all."""
    bare = [PLACEHOLDER.sub("", text) for text in (source, target)]
    if not source or not target:
        return "empty"
    if "[%key:" in source + target:
        return "reference to another text"
    if sorted(PLACEHOLDER.findall(source)) != sorted(PLACEHOLDER.findall(target)) or re.search("[{}]", "".join(bare)):
        return "placeholders differ"
    if not LETTER.search(bare[0]) or not LETTER.search(bare[1]):
        return "no words"
    return "same on both sides" if source == target else ""


def position(text: str) -> float:
    """A number in [0, 1) that looks random, but is the same for a text on every machine."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") / 2**64


def part_of(component: str) -> str:
    """The split of a component, the same for every language."""
    at = position(component)
    return "test" if at < TEST else "dev" if at < TEST + DEV else "train"


def essence(text: str) -> str:
    """A text without case and punctuation."""
    return "".join(char for char in text.casefold() if char.isalnum())


def split(pairs: Iterable[tuple[str, str, str]]) -> tuple[dict[str, list[Pair]], Counter[str]]:
    """The distinct usable pairs of each part, in an order that mixes components, and how many were dropped for what."""
    parts: dict[str, dict[Pair, None]] = {"train": {}, "test": {}, "dev": {}}
    dropped: Counter[str] = Counter()
    for component, source, target in pairs:
        part = parts[part_of(component)]
        reason = fault(source, target) or ("repeated" if (source, target) in part else "")
        if reason:
            dropped[reason] += 1
        else:
            part[source, target] = None
    seen: set[str] = set()
    kept: dict[str, list[Pair]] = {}
    for name, part in parts.items():
        kept[name] = sorted((p for p in part if essence(p[0]) not in seen), key=lambda p: position(p[0]))
        seen.update(essence(source) for source, _ in part)
        dropped[f"of {name} also in another part"] += len(part) - len(kept[name])
    return kept, +dropped


def write(path: Path, pairs: list[Pair]) -> None:
    """One pair per line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_suffix(".partial")
    aside.write_text("".join(f"{source}\t{target}\n" for source, target in pairs), encoding="utf-8", newline="\n")
    aside.replace(path)


def make(wheel: Path, to: str, out: Path) -> None:
    """Write the three files and say what is in them."""
    try:
        opened = zipfile.ZipFile(wheel)
    except zipfile.BadZipFile:
        raise fail(f"{wheel} is damaged; delete it and run this again") from None
    with opened:
        languages = catalogues(opened)
        enough = sorted(name for name, files in languages.items() if len(files) >= LEAST and name != "en")
        if to not in enough:
            raise fail(f"no Home Assistant translations to {to!r}; choose from {' '.join(enough)}")
        kept, dropped = split(read_pairs(opened, to))
    for part, pairs in kept.items():
        if not pairs:
            raise fail(f"no pairs left for {part} from English to {to!r}; choose a language with more text")
    for part, pairs in kept.items():
        write(out / f"{part}.tsv", pairs)
        print(f"{out / part}.tsv: {len(pairs):,} pairs")
    print("dropped:", ", ".join(f"{count:,} {reason}" for reason, count in dropped.most_common()))


def main() -> None:
    parser = argparse.ArgumentParser(description="Make the English-to-TO interface texts.")
    parser.add_argument("--to", default="de", help="language to translate to, such as de, fr, ja, zh-Hans")
    parser.add_argument("--out", type=Path, default=Path("demo-data"), help="folder for the wheel and the pairs")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    make(wheel_in(options.out), options.to, options.out / f"homeassistant-en-{options.to}")


if __name__ == "__main__":
    main()
