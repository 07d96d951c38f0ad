"""The gradient of a batch, accumulated over as many micro-batches as it takes to fit in memory, and summed over processes."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from qkv.base.draws import drawing
from qkv.base.errors import TrainingError
from qkv.base.seeds import seed_at
from qkv.data.batches import Batch
from qkv.training import distributed
from qkv.training.exchange import GradientExchange
from qkv.training.progress import Progress

FITS, TOO_LARGE, HOPELESS = 0, 1, 2  # how a batch fits into memory: what processes tell each other


class GradientAccumulator:
    """Runs forward and backward over a batch in micro-batches.

    A loss is a sum over labels, divided by the number of labels in the whole batch, and random draws are those of the rows: the
    sum of the gradients does not depend on the number of micro-batches, nor on that of processes. Processes exchange gradients
    during the last micro-batch.
    """

    def __init__(
        self,
        model: nn.Module,
        loss: Callable[..., Tensor],
        precision: torch.dtype,
        micro_batches: int,
        *,
        seed: int,
        progress: Progress,
        exchange: GradientExchange | None = None,
        tally: Any = None,
    ):
        self.model, self.loss, self.precision, self.micro_batches = model, loss, precision, micro_batches
        self.seed, self.progress, self.exchange, self.tally = seed, progress, exchange, tally
        self.parameters: list[Tensor] = [p for p in model.parameters() if p.requires_grad]
        self.device = self.parameters[0].device
        self.draw_seed = torch.zeros((), dtype=torch.int64, device=self.device)  # where a recorded update reads it

    def accumulate(self, batch: Batch, step: int) -> Tensor:
        """Set the gradient of the batch, summed over all processes; split it further while it does not fit. -> loss."""
        while True:
            loss, fit = torch.zeros((), device=self.device), FITS
            reported = self.tally.copy() if self.tally else {}
            try:
                self.accumulate_micro_batches(batch, step, loss)
            except (torch.OutOfMemoryError, MemoryError, RuntimeError) as error:
                if not is_out_of_memory(error):
                    raise
                fit = TOO_LARGE if self.micro_batches < batch.rows else HOPELESS
            worst = fit
            if self.exchange:
                self.exchange.finish()
                worst = self.exchange.agree(fit)
            if worst == FITS:
                return loss
            if self.tally:
                self.tally.restore(reported)
            self.split_further(hopeless=worst == HOPELESS, own=fit == HOPELESS)

    def split_further(self, hopeless: bool, own: bool) -> None:
        """Double the number of micro-batches; end where one row does not fit, in this process (`own`) or in another."""
        self.zero_grad()
        if hopeless:
            advice = "even one row at a time does not fit in memory; use a smaller model or a smaller training.row_width"
            distributed.raise_together(TrainingError(advice) if own else None)
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
        self.micro_batches *= 2
        self.progress.warn(
            f"the batch does not fit in memory: from here on it is computed in {self.micro_batches} parts, same result"
        )

    def accumulate_micro_batches(self, batch: Batch, step: int, total: Tensor) -> None:
        """Add the gradient with the current number of micro-batches, and the loss to `total`."""
        if not batch.rows:  # fewer rows than processes: this one adds nothing to the sum
            if self.exchange:
                self.exchange.start(total)
            return
        size = -(-batch.rows // self.micro_batches)
        starts = range(0, batch.rows, size)
        for start in starts:
            part = batch.part(slice(start, start + size))
            self.seed_draws(step, part)
            self.backward(part.to(self.device).inputs, batch.labels, part.numbers, total, last=start == starts[-1])

    def seed_draws(self, step: int, part: Batch) -> None:
        """Seed the random draws of some rows by the step, so that a resumed run draws the same."""
        self.draw_seed.fill_(seed_at(self.seed, "draws", step))
        torch.manual_seed(seed_at(self.seed, "torch", step, part.numbers[0]))  # for models that draw without `base/draws.py`

    def backward(self, inputs: tuple[Any, ...], labels: float | Tensor, numbers: range, total: Tensor, last: bool = True) -> None:
        """Add the gradient of some rows, with their numbers in the batch, and their share of the loss to `total`.

        `labels` is the number of labels in the whole batch. The last rows start the exchange with other processes.
        """
        rows = torch.arange(numbers.start, numbers.stop, numbers.step, device=self.device)
        autocast = torch.autocast(self.device.type, self.precision, enabled=self.precision != torch.float32)
        with autocast, drawing(self.draw_seed, rows):
            loss = self.loss(self.model, *inputs) / labels
        total += loss.detach()
        if self.exchange and last:
            self.exchange.start(total)
        loss.backward()

    def zero_grad(self) -> None:
        """Remove all gradients, or make them zero where they are exchanged."""
        if self.exchange:
            self.exchange.clear()
            return
        for parameter in self.parameters:
            parameter.grad = None

    def release(self) -> None:
        """Free the memory of the gradients; no other update is made."""
        if self.exchange:
            self.exchange.buckets = []  # hooks on the parameters keep the exchange itself
        self.exchange = None
        self.zero_grad()


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error means that memory ran out."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    # The CPU's allocator has no error class of its own.
    return "can't allocate memory" in str(error) or "out of memory" in str(error)
