"""Word vectors beside gensim and fastText: speed, memory and quality, on the same text with the same settings.

    python benchmarks/vectors.py wiki-en.txt.xz --sets questions-words.txt EN-WS-353-ALL.txt EN-SIMLEX-999.txt --out FOLDER

makes FOLDER/table.md and FOLDER/table.json, mean and standard deviation over `--seeds` seeds; needs gensim and fasttext-wheel.
The text is made lower case and all but letters and digits becomes white space, once, for all. Systems take turns, each in a
process of its own. Words per second are those of training alone, all words of the text counted; for GloVe it is entries of its
matrix of counts. Seconds are those from the text to the vectors, with the reading of the vocabulary and the counting of pairs,
and of these those of training. Peak memory is that of the process until the vectors are there. gensim reads the file by itself
(`corpus_file`), which is its fastest way. Our kernels are compiled before, as those of the others are. What is there already is
not done again.

`ngrams` is fastText with character n-grams, over skip-gram or (`ngrams-cbow`) CBOW. GloVe has the window, epochs and rate of its
paper. Three questions have tables of their own: is the sum of GloVe's two matrices better than either, does CBOW or GloVe train
faster, what do n-grams buy on rare words (see vectors_tables.py).
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qkv.base.files import atomic_file

if TYPE_CHECKING:
    from qkv.vectors.word_vectors import WordVectors

RATES = {"skipgram": 0.025, "cbow": 0.05, "ngrams": 0.05, "ngrams-cbow": 0.05}
SAMPLES = {"skipgram": 1e-3, "cbow": 1e-3, "ngrams": 1e-4, "ngrams-cbow": 1e-4}
OURS: dict[str, tuple[Any, dict[str, Any]]] = {
    "skipgram": ("skipgram", {}),
    "cbow": ("cbow", {}),
    "ngrams": ("fasttext", {}),
    "ngrams-cbow": ("fasttext", {"architecture": "cbow"}),
    "glove": ("glove", {}),
}
SYSTEMS = [
    *(f"{tool} {method}" for method in ("skipgram", "cbow") for tool in ("qkv", "gensim", "fasttext")),
    *("qkv ngrams", "fasttext ngrams", "qkv ngrams-cbow", "qkv glove"),
]
TOY = "a few words are read so that kernels are compiled before the others begin\n" * 9
Made = tuple[Callable[[], "WordVectors"], dict[str, float]]  # the vectors when they are asked for, and how fast they came


def by_qkv(method: str, text: Path, seed: int, options: argparse.Namespace) -> Made:
    from qkv.vectors.train import METHODS, train_vectors

    name, more = OURS[method]
    given = {**same(options, name), **more, "seed": seed}
    if method != "glove":
        given |= {"learning_rate": RATES[method], "sample": SAMPLES[method]}
    begin = time.perf_counter()
    with tempfile.TemporaryDirectory(dir=options.out) as cache:  # a text that was read before would be a head start
        os.environ["QKV_CACHE"] = cache
        trained = train_vectors(name, [text], METHODS[name].config.model_validate(given))
        seconds = time.perf_counter() - begin
    speed = {f"{trained.unit} per second": trained.speed}
    return lambda: trained.vectors, speed | timed(seconds, trained.amount / trained.speed)


def same(options: argparse.Namespace, name: str = "") -> dict[str, Any]:
    """Settings that all systems share, by our names; GloVe's window and epochs are its own."""
    shared = (
        ("width", "min_count", "threads")
        if name == "glove"
        else ("width", "window", "negatives", "min_count", "epochs", "threads")
    )
    return {key: getattr(options, key) for key in shared}


def timed(seconds: float, training: float) -> dict[str, float]:
    return {"seconds": seconds, "of training": training}


def words_per_second(options: argparse.Namespace, training: float) -> dict[str, float]:
    words = json.loads((options.out / "words.json").read_text())
    return {"words per second": words * options.epochs / training}


def by_gensim(method: str, text: Path, seed: int, options: argparse.Namespace) -> Made:
    from gensim.models import Word2Vec

    begin = time.perf_counter()
    model = Word2Vec(
        vector_size=options.width,
        window=options.window,
        negative=options.negatives,
        min_count=options.min_count,
        workers=options.threads,
        sg=int(method == "skipgram"),
        alpha=RATES[method],
        sample=SAMPLES[method],
        seed=seed + 1,
    )
    model.build_vocab(corpus_file=str(text))
    start = time.perf_counter()
    # Each worker lowers the rate by how many of all lines it has read itself: it must be told its share of them as all, or the
    # rate falls a part of the way only, which is another training.
    lines = model.corpus_count // options.threads
    model.train(corpus_file=str(text), epochs=options.epochs, total_words=model.corpus_total_words, total_examples=lines)
    end = time.perf_counter()
    figures = words_per_second(options, end - start) | timed(end - begin, end - start)
    return lambda: vectors_of(model.wv.index_to_key, model.wv.vectors), figures


