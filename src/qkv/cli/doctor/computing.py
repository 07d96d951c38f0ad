"""What computes: torch, the GPU and its driver, compilers and threads, kernels against plain torch, a step of training."""

import os
import shutil
import sys
import warnings
from importlib import metadata
from typing import Any

from qkv.base.errors import QkvError
from qkv.base.hardware import choose_device, choose_precision, cpu_cores, describe_device
from qkv.cli.doctor.finding import Diagnosis

COMPILERS = ("gcc", "clang", "cc")
CLOSE = 0.02  # relative difference of losses: kernels on a GPU compute in bf16
STEPS = 5
REPORT = "report it with the output of qkv doctor --json"


def one_line(error: BaseException) -> str:
    """Return the first line of an error, shortened."""
    return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0][:160]}"


def check_torch() -> Diagnosis:
    """Check that torch can be imported, and say which build it is."""
    try:
        import torch
    except Exception as error:  # libraries that do not fit end in errors of any kind
        return Diagnosis("torch", "fail", one_line(error), "install torch anew: pip install --force-reinstall torch")
    build = f"CUDA {torch.version.cuda}" if torch.version.cuda else f"ROCm {torch.version.hip}" if torch.version.hip else "CPU"
    return Diagnosis("torch", "ok", f"{metadata.version('torch')}, built for {build}")


def check_gpu() -> Diagnosis:
    """Check that torch sees the GPU that is there."""
    import torch

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        seen = torch.cuda.is_available()
    if seen:
        return Diagnosis("gpu", "ok", describe_device(torch.device("cuda")))
    if torch.backends.mps.is_available():
        return Diagnosis("gpu", "ok", f"{describe_device(torch.device('mps'))}, in float32")
    if shutil.which("nvidia-smi") is None and not os.path.exists("/proc/driver/nvidia/version"):  # noqa: PTH110
        return Diagnosis("gpu", "ok", "none, so that the CPU computes")
    if torch.version.cuda is None:
        return Diagnosis("gpu", "note", "there is one, and this torch is the build for CPUs", "install torch's build for CUDA")
    why = str(caught[0].message).partition("(")[0].strip()[:160] if caught else "torch does not see it"
    advice = f"update the driver, or install a torch built for an older CUDA than {torch.version.cuda}"
    return Diagnosis("gpu", "fail", why, f"{advice}; until then give --device cpu")


def check_compiler() -> Diagnosis:
    """Check for a C compiler, which Triton needs on a GPU."""
    import torch

    if not torch.cuda.is_available():
        return Diagnosis("C compiler", "ok", "not needed without an NVIDIA GPU")
    named = os.environ.get("CC")
    path = shutil.which(named) if named else next(filter(None, map(shutil.which, COMPILERS)), None)
    if path is None:
        found = f"CC={named} is not there" if named else f"none of {', '.join(COMPILERS)}"
        return Diagnosis("C compiler", "note", found, "install gcc; without it torch's slower kernels are used")
    return Diagnosis("C compiler", "ok", path)


def check_numba() -> Diagnosis:
    """Check that numba compiles, keeps what it has compiled, and that compiled code runs on threads."""
    if os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0"):
        return Diagnosis("numba", "fail", "NUMBA_DISABLE_JIT is set", "unset it: word vectors would train a hundred times slower")
    import torch

    from qkv.parts import kernels

    try:
        attend = kernels.load_cpu_kernel()
        log, index, first = torch.zeros(1, 2), torch.zeros(1, 1, dtype=torch.long), torch.zeros(1, dtype=torch.long)
        attend(torch.zeros(1, 1), log, index, first, 1)
    except Exception as error:  # of numba, LLVM, or the folder of numba's cache
        advice = "set NUMBA_CACHE_DIR to a folder that you may write to, or install numba anew"
        return Diagnosis("numba", "fail", one_line(error), advice)
    return Diagnosis("numba", "ok", f"{metadata.version('numba')}, compiles")


