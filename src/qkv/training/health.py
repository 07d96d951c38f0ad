"""The health of a training run: figures that show a network that dies, and warnings that name the cause.

The loop measures a few rows at some of its reports (`due`); `Health.judge` compares the figures with thresholds. A warning says
what is wrong, since which step, and what to try. It is written to metrics.jsonl, so that a resumed run knows it, and the end of
the run repeats it. The plan of the run adds a problem of its own: too few updates (`Health.note`).
"""

import math
import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

COLLAPSED = 0.99  # mean cosine of two tokens' states after the last layer
UNIFORM, SATURATED = 0.995, 0.01  # share of the largest entropy above or below which a head is the same everywhere, or one-hot
PLATEAU, ABOVE = 0.97, 1.1  # the loss as a share of that by frequencies alone: it has not left it, it is worse
EXPLODED, VANISHED = 30.0, 1e-3  # gradient norm as a multiple of its usual value
LARGE_UPDATE = 0.02  # length of an update as a share of the length of the weights; recipes that learn stay below 0.011
RISEN, RISEN_NATS = 1.15, 0.1  # mean loss of some reports over the lowest one before: its ratio, and its difference
RISE_REPORTS = 10
UNUSED_SOURCE = 0.03  # nats a token by which another text's source must raise the loss: untrained models reach 0.02
NEAR_CHANCE = 0.02  # distance of an accuracy from that of guessing
MIN_STEPS = 100  # before which nothing is judged: first weights are neither trained nor dead
JUDGED_AFTER = 0.25  # share of the run after which a loss must have left its plateau, and attention its first state
# Fewest updates between two probes, once these are regular. On a GPU a probe takes as long as six updates of a small model.
PROBE_INTERVAL = {"cpu": 1, "mps": 100, "cuda": 1600}


@dataclass(frozen=True)
class Expectations:
    """The values that figures of a healthy run leave behind."""

    unigram_loss: float | None = None  # nats per token, of a model that knows only frequencies
    loss: str = "loss"  # the figure that is compared with it
    chance: Mapping[str, float] = field(default_factory=dict)  # accuracies, by name, of guessing
    tasks_judged_after: float = 0.5  # share of the run after which a task must have left guessing


@dataclass(frozen=True)
class HealthWarning:
    """Something that is wrong in a run."""

    problem: str  # short name, unique in a run
    step: int  # since when
    message: str

    def __str__(self) -> str:
        return self.message if self.problem == FEW_UPDATES else f"since step {self.step:,} {self.message}"


def due(step: int, log_every: int, validate_every: int, device: str = "cpu") -> bool:
    """Return whether a report also measures health: at powers of two times `log_every`, then three times per validation.

    It depends on the step alone, not on time, so that the log of a resumed run is that of an uninterrupted one.
    """
    if step % log_every:
        return False
    reports = step // log_every
    every = max(1, round(max(validate_every / 3, PROBE_INTERVAL[device]) / log_every))
    return reports & (reports - 1) == 0 if reports < every else reports % every == 0