def by_fasttext(method: str, text: Path, seed: int, options: argparse.Namespace) -> Made:
    import fasttext
    import numpy as np

    given = {
        "model": "cbow" if method == "cbow" else "skipgram",
        "dim": options.width,
        "ws": options.window,
        "neg": options.negatives,
        "minCount": options.min_count,
        "thread": options.threads,
        "lr": RATES[method],
        "t": SAMPLES[method],
        "verbose": 0,
        **({} if method == "ngrams" else {"minn": 0, "maxn": 0, "bucket": 1}),
    }
    begin = time.perf_counter()
    fasttext.train_unsupervised(str(text), epoch=0, **given)  # what it needs besides training
    start = time.perf_counter()
    # Its binding takes no seed; threads make chance enough.
    model = fasttext.train_unsupervised(str(text), epoch=options.epochs, **given)
    end = time.perf_counter()
    training = end - start - (start - begin)
    figures = words_per_second(options, training) | timed(end - start, training)
    return lambda: vectors_of(model.words, np.stack([model.get_word_vector(word) for word in model.words])), figures


def vectors_of(words: list[str], matrix: Any) -> "WordVectors":
    from qkv.vectors.word_vectors import WordVectors

    return WordVectors(words, matrix)


TOOLS: dict[str, Callable[[str, Path, int, argparse.Namespace], Made]] = {
    "qkv": by_qkv,
    "gensim": by_gensim,
    "fasttext": by_fasttext,
}


def one(system: str, seed: int, options: argparse.Namespace) -> None:
    """Train by one system, and write what came of it."""
    tool, method = system.split()
    vectors, speed = TOOLS[tool](method, options.out / "words.txt", seed, options)
    speed["MiB"] = peak()
    from vectors_tables import judge

    with atomic_file(result_of(system, seed, options)) as aside:
        aside.write_text(json.dumps({"speed": speed, **judge(vectors(), options.sets, options.rare)}, indent=1))


def peak() -> float:
    """The most memory that this process had at once, in MiB; getrusage would tell that of the process that started it too."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found
    return int(found[1]) / 1024


def result_of(system: str, seed: int, options: argparse.Namespace) -> Path:
    return options.out / f"{system.replace(' ', '-')}-{seed}.json"


def prepare(options: argparse.Namespace) -> None:
    """The text as all systems read it, and how many words it has."""
    from qkv.text.files import read_lines

    if (options.out / "words.json").exists():
        return
    words = 0
    with atomic_file(options.out / "words.txt") as aside, aside.open("w", encoding="utf-8") as file:
        for line in read_lines(options.text):
            found = re.findall(r"\w+", (line or "").lower())
            words += len(found)
            if found:
                file.write(" ".join(found) + "\n")
            if options.words and words >= options.words:
                break
    (options.out / "words.json").write_text(json.dumps(words))


def compile_kernels(systems: list[str]) -> None:
    """Leave our kernels in numba's cache."""
    from qkv.vectors.train import METHODS, train_vectors

    with tempfile.TemporaryDirectory() as folder:
        os.environ["QKV_CACHE"] = folder
        text = Path(folder) / "toy.txt"
        text.write_text(TOY)
        for name, more in (OURS[system.split()[1]] for system in systems if system.startswith("qkv")):
            few = {"width": 8, "epochs": 1, **more, **({"buckets": 9} if name == "fasttext" else {})}
            train_vectors(name, [text], METHODS[name].config.model_validate(few), quiet=True)


def all_of_them(options: argparse.Namespace) -> None:
    from side_by_side import note_settings, refuse_other_settings
    from vectors_tables import tables

    settings = {**same(options), "text": options.text.name, "words": options.words, "sets": [path.name for path in options.sets]}
    refuse_other_settings(options.out / "settings.json", settings | {"rare": options.rare})
    note_settings(options.out / "settings.json", settings | {"rare": options.rare})
    prepare(options)
    compile_kernels(options.systems)
    for seed in range(options.seeds):
        for system in options.systems:
            if not result_of(system, seed, options).exists():
                subprocess.run([sys.executable, *sys.argv, "--one", system, "--seed", str(seed)], check=True)
                print(f"{system}, seed {seed}: {result_of(system, seed, options).read_text()}", flush=True)
    results = {s: [json.loads(result_of(s, seed, options).read_text()) for seed in range(options.seeds)] for s in options.systems}
    text = tables(results)
    for name, content in {"table.json": json.dumps(results, indent=1), "table.md": text}.items():
        with atomic_file(options.out / name) as aside:
            aside.write_text(content)
    print(text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=Path)
    parser.add_argument("--sets", type=Path, nargs="+", required=True, help="similarity and analogy sets")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--systems", nargs="+", default=SYSTEMS, choices=SYSTEMS, metavar="SYSTEM")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--words", type=int, default=0, help="read only so many words; 0: all")
    parser.add_argument("--rare", type=int, nargs="+", default=[50, 500], help="counts at which bands of rare words end")
    for name, value in {"width": 100, "window": 5, "negatives": 5, "min-count": 5, "epochs": 5, "threads": 2}.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--seed", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        one(options.one, options.seed, options)
    else:
        all_of_them(options)


if __name__ == "__main__":
    main()
