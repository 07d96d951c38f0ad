"""Word vectors beside gensim and fastText: speed, memory and quality, on the same text with the same settings.

    python benchmarks/vectors.py wiki-en.txt.xz --sets questions-words.txt EN-WS-353-ALL.txt EN-SIMLEX-999.txt --out FOLDER

makes FOLDER/table.md and FOLDER/table.json, mean and standard deviation over `--seeds` seeds; needs gensim and fasttext-wheel.
The text is made lower case and all but letters and digits becomes white space, once, for all. Systems take turns, each in a
process of its own. Words per second are those of training alone, all words of the text counted; seconds are those from the text
to the vectors, with the reading of the vocabulary. Peak memory is that of the process until the vectors are there. gensim reads
the file by itself (`corpus_file`), which is its fastest way. What is there already is not done again.
"""

import argparse
import json
import re
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from qkv.base.files import whole_file
from qkv.text.files import read_lines
from qkv.vectors.evaluation import judge_analogies, judge_similarity, read_set, totals
from qkv.vectors.store import Vectors

RATES = {"skipgram": 0.025, "cbow": 0.05, "ngrams": 0.05}
SAMPLES = {"skipgram": 1e-3, "cbow": 1e-3, "ngrams": 1e-4}
SYSTEMS = [
    f"{tool} {method}" for method in RATES for tool in ("qkv", "gensim", "fasttext") if (tool, method) != ("gensim", "ngrams")
]
Timed = tuple[Vectors, float, float]  # the vectors, seconds in all, seconds of training


def by_qkv(method: str, text: Path, seed: int, options: argparse.Namespace) -> Timed:
    from qkv.vectors.learning import CONFIGS, learn

    name: Any = "fasttext" if method == "ngrams" else method
    given = {**same(options), "rate": RATES[method], "sample": SAMPLES[method], "seed": seed}
    begin = time.perf_counter()
    learned = learn(name, [text], CONFIGS[name].model_validate(given))
    return learned.vectors, time.perf_counter() - begin, learned.amount / learned.speed


def same(options: argparse.Namespace) -> dict[str, Any]:
    """Settings that all systems share, by our names."""
    return {name: getattr(options, name) for name in ("width", "window", "negatives", "min_count", "epochs", "threads")}


def by_gensim(method: str, text: Path, seed: int, options: argparse.Namespace) -> Timed:
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
    return Vectors(model.wv.index_to_key, model.wv.vectors), end - begin, end - start


def by_fasttext(method: str, text: Path, seed: int, options: argparse.Namespace) -> Timed:
    import fasttext

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
    model = fasttext.train_unsupervised(
        str(text), epoch=options.epochs, **given
    )  # its binding takes no seed; threads make chance enough
    end = time.perf_counter()
    return Vectors(model.words, rows_of(model)), end - start, end - start - (start - begin)


def rows_of(model: Any) -> Any:
    import numpy as np

    return np.stack([model.get_word_vector(word) for word in model.words])


TOOLS: dict[str, Callable[[str, Path, int, argparse.Namespace], Timed]] = {
    "qkv": by_qkv,
    "gensim": by_gensim,
    "fasttext": by_fasttext,
}


def one(system: str, seed: int, options: argparse.Namespace) -> None:
    """Train by one system, and write what came of it."""
    tool, method = system.split()
    text = options.out / "words.txt"
    vectors, seconds, training = TOOLS[tool](method, text, seed, options)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    words = json.loads((options.out / "words.json").read_text()) * options.epochs
    figures = {"words per second": words / training, "seconds": seconds, "MiB": peak, **quality(vectors, options.sets)}
    with whole_file(result_of(system, seed, options)) as aside:
        aside.write_text(json.dumps(figures, indent=1))


def quality(vectors: Vectors, sets: list[Path]) -> dict[str, float]:
    """Of each set Spearman's correlation or the share of right answers, times 100."""
    found: dict[str, float] = {}
    for path in sets:
        given = read_set(path)
        if isinstance(given, dict):
            for section in totals(judge_analogies(vectors, given, "add", 30_000)):
                found[f"{path.stem} {section.name}"] = 100 * section.accuracy
        else:
            found[path.stem] = 100 * judge_similarity(vectors, given, path.stem).spearman
    return found


def result_of(system: str, seed: int, options: argparse.Namespace) -> Path:
    return options.out / f"{system.replace(' ', '-')}-{seed}.json"


def prepare(options: argparse.Namespace) -> None:
    """The text as all systems read it, and how many words it has."""
    if (options.out / "words.json").exists():
        return
    words = 0
    with whole_file(options.out / "words.txt") as aside, aside.open("w", encoding="utf-8") as file:
        for line in read_lines(options.text):
            found = re.findall(r"\w+", (line or "").lower())
            words += len(found)
            if found:
                file.write(" ".join(found) + "\n")
            if options.words and words >= options.words:
                break
    (options.out / "words.json").write_text(json.dumps(words))


def table(options: argparse.Namespace) -> str:
    """Mean and standard deviation of everything."""
    results = {s: [json.loads(result_of(s, seed, options).read_text()) for seed in range(options.seeds)] for s in options.systems}
    with whole_file(options.out / "table.json") as aside:
        aside.write_text(json.dumps(results, indent=1))
    names = list(next(iter(results.values()))[0])
    lines = ["| system | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
    for system, figures in results.items():
        cells = [_cell([f[name] for f in figures], 0 if name in ("words per second", "MiB", "seconds") else 1) for name in names]
        lines.append(f"| {system} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _cell(values: list[float], digits: int) -> str:
    spread = statistics.stdev(values) if len(values) > 1 else 0.0
    return f"{statistics.mean(values):,.{digits}f} ± {spread:,.{digits}f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=Path)
    parser.add_argument("--sets", type=Path, nargs="+", required=True, help="similarity and analogy sets")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--systems", nargs="+", default=SYSTEMS, choices=SYSTEMS, metavar="SYSTEM")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--words", type=int, default=0, help="read only so many words; 0: all")
    for name, value in {"width": 100, "window": 5, "negatives": 5, "min-count": 5, "epochs": 5, "threads": 2}.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--seed", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        one(options.one, options.seed, options)
        return
    options.out.mkdir(parents=True, exist_ok=True)
    prepare(options)
    for seed in range(options.seeds):
        for system in options.systems:
            if not result_of(system, seed, options).exists():
                subprocess.run([sys.executable, *sys.argv, "--one", system, "--seed", str(seed)], check=True)
                print(f"{system}, seed {seed}: {result_of(system, seed, options).read_text()}", flush=True)
    text = table(options)
    with whole_file(options.out / "table.md") as aside:
        aside.write_text(text)
    print(text)


if __name__ == "__main__":
    main()