class Health:
    """Judges the figures of a run as they come."""

    def __init__(self, expectations: Expectations | None = None):
        self.expectations = expectations or Expectations()
        self.norms: list[float] = []  # gradient norms of all reports
        self.losses: list[float] = []  # of all reports: the figure that is compared with frequencies, where there is one
        self.found: dict[str, HealthWarning] = {}  # problems that were seen, by name
        self.latest: dict[str, str] = {}  # what was last said of them, with other figures
        self.rate: float | None = None  # of the last report
        self.active: set[str] = set()  # those of the last judgement
        self.noted: list[HealthWarning] = []  # found by others, and not in the log yet

    def judge(self, step: int, steps: int, warmup: int, values: Mapping[str, Any]) -> list[HealthWarning]:
        """Return new warnings after a report; `values` are its figures, `steps` the run's planned updates."""
        loss, norm, self.rate = self._loss_in(values), values.get("gradient_norm"), values.get("learning_rate")
        problems: dict[str, str] = {}
        if math.isfinite(loss):
            self.losses.append(loss)
            self._judge_rise(problems)
        if norm is not None and math.isfinite(norm):
            self._judge_gradient(norm, loss, problems)
            self.norms.append(norm)
        if step >= MIN_STEPS:
            settled = is_settled(step, steps, warmup)
            self._judge_states(values, step >= warmup, settled, problems)
            if settled:
                self._judge_loss(values, step >= self.expectations.tasks_judged_after * steps, problems)
        measured = "update_ratio" in values  # other reports know only the gradient
        self.active = set(problems) | (self.active & NOT_OF_REPORTS if measured else self.active)
        return self._new(step, problems)

    def judge_validation(self, step: int, steps: int, warmup: int, scores: Mapping[str, float]) -> list[HealthWarning]:
        """Return new warnings after a validation with these scores."""
        problems: dict[str, str] = {}
        gain = scores.get(SOURCE_GAIN)
        if gain is not None and gain < UNUSED_SOURCE and is_settled(step, steps, warmup):
            problems[UNUSED] = (
                f"the decoder does not use the source: another text's source changes the loss on dev by {gain:+.3f} nats a "
                "token; lower training.learning_rate, or train longer"
            )
        self.active = set(problems) | (self.active - OF_VALIDATION)
        return self._new(step, problems)

    def _new(self, step: int, problems: Mapping[str, str]) -> list[HealthWarning]:
        """Remember problems, and return warnings of those that were not seen before."""
        self.latest |= problems
        new = [HealthWarning(problem, step, message) for problem, message in problems.items() if problem not in self.found]
        self.found |= {warning.problem: warning for warning in new}
        return new

    def note(self, problem: str, step: int, message: str | None) -> bool:
        """Remember a problem that is found elsewhere; None says that it has passed. -> whether it is new."""
        if message is None:
            self.active.discard(problem)
            return False
        self.active.add(problem)
        if problem in self.found:
            return False
        self.found[problem] = HealthWarning(problem, step, message)
        self.noted.append(self.found[problem])
        return True

    def take_noted(self) -> list[HealthWarning]:
        """Return the warnings of `note` since the last call, to be logged."""
        noted, self.noted = self.noted, []
        return noted

    def remember(self, lines: list[dict[str, Any]]) -> None:
        """Take over what the log of a resumed run says."""
        for line in lines:
            self.norms += [line["gradient_norm"]] if line.get("gradient_norm") is not None else []
            self.losses += [self._loss_in(line)] if line.get("loss") is not None else []
            for problem, message in (line.get("warnings") or {}).items():
                self.found.setdefault(problem, HealthWarning(problem, line["step"], message))
                self.active.add(problem)

    def summary(self) -> list[str]:
        """Return all warnings of the run: with the figures of the end, or marked if they passed."""
        return [
            str(replace(warning, message=self.latest.get(problem, warning.message)))
            if problem in self.active
            else f"{warning} (not at the end any more)"
            for problem, warning in self.found.items()
        ]

    @property
    def lower_rate(self) -> str:
        """What to try where steps are too large."""
        return "lower training.learning_rate" + (f" (the rate is {self.rate:.2g} now)" if self.rate else "")

    def _loss_in(self, values: Mapping[str, Any]) -> float:
        """Return the loss that is followed; the sum of several losses would rise where one of them joins in."""
        return values.get(self.expectations.loss, values["loss"])

    def _judge_gradient(self, norm: float, loss: float, problems: dict[str, str]) -> None:
        if len(self.norms) < 5:
            return
        usual = statistics.median(self.norms[-50:])
        if norm > EXPLODED * usual:
            problems["gradient-explodes"] = (
                f"the gradient's norm is {norm:.3g}, usually {usual:.3g}: training may diverge; "
                f"{self.lower_rate} or training.clip, or lengthen training.warmup"
            )
        largest = max(self.norms)
        if norm < VANISHED * largest and self.losses and loss > 0.5 * self.losses[0]:
            problems["gradient-vanishes"] = (
                f"the gradient's norm has fallen to {norm:.2g} from {largest:.2g} while the loss is still {loss:.3g}: "
                "the network no longer learns; lower training.learning_rate and begin again"
            )

    def _judge_rise(self, problems: dict[str, str]) -> None:
        count = len(self.losses) // RISE_REPORTS
        if count < 2:
            return
        # Means of the last reports, and of groups of reports before them.
        groups = [self.losses[len(self.losses) - n * RISE_REPORTS :][:RISE_REPORTS] for n in range(1, count + 1)]
        now, *before = map(statistics.fmean, groups)
        lowest = min(before)
        if now > RISEN * lowest and now > lowest + RISEN_NATS:
            problems["loss-rises"] = (
                f"the training loss has risen to {now:.3g} from {lowest:.3g}: training is unstable; {self.lower_rate} "
                "or training.clip, or lengthen training.warmup"
            )

    def _judge_states(self, values: Mapping[str, Any], warmed_up: bool, settled: bool, problems: dict[str, str]) -> None:
        for stack, (name, similarity) in last_layers(values).items():
            # While the rate rises, a network that learns token frequencies has such states too, and leaves them.
            if warmed_up and similarity > COLLAPSED:
                problems[f"collapse-{stack}"] = (
                    f"the states of all tokens after {name} are nearly the same (mean cosine {similarity:.4f}): the network has "
                    f"collapsed; {self.lower_rate}, lengthen training.warmup, or enlarge training.batch_tokens"
                )
        heads = {name.removeprefix(ENTROPY): value for name, value in values.items() if name.startswith(ENTROPY)}
        if settled and heads:
            if min(heads.values()) > UNIFORM:
                too_fast = any(problem.startswith(TOO_FAST) for problem in {**self.found, **problems})
                problems["uniform-attention"] = (
                    "all heads attend to all tokens alike (entropy at its maximum): attention has learned nothing; "
                    + (self.lower_rate if too_fast else "train longer, or raise training.learning_rate")
                )
            if max(heads.values()) < SATURATED:
                problems["saturated-attention"] = (
                    f"all heads attend to a single token each (entropy 0): attention is saturated; {self.lower_rate}"
                )
        ratio = values.get("update_ratio")
        if ratio is not None and ratio > LARGE_UPDATE:
            problems["large-updates"] = (
                f"an update changes the weights by {ratio:.1%} of their length: that is too much to learn from; "
                f"{self.lower_rate}, or lengthen training.warmup"
            )

    def _judge_loss(self, values: Mapping[str, Any], tasks: bool, problems: dict[str, str]) -> None:
        loss, by_frequency = values.get(self.expectations.loss), self.expectations.unigram_loss
        if loss is not None and by_frequency and loss > PLATEAU * by_frequency:
            where, advice = "has not left", "train longer, or change training.learning_rate"
            if loss > ABOVE * by_frequency:
                where, advice = "is above", self.lower_rate
            problems["unigram-plateau"] = (
                f"the loss {where} what frequencies alone give: {loss:.2f} of {by_frequency:.2f} nats a token; {advice}"
            )
        for name, chance in self.expectations.chance.items():
            if tasks and name in values and values[name] < chance + NEAR_CHANCE:
                how = f"where guessing gives {chance:.3f}: this task is not learned" if chance else "so that nothing is found"
                first = "; the loss must leave what frequencies give first" if "unigram-plateau" in problems else ""
                problems[f"chance-{name}"] = (
                    f"{name} is {values[name]:.3f}, {how}; train longer, or give the task more weight{first}"
                )


