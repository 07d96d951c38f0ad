"""The training loop.

Random draws depend on (seed, step, row of the batch) alone, and a checkpoint holds (step, position in the data): a run that was
killed and resumed equals the uninterrupted run, bit for bit on the CPU, and the number of processes changes nothing but rounding.
All processes run the loop in step; the first one logs and validates.
"""

import contextlib
import itertools
import time
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from qkv.base.errors import ConfigError, TrainingError
from qkv.base.hardware import choose_precision, peak_flops
from qkv.base.provenance import machine, software
from qkv.base.rows import map_tensors
from qkv.base.seeds import seed_at
from qkv.data.batches import Batch, Position, prefetch
from qkv.training import checkpoints, distributed
from qkv.training.captured import UpdateRecorder, own_stream, recordable
from qkv.training.checkpoint_writer import CheckpointWriter, find_newest
from qkv.training.clock import Clock
from qkv.training.config import TrainingConfig
from qkv.training.exchange import GradientExchange
from qkv.training.gradients import GradientAccumulator
from qkv.training.health import Health, HealthWarning, Probe, due
from qkv.training.log import NO_TENSORBOARD, Log, read_metrics
from qkv.training.optimiser import StartPenalty, UpdateGuard, learning_rate, make_optimiser, set_learning_rate, update_ratio
from qkv.training.plan import Planner
from qkv.training.progress import Progress
from qkv.training.sharding import ShardedGradients, ShardedWeights
from qkv.training.signals import StopSignals
from qkv.training.snapshots import SnapshotWriter
from qkv.training.state import TrainingState
from qkv.training.tracked_runs import Tracking
from qkv.training.trackers import Follower
from qkv.training.weights import Weights

PROBED_ROWS = 8  # of a batch over all processes, at most
MAX_CONSECUTIVE_SKIPS = 10  # skipped updates one after the other before training gives up
PREFETCH = {"cpu": 4, "mps": 4, "cuda": 64}  # batches made ahead: a GPU needs more of them while the next pool is packed


class TrainingObjective(Protocol):
    """A training task: `loss(model, *inputs of a batch)` returns the sum of the losses over all labels.

    An objective with more to report has a `tally` whose `read()` returns means since the last call, and whose `copy()` returns
    the sums behind them. `begin_update` is called before each update with the fraction of the updates that are done, and returns
    the stage: updates of one stage compute the same operations. `stages` says which share of the updates each stage has, and how
    long its updates take.
    """

    @property
    def loss(self) -> Callable[..., Tensor]: ...

    def begin_update(self, done: float, device: torch.device) -> Hashable: ...

    def stages(self) -> tuple[tuple[float, float], ...]: ...


class BatchSource(Protocol):
    """An endless source of batches that yields the same ones from any position on."""

    def starting(self, at: Position) -> Iterator[Batch]: ...


@dataclass(frozen=True)
class Validation:
    """The result of a validation on the dev set."""

    scores: dict[str, float]
    selection_score: float  # compares weights: higher is better


