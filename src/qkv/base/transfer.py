"""Copies from the host to a device that do not wait for what the device computes."""

import numpy as np
import torch
from torch import Tensor


def on_device(values: np.ndarray, device: torch.device) -> Tensor:
    """Return a tensor of these values on a device; on a CPU it shares their memory.

    A plain copy to a GPU waits until all work before it is done, and the host could not prepare the next work meanwhile.
    """
    tensor = torch.from_numpy(values)
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)
