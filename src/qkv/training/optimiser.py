"""Adam and its learning rate ("Attention Is All You Need", section 5.3)."""

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from qkv.training import distributed
from qkv.training.config import TrainingConfig
from qkv.training.weights import Weights


def make_optimiser(model: nn.Module, config: TrainingConfig, local: Mapping[str, Tensor] | None = None) -> torch.optim.Optimizer:
    """Build a fused AdamW that decays matrices except embeddings; without decay it is Adam.

    `local` has the tensors to update by names of the model's parameters, which they are themselves by default.

    With `layer_decay`, a parameter learns at a lower rate the deeper it lies (Howard and Ruder 2018, section 3.2); the model's
    `layers_above(name)` gives the number of layers above a parameter.
    """
    embeddings = {id(m.weight) for m in model.modules() if isinstance(m, nn.Embedding)}
    groups: dict[tuple[bool, float], list[Tensor]] = {}
    for name, p in model.named_parameters():
        if p.requires_grad:
            decays = p.dim() > 1 and id(p) not in embeddings
            scale = 1.0 if config.layer_decay == 1 else config.layer_decay ** model.layers_above(name)  # type: ignore[operator]
            groups.setdefault((decays, scale), []).append(p if local is None else local[name])
    device = next(model.parameters()).device
    # On a GPU the learning rate lies on the device, where a captured update reads it.
    on_gpu = device.type == "cuda"
    options = [
        {
            "params": parameters,
            "weight_decay": config.weight_decay if decays else 0.0,
            "lr_scale": scale,
            "lr": torch.zeros((), device=device) if on_gpu else 0.0,
        }
        for (decays, scale), parameters in groups.items()
    ]
    return torch.optim.AdamW(options, betas=config.betas, eps=config.epsilon, fused=True, capturable=on_gpu)


def set_learning_rate(optimiser: torch.optim.Optimizer, rate: float) -> None:
    """Set the learning rate of each parameter group, scaled by the group's `lr_scale`."""
    for group in optimiser.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(rate * group["lr_scale"])
        else:
            group["lr"] = rate * group["lr_scale"]


def learning_rate(step: int, steps: int, width: int, config: TrainingConfig) -> float:
    """Return the learning rate at update `step`, counted from 1, of a training of `steps` updates.

    inverse-sqrt is the paper's: width^-0.5 min(step^-0.5, step warmup^-1.5), or the same shape with another peak. A warm-up
    that is shortened, because the training is short, keeps the paper's peak.
    """
    warmup = max(1, config.warmup_steps(steps))
    peak = config.learning_rate or (width * max(1, int(config.configured_warmup(steps)))) ** -0.5
    if step < warmup:
        return peak * step / warmup
    if config.schedule == "inverse-sqrt":
        return peak * math.sqrt(warmup / step)
    progress = min(1.0, (step - warmup) / max(1, steps - warmup))
    return peak * (1 - progress if config.schedule == "linear" else 0.5 * (1 + math.cos(math.pi * progress)))


@torch.no_grad()
def update_ratio(optimiser: torch.optim.Optimizer, sharded: bool = False) -> Tensor:
    """Return the length of Adam's last update of all matrices as a share of the length of the matrices, as a scalar tensor."""
    updates, weights = [], []
    for group in optimiser.param_groups:
        beta1, beta2 = group["betas"]
        for p in group["params"]:
            state = optimiser.state.get(p)
            if p.dim() < 2 or not state:
                continue
            mean = state["exp_avg"] / (1 - beta1 ** state["step"])
            deviation = (state["exp_avg_sq"] / (1 - beta2 ** state["step"])).sqrt_()
            updates.append(group["lr"] * torch.linalg.vector_norm(mean.div_(deviation.add_(group["eps"]))))
            weights.append(torch.linalg.vector_norm(p))
    if not updates:
        return torch.zeros(())
    lengths = torch.stack([torch.stack([u.float() for u in updates]).norm(), torch.stack(weights).norm()])
    update, weight = norm_over_processes(lengths) if sharded else lengths
    return update / weight.clamp(min=1e-12)


def norm_over_processes(norm: Tensor) -> Tensor:
    """Return the norm of vectors whose parts lie in several processes, from that of this one's part."""
    return distributed.all_reduce_sum(norm.square()).sqrt()


class UpdateGuard:
    """Clips the gradient and skips updates whose gradient or loss is not finite, without waiting for the device.

    Fused optimisers divide the gradient by `grad_scale` and skip the update where `found_inf` is set, both on the device.
    """

    def __init__(self, optimiser: torch.optim.Optimizer, device: torch.device, sharded: bool = False):
        self.optimiser, self.sharded = optimiser, sharded
        self.consecutive = torch.zeros((), device=device)  # skipped updates since the last good one
        self.skipped = torch.zeros((), device=device)  # skipped updates in all
        self.norm = torch.zeros((), device=device)  # of the last gradient, before clipping

    def step(self, parameters: list[Tensor], clip: float, loss: Tensor) -> Tensor:
        """Update the weights, or skip the update. -> norm of the gradient."""
        gradients = [p.grad for p in parameters if p.grad is not None]
        norm = torch.nn.utils.get_total_norm(gradients)
        if self.sharded:
            norm = norm_over_processes(norm)
        bad = 1 - (norm.isfinite() & loss.isfinite()).float()
        self.consecutive.add_(1).mul_(bad)
        self.skipped.add_(bad)
        self.norm.copy_(norm)
        self.optimiser.found_inf = bad  # type: ignore[attr-defined]
        self.optimiser.grad_scale = ((norm + 1e-6) / clip).clamp(min=1.0) if clip else None  # type: ignore[attr-defined]
        self.optimiser.step()
        return norm


class StartPenalty:
    """L2-SP (Li et al. 2018): penalty / 2 times the squared distance of the weights from those that a run started from.

    `start` holds the old weights by name of the parameter; where it has fewer rows, the rows beyond are new and free. Only the
    gradient is computed: it is added to that of the whole batch, once, after micro-batches and processes have been summed.
    """

    def __init__(self, weights: Weights, start: Mapping[str, Tensor], penalty: float):
        self.penalty = penalty
        held = [(p, weights.local_rows(name, start[name]).to(p)) for name, p in weights.local.items() if name in start]
        # Parameter, its old rows, their weights.
        self.held = [(p, slice(len(old)) if old.dim() else ..., old) for p, old in held if p.requires_grad]

    @torch.no_grad()
    def add_gradient(self) -> None:
        """Add penalty * (weight - old weight) to the gradients."""
        rows = [(p.grad[index], p[index], old) for p, index, old in self.held if p.grad is not None]
        if rows:
            gradients, weights, olds = (list(column) for column in zip(*rows, strict=True))
            torch._foreach_add_(gradients, torch._foreach_sub(weights, olds), alpha=self.penalty)
