"""Readers of what trackers wrote: MLflow through its client, Weights & Biases through its own messages."""

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

Points = dict[str, list[tuple[int, float]]]  # figure -> (step, value), in the order they were written
BLOCK, FILE_HEADER, HEADER = 32768, 7, 7  # of the log that .wandb files are: blocks of chunks, each with a header


def mlflow_run(folder: Path) -> tuple[Any, Points]:
    """Return the only run of the experiment qkv in a folder's mlflow.db, and all its points."""
    mlflow = pytest.importorskip("mlflow")
    client = mlflow.MlflowClient(tracking_uri=f"sqlite:///{folder / 'mlflow.db'}")
    (found,) = client.search_runs([client.get_experiment_by_name("qkv").experiment_id])
    histories = {name: client.get_metric_history(found.info.run_id, name) for name in found.data.metrics}
    return found, {name: [(one.step, one.value) for one in history] for name, history in histories.items()}


def wandb_run(run: Path) -> tuple[set[str], dict[str, Any], Points]:
    """Return the ids of the offline runs in a run's folder, their config and summary, and all points."""
    ids, values, points = set(), dict[str, Any](), Points()
    for file in sorted((run / "wandb").glob("offline-run-*/*.wandb")):
        for record in wandb_records(file):
            kind = record.WhichOneof("record_type")
            if kind == "run":
                ids.add(record.run.run_id)
            if kind in ("config", "summary"):
                for item in getattr(record, kind).update:
                    values[item.key or "/".join(item.nested_key)] = json.loads(item.value_json)
            if kind == "history":
                row = {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in record.history.item}
                for name, value in row.items():
                    points.setdefault(name, []).append((row["step"], value))
    return ids, values, points


def wandb_records(file: Path) -> Iterator[Any]:
    """Yield the records of a .wandb file."""
    from wandb.proto import wandb_internal_pb2

    data, at, parts = file.read_bytes(), FILE_HEADER, b""
    while at + HEADER <= len(data):
        if BLOCK - at % BLOCK < HEADER:  # the rest of a block that holds no header
            at += BLOCK - at % BLOCK
            continue
        _, length, kind = struct.unpack("<IHB", data[at : at + HEADER])
        parts += data[at + HEADER : at + HEADER + length]
        at += HEADER + length
        if kind in (1, 4):  # whole, or the last chunk
            record = wandb_internal_pb2.Record()
            record.ParseFromString(parts)
            parts = b""
            yield record
