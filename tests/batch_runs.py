"""Tiny runs with random weights for batch work, one for each verb, and shards of texts."""

import gzip
import json
import random
from pathlib import Path

from encoder_runs import LINES, own_tokenizer, randomised, write_model, write_run
from qkv.models.gpt import Gpt, GptConfig
from qkv.parts.heads import ModelWithHeads
from translator_runs import TRANSFORMER, write_pairs_run

WORDS = " ".join(LINES[:2]).split()


def write_runs(folder: Path) -> dict[str, Path]:
    """Write the run for each verb."""
    tokenizer = own_tokenizer()
    gpt = GptConfig(width=16, feedforward=20, heads=2, layers=2, max_positions=60)
    decoding = {"beam": 2, "max_ratio": 0, "max_extra": 6}
    runs = {
        "translate": write_pairs_run(folder / "translator", TRANSFORMER, tokenizer, tokenizer, decoding=decoding),
        "embed": write_run(folder / "encoder"),
        "predict": write_run(
            folder / "classifier", heads=("pooler", "classes"), labels=("bad", "good"), objective="classification"
        ),
        "generate": write_model(
            folder / "gpt",
            randomised(ModelWithHeads(Gpt(gpt, len(tokenizer)), ())),
            gpt.model_dump(mode="json"),
            tokenizer,
            objective="causal",
        ),
    }
    return {**runs, "score": runs["generate"]}


def write_shards(folder: Path, count: int = 4, rows: int = 6) -> list[str]:
    """Write shards of text, JSONL (one compressed) and Parquet, and return their names; every text has another length."""
    import pyarrow
    import pyarrow.parquet

    folder.mkdir(parents=True)
    names = []
    for number in range(count):
        rng = random.Random(number)
        texts = [" ".join(rng.choices(WORDS, k=rng.randint(1, 12))) for _ in range(rows)]
        kind = ("txt", "jsonl", "parquet", "jsonl.gz")[number % 4]
        path = folder / f"{number:02}.{kind}"
        records = [{"id": index, "text": text} for index, text in enumerate(texts)]
        if kind == "txt":
            path.write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
        elif kind == "parquet":
            pyarrow.parquet.write_table(pyarrow.Table.from_pylist(records), path)
        else:
            content = "".join(json.dumps(record) + "\n" for record in records).encode()
            path.write_bytes(gzip.compress(content) if kind == "jsonl.gz" else content)
        names.append(path.name)
    return names


def contents(folder: Path) -> dict[str, bytes]:
    """Return the bytes of the outputs in a folder, but for its manifest."""
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file() and path.name != "manifest.json"}