def check_threads() -> Diagnosis:
    """Check the number of threads against the number of cores."""
    cores, given = cpu_cores(), os.environ.get("OMP_NUM_THREADS", "")
    if given and not given.isdigit():
        return Diagnosis("threads", "note", f"OMP_NUM_THREADS={given}", f"give a number up to {cores}")
    if given and int(given) > cores:
        found = f"OMP_NUM_THREADS={given} on {cores} cores"
        return Diagnosis(
            "threads", "note", found, f"set it to {cores} or less: threads that wait for a core slow all others down"
        )
    return Diagnosis("threads", "ok", f"{cores} cores" + (f", OMP_NUM_THREADS={given}" if given else ""))


def tiny_loss(device: Any, steps: int = 0) -> list[float]:
    """Return the losses of a tiny Transformer on one batch, before and after each step of training."""
    import torch

    from qkv.base.rows import Rows
    from qkv.models.transformer import Transformer, TransformerConfig
    from qkv.objectives.translation import Translation, TranslationConfig

    config = TransformerConfig(width=32, feedforward=64, heads=2, encoder_layers=1, decoder_layers=1, dropout=0.0)
    with torch.random.fork_rng([]):
        torch.manual_seed(1)
        model = Transformer(config, 12, 12).to(device)
        ids = torch.randint(4, 12, (4, 16))
    rows = Rows(ids.to(device), torch.ones_like(ids).to(device), torch.arange(16).expand(4, 16).to(device))
    objective, precision = Translation(TranslationConfig(smoothing=0.0), 2), choose_precision("auto", device)
    optimiser = torch.optim.AdamW(model.parameters(), lr=0.01)
    losses = []
    for step in range(steps + 1):
        with torch.autocast(device.type, precision, enabled=precision != torch.float32 and device.type != "cpu"):
            loss = objective.loss(model, rows, rows) / ids.numel()
        losses.append(float(loss.detach()))
        if step < steps:
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    return losses


def check_kernels() -> Diagnosis:
    """Check that qkv's kernels can be built, and give the result of plain torch on a tiny case."""
    import torch

    from qkv.parts import kernels
    from qkv.parts.dot_product import attend

    try:
        q, log, index = torch.randn(2, 8), torch.randn(6, 16), torch.tensor([[0, 2, 4], [1, 3, 5]])
        k, v = log[index].unflatten(-1, (2, 2, 4)).permute(2, 0, 3, 1, 4)
        plain = attend(q.view(2, 1, 2, 4).transpose(1, 2), k, v, None).transpose(1, 2).reshape(2, 8)
        ours = kernels.load_cpu_kernel()(q, log, index, torch.zeros(2, dtype=torch.long), 2)
        difference, built = float((ours - plain).abs().max()), "numba's"
        device = choose_device()
        if device.type != "cpu":
            here, there = tiny_loss(device)[0], tiny_loss(torch.device("cpu"))[0]
            difference = max(difference, abs(here - there) / there * 1e-4 / CLOSE)
            triton = device.type == "cuda" and kernels.run_on(device)
            built = "numba's and Triton's" if triton else f"numba's; torch's own on {describe_device(device)}"
    except Exception as error:  # of a compiler, a driver or torch
        return Diagnosis("kernels", "fail", one_line(error), "see the lines on torch, gpu, numba and the C compiler")
    if not difference < 1e-4:
        return Diagnosis("kernels", "fail", "they give other results than plain torch", REPORT)
    return Diagnosis("kernels", "ok", f"{built}, as plain torch")


def check_training() -> Diagnosis:
    """Check that a few steps of training lower the loss of a tiny model."""
    try:
        device = choose_device()
        losses = tiny_loss(device, STEPS)
    except (QkvError, RuntimeError, OSError) as error:
        return Diagnosis("training", "fail", one_line(error), REPORT)
    found = f"loss {losses[0]:.2f} -> {losses[-1]:.2f} in {STEPS} steps ({device.type})"
    if not losses[-1] < losses[0] < sys.float_info.max:
        return Diagnosis("training", "fail", found, "the loss should fall: report it with the output of qkv doctor --json")
    return Diagnosis("training", "ok", found)