def is_settled(step: int, steps: int, warmup: int) -> bool:
    """Return whether a loss must have left its plateau, and attention its first state."""
    return step >= max(MIN_STEPS, 2 * warmup, JUDGED_AFTER * steps)


TOO_FAST = ("collapse", "large-updates", "loss-rises", "gradient-explodes")  # beginnings of problems of too high a rate
UNUSED = "unused-source"
OF_VALIDATION = {UNUSED}  # problems that validations judge
FEW_UPDATES = "few-updates"  # the problem that the plan finds
NOT_OF_REPORTS = OF_VALIDATION | {FEW_UPDATES}
SOURCE_GAIN = "dev_source_gain"  # loss on dev with other texts' sources, less that with their own
SIMILARITY, ENTROPY = "token_similarity/", "attention_entropy/"  # figures of a layer, and of an attention module


def last_layers(values: Mapping[str, Any]) -> dict[str, tuple[str, float]]:
    """Return the last layer of each stack of layers and its similarity of tokens; layers are named STACK.NUMBER, in order."""
    found: dict[str, tuple[str, float]] = {}
    for key, value in values.items():
        if key.startswith(SIMILARITY):
            name = key.removeprefix(SIMILARITY)
            found[name.rpartition(".")[0]] = (name, value)
    return found


Probe = Callable[[tuple[Any, ...], int], dict[str, float]]  # inputs of a batch, a seed for its random draws -> figures
