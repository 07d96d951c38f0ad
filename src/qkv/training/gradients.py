"""The gradient of a batch, summed over as many parts as it takes to fit in memory."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from qkv.base.errors import TrainingError
from qkv.base.seeds import seed_at
from qkv.data.batches import Batch
from qkv.training.progress import Progress


class Gradients:
    """Losses are sums over answers, so parts of a batch add up to the whole, whatever the number of parts."""

    def __init__(
        self,
        model: nn.Module,
        loss: Callable[..., Tensor],
        precision: torch.dtype,
        parts: int,
        *,
        seed: int,
        rank: int,
        progress: Progress,
    ):
        self.model, self.loss, self.precision, self.parts = model, loss, precision, parts
        self.seed, self.rank, self.progress = seed, rank, progress
        self.parameters: list[Tensor] = [p for p in model.parameters() if p.requires_grad]
        self.device = self.parameters[0].device

    def add(self, batch: Batch, step: int) -> Tensor:
        """Put the batch's gradient into the parameters; one that does not fit in memory is cut into more parts. -> its loss."""
        while True:
            try:
                return self.add_in_parts(batch, step)
            except (torch.OutOfMemoryError, MemoryError, RuntimeError) as error:
                if not out_of_memory(error):
                    raise
                if self.parts >= batch.rows:
                    raise TrainingError(
                        "even one row at a time does not fit in memory; use a smaller model or a smaller training.row_width"
                    ) from error
            self.clear()
            if self.device.type == "cuda":
                torch.cuda.empty_cache()
            self.parts = min(batch.rows, self.parts * 2)
            self.progress.warn(
                f"the batch does not fit in memory: from here on it is computed in {self.parts} parts, same result"
            )

    def add_in_parts(self, batch: Batch, step: int) -> Tensor:
        total = torch.zeros((), device=self.device)
        if not batch.rows:  # fewer rows than processes: this one has nothing to add to the sum
            for parameter in self.parameters:
                parameter.grad = torch.zeros_like(parameter)
            return total
        size = -(-batch.rows // self.parts)
        for number, start in enumerate(range(0, batch.rows, size)):
            self.seed_dropout(step, number)
            total += self.add_part(batch.part(slice(start, start + size)).inputs, batch.answers)
        return total

    def seed_dropout(self, step: int, part: int) -> None:
        torch.manual_seed(seed_at(self.seed, "dropout", step, self.rank, part))

    def add_part(self, inputs: tuple[Any, ...], answers: int | Tensor) -> Tensor:
        """Add the gradient of some rows of a batch of so many answers. -> their share of its loss."""
        with torch.autocast(self.device.type, self.precision, enabled=self.precision != torch.float32):
            loss = self.loss(self.model, *inputs) / answers
        loss.backward()
        return loss.detach()

    def clear(self) -> None:
        for parameter in self.parameters:
            parameter.grad = None


def out_of_memory(error: BaseException) -> bool:
    """Whether that is what went wrong."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    # The CPU's allocator has no error class of its own.
    return "can't allocate memory" in str(error) or "out of memory" in str(error)
