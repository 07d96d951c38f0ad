"""Compare word vectors with gensim and fastText: speed, memory and quality, on the same text with the same settings.

    python benchmarks/vectors.py wiki-en.txt.xz --sets questions-words.txt EN-WS-353-ALL.txt EN-SIMLEX-999.txt --out FOLDER

writes FOLDER/table.md and FOLDER/table.json, mean and standard deviation over `--seeds` seeds; needs gensim and fasttext-wheel.
All systems read one copy of the text, in lower case, with white space for all but letters and digits. Systems take turns, each in
a process of its own. Words per second are those of training alone, over all words of the text; for GloVe they are entries of the
co-occurrence matrix. Seconds are those from the text to the vectors, including the vocabulary and co-occurrence counts, then
those of training alone. Memory is the peak of the process. gensim reads the file itself (`corpus_file`), its fastest way. Our
kernels are compiled beforehand, as the others' are. Finished results are kept.

`ngrams` is fastText with character n-grams, with skip-gram or (`ngrams-cbow`) CBOW. GloVe has the window, epochs and learning
rate of its paper. Three questions have tables of their own: is the sum of GloVe's two matrices better than either, does CBOW or
GloVe train faster, and what do n-grams gain on rare words (see vectors_tables.py).
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
TOY = "a few words to train on so that all kernels are compiled before the benchmark begins\n" * 9
Trained = tuple[Callable[[], "WordVectors"], dict[str, float]]  # a function that returns the vectors, and their speed


def train_with_qkv(method: str, text: Path, seed: int, options: argparse.Namespace) -> Trained:
    from qkv.vectors.train import METHODS, train_vectors

    name, more = OURS[method]
    given = {**shared_settings(options, name), **more, "seed": seed}
    if method != "glove":
        given |= {"learning_rate": RATES[method], "sample": SAMPLES[method]}
    begin = time.perf_counter()
    with tempfile.TemporaryDirectory(dir=options.out) as cache:  # a fresh cache: reading the text is measured too
        os.environ["QKV_CACHE"] = cache
        trained = train_vectors(name, [text], METHODS[name].config.model_validate(given))
        seconds = time.perf_counter() - begin
    speed = {f"{trained.unit} per second": trained.speed}
    return lambda: trained.vectors, speed | timed(seconds, trained.amount / trained.speed)


def shared_settings(options: argparse.Namespace, name: str = "") -> dict[str, Any]:
    """Return the settings that all systems share, by our names; GloVe has its own window and epochs."""
    shared = (
        ("width", "min_count", "threads")
        if name == "glove"
        else ("width", "window", "negatives", "min_count", "epochs", "threads")
    )
    return {key: getattr(options, key) for key in shared}


def timed(seconds: float, training: float) -> dict[str, float]:
    return {"seconds": seconds, "training seconds": training}


def words_per_second(options: argparse.Namespace, training: float) -> dict[str, float]:
    words = json.loads((options.out / "words.json").read_text())
    return {"words per second": words * options.epochs / training}


def train_with_gensim(method: str, text: Path, seed: int, options: argparse.Namespace) -> Trained:
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
    # Each worker decays the learning rate by the share of `total_examples` that it has read itself, so it gets its own number of
    # lines; with the total of all workers the rate would decay only part of the way.
    lines = model.corpus_count // options.threads
    model.train(corpus_file=str(text), epochs=options.epochs, total_words=model.corpus_total_words, total_examples=lines)
    end = time.perf_counter()
    figures = words_per_second(options, end - start) | timed(end - begin, end - start)
    return lambda: vectors_of(model.wv.index_to_key, model.wv.vectors), figures


def train_with_fasttext(method: str, text: Path, seed: int, options: argparse.Namespace) -> Trained:
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
    fasttext.train_unsupervised(str(text), epoch=0, **given)  # time of everything but training
    start = time.perf_counter()
    # Its binding takes no seed; runs differ by the order of threads.
    model = fasttext.train_unsupervised(str(text), epoch=options.epochs, **given)
    end = time.perf_counter()
    training = end - start - (start - begin)
    figures = words_per_second(options, training) | timed(end - start, training)
    return lambda: vectors_of(model.words, np.stack([model.get_word_vector(word) for word in model.words])), figures


def vectors_of(words: list[str], matrix: Any) -> "WordVectors":
    from qkv.vectors.word_vectors import WordVectors

    return WordVectors(words, matrix)


TOOLS: dict[str, Callable[[str, Path, int, argparse.Namespace], Trained]] = {
    "qkv": train_with_qkv,
    "gensim": train_with_gensim,
    "fasttext": train_with_fasttext,
}


def one(system: str, seed: int, options: argparse.Namespace) -> None:
    """Train with one system, and write speed and quality."""
    tool, method = system.split()
    vectors, speed = TOOLS[tool](method, options.out / "words.txt", seed, options)
    speed["MiB"] = peak()
    from vectors_tables import evaluate

    with atomic_file(result_of(system, seed, options)) as temporary:
        temporary.write_text(json.dumps({"speed": speed, **evaluate(vectors(), options.sets, options.rare)}, indent=1))


def peak() -> float:
    """Return the peak memory of this process in MiB; getrusage would include that of the parent process."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found
    return int(found[1]) / 1024


