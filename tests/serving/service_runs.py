"""Small models of every kind with random weights, and a service of them in this process, on a port of its own."""

import asyncio
import threading
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import httpx
import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import nn

import qkv.serving.server
from encoder_runs import LINES, own_tokenizer, randomised, write_model, write_run
from qkv.base.config import dump_yaml
from qkv.base.snapshots import SNAPSHOTS, snapshot_path
from qkv.data.corpora import Tokenizers
from qkv.folder.run import WEIGHTS, save_config, save_tokenizers
from qkv.inference.head_effects import head_effects
from qkv.inference.load import load
from qkv.jobs.translation import new_translator
from qkv.models import FAMILIES
from qkv.models.gpt import Gpt, GptConfig
from qkv.parts.heads import ModelWithHeads
from qkv.recipes import RECIPE, parse_recipe
from qkv.serving.app import create_app
from qkv.serving.registry import ModelRegistry
from qkv.serving.server import ServiceServer, bind
from qkv.serving.settings import ServiceSettings
from qkv.serving.supervisor_link import SupervisorLink
from qkv.serving.worker_server import WorkerServer
from qkv.text.tokenizer import TokenizerConfig, train_tokenizer
from qkv.training.checkpoints import named_weights, save_weights
from qkv.vectors.tensors import write_tensors
from qkv.vectors.word_vectors import WordVectors

TRANSLATOR: dict[str, Any] = {
    "tokenizer": {"shared": {"kind": "bpe", "vocab": 60}},
    "model": {"width": 16, "feedforward": 32, "heads": 2, "encoder_layers": 1, "decoder_layers": 1},
    "training": {"steps": 1},
    "decoding": {"beam": 2, "max_extra": 8},
}
ONE_LAYER = {"encoder_layers": 1, "decoder_layers": 1}
WORDS = ["sun", "rain", "tree", "bird", "red", "old", "sings", "falls"]


def write_translator(folder: Path, languages: tuple[str, str] | None = ("en", "la"), **model: Any) -> Path:
    """A translator that has learned nothing; texts of more than 24 tokens are cut."""
    data = {"train": "train.tsv", "dev": "dev.tsv", "test": "test.tsv", "max_tokens": 24, "languages": languages}
    recipe = parse_recipe({"data": data, **TRANSLATOR, "model": {**TRANSLATOR["model"], **model}}, "recipe")
    tokenizer = train_tokenizer(TokenizerConfig(kind="bpe", vocab=60), [" ".join(WORDS)] * 10)
    tokenizers = Tokenizers(tokenizer, tokenizer)
    folder.mkdir(parents=True)
    folder.joinpath(RECIPE).write_text(dump_yaml(recipe), encoding="utf-8")
    save_tokenizers(folder, tokenizers)
    save_config(folder, recipe, tokenizers, [])
    save_weights(folder / WEIGHTS, named_weights(randomised(new_translator(recipe, tokenizers))))
    return folder


def write_gpt(folder: Path, max_positions: int = 60) -> Path:
    """A GPT that has learned nothing, but goes on for long."""
    tokenizer = train_tokenizer(TokenizerConfig(kind="byte-bpe", vocab=340), LINES * 10)
    c = GptConfig(width=32, feedforward=48, heads=4, layers=2, max_positions=max_positions)
    torch.manual_seed(3)
    model = ModelWithHeads(Gpt(c, len(tokenizer)), ())
    with torch.no_grad():
        for parameter in model.parameters():
            nn.init.normal_(parameter, 1.0 if parameter.dim() == 1 else 0.0, 0.3)
        model.encoder.embedding.token_embedding.weight[tokenizer.eos] -= 3.0
    return write_model(folder, model, c.model_dump(mode="json"), tokenizer, objective="causal")


