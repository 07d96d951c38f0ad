"""The weights of a translator for another vocabulary: rows of its embeddings and of its output layer are made from old ones.

V old vocabulary, W new vocabulary.
"""

from typing import Any

import torch
from torch import Tensor

NEVER = -1e4  # added to the logit of a token that must not be generated
OldRows = list[list[int]]  # for each new token, the old ones of which it gets the mean


@torch.no_grad()
def change_vocabularies(model: Any, source: OldRows, target: OldRows) -> dict[str, Tensor]:
    """Return a translator's weights by name, for a model of the same config with other vocabularies of source and target.

    A token that is made from one old token keeps its weights exactly.
    """
    if model.output.bias is not None:
        target = _without_never(target, model.output.bias)
    made: dict[int, Tensor] = {}
    # The target's come last: where both sides share an embedding, they also share a vocabulary.
    for module, rows in ((model.source_embedding, source), (model.target_embedding, target), (model.output, target)):
        means = module.mean_rows(rows) if hasattr(module, "mean_rows") else {}
        for name, parameter in module.named_parameters():
            made[id(parameter)] = means[name] if name in means else mean_rows(parameter, rows)
    return {name: made.get(id(parameter), parameter) for name, parameter in model.named_parameters()}


def mean_rows(table: Tensor, rows: OldRows) -> Tensor:
    """Return the means of some rows of a table, computed on the CPU in one order. (V, ...) -> (W, ...)."""
    table, counts = table.detach().cpu(), torch.tensor([len(row) for row in rows])
    owner = torch.arange(len(rows)).repeat_interleave(counts)
    chosen = table[torch.tensor([number for row in rows for number in row])]
    total = table.new_zeros(len(rows), *table.shape[1:]).index_add_(0, owner, chosen)
    return total / counts.view(-1, *[1] * (table.dim() - 1))


def _without_never(rows: OldRows, bias: Tensor) -> OldRows:
    """Leave tokens that are never generated out of means: a new token must be free to be generated."""
    possible = {number for number, value in enumerate(bias.tolist()) if value > NEVER / 2}
    kept = [row if len(row) == 1 else [number for number in row if number in possible] for row in rows]
    return [row or sorted(possible) for row in kept]
