"""Adam and its learning rate ("Attention Is All You Need", section 5.3)."""

import math

import torch
from torch import Tensor, nn

from qkv.training.config import TrainingConfig


def make_optimiser(model: nn.Module, config: TrainingConfig) -> torch.optim.Optimizer:
    """Fused Adam, with weight decay (AdamW) on matrices only; without decay the two are one."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    embeddings = {id(m.weight) for m in model.modules() if isinstance(m, nn.Embedding)}
    decayed = [p for p in parameters if p.dim() > 1 and id(p) not in embeddings]
    plain = [p for p in parameters if p.dim() <= 1 or id(p) in embeddings]
    groups = [{"params": decayed, "weight_decay": config.weight_decay}, {"params": plain, "weight_decay": 0.0}]
    # On a GPU the rate lives on the device, where a recorded update reads it.
    on_gpu = parameters[0].is_cuda
    rate = torch.zeros((), device=parameters[0].device) if on_gpu else 0.0
    return torch.optim.AdamW(groups, lr=rate, betas=config.betas, eps=config.epsilon, fused=True, capturable=on_gpu)


def set_rate(optimiser: torch.optim.Optimizer, rate: float) -> None:
    """Let the next updates be made at that learning rate."""
    for group in optimiser.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate


def learning_rate(step: int, steps: int, width: int, config: TrainingConfig) -> float:
    """The rate at update `step`, counted from 1.

    inverse-sqrt is the paper's: width^-0.5 min(step^-0.5, step warmup^-1.5), or the same shape with another peak.
    """
    warmup = max(1, config.warmup)
    peak = config.learning_rate or (width * warmup) ** -0.5
    if step < warmup:
        return peak * step / warmup
    if config.schedule == "inverse-sqrt":
        return peak * math.sqrt(warmup / step)
    progress = min(1.0, (step - warmup) / max(1, steps - warmup))
    return peak * 0.5 * (1 + math.cos(math.pi * progress))


class Guard:
    """Clips the gradient and lets an update pass only when it and the loss are finite, without waiting for the device.

    The fused optimisers scale a gradient and skip an update on the device when told through `grad_scale` and `found_inf`.
    """

    def __init__(self, optimiser: torch.optim.Optimizer, device: torch.device):
        self.optimiser = optimiser
        self.in_a_row = torch.zeros((), device=device)
        self.skipped = torch.zeros((), device=device)

    def step(self, parameters: list[Tensor], clip: float, loss: Tensor) -> Tensor:
        """Update the weights, or don't. -> the gradient's norm."""
        gradients = [p.grad for p in parameters if p.grad is not None]
        norm = torch.nn.utils.get_total_norm(gradients)
        bad = 1 - (norm.isfinite() & loss.isfinite()).float()
        self.in_a_row.add_(1).mul_(bad)
        self.skipped.add_(bad)
        self.optimiser.found_inf = bad  # type: ignore[attr-defined]
        # What the gradient is divided by on its way into the update.
        self.optimiser.grad_scale = ((norm + 1e-6) / clip).clamp(min=1.0) if clip else None  # type: ignore[attr-defined]
        self.optimiser.step()
        return norm
