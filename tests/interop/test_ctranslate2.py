"""CTranslate2 computes what our model does, and its search finds the same words."""

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from interop_models import KINDS, TARGET_WORDS, make, make_decided

from qkv.base.errors import CheckpointError, ConfigError, TrainingError
from qkv.base.rows import padded_rows
from qkv.decoding.config import DecodingConfig
from qkv.decoding.hypothesis import Hypothesis
from qkv.inference.engines import OwnEngine, pad
from qkv.interop.ctranslate2.engine import CTranslate2Engine
from qkv.interop.ctranslate2.writer import write_ctranslate2
from qkv.models.transformer import Transformer
from qkv.text.tokenizer import SPECIAL_TOKENS

BOS, EOS = 2, 3
CPU = torch.device("cpu")


def opened(model: Transformer, folder: Path, precision: str = "float32", positions: int = 40) -> CTranslate2Engine:
    sizes = (model.source_embedding.num_embeddings, TARGET_WORDS)
    pieces = tuple([*SPECIAL_TOKENS, *(f"{side}{i}" for i in range(4, size))] for side, size in zip("st", sizes, strict=True))
    if model.config.tied == "all":
        pieces = (pieces[1], pieces[1])
    write_ctranslate2(model, pieces, positions, precision, folder)
    return CTranslate2Engine(folder, positions, precision, "cpu")


@torch.no_grad()
def own_logprobs(model: Transformer, source: list[int], target: list[int]) -> list[float]:
    rows = [padded_rows(*pad([ids], CPU)) for ids in (source, [BOS, *target])]
    found = model.logits(model(*rows))[0].log_softmax(-1)
    return [float(found[position, word]) for position, word in enumerate([*target, EOS])]


def their_logprobs(engine: CTranslate2Engine, source: list[int], target: list[int]) -> list[float]:
    texts = [[engine.source[i] for i in source]], [[engine.target[i] for i in target]]
    return engine.translator.score_batch(*texts)[0].log_probs


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: "-".join(map(str, kind.values())))
def test_every_kind_of_model_gives_the_same_probabilities(kind: dict[str, str], tmp_path: Path, sources: list[list[int]]) -> None:
    model = make(**kind)
    engine = opened(model, tmp_path)
    for source in sources[:6]:
        target = [word + 2 for word in reversed(source)]
        assert their_logprobs(engine, source, target) == pytest.approx(own_logprobs(model, source, target), abs=1e-5)


@pytest.mark.parametrize("positions", ["normalised", "alibi"])
def test_positions_that_it_does_not_have_are_refused(positions: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=rf"^ctranslate2 has no model.positions={positions}, only .*; use onnx, or qkv's"):
        opened(make(norm="post", tied="all", positions=positions), tmp_path)
    assert not list(tmp_path.iterdir())


def test_the_row_of_bos_is_used_as_it_is(tmp_path: Path) -> None:
    """Converters that take the decoder's first word for padding would read zeros there."""
    model = make(**KINDS[0])
    before = own_logprobs(model, [5, 6], [7])
    with torch.no_grad():
        model.target_embedding.weight[BOS] += 1
    after = own_logprobs(model, [5, 6], [7])
    assert max(abs(one - two) for one, two in zip(before, after, strict=True)) > 0.01
    assert their_logprobs(opened(model, tmp_path), [5, 6], [7]) == pytest.approx(after, abs=1e-5)


def words(found: list[list[Hypothesis]]) -> list[list[tuple[list[int], bool]]]:
    return [[(one.ids, one.finished) for one in hypotheses] for hypotheses in found]


def numbers(found: list[list[Hypothesis]]) -> list[float]:
    return [number for hypotheses in found for one in hypotheses for number in (one.score, one.logprob)]


SEARCHES: list[dict[str, Any]] = [
    {"beam": 1},
    {"beam": 4},
    {"beam": 3, "n_best": 3, "length_penalty": 0.0},
    {"beam": 1, "max_ratio": 0.5, "max_extra": 2},  # every output has a limit of its own
    {"beam": 1, "min_length": 6},
    {"beam": 1, "no_repeat_ngram": 2, "max_length": 12},
    {"beam": 1, "batch_tokens": 1},
    {"beam": 1, "length_penalty": 2.0, "min_length": 6, "no_repeat_ngram": 2, "max_length": 12},
]


@pytest.mark.parametrize("kind", KINDS[::3], ids=lambda kind: "-".join(map(str, kind.values())))
@pytest.mark.parametrize("options", SEARCHES, ids=str)
def test_it_finds_the_same_words(kind: dict[str, str], options: dict[str, Any], tmp_path: Path, sources: list[list[int]]) -> None:
    model = make_decided(**kind)
    config = DecodingConfig(**{"max_length": 30, **options})
    own, theirs = (engine.decode(sources, config) for engine in (OwnEngine(model), opened(model, tmp_path)))
    assert words(theirs) == words(own)
    if not options.keys() & {"min_length", "no_repeat_ngram"}:  # what is forbidden is taken out before the softmax
        assert numbers(theirs) == pytest.approx(numbers(own), abs=1e-3)


