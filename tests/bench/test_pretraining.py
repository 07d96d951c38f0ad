"""qkv bench pretrain: the work is the same for all, every system does it, and the table tells the share of the peak."""

import importlib.util
import itertools
import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from bench_peers import peer
from qkv.base.errors import ConfigError
from qkv.bench import systems
from qkv.bench.measure import Measurement
from qkv.bench.report import SpeedReport
from qkv.bench.systems import System, pretraining_systems
from qkv.bench.worker import IGNORE_INDEX, BenchmarkJob
from qkv.bench.workers import pretraining
from qkv.bench.workload import ENCODERS, FIRST, MASK, documents, spellings, write_pretraining_job
from qkv.cli.bench import bench_app
from qkv.data.batches import START
from qkv.models.bert import SIZES as BERTS
from qkv.models.bert import BertConfig
from qkv.models.electra import SIZES as ELECTRAS
from qkv.models.electra import ElectraConfig
from qkv.models.elmo import SIZES as ELMOS
from qkv.models.elmo import ElmoConfig
from qkv.models.gpt import SIZES as GPTS
from qkv.models.gpt import GptConfig
from qkv.models.t5 import SIZES as T5S
from qkv.models.t5 import T5Config
from qkv.models.xlnet import SIZES as XLNETS
from qkv.models.xlnet import XlnetConfig

LENGTH, ROWS, UPDATES = 24, 8, 2


def job(folder: Path, size: str) -> BenchmarkJob:
    texts = documents(40, LENGTH, ENCODERS[size], seed=1)
    facts = {"device": "cpu", "seed": 1, "peak": 1e-3, "warmup": 2, "rows": ROWS, "length": LENGTH, "updates": UPDATES}
    write_pretraining_job(folder, texts, size=ENCODERS[size], **facts)
    return BenchmarkJob(folder, {"precision": "float32"})


def test_some_words_are_masked_for_the_peers(tmp_path: Path) -> None:
    found = job(tmp_path, "tiny")
    batch = found.batches[1]
    assert len(found.batches) == UPDATES and batch.ids.shape == (ROWS, LENGTH) and batch.tokens == ROWS * LENGTH
    assert np.array_equal(batch.ids[:, 1:-1], found.documents[ROWS : 2 * ROWS])
    chosen = batch.labels != IGNORE_INDEX
    assert not chosen[:, [0, -1]].any() and 0.08 < chosen.float().mean() < 0.22
    assert torch.equal(batch.labels[chosen], batch.ids[chosen])
    assert torch.equal(batch.read[~chosen], batch.ids[~chosen])
    assert 0.5 < (batch.read[chosen] == MASK).float().mean() < 1


def test_electras_generator_reads_none_of_the_words_it_guesses(tmp_path: Path) -> None:
    batch = job(tmp_path, "tiny-electra").batches[0]
    assert (batch.read[batch.labels != IGNORE_INDEX] == MASK).all()


def test_our_batches_are_full_rows(tmp_path: Path) -> None:
    trainer = pretraining.pretraining_trainer(job(tmp_path, "tiny"))
    batch = next(trainer.batches.starting(START))
    assert batch.rows == ROWS and batch.filled == batch.positions == batch.tokens == ROWS * LENGTH
    (passages,) = batch.inputs
    assert (passages.text == 1).all() and (passages.ids[:, 1:-1] >= FIRST).all()


def test_words_are_as_frequent_and_as_long_as_in_english() -> None:
    """In 128 rows of English Wikipedia about 4,800 words are different, of 6.7 letters on average, the longest of 17 to 24."""
    size = ENCODERS["elmo-small"]
    words = spellings(size.vocab, seed=1)
    assert words[:FIRST] == [0, 1, 2, 3] and len(words) == size.vocab
    texts = documents(128, 128, size, seed=1)
    assert texts.min() == FIRST and texts.max() < size.vocab and texts.shape == (128, 126)
    lengths = [len(str(words[word])) for word in np.unique(texts)]
    assert 4500 < len(lengths) < 6500 and 6 < np.mean(lengths) < 7.5 and 15 < max(lengths) < 26
    assert np.mean([len(str(words[word])) for word in texts.flatten()]) < 5


class Rounds:
    """So many updates, and no more."""

    def __init__(self, updates: int):
        self.left, self.tokens = updates, 0

    def more(self) -> bool:
        self.left -= 1
        return self.left >= 0

    def count(self, tokens: int) -> None:
        self.tokens += tokens


@pytest.mark.parametrize("bare", [False, True])
@pytest.mark.parametrize("size", ["tiny", "tiny-electra", "tiny-gpt", "tiny-xlnet", "tiny-t5", "tiny-elmo"])
def test_ours_trains(tmp_path: Path, size: str, bare: bool) -> None:
    work, turns = job(tmp_path, size), Rounds(3)
    work.options["bare"] = bare
    system = pretraining.make(work)
    before = [weight.clone() for weight in system.trainer.model.parameters()]
    system.train(turns)
    assert turns.tokens == 3 * ROWS * LENGTH
    assert all(loss.isfinite() for loss, *_ in system.trainer.window)
    moved = [not torch.equal(*pair) for pair in zip(before, system.trainer.model.parameters(), strict=True)]
    assert sum(moved) > 0.9 * len(moved)