class Trainer:
    """Trains one model in one run folder."""

    def __init__(
        self,
        run: Path,
        model: nn.Module,
        objective: TrainingObjective,
        batches: BatchSource,
        config: TrainingConfig,
        *,
        seed: int,
        width: int,
        validate: Callable[[int], Validation],
        progress: Progress,
        health: Health | None = None,
        probe: Probe | None = None,
        start_weights: Mapping[str, Tensor] | None = None,
    ):
        self.run, self.model, self.objective, self.batches = run, model, objective, batches
        self.given = self.config = config  # as given, and with the intervals that suit the plan
        self.seed, self.width, self.validate, self.progress = seed, width, validate, progress
        self.device = next(model.parameters()).device
        self.rank, self.world_size = distributed.init_processes()
        self.precision = choose_precision(config.precision, self.device)
        options: dict[str, Any] = {"seed": seed, "progress": progress, "tally": getattr(objective, "tally", None)}
        if config.shard and distributed.is_joined():
            sharded = ShardedWeights(model, objective.loss, self.rank, self.world_size)
            self.weights: Weights = sharded
            self.gradients: GradientAccumulator = ShardedGradients(sharded, self.precision, config.accumulate, **options)
        else:
            self.weights = Weights(model, self.rank, self.world_size)
            exchange = GradientExchange(self.weights.trained) if distributed.is_joined() else None
            self.gradients = GradientAccumulator(
                model, objective.loss, self.precision, config.accumulate, exchange=exchange, **options
            )
        self.parameters = self.gradients.parameters
        self.optimiser = make_optimiser(model, config, self.weights.local)
        self.guard = UpdateGuard(self.optimiser, self.device, self.weights.sharded)
        self.penalty = StartPenalty(self.weights, start_weights, config.start_penalty) if start_weights else None
        saved = self.weights.saved if config.averaging == "ema" else {}
        self.average = {name: tensor.detach().clone() for name, tensor in saved.items()}
        self.writer = CheckpointWriter(run, self.rank, self.world_size)
        self.snapshots = SnapshotWriter(run, config.snapshots)
        self.state = TrainingState(steps=0 if config.minutes else config.steps or 0)
        self.signals = StopSignals(progress)
        self.log = Log(run, self.make_trackers()) if self.rank == 0 else None
        if self.log and not self.log.has_tensorboard:
            progress.say(NO_TENSORBOARD)
        self.health, self.probe = health or Health(), probe
        self.probed: Batch | None = None  # some rows of the last batch, for the probe
        self.window: list[tuple[Tensor, int, int, int]] = []  # loss, tokens, filled positions, positions of each unlogged update
        self.rate = 0.0  # learning rate of the last update
        capture = self.device.type == "cuda" and not self.weights.sharded and recordable(model)
        self.recorder = self.make_recorder() if capture else None

        self.start_clock()

    def start_clock(self) -> None:
        """Time updates from here on, and plan by them."""
        self.clock = Clock(self.device, self.state.step, self.state.seconds)
        self.planner = Planner(self.given, self.clock, self.progress, self.health, self.objective.stages())

    # The loop itself

    def train(self) -> TrainingState:
        """Train to the end, or until a signal asks to stop; everything is saved on return."""
        self.resume()
        self.model.train()
        self.start_clock()
        self.config = self.planner.fitted(self.state)
        if self.given.minutes is None:
            self.planner.say_changes(self.state)
        batches = prefetch(self.batches.starting(self.state.position), self.local_and_probed_rows, PREFETCH[self.device.type])
        with self.signals, own_stream(self.device), self.writer.finished(), contextlib.closing(batches):
            if self.state.step == 0:
                self.keep_snapshot()
            # The first one may be the few rows that are left over at the end of an epoch.
            first = list(itertools.islice(batches, 3))
            self.refuse_idle_processes(max(batch.whole_rows for batch, _ in first))
            for batch, probed in itertools.chain(first, batches):
                if self.finished():
                    break
                self.update(batch)
                self.probed = probed
                self.state = self.planner.after_update(self.state)
                self.config = self.planner.fitted(self.state)
                if self.due(self.config.log_every):
                    self.report()
                if self.due(self.config.validate_every):
                    self.run_validation()
                self.keep_snapshot()
                self.writer.check()
                stop = self.stop_requested()
                if stop or self.is_planned_checkpoint(self.state.step):
                    self.save()
                if stop:
                    break
        self.state = replace(self.state, seconds=self.clock.elapsed())
        return self.state

    def update(self, batch: Batch) -> None:
        """Make one update of the weights from one batch."""
        step = self.state.step + 1
        self.rate = learning_rate(step, self.planned_steps(), self.width, self.config)
        set_learning_rate(self.optimiser, self.rate)
        self.state, done = self.planner.begin_update(self.state)
        stage = self.objective.begin_update(done, self.device)
        whole = self.gradients.micro_batches == 1 and (self.world_size == 1 or batch.whole_rows >= self.world_size)
        graph = self.recorder.graph_for(batch, stage) if self.recorder and whole else None
        if graph:
            self.gradients.seed_draws(step, batch)
            loss = graph(batch)
        else:
            loss = self.apply_gradients(self.gradients.accumulate(batch, step))
        if self.average:
            # The first averages decay faster, or the random initial weights would stay in them.
            decay = min(self.config.ema_decay, (1 + step) / (10 + step))
            averages = [self.average[name] for name, p in self.weights.saved.items() if p.requires_grad]
            torch._foreach_lerp_(averages, self.parameters, 1 - decay)
        self.window.append((loss, batch.tokens, batch.filled, batch.positions))
        tokens = None if self.state.tokens is None else self.state.tokens + int(batch.tokens)
        self.state = replace(self.state, step=step, tokens=tokens, position=batch.after)

    def apply_gradients(self, loss: Tensor) -> Tensor:
        """Step the optimiser with the gradients of all processes. -> the loss."""
        if self.penalty:
            self.penalty.add_gradient()
        self.guard.step(self.parameters, self.config.clip, loss)
        self.gradients.zero_grad()
        return loss

    def forward_backward_update(self, inputs: tuple[Any, ...], labels: Tensor, numbers: range) -> Tensor:
        """Make an update from rows on the device, in a form that a CUDA graph can capture. -> its loss."""
        loss = torch.zeros((), device=self.device)
        self.gradients.backward(inputs, labels, numbers, loss)
        if self.gradients.exchange:
            self.gradients.exchange.finish()
        return self.apply_gradients(loss)

    def make_recorder(self) -> UpdateRecorder:
        """Return a recorder of updates, on which all processes agree."""
        exchange = self.gradients.exchange
        any_failed = exchange.any_recording_failed if exchange else bool
        return UpdateRecorder(self.forward_backward_update, self.device, self.recording_failed, any_failed)

    def recording_failed(self, message: str) -> None:
        """Drop the gradients of an update that could not be recorded, and what it has not sent; tell the user."""
        self.gradients.zero_grad()
        self.progress.warn(message)

    def local_rows(self, batch: Batch) -> Batch:
        """Return this process's rows of a batch, in pinned memory for a GPU."""
        # A sharded process without rows takes part in the computation of others, with any row.
        first = min(self.rank, batch.rows - 1) if self.weights.sharded else self.rank
        share = batch.part(slice(first, None, self.world_size)) if self.world_size > 1 else batch
        share = replace(share, whole_rows=batch.rows)
        if self.device.type != "cuda":
            return share
        return replace(share, inputs=tuple(map_tensors(rows, Tensor.pin_memory) for rows in share.inputs))

    def local_and_probed_rows(self, batch: Batch) -> tuple[Batch, Batch]:
        """Return this process's rows of a batch, and those that the probe reads, whatever the number of processes."""
        local = self.local_rows(batch)
        rows = max(2, min(PROBED_ROWS, batch.rows // 8))
        # One process has all rows already, and the batch itself would fill as much memory again.
        return local, (local if self.world_size == 1 else batch).part(slice(0, rows))

    def refuse_idle_processes(self, rows: int) -> None:
        """Refuse batches with fewer rows than processes: some would never have any."""
        if rows < self.world_size:
            counted = "1 row" if rows == 1 else f"{rows} rows"
            distributed.raise_together(
                ConfigError(
                    f"{self.world_size} processes share batches of {counted}, and some would have none; use fewer "
                    "processes, or a larger training.batch_tokens"
                )
            )

    # The schedule

    def finished(self) -> bool:
        """Whether all steps are done, or patience has run out."""
        patience = self.config.patience
        out_of_patience = patience is not None and self.state.validations_since_best >= patience
        return out_of_patience or self.state.step >= self.planned_steps()

    def planned_steps(self) -> int:
        """Return the number of updates in all; for a run with minutes that has not been timed yet, an upper limit."""
        return self.state.planned_steps(self.config)

    def due(self, every: int) -> bool:
        """Return whether an action that happens every N steps, and at the end, is due now."""
        return self.state.step % every == 0 or self.state.step == self.planned_steps()

    def is_planned_checkpoint(self, step: int) -> bool:
        """Whether the plan has a checkpoint at a step; only those are averaged, so an interruption changes nothing."""
        every = (self.config.save_every, self.config.validate_every)
        return any(step % n == 0 for n in every) or step == self.planned_steps()

    def stop_requested(self) -> bool:
        """Whether any process has received a signal to stop; then all of them stop."""
        (number,) = distributed.all_reduce_max([self.signals.number or 0])
        if number:
            self.signals.number = number
        return number > 0

    # Log and validation

    def make_trackers(self) -> list[Follower]:
        """Return those of MLflow and Weights & Biases that the recipe names."""
        facts = {**software(), **machine(self.device)} if self.config.trackers else {}
        given = Tracking(self.run, self.config.project, facts, {})
        return [Follower(name, given, self.progress.warn) for name in self.config.trackers]

    def report(self) -> None:
        """Read the losses since the last report from the device, log them, and stop if too many updates were skipped."""
        losses, tokens, filled, positions = zip(*self.window, strict=True)
        loss = torch.stack(losses).mean()
        tokens_per_second = sum(tokens) / self.clock.lap()
        values = {"loss": float(loss), "learning_rate": self.rate, "tokens_per_second": tokens_per_second}
        peak = peak_flops(self.device, self.precision)
        if peak:
            # Model FLOPs utilisation: 6 operations per target token and multiply-add, by the model's own count or its parameters;
            # 4 with a frozen parameter, which has no gradient of its own.
            parameters = sum(p.numel() * (1 if p.requires_grad else 2 / 3) for p in self.model.parameters())
            work = getattr(self.model, "multiply_adds_per_token", parameters)
            values["mfu"] = 6 * work * tokens_per_second / peak / self.world_size
        values |= {
            "padding": 1 - sum(filled) / sum(positions),
            "skipped": int(self.guard.skipped),
            "gradient_norm": float(self.guard.norm),
            "epoch": self.state.position.epoch,
            "seconds": self.clock.elapsed(),
            **(self.read_tally() if hasattr(self.objective, "tally") else {}),
        }
        measured = self.measure_health()
        if self.log:
            steps = self.planned_steps()
            warnings = self.health.judge(self.state.step, steps, self.config.warmup_steps(steps), values | measured)
            values |= measured | self.show_warnings(warnings)
            self.log.write(self.state.step, **values)
        self.progress.step(self.state.step, self.state.steps, values)
        self.window = []
        self.state = self.planner.after_report(self.state)
        skips = int(self.guard.consecutive)
        if skips >= MAX_CONSECUTIVE_SKIPS:
            distributed.raise_together(
                TrainingError(
                    f"loss or gradient was not finite {skips} times in a row at step {self.state.step}; lower "
                    "training.learning_rate, lengthen training.warmup or use training.precision=float32, "
                    "then run the same command with --accept-changes: the last good checkpoint is intact"
                )
            )

    def read_tally(self) -> dict[str, float]:
        """Return the means that the objective reports since the last call, over all processes."""
        tally: Any = self.objective.tally  # type: ignore[attr-defined]
        if self.world_size > 1:
            distributed.sum_tally(tally, self.device)
        return tally.read()

    def measure_health(self) -> dict[str, Any]:
        """Return what the probe measures in the first process, if it is time; all processes help to put its weights together."""
        step, config = self.state.step, self.config
        if not (self.probe and self.probed and due(step, config.log_every, config.validate_every, self.device.type)):
            return {}
        measured: dict[str, Any] = {}
        with self.weights.in_model({}):
            if self.log:
                inputs = self.probed.to(self.device).inputs
                with torch.autocast(self.device.type, self.precision, enabled=self.precision != torch.float32):
                    measured = self.probe(inputs, seed_at(self.seed, "probe", step))
        return measured | {"update_ratio": float(update_ratio(self.optimiser, self.weights.sharded))}

    def show_warnings(self, warnings: list[HealthWarning]) -> dict[str, Any]:
        """Show new warnings. -> what to log, with what the plan has shown already."""
        for warning in warnings:
            self.progress.warn(str(warning))
        logged = {warning.problem: warning.message for warning in [*self.health.take_noted(), *warnings]}
        return {"warnings": logged} if logged else {}

    def run_validation(self) -> None:
        """Score the dev set in the first process, with averaged weights if there are any, and remember the best step."""
        before = time.perf_counter()
        found = Validation({}, 0.0)
        with self.weights.in_model(self.average):
            if self.log:
                found = self.validate_in_model()
        if self.log:
            steps = self.planned_steps()
            warnings = self.health.judge_validation(self.state.step, steps, self.config.warmup_steps(steps), found.scores)
            self.log.write(self.state.step, **found.scores, **self.show_warnings(warnings))
        (score,) = distributed.broadcast([found.selection_score])
        if score > self.state.best:
            self.state = replace(self.state, best=score, best_step=self.state.step, validations_since_best=0)
        else:
            self.state = replace(self.state, validations_since_best=self.state.validations_since_best + 1)
        self.clock.exclude(time.perf_counter() - before)

    def validate_in_model(self) -> Validation:
        """Validate the model's weights in evaluation mode."""
        self.model.eval()
        try:
            with torch.no_grad():
                return self.validate(self.state.step)
        finally:
            self.model.train()

    # Saving and resuming

    def save(self) -> None:
        """Begin to write a checkpoint, after which those that are no longer needed are deleted."""
        parameters = self.weights.saved
        tensors = {
            checkpoints.MODEL: parameters,
            checkpoints.OPTIMISER: checkpoints.optimiser_tensors(self.optimiser, parameters),
        }
        if self.average:
            tensors[checkpoints.AVERAGE] = self.average
        parts = {name: self.weights.own_part(values) for name, values in tensors.items()}
        state = {**asdict(self.state), "position": list(self.state.position), "seconds": self.clock.elapsed()}
        self.writer.wait()  # then the folders are known
        self.writer.save(self.state.step, parts, state, {*self.steps_to_average(self.state.step), self.state.best_step})

    def keep_snapshot(self) -> None:
        """Write a snapshot of the weights that are validated, if one is due; all processes help to put them together."""
        if not self.config.snapshots:
            return
        step, ended = self.state.step, self.finished()
        if not self.snapshots.due(step, ended):
            return
        before = time.perf_counter()
        with self.weights.in_model(self.average), distributed.all_or_none():
            if self.rank == 0:
                self.snapshots.write(step, ended, checkpoints.named_weights(self.model))
        self.clock.exclude(time.perf_counter() - before)

    def release(self) -> None:
        """Free the memory that only updates need: recorded graphs, gradients, the start's weights and the optimiser's state."""
        self.recorder = self.probed = self.penalty = None
        self.gradients.release()
        self.optimiser.state.clear()
        self.weights.release()
        if self.device.type == "cuda":
            torch.cuda.empty_cache()

    def steps_to_average(self, *added: int) -> list[int]:
        """Return the steps of the newest planned checkpoints, with those to be added; their mean may become the final weights."""
        steps = sorted({checkpoints.step_of(folder) for folder in checkpoints.folders(self.run)} | {*added})
        return [s for s in steps if self.is_planned_checkpoint(s)][-self.config.keep :]

    def resume(self) -> None:
        """Continue from the newest intact checkpoint, if there is one."""
        folder, saved = find_newest(self.run, self.rank, self.progress)
        if folder is None:
            if self.log:
                self.log.rewind(0)
                self.snapshots.rewind(None)
            return
        with distributed.all_or_none():
            self.load_tensors(folder)
        values = {name: value for name, value in saved.items() if name != "digests"}
        self.state = TrainingState(**{"tokens": None, **values, "position": Position(*saved["position"])})
        if (self.config.minutes or 0.0) != self.state.minutes:  # no plan yet, or one for another time
            self.state = replace(self.state, steps=0, timed=0, replanned=0, interval=0)
        if self.config.steps and not self.config.minutes:
            self.state = replace(self.state, steps=self.config.steps)
        if self.log:
            self.log.rewind(self.state.step)
            self.snapshots.rewind(self.state.step)
            self.health.remember(read_metrics(self.run))
        steps = self.state.steps
        self.progress.say(f"resuming from step {self.state.step:,}" + (f" of {steps:,}" if steps else ""))

    @torch.no_grad()
    def load_tensors(self, folder: Path) -> None:
        """Load weights, moments and averages from a checkpoint."""
        own = self.weights.saved
        checkpoints.copy_weights(own, self.weights.read(folder / checkpoints.MODEL), str(folder))
        checkpoints.set_optimiser_tensors(self.optimiser, own, self.weights.read(folder / checkpoints.OPTIMISER))
        if self.average:
            # A run that has not averaged so far starts its average from the current weights.
            checkpoints.copy_weights(self.average, self.weights.read(checkpoints.scored_weights(folder)), str(folder))