@pytest.mark.parametrize("beam", [1, 4])
def test_a_prefix_is_kept_to_and_counts_in_the_score(beam: int, tmp_path: Path, sources: list[list[int]]) -> None:
    model = make_decided(**KINDS[6])
    prefixes = [[9, 10, 11][: i % 4] for i in range(len(sources))]
    config = DecodingConfig(beam=beam, max_length=30)
    own, theirs = (engine.decode(sources, config, prefixes) for engine in (OwnEngine(model), opened(model, tmp_path)))
    assert words(theirs) == words(own)
    assert all(found[0].ids[: len(prefix)] == prefix for found, prefix in zip(theirs, prefixes, strict=True))
    assert numbers(theirs) == pytest.approx(numbers(own), abs=1e-3)


def test_no_source_no_search(tmp_path: Path) -> None:
    assert opened(make(**KINDS[0]), tmp_path).decode([], DecodingConfig()) == []


@pytest.mark.parametrize(("precision", "near", "share"), [("int8", 0.5, 0.5), ("bf16", 0.1, 0.6)])
def test_other_precisions_are_smaller_and_near(precision: str, near: float, share: float, tmp_path: Path) -> None:
    model = make(**KINDS[8])
    for name in (precision, "float32"):
        (tmp_path / name).mkdir()
    small, full = (opened(model, tmp_path / name, name) for name in (precision, "float32"))
    sizes = [(tmp_path / name / "model.bin").stat().st_size for name in (precision, "float32")]
    assert sizes[0] < share * sizes[1]
    assert their_logprobs(small, [5, 6, 7], [8, 9]) == pytest.approx(their_logprobs(full, [5, 6, 7], [8, 9]), abs=near)


def test_writing_leaves_the_model_as_it_was(tmp_path: Path) -> None:
    model = make(**KINDS[0])
    before = [parameter.clone() for parameter in model.parameters()]
    opened(model, tmp_path, "int8")
    assert all(torch.equal(one, two) for one, two in zip(before, model.parameters(), strict=True))


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"sampling": True}, "sampling"),
        ({"coverage_penalty": 0.2}, "coverage_penalty"),
        ({"precision": "bf16"}, "decoding.precision bf16 over a copy in float32"),
        ({"beam": 2, "min_length": 1}, "min_length with a beam"),
        ({"beam": 2, "no_repeat_ngram": 3}, "no_repeat_ngram with a beam"),
        ({"beam": 2, "length_penalty": 1.05}, "length_penalty 1.05, above 1, with a beam"),
    ],
    ids=str,
)
def test_what_it_cannot_do_as_we_do_is_refused(options: dict[str, Any], named: str, tmp_path: Path) -> None:
    engine = opened(make(**KINDS[0]), tmp_path)
    with pytest.raises(ConfigError, match=f"^{named} is not for the engine ctranslate2; use qkv's own engine for it, or leave"):
        engine.decode([[5]], DecodingConfig(**options))
    with pytest.raises(ConfigError, match="words to keep to is not for the engine"):
        engine.decode([[5]], DecodingConfig(), allowed=torch.tensor([5]))
    with pytest.raises(ConfigError, match="alignments are not for the engine"):
        engine.attention([5], [6])
    with pytest.raises(ConfigError, match="confidence is not for the engine"):
        engine.statistics([], [], DecodingConfig())


def test_a_folder_that_is_not_whole(tmp_path: Path) -> None:
    opened(make(**KINDS[0]), tmp_path)
    (tmp_path / "model.bin").write_bytes((tmp_path / "model.bin").read_bytes()[:1000])
    with pytest.raises(CheckpointError, match=r"on cpu .*; export it again$"):
        CTranslate2Engine(tmp_path, 40, "float32", "cpu")
    (tmp_path / "source_vocabulary.json").unlink(missing_ok=True)
    (tmp_path / "shared_vocabulary.json").unlink(missing_ok=True)
    with pytest.raises(CheckpointError, match="export it again"):
        CTranslate2Engine(tmp_path, 40, "float32", "cpu")


@pytest.mark.parametrize("content", ["{}", "[1, 2]", "3", '{"a": 1}'])
def test_a_vocabulary_that_is_no_list_of_tokens(content: str, tmp_path: Path) -> None:
    opened(make(**KINDS[0]), tmp_path)
    (tmp_path / "shared_vocabulary.json").write_text(content)
    with pytest.raises(CheckpointError, match="not a list of tokens; export it again"):
        CTranslate2Engine(tmp_path, 40, "float32", "cpu")


def test_weights_that_are_no_numbers(tmp_path: Path) -> None:
    model = make(**KINDS[0])
    torch.nn.init.constant_(model.output.weight, torch.nan)
    with pytest.raises(TrainingError, match="of this copy are damaged: see whether qkv's own engine can use the run, and export"):
        opened(model, tmp_path).decode([[5]], DecodingConfig(beam=1, max_length=9))


def test_without_the_package_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    monkeypatch.setitem(sys.modules, "ctranslate2.specs", None)
    with pytest.raises(ConfigError, match=r"needs the package ctranslate2 .*; pip install ctranslate2, or .*'qkv\[interop\]'$"):
        opened(make(**KINDS[0]), tmp_path)
