"""A run as MLflow and Weights & Biases hold it, by their own libraries. No weights are sent.

Servers and keys are the libraries' own environment variables (MLFLOW_TRACKING_URI, WANDB_MODE, WANDB_API_KEY and so on). Without
them nothing leaves the machine: MLflow writes the file mlflow.db of the current folder, Weights & Biases the run's folder.
"""

import logging
import math
import os
import secrets
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

from qkv.base.config import read_yaml

Status = Literal["finished", "stopped", "failed"]
RECIPE, RESULT = "recipe.yaml", "result.json"
WANDB_FLUSH = 1.0  # seconds until a line is on the disk: a process that is killed loses no more
MOST_METRICS, MOST_PARAMETERS, MOST_CHARACTERS = 1000, 100, 5000  # in a call to MLflow; characters of a value


class TrackedRun(Protocol):
    """An open run of a library."""

    memory: dict[str, Any]  # what finds it again

    def send(self, lines: list[dict[str, Any]]) -> None:
        """Add lines of metrics.jsonl."""
        ...

    def end(self, status: Status, result: dict[str, Any]) -> None:
        """Close the run; `result` is what result.json holds, if the training is finished."""
        ...


class Tracking(NamedTuple):
    """What a tracked run is opened with."""

    run: Path
    project: str
    facts: Mapping[str, str]  # versions and machine
    memory: Mapping[str, Any]  # of the tracked run that is to be continued; empty for a new one


class MlflowRun:
    """A run of the MLflow experiment that is named as the project."""

    def __init__(self, given: Tracking):
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")
        for name in ("mlflow", "alembic"):
            logging.getLogger(name).setLevel(logging.WARNING)
        import mlflow

        self.run, self.entities, self.last_step = given.run, mlflow.entities, 0
        place = os.environ.get("MLFLOW_TRACKING_URI") or given.memory.get("uri") or mlflow.get_tracking_uri()
        self.client = mlflow.MlflowClient(tracking_uri=place)
        parameters = {key: str(value)[:MOST_CHARACTERS] for key, value in flat_recipe(self.run).items()}
        if "id" in given.memory:
            self.id = given.memory["id"]
            logged = self.client.get_run(self.id).data.params
            self.client.update_run(self.id, status="RUNNING")
            tags = {f"changed/{key}": value for key, value in parameters.items() if value != logged.get(key)}
            parameters = {}  # those that were logged cannot be replaced
        else:
            self.id = self.client.create_run(self._experiment(given.project), run_name=self.run.resolve().name).info.run_id
            tags = {}
        self.memory = {"id": self.id, "uri": place}
        for some in chunks(self.entities.Param(*item) for item in parameters.items()):
            self.client.log_batch(self.id, params=some)
        self._tag({**given.facts, **tags})

    def _experiment(self, name: str) -> str:
        """Return the id of the experiment, and create it if it is not there."""
        found = self.client.get_experiment_by_name(name)
        if found is None:
            try:
                return str(self.client.create_experiment(name))
            except Exception:  # another training may have created it meanwhile
                found = self.client.get_experiment_by_name(name)
                if found is None:
                    raise
        return str(found.experiment_id)

    def _tag(self, tags: Mapping[str, str]) -> None:
        for some in chunks(self.entities.RunTag(key, value[:MOST_CHARACTERS]) for key, value in tags.items()):
            self.client.log_batch(self.id, tags=some)

    def send(self, lines: list[dict[str, Any]]) -> None:
        now, make = int(time.time() * 1000), self.entities.Metric
        metrics = [make(name, value, now, line["step"]) for line in lines for name, value in figures(line).items()]
        for some in chunks(metrics, MOST_METRICS):
            self.client.log_batch(self.id, metrics=some)
        self._tag(warnings_in(lines))
        self.last_step = lines[-1]["step"]

    def end(self, status: Status, result: dict[str, Any]) -> None:
        now, make = int(time.time() * 1000), self.entities.Metric
        metrics = [make(name, value, now, self.last_step) for name, value in result_figures(result).items()]
        self.client.log_batch(self.id, metrics=metrics)
        for name in (RECIPE, RESULT):
            if (self.run / name).exists():
                self.client.log_artifact(self.id, str(self.run / name))
        self.client.set_terminated(self.id, {"finished": "FINISHED", "stopped": "KILLED", "failed": "FAILED"}[status])


