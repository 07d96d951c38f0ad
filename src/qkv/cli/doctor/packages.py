"""The packages that qkv asks for: those it needs, and those of its extras."""

import re
from collections.abc import Iterator
from importlib import metadata
from typing import NamedTuple

from qkv.cli.doctor.finding import Diagnosis

# What each extra is for, in the words of a user.
GIVES = {
    "data": "Parquet, .zst files, and corpora at URLs",
    "cluster": "batch work on a Ray cluster, and S3",
    "interop": "export to CTranslate2 and ONNX, and SentencePiece models",
    "tensorboard": "curves for TensorBoard",
    "mlflow": "runs tracked by MLflow",
    "wandb": "runs tracked by Weights & Biases",
    "optuna": "qkv sweep --optuna",
    "serve": "qkv serve",
}
REQUIREMENT = re.compile(r"""([\w.-]+)(?:\[.*?\])?(?:\s*\(?>=\s*([\d.]+)\)?)?.*?(?:;.*extra == ['"](\w+)['"])?$""")


class Requirement(NamedTuple):
    """A package, its oldest version that works, and the extra that asks for it; the core has none."""

    package: str
    oldest: str
    extra: str


def requirements() -> list[Requirement]:
    """Return what qkv's metadata asks for."""
    found = (REQUIREMENT.match(line) for line in metadata.requires("qkv") or [])
    return [Requirement(match[1], match[2] or "", match[3] or "") for match in found if match and match[1] != "qkv"]


def numbers(version: str) -> tuple[int, ...]:
    """Return the numbers of a version, such as (2, 13, 0) of 2.13.0+cpu."""
    return tuple(int(number) for number in re.findall(r"\d+", re.split(r"[+a-z]", version)[0]))


def fault(requirement: Requirement) -> str:
    """Return what is wrong with a package: missing, or too old; an empty text if nothing is."""
    try:
        version = metadata.version(requirement.package)
    except metadata.PackageNotFoundError:
        return f"{requirement.package} is missing"
    if numbers(version) < numbers(requirement.oldest):
        return f"{requirement.package} {version} is older than {requirement.oldest}"
    return ""


def check_core() -> Iterator[Diagnosis]:
    """Check the packages that qkv cannot do without."""
    try:
        core = [requirement for requirement in requirements() if not requirement.extra]
    except metadata.PackageNotFoundError:
        yield Diagnosis("packages", "note", "qkv is not installed, it runs from its source", "pip install . in its folder")
        return
    faults = [(requirement, found) for requirement in core if (found := fault(requirement))]
    for requirement, found in faults:
        wanted = f"{requirement.package}>={requirement.oldest}" if requirement.oldest else requirement.package
        yield Diagnosis("packages", "fail", found, f"pip install '{wanted}'")
    if not faults:
        yield Diagnosis("packages", "ok", f"all {len(core)} that qkv needs")


def check_extras() -> Iterator[Diagnosis]:
    """Check the packages of each extra: a missing one is left out by choice, one that is too old fails when it is used."""
    try:
        known = requirements()
    except metadata.PackageNotFoundError:
        return
    for extra, gives in GIVES.items():
        faults = [found for requirement in known if requirement.extra == extra and (found := fault(requirement))]
        old = [found for found in faults if "older than" in found]
        if not faults:
            yield Diagnosis(f"extra {extra}", "ok", gives)
        else:
            advice = f"pip install 'qkv[{extra}]' gives {gives}"
            yield Diagnosis(f"extra {extra}", "fail" if old else "note", ", ".join(old or faults), advice)
