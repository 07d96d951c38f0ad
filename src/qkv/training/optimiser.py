"""Adam and its learning rate ("Attention Is All You Need", section 5.3)."""

import math

import torch
from torch import Tensor, nn

from qkv.training.config import TrainingConfig


def make_optimiser(model: nn.Module, config: TrainingConfig) -> torch.optim.Optimizer:
    """Fused Adam, with weight decay (AdamW) on matrices only; without decay the two are one."""
    embeddings = {id(m.weight) for m in model.modules() if isinstance(m, nn.Embedding)}
    groups: dict[tuple[bool, float], list[Tensor]] = {}
    for name, p in model.named_parameters():
        if p.requires_grad:
            matrix = p.dim() > 1 and id(p) not in embeddings
            groups.setdefault((matrix, share_of_rate(name, model, config)), []).append(p)
    device = next(model.parameters()).device
    # On a GPU the rate lives on the device, where a recorded update reads it.
    on_gpu = device.type == "cuda"
    options = [
        {
            "params": parameters,
            "weight_decay": config.weight_decay if matrices else 0.0,
            "share": share,
            "lr": torch.zeros((), device=device) if on_gpu else 0.0,
        }
        for (matrices, share), parameters in groups.items()
    ]
    return torch.optim.AdamW(options, betas=config.betas, eps=config.epsilon, fused=True, capturable=on_gpu)


def share_of_rate(name: str, model: nn.Module, config: TrainingConfig) -> float:
    """At what part of the learning rate a parameter learns (Howard and Ruder 2018, section 3.2): less the deeper it lies.

    A model that knows layers has `below(name)`: how many lie above a parameter.
    """
    return 1.0 if config.layer_decay == 1 else config.layer_decay ** model.below(name)  # type: ignore[operator]


def set_rate(optimiser: torch.optim.Optimizer, rate: float) -> None:
    """Let the next updates be made at that learning rate, or each group's share of it."""
    for group in optimiser.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(rate * group["share"])
        else:
            group["lr"] = rate * group["share"]


def learning_rate(step: int, steps: int, width: int, config: TrainingConfig) -> float:
    """The rate at update `step`, counted from 1.

    inverse-sqrt is the paper's: width^-0.5 min(step^-0.5, step warmup^-1.5), or the same shape with another peak.
    """
    warmup = max(1, config.warmup_steps(steps))
    peak = config.learning_rate or (width * warmup) ** -0.5
    if step < warmup:
        return peak * step / warmup
    if config.schedule == "inverse-sqrt":
        return peak * math.sqrt(warmup / step)
    progress = min(1.0, (step - warmup) / max(1, steps - warmup))
    return peak * (1 - progress if config.schedule == "linear" else 0.5 * (1 + math.cos(math.pi * progress)))


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