def result_of(system: str, seed: int, options: argparse.Namespace) -> Path:
    return options.out / f"{system.replace(' ', '-')}-{seed}.json"


def prepare(options: argparse.Namespace) -> None:
    """Write the text that all systems read, and its number of words, unless they exist."""
    from qkv.text.files import read_lines

    if (options.out / "words.json").exists():
        return
    words = 0
    with atomic_file(options.out / "words.txt") as temporary, temporary.open("w", encoding="utf-8") as file:
        for line in read_lines(options.text):
            found = re.findall(r"\w+", (line or "").lower())
            words += len(found)
            if found:
                file.write(" ".join(found) + "\n")
            if options.words and words >= options.words:
                break
    (options.out / "words.json").write_text(json.dumps(words))


def compile_kernels(systems: list[str]) -> None:
    """Compile our kernels into numba's cache."""
    from qkv.vectors.train import METHODS, train_vectors

    with tempfile.TemporaryDirectory() as folder:
        os.environ["QKV_CACHE"] = folder
        text = Path(folder) / "toy.txt"
        text.write_text(TOY)
        for name, more in (OURS[system.split()[1]] for system in systems if system.startswith("qkv")):
            few = {"width": 8, "epochs": 1, **more, **({"buckets": 9} if name == "fasttext" else {})}
            train_vectors(name, [text], METHODS[name].config.model_validate(few), quiet=True)


def compare(options: argparse.Namespace) -> None:
    from comparison import refuse_other_settings, write_settings
    from vectors_tables import tables

    settings = {
        **shared_settings(options),
        "text": options.text.name,
        "words": options.words,
        "sets": [path.name for path in options.sets],
    }
    refuse_other_settings(options.out / "settings.json", settings | {"rare": options.rare})
    write_settings(options.out / "settings.json", settings | {"rare": options.rare})
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
        with atomic_file(options.out / name) as temporary:
            temporary.write_text(content)
    print(text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=Path)
    parser.add_argument("--sets", type=Path, nargs="+", required=True, help="similarity and analogy sets")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--systems", nargs="+", default=SYSTEMS, choices=SYSTEMS, metavar="SYSTEM")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--words", type=int, default=0, help="read only this many words; 0: all")
    parser.add_argument("--rare", type=int, nargs="+", default=[50, 500], help="counts that separate the bands of rare words")
    for name, value in {"width": 100, "window": 5, "negatives": 5, "min-count": 5, "epochs": 5, "threads": 2}.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--seed", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        one(options.one, options.seed, options)
    else:
        compare(options)


if __name__ == "__main__":
    main()
