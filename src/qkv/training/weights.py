"""The weights that are trained, as one process holds them: all of them here, some rows of each in `sharding.py`."""

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path

from torch import Tensor, nn

from qkv.training import checkpoints


class Weights:
    """The weights of a model that every process holds whole.

    `local` has the tensors that this process updates, `saved` those of them that a checkpoint holds, both by name.
    """

    sharded = False

    def __init__(self, model: nn.Module, rank: int, world_size: int):
        self.model, self.rank, self.world_size = model, rank, world_size
        self.local: dict[str, Tensor] = dict(model.named_parameters())

    @property
    def saved(self) -> dict[str, Tensor]:
        return {name: self.local[name] for name in checkpoints.named_weights(self.model)}

    @property
    def trained(self) -> list[Tensor]:
        """The tensors that have a gradient."""
        return [tensor for tensor in self.local.values() if tensor.requires_grad]

    def own_part(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the rows of each tensor that this process writes to a checkpoint; scalars are the first one's."""
        found = {}
        for name, tensor in tensors.items():
            part = tensor[slice(*checkpoints.chunk(len(tensor), self.rank, self.world_size))] if tensor.dim() else tensor
            if self.rank == 0 or (tensor.dim() and len(part)):
                found[name] = part
        return found

    def local_rows(self, name: str, tensor: Tensor) -> Tensor:
        """Return the rows of a tensor for the weight of this name that belong to the rows that this process holds."""
        return tensor

    def read(self, path: Path) -> dict[str, Tensor]:
        """Read a file of a checkpoint, as much of each tensor as this process holds."""
        return checkpoints.load_weights(path)

    @contextlib.contextmanager
    def in_model(self, values: Mapping[str, Tensor]) -> Iterator[None]:
        """Put other values of the saved weights, if there are any, into the first process's model, and the weights back."""
        if not values or self.rank:
            yield
            return
        own = {name: tensor.detach().clone() for name, tensor in self.saved.items()}
        checkpoints.copy_weights(self.saved, values, "average")
        try:
            yield
        finally:
            checkpoints.copy_weights(self.saved, own, "weights")

    def release(self) -> None:
        """Leave the first process's model with tensors of its own, after training."""
