"""Add a second target language to a translator, with and without new pieces in its vocabulary.

    python benchmarks/grow_vocabulary.py --general tatoeba-en-de --new tatoeba-en-zh --languages de zh --steps 20000 \\
        --adapt-steps 5000 --grow 0 500 2000 --out FOLDER

trains a general translator on the pairs in the first folder (train.tsv.gz, dev.tsv.gz, test.tsv.gz), goes on from it with the
pairs in the second one, and writes FOLDER/table.md and FOLDER/table.json. Each source begins with the name of its target
language; a fifth of the general pairs is mixed in, and both test sets are scored before and after. Each number of `--grow` is one
run; 0 keeps the vocabulary. The same command goes on where it stopped.
"""

import argparse
import gzip
import json
from pathlib import Path
from typing import Any

from qkv.folder.run import RESULT, read_run
from qkv.jobs.before_after import format_row
from qkv.jobs.train import train

REHEARSED = 0.2  # of the general pairs in each epoch


def corpus(folder: Path, part: str, language: str, **more: Any) -> dict[str, Any]:
    return {"pairs": str(folder / f"{part}.tsv.gz"), "prefix": f"{language}:", **more}


def train_general(options: argparse.Namespace) -> Path:
    """Train the general translator."""
    settings = {
        **{f"data.{part}": [corpus(options.general, part, options.languages[0])] for part in ("train", "dev", "test")},
        "tokenizer.shared.vocab": options.vocab,
        "training.steps": options.steps,
        "training.device": options.device,
    }
    return train(options.recipe, options.out / "general", settings=settings)


def train_grown(options: argparse.Namespace, general: Path, grow: int) -> Path:
    """Go on with pairs of the new language, with up to `grow` new pieces."""
    old, new = options.languages
    rehearsal = corpus(options.general, "train", old, weight=REHEARSED)
    settings = {
        "start": str(general),
        "data.train": [corpus(options.new, "train", new), rehearsal],
        **{f"data.{part}": [corpus(options.new, part, new)] for part in ("dev", "test")},
        "data.also_test": [corpus(options.general, "test", old)],
        "data.languages": ["en", new],
        "training.steps": options.adapt_steps,
        "training.learning_rate": options.rate,
        "training.device": options.device,
        **({"tokenizer.grow": grow} if grow else {}),
    }
    return train("adapt", options.out / f"grow-{grow}", settings=settings)


def row(options: argparse.Namespace, run: Path, grow: int) -> dict[str, Any]:
    """Return the figures of a run: its vocabulary, tokens per target of the new test set, and scores of both test sets."""
    _, tokenizers = read_run(run)
    with gzip.open(options.new / "test.tsv.gz", "rt", encoding="utf-8") as file:
        targets = [line.rstrip("\n").split("\t")[1] for line in file]
    tokens = sum(map(len, tokenizers.target.encode_batch(targets))) / len(targets)
    result = json.loads((run / RESULT).read_text())
    return {"grow": grow, "pieces": len(tokenizers.target), "tokens per text": round(tokens, 1), "sets": result["held-out sets"]}


def write_table(out: Path, rows: list[dict[str, Any]]) -> None:
    lines = ["| new pieces | vocabulary | tokens per text | test set | score | before |", "|---:|---:|---:|---|---|---:|"]
    for one in rows:
        for found in one["sets"]:
            shown = format_row(found)
            cells = [one["grow"], f"{one['pieces']:,}", one["tokens per text"], Path(found["held-out set"]).parent.name or "new"]
            lines.append(f"| {' | '.join(map(str, cells))} | {shown['score']} | {shown['before']} |")
    (out / "table.md").write_text("\n".join(lines) + "\n")
    (out / "table.json").write_text(json.dumps(rows, indent=1, ensure_ascii=False))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--general", type=Path, required=True, help="folder with the pairs that the translator learns first")
    parser.add_argument("--new", type=Path, required=True, help="folder with the pairs of the new target language")
    parser.add_argument("--languages", nargs=2, default=["de", "zh"], help="target languages of both")
    parser.add_argument("--recipe", default="transformer-small", help="of the general translator")
    parser.add_argument("--vocab", type=int, default=8000)
    parser.add_argument("--steps", type=int, default=20000)
    parser.add_argument("--adapt-steps", type=int, default=5000)
    parser.add_argument("--rate", type=float, default=0.0005, help="peak learning rate of adaptation")
    parser.add_argument("--grow", type=int, nargs="+", default=[0, 500, 2000])
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    general = train_general(options)
    write_table(options.out, [row(options, train_grown(options, general, grow), grow) for grow in options.grow])


if __name__ == "__main__":
    main()
