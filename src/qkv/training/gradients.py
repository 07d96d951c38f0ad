"""The gradient of a batch, accumulated over as many micro-batches as it takes to fit in memory."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from qkv.base.draws import drawing
from qkv.base.errors import TrainingError
from qkv.base.seeds import seed_at
from qkv.data.batches import Batch
from qkv.training.progress import Progress


class GradientAccumulator:
    """Runs forward and backward over a batch in micro-batches.

    A loss is a sum over labels, divided by the number of labels in the whole batch, and random draws are those of the rows: the
    sum of the gradients does not depend on the number of micro-batches, nor on that of processes.
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
    ):
        self.model, self.loss, self.precision, self.micro_batches = model, loss, precision, micro_batches
        self.seed, self.progress = seed, progress
        self.parameters: list[Tensor] = [p for p in model.parameters() if p.requires_grad]
        self.device = self.parameters[0].device
        self.draw_seed = torch.zeros((), dtype=torch.int64, device=self.device)  # where a recorded update reads it

    def accumulate(self, batch: Batch, step: int) -> Tensor:
        """Add the batch's gradient to the parameters; double the number of micro-batches while it does not fit. -> loss."""
        while True:
            try:
                return self.accumulate_micro_batches(batch, step)
            except (torch.OutOfMemoryError, MemoryError, RuntimeError) as error:
                if not is_out_of_memory(error):
                    raise
                if self.micro_batches >= batch.rows:
                    raise TrainingError(
                        "even one row at a time does not fit in memory; use a smaller model or a smaller training.row_width"
                    ) from error
            self.zero_grad()
            if self.device.type == "cuda":
                torch.cuda.empty_cache()
            self.micro_batches = min(batch.rows, self.micro_batches * 2)
            self.progress.warn(
                f"the batch does not fit in memory: from here on it is computed in {self.micro_batches} parts, same result"
            )

    def accumulate_micro_batches(self, batch: Batch, step: int) -> Tensor:
        """Add the gradient with the current number of micro-batches. -> loss."""
        total = torch.zeros((), device=self.device)
        if not batch.rows:  # fewer rows than processes: this one adds nothing to the sum
            for parameter in self.parameters:
                parameter.grad = torch.zeros_like(parameter)
            return total
        size = -(-batch.rows // self.micro_batches)
        for start in range(0, batch.rows, size):
            part = batch.part(slice(start, start + size))
            self.seed_draws(step, part)
            total += self.backward(part.to(self.device).inputs, batch.labels, part.numbers)
        return total

    def seed_draws(self, step: int, part: Batch) -> None:
        """Seed the random draws of some rows by the step, so that a resumed run draws the same."""
        self.draw_seed.fill_(seed_at(self.seed, "draws", step))
        torch.manual_seed(seed_at(self.seed, "torch", step, part.numbers[0]))  # for models that draw without `base/draws.py`

    def backward(self, inputs: tuple[Any, ...], labels: int | Tensor, numbers: range) -> Tensor:
        """Add the gradient of some rows, with their numbers in the batch. -> the rows' share of the loss.

        `labels` is the number of labels in the whole batch.
        """
        rows = torch.arange(numbers.start, numbers.stop, numbers.step, device=self.device)
        autocast = torch.autocast(self.device.type, self.precision, enabled=self.precision != torch.float32)
        with autocast, drawing(self.draw_seed, rows):
            loss = self.loss(self.model, *inputs) / labels
        loss.backward()
        return loss.detach()

    def zero_grad(self) -> None:
        """Remove all gradients."""
        for parameter in self.parameters:
            parameter.grad = None


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error means that memory ran out."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    # The CPU's allocator has no error class of its own.
    return "can't allocate memory" in str(error) or "out of memory" in str(error)
