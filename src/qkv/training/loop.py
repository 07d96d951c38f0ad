"""The training loop.

Whatever it draws at random comes from (seed, step), and where it stands is (step, position in the data): a run that was killed
and started again is the run never interrupted, bit for bit on the CPU.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from qkv.base.errors import TrainingError
from qkv.base.hardware import choose_precision, peak_flops
from qkv.base.rows import on_each
from qkv.data.batches import START, Batch, Position, ahead
from qkv.training import checkpoints, processes
from qkv.training.captured import CapturedUpdate, UpdateRecorder, own_stream, recordable
from qkv.training.clock import Clock
from qkv.training.config import TrainingConfig
from qkv.training.gradients import Gradients
from qkv.training.log import NO_TENSORBOARD, Log
from qkv.training.optimiser import Guard, learning_rate, make_optimiser, set_rate
from qkv.training.progress import Progress
from qkv.training.signals import Signals

UNKNOWN = 10**9
BAD_IN_A_ROW = 10  # updates skipped one after the other before training gives up
READY = {"cpu": 4, "cuda": 64}  # batches made ahead: a GPU needs more of them while the next pool is packed


class Objective(Protocol):
    """Whatever has `loss(model, *inputs of a batch)`: the sum of the answers' losses.

    One with more to report has a `tally` whose `read()` gives the means since the last time.
    """

    @property
    def loss(self) -> Callable[..., Tensor]: ...


class Source(Protocol):
    """Where batches come from: without end, and from any position on the same ones."""

    def starting(self, at: Position) -> Iterator[Batch]: ...


@dataclass(frozen=True)
class Validation:
    """What a look at the dev set found."""

    scores: dict[str, float]
    better: float  # the figure by which weights are compared: higher is better


@dataclass(frozen=True)
class State:
    """Where a run stands; goes into every checkpoint."""

    step: int = 0
    position: Position = START
    steps: int = 0  # in all; 0 while a run that was given minutes has not been timed yet
    seconds: float = 0.0  # spent training so far
    best: float = float("-inf")  # dev score, higher is better
    best_step: int = 0
    worse: int = 0  # validations since the best one
    replanned: int = 0  # quarters of the given minutes after which the steps were counted anew


class Trainer:
    """Trains one model in one run folder."""

    def __init__(
        self,
        run: Path,
        model: nn.Module,
        objective: Objective,
        batches: Source,
        config: TrainingConfig,
        *,
        seed: int,
        width: int,
        validate: Callable[[int], Validation],
        progress: Progress,
    ):
        self.run, self.model, self.objective, self.batches, self.config = run, model, objective, batches, config
        self.seed, self.width, self.validate, self.progress = seed, width, validate, progress
        self.device = next(model.parameters()).device
        self.rank, self.world = processes.join()
        self.precision = choose_precision(config.precision, self.device)
        self.gradients = Gradients(
            model, objective.loss, self.precision, config.accumulate, seed=seed, rank=self.rank, progress=progress
        )
        self.parameters = self.gradients.parameters
        self.optimiser = make_optimiser(model, config)
        self.guard = Guard(self.optimiser, self.device)
        self.average = _copy(model) if config.averaging == "ema" else {}
        self.state = State(steps=0 if config.minutes else config.steps or 0)
        self.signals = Signals(progress)
        self.log = Log(run) if self.rank == 0 else None
        if self.log and self.log.events is None:
            progress.say(NO_TENSORBOARD)
        self.window: list[tuple[Tensor, int, int, int]] = []  # of the updates since the last report: loss, and counts
        self.rate = 0.0  # of the last update
        recorded = self.device.type == "cuda" and self.world == 1 and recordable(model)
        self.recorder = UpdateRecorder(self.whole_update, self.device, self.recording_failed) if recorded else None

    # The loop itself

    def train(self) -> State:
        """Train to the end, or until told to stop; everything is saved on return."""
        self.resume()
        self.model.train()
        self.clock = Clock(self.device, self.state.step, self.state.seconds)
        with self.signals, own_stream(self.device):
            for batch in ahead(self.batches.starting(self.state.position), self.my_rows, READY[self.device.type]):
                if self.over():
                    break
                self.update(batch)
                self.time_the_run()
                self.report()
                if self.due(self.config.validate_every):
                    self.validation()
                stop = self.told_to_stop()
                if stop or self.regular(self.state.step):
                    self.save()
                if stop:
                    break
        self.state = replace(self.state, seconds=self.clock.elapsed())
        return self.state

    def update(self, batch: Batch) -> None:
        """One step of the optimiser over one batch."""
        step = self.state.step + 1
        self.rate = learning_rate(step, self.planned_steps(), self.width, self.config)
        set_rate(self.optimiser, self.rate)
        graph = self.graph_for(batch)
        if graph:
            self.gradients.seed_dropout(step, 0)
            loss = graph(batch)
        else:
            loss = self.change_weights(self.gradients.add(batch.to(self.device), step))
        if self.average:
            # Young averages forget faster, or the random first weights would stay in them.
            decay = min(self.config.ema_decay, (1 + step) / (10 + step))
            learned = [self.average[name] for name, p in checkpoints.own_weights(self.model).items() if p.requires_grad]
            torch._foreach_lerp_(learned, self.parameters, 1 - decay)
        self.window.append((loss, batch.tokens, batch.filled, batch.positions))
        self.state = replace(self.state, step=step, position=batch.after)

    def change_weights(self, loss: Tensor) -> Tensor:
        """Let the gradients of all processes move the weights. -> the loss of all processes."""
        processes.add_up([loss, *(p.grad for p in self.parameters if p.grad is not None)])
        self.guard.step(self.parameters, self.config.clip, loss)
        self.gradients.clear()
        return loss

    def graph_for(self, batch: Batch) -> CapturedUpdate | None:
        """Return the update as a CUDA graph, or None if there is none for this batch."""
        return None if self.recorder is None or self.gradients.parts > 1 else self.recorder.graph_for(batch)

    def recording_failed(self, message: str) -> None:
        """Drop the gradients of an update that could not be recorded, and tell the user."""
        self.gradients.clear()
        self.progress.warn(message)

    def whole_update(self, inputs: tuple[Any, ...], answers: Tensor) -> Tensor:
        """The gradients of a batch on the device, and what they do to the weights. -> its loss."""
        return self.change_weights(self.gradients.add_part(inputs, answers))

    def my_rows(self, batch: Batch) -> Batch:
        """This process's share of a batch, where its device can fetch it without waiting."""
        share = batch.part(slice(self.rank, None, self.world)) if self.world > 1 else batch
        if self.device.type != "cuda":
            return share
        return replace(share, inputs=tuple(on_each(rows, Tensor.pin_memory) for rows in share.inputs))

    # When things happen

    def over(self) -> bool:
        patience = self.config.patience
        out_of_patience = patience is not None and self.state.worse >= patience
        return out_of_patience or self.state.step >= self.planned_steps()

    def planned_steps(self) -> int:
        """Updates in all; before a run that was given minutes has been timed, as many as it may have at most."""
        return self.state.steps or self.config.steps or UNKNOWN

    def due(self, every: int) -> bool:
        return self.state.step % every == 0 or self.state.step == self.planned_steps()

    def regular(self, step: int) -> bool:
        """Whether a checkpoint belongs there by plan; only those are averaged, so an interruption changes nothing."""
        every = (self.config.save_every, self.config.validate_every)
        return any(step % n == 0 for n in every) or step == self.planned_steps()

    def time_the_run(self) -> None:
        """After a few updates of this process: turn minutes into steps, and tell the user how long it will take."""
        each = self.clock.first_estimate(self.state.step)
        if each is None:
            return
        if self.config.minutes is not None and not self.state.steps:
            self.plan(each)
        self.progress.will_take(each * (self.state.steps - self.state.step), self.state.steps)

    def plan(self, each: float) -> None:
        """Count the steps that fit into what is left of the given minutes, at so many seconds each."""
        left = (self.config.minutes or 0) * 60 - self.clock.elapsed()
        steps = processes.same_everywhere(self.state.step + max(1, int(left / each)), self.device)
        self.state = replace(self.state, steps=min(steps, self.config.steps or steps))

    def plan_again(self) -> None:
        """The first steps may have been slow: count anew when a quarter, half and three quarters of the minutes are over."""
        each = self.clock.estimate(self.state.step)
        if self.config.minutes is None or not self.state.steps or each is None:
            return
        quarter = processes.same_everywhere(int(4 * self.clock.elapsed() / (self.config.minutes * 60)), self.device)
        if self.state.replanned < quarter < 4:
            self.state = replace(self.state, replanned=quarter)
            self.plan(each)

    # What the user sees

    def report(self) -> None:
        """Every few updates, read the losses from the device, log them and look for trouble."""
        step = self.state.step
        if not self.due(self.config.log_every):
            return
        losses, tokens, filled, positions = zip(*self.window, strict=True)
        loss = torch.stack(losses).mean()
        seconds = self.clock.window()
        values = {
            "loss": float(loss),
            "learning_rate": self.rate,
            "tokens_per_second": sum(tokens) / seconds,
            **self.utilisation(sum(tokens) / seconds),
            "padding": 1 - sum(filled) / sum(positions),
            "skipped": int(self.guard.skipped),
            "epoch": self.state.position.epoch,
            "seconds": self.clock.elapsed(),
            **(self.objective.tally.read() if hasattr(self.objective, "tally") else {}),
        }
        self.write(values)
        self.progress.step(step, self.state.steps, values)
        self.window = []
        self.plan_again()
        if int(self.guard.in_a_row) >= BAD_IN_A_ROW:
            raise TrainingError(
                f"loss or gradient was not finite {int(self.guard.in_a_row)} times in a row at step {step}; lower "
                "training.learning_rate, lengthen training.warmup or use training.precision=float32, "
                "then run the same command with --accept-changes: the last good checkpoint is intact"
            )

    def utilisation(self, tokens_per_second: float) -> dict[str, float]:
        """The share of the device's peak that 6 operations per multiply-add and target token make; empty where it is not known.

        Multiply-adds are the model's own count, `work_per_token`, or its parameters.
        """
        peak = peak_flops(self.device, self.precision)
        work = getattr(self.model, "work_per_token", sum(p.numel() for p in self.parameters))
        return {"mfu": 6 * work * tokens_per_second / peak / self.world} if peak else {}

    def write(self, values: dict[str, Any]) -> None:
        if self.log:
            self.log.write(self.state.step, **values)

    def validation(self) -> None:
        """Score the dev set; remember the best."""
        before = time.perf_counter()
        found = Validation({}, 0.0)
        if self.rank == 0:
            found = self.validate_average()
            self.write(found.scores)
        score = processes.same_everywhere(found.better, self.device)
        if score > self.state.best:
            self.state = replace(self.state, best=score, best_step=self.state.step, worse=0)
        else:
            self.state = replace(self.state, worse=self.state.worse + 1)
        # Time spent validating is not time spent training.
        self.clock.leave_out(time.perf_counter() - before)

    def validate_average(self) -> Validation:
        """Validate in evaluation mode, with the averaged weights where there are any."""
        own = _copy(self.model) if self.average else {}
        if self.average:
            checkpoints.set_weights(self.model, self.average, "average")
        self.model.eval()
        try:
            with torch.no_grad():
                return self.validate(self.state.step)
        finally:
            self.model.train()
            if own:
                checkpoints.set_weights(self.model, own, "weights")

    # Saving and resuming

    def save(self) -> None:
        if self.rank == 0:
            tensors = {
                checkpoints.MODEL: checkpoints.own_weights(self.model),
                checkpoints.OPTIMISER: checkpoints.moments_of(self.optimiser, self.model),
            }
            if self.average:
                tensors[checkpoints.AVERAGE] = self.average
            state = {**asdict(self.state), "position": list(self.state.position), "seconds": self.clock.elapsed()}
            checkpoints.save(self.run, self.state.step, tensors, state)
            checkpoints.prune(self.run, {*self.averaged_steps(), self.state.best_step})
        processes.wait()

    def averaged_steps(self) -> list[int]:
        """The regular checkpoints whose mean the run will end with."""
        steps = [checkpoints.step_of(f) for f in checkpoints.folders(self.run)]
        return [s for s in steps if self.regular(s)][-self.config.keep :]

    def resume(self) -> None:
        """Go on from the newest whole checkpoint, if there is one."""
        folder, saved, problems = checkpoints.newest(self.run)
        for problem in problems:
            self.progress.warn(f"{problem}: not used; going on from {folder.name if folder else 'the start'}")
        if folder is None:
            if self.log:
                self.log.rewind(0)
            return
        checkpoints.set_weights(self.model, checkpoints.load_weights(folder / checkpoints.MODEL), str(folder))
        moments = checkpoints.load_weights(folder / checkpoints.OPTIMISER)
        checkpoints.set_moments(self.optimiser, self.model, moments)
        if self.average:
            # A run that did not average so far begins with the weights it has.
            for name, tensor in checkpoints.load_weights(checkpoints.validated(folder)).items():
                self.average[name].copy_(tensor)
        known = {k: v for k, v in saved.items() if k != "digests"}
        self.state = State(**{**known, "position": Position(*saved["position"])})
        if self.config.steps and not self.config.minutes:
            self.state = replace(self.state, steps=self.config.steps)
        if self.log:
            self.log.rewind(self.state.step)
        self.progress.resumed(self.state.step, self.state.steps)

    def told_to_stop(self) -> bool:
        """Whether a signal came to this process, or to any other: then all of them stop."""
        number = processes.largest(self.signals.number or 0, self.device)
        if number:
            self.signals.number = number
        return number > 0


def _copy(model: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in checkpoints.own_weights(model).items()}
