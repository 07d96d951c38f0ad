"""Sharded training: each process holds some rows of every weight, of its gradient and of Adam's moments (FSDP2).

Zhao et al. 2023, "PyTorch FSDP: Experiences on Scaling Fully Sharded Data Parallel". `fully_shard` gathers a layer's weights
before the layer runs and drops them after it. All that is in no layer, such as embeddings and heads, is one more unit, and it
stays gathered from the beginning of a loss to the end of its backward pass: losses read these weights outside of any layer. The
optimiser, clipping and averages see plain tensors, the rows that this process holds.

The model that a job has made keeps its modules and names, and gives up its weights. To validate, the first process puts
all rows together in it; decoding and scoring know nothing of shards.
"""

import contextlib
import copy
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from qkv.base.errors import TrainingError
from qkv.data.batches import Batch
from qkv.training import checkpoints, distributed
from qkv.training.gradients import GradientAccumulator, is_out_of_memory
from qkv.training.weights import Weights


def layers_of(model: nn.Module) -> list[nn.Module]:
    """Return the layers, which are the modules in lists of modules, but none that is part of another."""
    if isinstance(model, nn.ModuleList):
        return list(model)
    return [layer for child in model.children() for layer in layers_of(child)]


class LossModule(nn.Module):
    """A model with its loss, as one call: the unit that holds all weights outside of layers."""

    def __init__(self, model: nn.Module, loss: Callable[..., Tensor]):
        super().__init__()
        self.model, self.loss = model, loss

    def forward(self, *inputs: Any) -> Tensor:
        return self.loss(self.model, *inputs)


class ShardedWeights(Weights):
    """The rows of each weight that this process holds; `network` computes the loss with them."""

    sharded = True

    def __init__(self, model: nn.Module, loss: Callable[..., Tensor], rank: int, world_size: int):
        super().__init__(model, rank, world_size)
        shared: dict[int, Any] = {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())}
        self.network = LossModule(copy.deepcopy(model, shared), loss).train()  # scoring switches only the model's own mode
        mesh = init_device_mesh(next(model.parameters()).device.type, (world_size,))
        for module in [*dict.fromkeys(layers_of(self.network.model)), self.network]:  # each once: networks may share layers
            unit = fully_shard(module, mesh=mesh)
            # Losses are divided by the labels of the whole batch already: gradients are summed.
            unit.set_gradient_divide_factor(1.0)
            unit.set_force_sum_reduction_for_comms(True)
        self.shards: dict[str, Any] = {name.removeprefix("model."): p for name, p in self.network.named_parameters()}
        self.local = {name: nn.Parameter(p._local_tensor, p.requires_grad) for name, p in self.shards.items()}
        self.empty_model()

    def empty_model(self) -> None:
        """Free the memory of the model's weights; they keep their shapes."""
        for parameter in self.model.parameters():
            parameter.data = parameter.data.new_zeros(()).expand(parameter.shape)

    def fill_model(self, values: Mapping[str, Tensor]) -> None:
        """Gather all rows, of other values where they are given, in the first process's model; all processes must call it."""
        for name, parameter in self.model.named_parameters():
            full = self.gather(values.get(name, self.local[name]).detach(), len(parameter))
            if self.rank == 0:
                parameter.data = full

    def gather(self, local: Tensor, rows: int) -> Tensor:
        """Return the whole tensor, of `rows` rows, from the rows of all processes."""
        size = -(-rows // self.world_size)  # of all chunks but the last ones
        padded = torch.cat([local, local.new_zeros(size - len(local), *local.shape[1:])])
        full = local.new_empty(self.world_size, *padded.shape)
        dist.all_gather(list(full), padded)
        return full.flatten(0, 1)[:rows]

    def own_part(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {name: tensor for name, tensor in tensors.items() if self.rank == 0 or (tensor.dim() and len(tensor))}

    def local_rows(self, name: str, tensor: Tensor) -> Tensor:
        return tensor[slice(*checkpoints.chunk(self.shards[name].shape[0], self.rank, self.world_size))]

    def read(self, path: Path) -> dict[str, Tensor]:
        return checkpoints.load_weights(path, self.rank, self.world_size)

    @contextlib.contextmanager
    def in_model(self, values: Mapping[str, Tensor]) -> Iterator[None]:
        self.fill_model(values)
        try:
            yield
        finally:
            self.empty_model()

    def release(self) -> None:
        self.network = None  # type: ignore[assignment]
        self.shards, self.local = {}, {}
        if self.rank == 0:
            for parameter in self.model.parameters():
                parameter.data = torch.empty(parameter.shape, dtype=parameter.dtype, device=parameter.device)


class ShardedGradients(GradientAccumulator):
    """Gradients of sharded weights: summed over processes and divided into rows during each backward pass.

    All processes run the same number of micro-batches, as they gather each other's weights; one without rows computes any row
    and adds nothing.
    """

    def __init__(self, weights: ShardedWeights, precision: torch.dtype, micro_batches: int, **options: Any):
        super().__init__(weights.network, lambda network, *inputs: network(*inputs), precision, micro_batches, **options)
        self.weights, self.parameters = weights, weights.trained

    def accumulate(self, batch: Batch, step: int) -> Tensor:
        loss = torch.zeros((), device=self.device)
        try:
            self.accumulate_micro_batches(batch, step, loss)
        except (torch.OutOfMemoryError, MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
            raise TrainingError(
                "the batch does not fit in memory, and a sharded run cannot split it by itself; run the same command with "
                f"training.accumulate={2 * self.micro_batches} and --accept-changes"
            ) from error
        for name, shard in self.weights.shards.items():
            self.weights.local[name].grad = None if shard.grad is None else shard.grad._local_tensor
        return distributed.all_reduce_sum(loss)

    def accumulate_micro_batches(self, batch: Batch, step: int, total: Tensor) -> None:
        world_size, rank = self.weights.world_size, self.weights.rank
        own = len(range(rank, batch.whole_rows, world_size))
        most = -(-batch.whole_rows // world_size)
        size = -(-most // self.micro_batches)
        for start in range(0, most, size):
            part = batch.part(slice(start, start + size) if start < own else slice(0, 1))
            self.seed_draws(step, part)
            idle = start >= own
            reported = self.tally.copy() if self.tally and idle else {}
            self.backward(part.to(self.device).inputs, float("inf") if idle else batch.labels, part.numbers, total)
            if self.tally and idle:
                self.tally.restore(reported)

    def zero_grad(self) -> None:
        super().zero_grad()
        for shard in self.weights.shards.values():
            shard.grad = None