@pytest.mark.skipif(importlib.util.find_spec("transformers") is None, reason="transformers is not installed here")
@pytest.mark.parametrize("size", ["tiny", "tiny-electra", "tiny-gpt"])
def test_theirs_trains_and_has_as_many_weights(tmp_path: Path, size: str) -> None:
    work = job(tmp_path, size)
    system = peer("huggingface").make(work)
    losses = [float(system.update(batch, 3e-3)) for batch in itertools.islice(itertools.cycle(work.batches), 12)]
    assert losses[-1] < losses[0]
    theirs = sum(weight.numel() for weight in system.model.parameters() if weight.requires_grad)
    assert theirs == pretraining.count_parameters(work.size, LENGTH if size == "tiny-gpt" else 512)


def check_shape(size: str, config: BertConfig | ElectraConfig | GptConfig | XlnetConfig) -> None:
    ours = vars(ENCODERS[size])
    assert all(getattr(config, name) == ours[name] for name in ("kind", "width", "feedforward", "heads", "layers"))


def test_sizes_are_the_models_own() -> None:
    check_shape("bert-mini", BertConfig(**BERTS["mini"]))
    check_shape("bert-base", BertConfig(**BERTS["base"]))
    check_shape("electra-small", ElectraConfig(**ELECTRAS["small"]))
    check_shape("gpt-mini", GptConfig(**GPTS["mini"]))
    check_shape("gpt2-small", GptConfig(**GPTS["small"]))
    check_shape("xlnet-mini", XlnetConfig(**XLNETS["mini"]))
    check_shape("xlnet-base", XlnetConfig(**XLNETS["base"]))
    for size, name in (("t5-mini", "mini"), ("t5-base", "base-1.1")):
        ours, config = ENCODERS[size], pretraining.build_model(asdict(ENCODERS[size]) | {"vocab": 200}).config
        assert config == T5Config(**T5S[name], dropout=0.0)
        assert (config.encoder_layers, config.decoder_layers) == (ours.layers, ours.decoder_layers)
    elmo = pretraining.build_model(asdict(ENCODERS["elmo-small"]) | {"vocab": 200}).encoder.config
    assert elmo == ElmoConfig(**ELMOS["small"], dropout=0.0)
    shapes = [ENCODERS[f"{kind}-12x256"] for kind in ("bert", "xlnet", "t5")]
    assert len({(size.width, size.heads, size.layers, size.tokens) for size in shapes}) == 1
    assert ElectraConfig(**ELECTRAS["small"]).generator_size == ENCODERS["electra-small"].generator


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    words = ["pretrain", "--size", "tiny", "--length", "32", "--rounds", "1", "--only", "qkv, float32", "--device", "cpu"]
    result = CliRunner().invoke(bench_app, [*words, "--out", str(tmp_path)])
    assert result.exit_code == 0, result.output
    (system,) = json.loads((tmp_path / "results.json").read_text())["systems"]
    assert not system["error"] and system["rates"][""][0] > 0
    assert "64 rows of 32 tokens" in (tmp_path / "table.md").read_text() and (tmp_path / "speed.svg").exists()


def test_a_size_that_is_not_there() -> None:
    with pytest.raises(
        ConfigError,
        match="--size huge is not known; choose tiny, tiny-electra, tiny-gpt, tiny-xlnet, tiny-t5, tiny-elmo, bert-mini",
    ):
        CliRunner().invoke(bench_app, ["pretrain", "--size", "huge"], catch_exceptions=False)


@pytest.mark.parametrize("kind", ["bert", "electra", "gpt"])
def test_systems_of_a_gpu(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setattr(systems, "auto_precision", lambda device: "bf16")
    chosen = pretraining_systems(torch.device("cuda"), True, kind)
    labels = [s.label for s in (*chosen.systems, *chosen.missing)]
    assert labels[:2] == ["qkv as it comes, bf16", "qkv as it comes, bare step, bf16"]
    assert [label.endswith("compiled, bf16") for label in labels[2:]] == [False, True]


def test_peers_that_there_are_not() -> None:
    with pytest.raises(ConfigError, match="--peers: no peer pretrains a model of kind t5"):
        pretraining_systems(torch.device("cpu"), True, "t5")


def test_the_share_of_the_peak() -> None:
    found = [Measurement(System("qkv", "", {"precision": p}), rates={"": [2e5, 1e5, 3e5]}) for p in ("bf16", "float32")]
    facts = {"rounds": 3}
    report = SpeedReport("Pretraining", "tokens/s", "bf16", facts, [""], found, [], operations=6e8, peak=989e12)
    assert report.columns()["of the peak"] == ["12.1%", ""]
    assert "of the peak" not in SpeedReport("Pretraining", "tokens/s", "bf16", facts, [""], found, [], operations=6e8).columns()


def test_peers_need_nothing_of_ours() -> None:
    assert " qkv" not in Path(str(peer("huggingface").__file__)).read_text()