class WandbRun:
    """A run of a Weights & Biases project; offline unless WANDB_MODE says otherwise. `wandb sync` sends what is offline."""

    def __init__(self, given: Tracking):
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        import wandb

        self.memory = {"id": given.memory.get("id") or secrets.token_hex(4)}
        # No terminal, no code, no list of packages: docs/tracking.md says what is sent. Nobody is asked for a key.
        settings = {
            "console": "off",
            "silent": True,
            "disable_git": True,
            "save_code": False,
            "login_timeout": 1,
            "init_timeout": 60,
        }
        settings |= {"x_disable_meta": True, "x_save_requirements": False, "x_transaction_log_flush_interval": WANDB_FLUSH}
        known = wandb.Settings.model_fields
        self.tracked = wandb.init(
            project=given.project,
            id=self.memory["id"],
            name=given.run.resolve().name,
            dir=os.environ.get("WANDB_DIR") or str(given.run),
            mode=os.environ.get("WANDB_MODE") or "offline",  # type: ignore[arg-type]
            resume="allow",
            reinit="create_new",
            settings=wandb.Settings(**{name: value for name, value in settings.items() if name in known}),
        )
        self.tracked.config.update({**flat_recipe(given.run), **given.facts}, allow_val_change=True)
        # Each line is a row of its own, at its step; rows of a library cannot be changed or go back.
        self.tracked.define_metric("*", step_metric="step")

    def send(self, lines: list[dict[str, Any]]) -> None:
        for line in lines:
            self.tracked.log({"step": line["step"], **figures(line)})
        self.tracked.summary.update(warnings_in(lines))

    def end(self, status: Status, result: dict[str, Any]) -> None:
        self.tracked.summary.update(result_figures(result))
        self.tracked.finish(exit_code=int(status == "failed"))


def chunks(items: Iterable[Any], size: int = MOST_PARAMETERS) -> list[list[Any]]:
    """Return items in lists of at most so many."""
    every = list(items)
    return [every[first : first + size] for first in range(0, len(every), size)]


def flat_recipe(run: Path) -> dict[str, Any]:
    """Return the recipe of a run, with a key such as training.steps for each value."""
    return dict(_flat(read_yaml(run / RECIPE), "")) if (run / RECIPE).exists() else {}


def _flat(value: Any, key: str) -> list[tuple[str, Any]]:
    if not isinstance(value, dict) or not value:
        return [(key, value)]
    return [item for name, inner in value.items() for item in _flat(inner, f"{key}.{name}" if key else name)]


def figures(line: Mapping[str, Any]) -> dict[str, float]:
    """Return the finite numbers of a line but for its step."""
    return {
        name: float(value)
        for name, value in line.items()
        if name != "step" and isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    }


def warnings_in(lines: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Return the warnings of health in lines, by a name for each problem."""
    return {
        f"warning/{problem}": f"since step {line['step']:,} {message}"
        for line in lines
        for problem, message in (line.get("warnings") or {}).items()
    }


def result_figures(result: Mapping[str, Any]) -> dict[str, float]:
    """Return the scores of result.json, with the ends of their intervals."""
    scores = result.get("scores") or {}
    if isinstance(scores, dict):
        return {f"result/{name}": value for name, value in figures(scores).items()}
    parts = {"value": "", "low": "_low", "high": "_high"}
    return {
        f"result/{one['name']}{parts[part]}": value for one in scores for part, value in figures(one).items() if part in parts
    }
