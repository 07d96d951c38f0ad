"""Distil a teacher: students trained on real pairs, on the teacher's translations and on both, with scores and speed on the CPU.

    python benchmarks/distillation.py --teacher runs/big --train train.tsv --dev dev.tsv --test test.tsv \\
        --recipe transformer-small --set training.steps=5000 --out FOLDER

The teacher translates the sources of --train, and those of --text if given. Every student is a run folder below FOLDER: finished
ones are skipped, interrupted ones resumed. At the end the teacher and all students translate the test set with qkv's own engine
and with CTranslate2 in float32 and int8, in interleaved rounds; FOLDER/table.md and FOLDER/table.json have scores and
sentences/s.
"""

import argparse
import json
import os
import statistics
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("GOMP_SPINCOUNT", "10000")  # as the qkv command does; before torch is imported

import torch

from qkv.base.config import with_settings
from qkv.base.files import atomic_file
from qkv.base.hardware import cpu_cores, describe_device
from qkv.inference.load import load_translator
from qkv.inference.translator import Translator
from qkv.jobs.prepared_pairs import read_corpora
from qkv.jobs.synthesis import distil
from qkv.jobs.train import train
from qkv.recipes import TranslationData
from qkv.text.corpus import ParallelCorpusConfig, read_pairs
from qkv.text.translation_metrics import score_corpus

ENGINES = [("own", None), ("ctranslate2", "float32"), ("ctranslate2", "int8")]
WARM = 64  # texts translated before time is measured


def write_sources(options: argparse.Namespace) -> Path:
    """Write the different sources of the training pairs, one per line."""
    sources = dict.fromkeys(" ".join(p.source.split()) for p in read_pairs(ParallelCorpusConfig(pairs=options.train)))
    with atomic_file(options.out / "sources.txt") as path:
        path.write_text("".join(f"{source}\n" for source in sources if source), encoding="utf-8")
    return options.out / "sources.txt"


def train_students(options: argparse.Namespace) -> dict[str, Path]:
    """Train the three students with the same recipe. -> their runs, by name."""
    out = options.out
    settings = with_settings({"data": {"dev": options.dev, "test": options.test}}, options.settings)
    texts = [write_sources(options), *options.text]
    engine = {"engine": "ctranslate2"} if options.fast_teacher else {}
    taught = distil(options.teacher, texts, options.recipe, out / "taught", settings=settings, beam=options.beam, **engine)
    made = str(out / "taught.teacher.tsv")
    real = train(options.recipe, out / "real", settings={**settings, "data.train": options.train})
    both = train(options.recipe, out / "both", settings={**settings, "data.train": [made, options.train]})
    return {"student, real pairs": real, "student, teacher's pairs": taught, "student, both": both}


def measure(models: dict[str, Path], options: argparse.Namespace) -> list[dict[str, Any]]:
    """Translate the test set with each model and engine, and return a row for each."""
    test = (ParallelCorpusConfig(pairs=options.test),)
    pairs, _ = read_corpora(test, TranslationData.model_validate({"train": "-", "dev": "-", "test": options.test}))
    pairs = pairs[: options.texts]
    sources, targets = [source for source, _ in pairs], [target for _, target in pairs]
    loaded = {
        (name, engine, precision): load_translator(run, "cpu", engine, precision)
        for name, run in models.items()
        for engine, precision in ENGINES
    }
    for translator in loaded.values():
        translator.translate(sources[:WARM], beam=options.beam)
    rounds = [
        {key: timed(translator, sources, options.beam) for key, translator in loaded.items()} for _ in range(options.rounds)
    ]
    rows = []
    for (name, engine, precision), (outputs, _) in rounds[0].items():
        speeds = sorted(one[name, engine, precision][1] for one in rounds)
        language = (loaded[name, engine, precision].recipe.data.languages or (None, None))[1]
        scores = score_corpus(outputs, targets, target_language=language, confidence=True)
        own: Any = loaded[name, "own", None].engine
        rows.append(
            {
                "model": name,
                "engine": f"{engine} {precision}" if precision else engine,
                "parameters": sum(p.numel() for p in own.model.parameters()),
                "scores": [vars(score) for score in scores],
                "sentences_per_second": {"median": statistics.median(speeds), "lowest": speeds[0], "highest": speeds[-1]},
            }
        )
    return rows


def timed(translator: Translator, sources: list[str], beam: int) -> tuple[list[str], float]:
    """Return the translations, and texts per second."""
    torch.set_num_threads(cpu_cores())  # CTranslate2 sets the threads of the whole process to those of one worker
    start = time.perf_counter()
    outputs = translator.translate(sources, beam=beam)
    return outputs, len(sources) / (time.perf_counter() - start)


def table(rows: list[dict[str, Any]], options: argparse.Namespace) -> str:
    """Return a Markdown table of all rows."""
    cpu = describe_device(torch.device("cpu"))
    lines = [f"beam {options.beam}, median of {options.rounds} rounds (range), {cpu}", ""]
    names = " | ".join(score["name"] for score in rows[0]["scores"])
    lines += [f"| model | parameters | engine | {names} | sentences/s |", "|---" * (4 + len(rows[0]["scores"])) + "|"]
    for row in rows:
        scores = " | ".join(f"{s['value']:.1f} [{s['low']:.1f}, {s['high']:.1f}]" for s in row["scores"])
        speed = "{median:,.0f} ({lowest:,.0f} to {highest:,.0f})".format_map(row["sentences_per_second"])
        lines.append(f"| {row['model']} | {row['parameters'] / 1e6:.2f} M | {row['engine']} | {scores} | {speed} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for part in ("teacher", "train", "dev", "test"):
        parser.add_argument(f"--{part}", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--recipe", default="transformer-small", help="of the students")
    parser.add_argument("--set", dest="settings", action="append", default=[], metavar="KEY=VALUE", help="of the students")
    parser.add_argument("--text", nargs="*", default=[], help="more source-language text for the teacher, one text per line")
    parser.add_argument("--fast-teacher", action="store_true", help="let CTranslate2 translate for the teacher")
    parser.add_argument("--beam", type=int, default=5)
    parser.add_argument("--texts", type=int, default=1000, help="of the test set that are translated for scores and speed")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    rows = measure({"teacher": Path(options.teacher), **train_students(options)}, options)
    with atomic_file(options.out / "table.json") as path:
        path.write_text(json.dumps(rows, indent=1))
    (options.out / "table.md").write_text(found := table(rows, options))
    print(found)


if __name__ == "__main__":
    main()
