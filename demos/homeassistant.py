"""Translation: make demo-data/homeassistant-en-TO/{train,dev,test}.tsv from Home Assistant's interface texts.

    python demos/homeassistant.py --to de

The script downloads the wheel `homeassistant` (63 MB) with pip, once, and reads it without unpacking. Each component has
an `en.json` and a translation; texts with the same key make a pair. Whole components are held out. A held-out pair is
dropped if its English text also occurs in another split (ignoring case and punctuation): the same "Failed to connect"
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
TEST, DEV = 0.08, 0.05  # shares of the components, and roughly of the pairs
MIN_COMPONENTS = 100  # a language with fewer translated components has too little text
FILE = re.compile(r"homeassistant/components/([^/]+)/translations/([^/]+)\.json")
PLACEHOLDER = re.compile(r"\{\w+\}")
LETTER = re.compile(r"[^\W\d_]")

Pair = tuple[str, str]


def fail(line: str) -> SystemExit:
    """Print a line on stderr and return the exit with code 2."""
    print(line, file=sys.stderr)
    return SystemExit(2)


def download_wheel(folder: Path) -> Path:
    """Return the path of the wheel; download it unless the folder has it."""
    wheel = folder / f"homeassistant-{VERSION}-py3-none-any.whl"
    if not wheel.exists():
        print(f"downloading homeassistant {VERSION} (63 MB)", flush=True)
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--ignore-requires-python"]
        done = subprocess.run([*pip, "--dest", str(folder), f"homeassistant=={VERSION}"])
        if done.returncode or not wheel.exists():
            raise fail(f"pip could not download homeassistant=={VERSION}; check the network and try again")
    return wheel


def list_catalogues(wheel: zipfile.ZipFile) -> dict[str, dict[str, str]]:
    """Return the file name of each component's translation, by language."""
    languages: dict[str, dict[str, str]] = {}
    for name in wheel.namelist():
        if found := FILE.fullmatch(name):
            languages.setdefault(found[2], {})[found[1]] = name
    return languages


def flatten(tree: dict[str, Any], path: str = "") -> Iterator[tuple[str, str]]:
    """Yield the texts of a catalogue with their dotted keys."""
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from flatten(value, f"{path}{key}.")
        elif isinstance(value, str):
            yield path + key, value


def read_pairs(wheel: zipfile.ZipFile, to: str) -> Iterator[tuple[str, str, str]]:
    """Yield (component, English, translation) for every key that both catalogues of a component have."""
    languages = list_catalogues(wheel)
    for component, file in sorted(languages[to].items()):
        if component in languages["en"]:
            english = dict(flatten(json.loads(wheel.read(languages["en"][component]))))
            for key, text in flatten(json.loads(wheel.read(file))):
                if key in english:
                    yield component, " ".join(english[key].split()), " ".join(text.split())


def drop_reason(source: str, target: str) -> str:
    """Return why a pair is useless for training; an empty string for a good pair."""
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


def hash_fraction(text: str) -> float:
    """Hash a text to a number in [0, 1), the same on every machine."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") / 2**64


def split_of(component: str) -> str:
    """Return the split of a component, the same for every language."""
    fraction = hash_fraction(component)
    return "test" if fraction < TEST else "dev" if fraction < TEST + DEV else "train"


def normalise(text: str) -> str:
    """Remove case and punctuation from a text."""
    return "".join(char for char in text.casefold() if char.isalnum())


def split_pairs(pairs: Iterable[tuple[str, str, str]]) -> tuple[dict[str, list[Pair]], Counter[str]]:
    """Return the distinct good pairs of each split, with components mixed, and how many pairs were dropped for each reason."""
    splits: dict[str, dict[Pair, None]] = {"train": {}, "test": {}, "dev": {}}
    dropped: Counter[str] = Counter()
    for component, source, target in pairs:
        pairs_of_split = splits[split_of(component)]
        reason = drop_reason(source, target) or ("repeated" if (source, target) in pairs_of_split else "")
        if reason:
            dropped[reason] += 1
        else:
            pairs_of_split[source, target] = None
    seen: set[str] = set()
    kept: dict[str, list[Pair]] = {}
    for name, found in splits.items():
        kept[name] = sorted((p for p in found if normalise(p[0]) not in seen), key=lambda p: hash_fraction(p[0]))
        seen.update(normalise(source) for source, _ in found)
        dropped[f"of {name} also in another split"] += len(found) - len(kept[name])
    return kept, +dropped


def write(path: Path, pairs: list[Pair]) -> None:
    """Write one pair per line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_suffix(".partial")
    aside.write_text("".join(f"{source}\t{target}\n" for source, target in pairs), encoding="utf-8", newline="\n")
    aside.replace(path)


def make_dataset(wheel: Path, to: str, out: Path) -> None:
    """Write the three files and print their sizes."""
    try:
        opened = zipfile.ZipFile(wheel)
    except zipfile.BadZipFile:
        raise fail(f"{wheel} is damaged; delete it and run this again") from None
    with opened:
        languages = list_catalogues(opened)
        enough = sorted(name for name, files in languages.items() if len(files) >= MIN_COMPONENTS and name != "en")
        if to not in enough:
            raise fail(f"no Home Assistant translations to {to!r}; choose from {' '.join(enough)}")
        kept, dropped = split_pairs(read_pairs(opened, to))
    for name, pairs in kept.items():
        if not pairs:
            raise fail(f"no pairs left for {name} from English to {to!r}; choose a language with more text")
    for name, pairs in kept.items():
        write(out / f"{name}.tsv", pairs)
        print(f"{out / name}.tsv: {len(pairs):,} pairs")
    print("dropped:", ", ".join(f"{count:,} {reason}" for reason, count in dropped.most_common()))


def main() -> None:
    parser = argparse.ArgumentParser(description="Make a parallel corpus of interface texts, English to TO.")
    parser.add_argument("--to", default="de", help="language to translate to, such as de, fr, ja, zh-Hans")
    parser.add_argument("--out", type=Path, default=Path("demo-data"), help="folder for the wheel and the pairs")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    make_dataset(download_wheel(options.out), options.to, options.out / f"homeassistant-en-{options.to}")


if __name__ == "__main__":
    main()
