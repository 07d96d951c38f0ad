"""The systems that a benchmark compares: the code of each, what it needs, and the precisions it runs in."""

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
PEERS = Path("benchmarks") / "systems"  # the peers' code, in a checkout of qkv
PEER_ENVIRONMENTS = Path(".venv-peers")  # made by `make bench-peers`, one for each peer that needs its own


def peers_folder() -> Path:
    """Return the folder of the peers' code: in the checkout that qkv is installed from, or else in the current folder."""
    for root in (HERE.parents[2], Path.cwd()):
        if (root / PEERS).is_dir():
            return root / PEERS
    raise ConfigError(
        f"--peers: {PEERS} is not in {Path.cwd()}; the package has no peers' code, so run this in a checkout of qkv"
    )


@dataclass(frozen=True)
class System:
    """A program to measure, in one precision."""

    name: str
    file: str  # in `workers/`, or of a peer in `benchmarks/systems/`
    options: dict[str, Any]
    peer: bool = False
    package: str = ""  # that must be installed
    environment: str = ""  # a folder in PEER_ENVIRONMENTS; qkv's own environment when empty
    learns: bool = False  # reports its losses too

    @property
    def precision(self) -> str:
        return str(self.options["precision"])

    @property
    def label(self) -> str:
        return f"{self.name}, {self.precision}"

    @property
    def python(self) -> Path:
        return PEER_ENVIRONMENTS / self.environment / "bin" / "python" if self.environment else Path(sys.executable)

    @property
    def installed(self) -> bool:
        if self.environment:
            return self.python.exists()
        return not self.package or importlib.util.find_spec(self.package) is not None

    @property
    def remedy(self) -> str:
        """The command that installs it."""
        return "make bench-peers" if self.environment else f"pip install {self.package}"

    def command(self, job: Path) -> list[str]:
        """Return the command that starts its worker; with -P the worker's folder cannot shadow other packages' names."""
        file = (peers_folder() if self.peer else HERE / "workers") / self.file
        return [str(self.python), "-P", "-W", "ignore", str(WORKER), str(file), str(job), json.dumps(self.options)]


@dataclass
class Selection:
    """The systems to measure, and the peers that are not installed."""

    systems: list[System] = field(default_factory=list)
    missing: list[System] = field(default_factory=list)

    def only(self, names: tuple[str, ...]) -> "Selection":
        """Return the systems whose label has one of the names in it; without names return all."""
        if not names:
            return self
        kept = [[s for s in some if any(name in s.label for name in names)] for some in (self.systems, self.missing)]
        if not any(kept):
            there = "; ".join(s.label for s in self.systems)
            raise ConfigError(f"--only {names[0]}: no such system; there are {there}; with --peers others too")
        return Selection(*kept)


def headline_precision(device: str) -> str:
    """Return the precision in which peers are compared."""
    return "bf16" if device == "cuda" else "float32"


def training_systems(device: Any, peers: bool) -> Selection:
    """Return the systems that train on this device."""
    gpu, auto = device.type == "cuda", auto_precision(device)
    systems = [System("qkv", "training.py", {"precision": "float32"}, learns=True)]
    if auto != "float32":
        systems.append(System("qkv as it comes", "training.py", {"precision": auto}, learns=True))
        systems.append(System("qkv as it comes, bare step", "training.py", {"precision": auto, "bare": True}))
    if peers:
        systems += _training_peers(gpu, auto)
    return _select(systems, peers)


def _training_peers(gpu: bool, auto: str) -> list[System]:
    main = "bf16" if gpu else "float32"
    variants: list[dict[str, Any]] = [{"precision": main}]
    variants += [{"precision": main, "compiled": True}] if gpu else [{"precision": auto}] * (auto != main)
    systems = []
    for name, file, package in (
        ("Hugging Face Marian", "marian.py", "transformers"),
        ("torch.nn.Transformer", "torch_training.py", ""),
    ):
        for options in variants:
            full_name = f"{name}, compiled" if options.get("compiled") else name
            systems.append(System(full_name, file, options, peer=True, package=package, learns=options is variants[0]))
    for name in ("eole", "OpenNMT-py", "Joey NMT"):
        home = name.lower().replace("-py", "").replace(" ", "")
        systems.append(System(name, f"{home}_training.py", variants[0], peer=True, environment=home, learns=True))
    return systems


def pretraining_systems(device: Any, peers: bool, kind: str) -> Selection:
    """Return the systems that pretrain a model of this kind on this device; peers exist for BERT, ELECTRA and GPT."""
    gpu, auto = device.type == "cuda", auto_precision(device)
    main = headline_precision(device.type)
    systems = [] if gpu else [System("qkv", "pretraining.py", {"precision": "float32"})]
    if gpu or auto != "float32":
        systems.append(System("qkv as it comes", "pretraining.py", {"precision": auto}))
    systems.append(System("qkv as it comes, bare step", "pretraining.py", {"precision": auto, "bare": True}))
    if peers:
        names = {"bert": "BertForMaskedLM", "electra": "Electra, two models", "gpt": "GPT2LMHeadModel"}
        if kind not in names:
            raise ConfigError(f"--peers: no peer pretrains a model of kind {kind}; leave --peers out, or choose another --size")
        peer = f"Hugging Face {names[kind]}"
        variants: list[dict[str, Any]] = [{"precision": main}, {"precision": main, "compiled": True}]
        variants += [{"precision": auto}] * (auto != main)
        for options in variants:
            name = f"{peer}, compiled" if options.get("compiled") else peer
            systems.append(System(name, "huggingface.py", options, peer=True, package="transformers"))
    return _select(systems, peers)


def decoding_systems(device: Any, peers: bool) -> Selection:
    """Return the systems that decode on this device."""
    gpu, auto = device.type == "cuda", auto_precision(device)
    systems = [System("qkv", "decoding.py", {"precision": "float32"})]
    if auto != "float32":
        systems.append(System("qkv", "decoding.py", {"precision": auto}))
    if peers:
        main = {"precision": headline_precision(device.type)}
        systems.append(System("Hugging Face Marian", "marian.py", main, peer=True, package="transformers"))
        if gpu:
            compiled = {**main, "compiled": True}
            systems.append(System("Hugging Face Marian, compiled", "marian.py", compiled, peer=True, package="transformers"))
        for precision in (main["precision"], "int8"):
            options = {"precision": precision}
            systems.append(System("CTranslate2", "ctranslate2_decoding.py", options, peer=True, package="ctranslate2"))
    return _select(systems, peers)


def generation_systems(device: Any, peers: bool) -> Selection:
    """Return the systems that continue prompts on this device."""
    auto, main = auto_precision(device), {"precision": headline_precision(device.type)}
    systems = [System("qkv", "generation.py", {"precision": p}) for p in dict.fromkeys(("float32", auto))]
    variants: list[dict[str, Any]] = [main, {**main, "compiled": True}] if peers and device.type == "cuda" else [main] * peers
    for options in variants:
        name = "Hugging Face GPT2LMHeadModel" + (", compiled" if options.get("compiled") else "")
        systems.append(System(name, "huggingface.py", options, peer=True, package="transformers"))
    return _select(systems, peers)


def auto_precision(device: Any) -> str:
    """Return the precision that qkv chooses on this device by itself."""
    return "bf16" if "bfloat16" in str(choose_precision("auto", device)) else "float32"


def _select(systems: list[System], peers: bool) -> Selection:
    if peers:
        peers_folder()  # raises before anything is measured where the peers' code is missing
    return Selection([s for s in systems if s.installed], [s for s in systems if not s.installed])
