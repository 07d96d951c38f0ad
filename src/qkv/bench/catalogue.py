"""The systems that can be compared: where each one's code is, what it needs, in which precisions it runs."""

import importlib.util
import json
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from qkv.base.errors import ConfigError
from qkv.base.hardware import choose_precision

HERE = Path(__file__).parent
WORKER = HERE / "worker.py"
PEERS = Path(".venv-peers")  # environments that `make bench-peers` builds, one for each peer that wants its own


@dataclass(frozen=True)
class System:
    """Something to be measured."""

    name: str
    file: str  # in `systems/`
    options: dict[str, Any]
    peer: bool = False
    package: str = ""  # what must be installed
    environment: str = ""  # a folder in PEERS; qkv's own environment when empty
    learns: bool = False  # gives a curve of its losses too

    @property
    def precision(self) -> str:
        return str(self.options["precision"])

    @property
    def label(self) -> str:
        return f"{self.name}, {self.precision}"

    @property
    def python(self) -> Path:
        return PEERS / self.environment / "bin" / "python" if self.environment else Path(sys.executable)

    @property
    def installed(self) -> bool:
        if self.environment:
            return self.python.exists()
        return not self.package or importlib.util.find_spec(self.package) is not None

    @property
    def remedy(self) -> str:
        """What to type when it is not installed."""
        return "make bench-peers" if self.environment else f"pip install {self.package}"

    def command(self, job: Path) -> list[str]:
        """How its worker is started; -P keeps the worker's folder out of the way of other packages' names."""
        file = HERE / "systems" / self.file
        return [str(self.python), "-P", "-W", "ignore", str(WORKER), str(file), str(job), json.dumps(self.options)]


@dataclass
class Chosen:
    """The systems that will run, and peers that cannot."""

    systems: list[System] = field(default_factory=list)
    missing: list[System] = field(default_factory=list)

    def only(self, names: tuple[str, ...]) -> "Chosen":
        """Those with one of the names in theirs; all where none are given."""
        if not names:
            return self
        kept = [[s for s in some if any(name in s.label for name in names)] for some in (self.systems, self.missing)]
        if not any(kept):
            there = "; ".join(s.label for s in self.systems)
            raise ConfigError(f"--only {names[0]}: no such system; there are {there}; with --peers others too")
        return Chosen(*kept)


def headline(device: str) -> str:
    """The precision in which peers are compared."""
    return "bf16" if device == "cuda" else "float32"


def training_systems(device: Any, peers: bool) -> Chosen:
    """What trains on this device."""
    gpu, usual = device.type == "cuda", _usual(device)
    systems = [System("qkv", "qkv_training.py", {"precision": "float32"}, learns=True)]
    if usual != "float32":
        systems.append(System("qkv as it comes", "qkv_training.py", {"precision": usual}, learns=True))
        systems.append(System("qkv as it comes, bare step", "qkv_training.py", {"precision": usual, "bare": True}))
    if peers:
        systems += _training_peers(gpu, usual)
    return _sorted_out(systems)


def _training_peers(gpu: bool, usual: str) -> list[System]:
    main = "bf16" if gpu else "float32"
    ways: list[dict[str, Any]] = [{"precision": main}]
    ways += [{"precision": main, "compiled": True}] if gpu else [{"precision": usual}] * (usual != main)
    systems = []
    for name, file, package in (
        ("Hugging Face Marian", "marian.py", "transformers"),
        ("torch.nn.Transformer", "torch_training.py", ""),
    ):
        for way in ways:
            what = f"{name}, compiled" if way.get("compiled") else name
            systems.append(System(what, file, way, peer=True, package=package, learns=way is ways[0]))
    for name in ("eole", "OpenNMT-py", "Joey NMT"):
        home = name.lower().replace("-py", "").replace(" ", "")
        systems.append(System(name, f"{home}_training.py", ways[0], peer=True, environment=home, learns=True))
    return systems


def pretraining_systems(device: Any, peers: bool, kind: str) -> Chosen:
    """What pretrains a `bert`, an `electra` or a `gpt` on this device."""
    gpu, usual = device.type == "cuda", _usual(device)
    main = headline(device.type)
    systems = [] if gpu else [System("qkv", "qkv_pretraining.py", {"precision": "float32"})]
    if gpu or usual != "float32":
        systems.append(System("qkv as it comes", "qkv_pretraining.py", {"precision": usual}))
    systems.append(System("qkv as it comes, bare step", "qkv_pretraining.py", {"precision": usual, "bare": True}))
    if peers:
        names = {"bert": "BertForMaskedLM", "electra": "Electra, two models", "gpt": "GPT2LMHeadModel"}
        theirs = f"Hugging Face {names[kind]}"
        ways: list[dict[str, Any]] = [{"precision": main}, {"precision": main, "compiled": True}]
        ways += [{"precision": usual}] * (usual != main)
        for way in ways:
            name = f"{theirs}, compiled" if way.get("compiled") else theirs
            systems.append(System(name, "huggingface_pretraining.py", way, peer=True, package="transformers"))
    return _sorted_out(systems)


def decoding_systems(device: Any, peers: bool) -> Chosen:
    """What decodes on this device."""
    gpu, usual = device.type == "cuda", _usual(device)
    systems = [System("qkv", "qkv_decoding.py", {"precision": "float32"})]
    if usual != "float32":
        systems.append(System("qkv", "qkv_decoding.py", {"precision": usual}))
    if peers:
        main = {"precision": headline(device.type)}
        systems.append(System("Hugging Face Marian", "marian.py", main, peer=True, package="transformers"))
        if gpu:
            compiled = {**main, "compiled": True}
            systems.append(System("Hugging Face Marian, compiled", "marian.py", compiled, peer=True, package="transformers"))
        for precision in (main["precision"], "int8"):
            how = {"precision": precision}
            systems.append(System("CTranslate2", "ctranslate2_decoding.py", how, peer=True, package="ctranslate2"))
    return _sorted_out(systems)


def generating_systems(device: Any, peers: bool) -> Chosen:
    """What goes on with prompts on this device."""
    usual, main = _usual(device), {"precision": headline(device.type)}
    systems = [System("qkv", "qkv_generating.py", {"precision": p}) for p in dict.fromkeys(("float32", usual))]
    ways: list[dict[str, Any]] = [main, {**main, "compiled": True}] if peers and device.type == "cuda" else [main] * peers
    for way in ways:
        name = "Hugging Face GPT2LMHeadModel" + (", compiled" if way.get("compiled") else "")
        systems.append(System(name, "huggingface_generating.py", way, peer=True, package="transformers"))
    return _sorted_out(systems)


def _usual(device: Any) -> str:
    """The precision that qkv chooses by itself."""
    return "bf16" if "bfloat16" in str(choose_precision("auto", device)) else "float32"


def _sorted_out(systems: list[System]) -> Chosen:
    return Chosen([s for s in systems if s.installed], [s for s in systems if not s.installed])