def write_t5(folder: Path) -> Path:
    """A pretrained T5 that has learned nothing."""
    recipe = parse_recipe(
        {
            "data": {"text": "text.txt", "length": 16},
            "tokenizer": {"kind": "words", "vocab": 60, "sentinels": 4},
            "model": {
                "kind": "t5",
                "width": 16,
                "feedforward": 24,
                "heads": 2,
                "head_width": 8,
                "encoder_layers": 1,
                "decoder_layers": 1,
            },
            "objective": {"kind": "spans"},
            "training": {"steps": 1},
        },
        "recipe",
    )
    tokenizer = train_tokenizer(recipe.tokenizer, [" ".join(WORDS)] * 10)
    folder.mkdir(parents=True)
    folder.joinpath(RECIPE).write_text(dump_yaml(recipe), encoding="utf-8")
    save_tokenizers(folder, Tokenizers(tokenizer, tokenizer))
    save_config(folder, recipe, Tokenizers(tokenizer, tokenizer), [])
    build = FAMILIES["t5"].pretraining_model
    assert build is not None
    save_weights(folder / WEIGHTS, named_weights(randomised(build(recipe.model, len(tokenizer), recipe.objective))))
    return folder


def write_vectors(folder: Path) -> Path:
    """Word vectors, with two snapshots of their training."""
    matrix = np.random.default_rng(1).normal(size=(len(WORDS), 6)).astype(np.float32)
    WordVectors(WORDS, matrix, counts=np.arange(len(WORDS), 0, -1)).save(folder)
    (folder / SNAPSHOTS).mkdir()
    for step, vectors in {0: np.flip(matrix), 3: matrix}.items():
        write_tensors(snapshot_path(folder, step), {"matrix": vectors.astype(np.float16)}, {"share": str(step / 3)})
    return folder


def with_snapshots(run: Path) -> Path:
    """Add two snapshots of training to a run."""
    weights = load_file(run / WEIGHTS)
    (run / SNAPSHOTS).mkdir()
    for step, scale in ((1, 0.5), (4, 1.0)):
        save_file({name: (scale * tensor).half() for name, tensor in weights.items()}, snapshot_path(run, step))
    return run


def write_all(folder: Path) -> list[str]:
    """Folders of one model of each kind, named as they are asked by; two with snapshots, one with measured heads."""
    with_snapshots(write_translator(folder / "en-la"))
    head_effects(load(write_run(folder / "bert", heads=("masked",))), ["The lazy dog.", "the fox"])
    write_run(folder / "classes", heads=("pooler", "classes"), labels=("bad", "good"), objective="classification")
    write_run(folder / "tags", heads=("tags",), labels=("O", "NAME"), objective="tagging")
    write_run(folder / "answers", heads=("span",), objective="answering")
    write_gpt(folder / "gpt")
    write_t5(folder / "t5")
    write_vectors(folder / "words")
    assert own_tokenizer().has_mask
    return [str(folder / name) for name in ("en-la", "bert", "classes", "tags", "answers", "gpt", "t5", "words")]


class Running:
    """A service on this machine, in a thread of its own, until the end of a `with`."""

    def __init__(self, models: ModelRegistry, link: SupervisorLink | None = None, host: str = "127.0.0.1", **settings: Any):
        self.app = create_app(models, ServiceSettings(**{"logs": "none", **settings}), supervisor=link)
        self.service = self.app.state.service
        self.listening = bind(host, 0)
        self.port = self.listening.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.server = ServiceServer(self.app) if link is None else WorkerServer(self.app, link)
        self.thread = threading.Thread(target=lambda: asyncio.run(self.server.serve([self.listening])))

    def __enter__(self) -> "Running":
        self.listening.listen()
        self.thread.start()
        self.client = httpx.Client(base_url=self.url, timeout=30)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.client.close()
        qkv.serving.server.LINGER = 0.0
        self.server.should_exit = True
        self.thread.join()
        self.listening.close()

    def post(self, path: str, **body: Any) -> httpx.Response:
        return self.client.post(path, json=body)

    def said(self, path: str, **body: Any) -> Any:
        """The answer, which must be one."""
        answer = self.post(path, **body)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def refused(self, path: str, **body: Any) -> tuple[int, str]:
        """The status and the code of a refusal."""
        answer = self.post(path, **body)
        return answer.status_code, code_of(answer)


def code_of(answer: httpx.Response) -> str:
    told = answer.json()
    return told["error"]["code"] if isinstance(told["error"], dict) else told["code"]


def texts_of(count: int, seed: int = 1) -> Sequence[str]:
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(WORDS, rng.integers(1, 7))) for _ in range(count)]
