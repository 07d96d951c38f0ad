"""Scores of texts by loaded runs, and accuracy on minimal pairs."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

import qkv
import qkv.inference.text_scores
from encoder_recipes import pretraining_values, write_text
from encoder_runs import write_electra, write_run
from qkv.base.errors import ConfigError, DataError
from qkv.folder.networks import read_network_run
from qkv.inference.text_scores import PairsConfig, score_pairs
from qkv.jobs.perplexity import measure_perplexity
from qkv.recipes import parse_recipe

TEXTS = ["The old tree grows.", "The tree old grows.", "The red Anchor floats.", "zzz floats", "The"]


def trained(folder: Path, kind: str, steps: int = 40) -> Any:
    """Load a model after a few steps on the text."""
    values = pretraining_values(kind, write_text(folder / "text.txt"))
    values["training"] |= {"steps": steps, "validate_every": steps, "save_every": steps}
    if not (folder / kind).exists():
        qkv.train(parse_recipe(values, "recipe"), folder / kind)
    return qkv.load(folder / kind, "cpu")


@pytest.mark.parametrize("kind", ["causal", "masked", "unilm", "permutation", "bidirectional"])
def test_scores_do_not_depend_on_the_batch(folder: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    model = trained(folder, kind)
    together = model.score(TEXTS)
    assert len({round(one, 2) for one in together}) == len(TEXTS)
    assert [model.score([text])[0] for text in TEXTS] == pytest.approx(together, abs=1e-3)
    monkeypatch.setattr(qkv.inference.text_scores, "BATCH_TOKENS", 10)
    assert model.score(TEXTS[::-1])[::-1] == pytest.approx(together, abs=1e-3)
    assert model.score([]) == []


def test_an_electra_scores_with_its_generator(tmp_path: Path) -> None:
    encoder: Any = qkv.load(write_electra(tmp_path / "electra"), "cpu")
    assert encoder.fill_model is not encoder.model
    assert len(encoder.score(["The quick brown fox"])) == 1


def test_what_cannot_be_scored_is_refused(folder: Path, tmp_path: Path) -> None:
    encoder: Any = qkv.load(write_run(tmp_path / "bert", heads=("pooler",)), "cpu")
    with pytest.raises(ConfigError, match="needs the head 'masked'"):
        encoder.score(["The fox"])
    gpt = trained(folder, "causal")
    with pytest.raises(DataError, match=r"text 2 has \d+ tokens, and this model reads 64 at most"):
        gpt.score(["The", "The old tree grows. " * 30])
    with pytest.raises(ConfigError, match="how=each; set how=left"):
        gpt.score(["The"], "each")
    with pytest.raises(ConfigError, match="give \\[text\\]"):
        gpt.score("The")


@pytest.mark.parametrize("kind", ["unilm", "permutation"])
def test_perplexity_agrees_with_scores_of_passages(folder: Path, kind: str) -> None:
    model, documents = trained(folder, kind), ["The old tree grows.", "The red Anchor floats.", "The small Oven burns."]
    (folder / "few.txt").write_text("\n\n".join(documents))
    found = measure_perplexity(read_network_run(folder / kind), str(folder / "few.txt"), "cpu")
    nats = -sum(model.score(documents, "left"))
    assert found.scores["loss"] * found.tokens == pytest.approx(nats, rel=1e-4)
    size = sum(len(f" {document}".encode()) for document in documents)  # a first word has a space before it too
    assert found.scores["bits_per_byte"] == pytest.approx(nats / math.log(2) / size, rel=1e-4)
    assert found.scores["perplexity"] == pytest.approx(math.exp(found.scores["loss"]))


class Lengths:
    """A scorer that prefers shorter texts."""

    def score(self, texts: Any, how: Any = None) -> list[float]:
        return [-float(len(text)) for text in texts]


def test_accuracy_on_minimal_pairs(tmp_path: Path) -> None:
    pairs = [("a", "bb", "x"), ("aa", "b", "x"), ("aa", "bb", "y"), ("a", "bbb", "z")]
    keys = ("sentence_good", "sentence_bad", "linguistics_term")
    named = tmp_path / "pairs.jsonl"
    named.write_text("".join(json.dumps(dict(zip(keys, pair, strict=True))) + "\n" for pair in pairs))
    found = score_pairs(Lengths(), str(named))
    assert found == (0.5, 4, {"x": (0.5, 2), "y": (0.0, 1), "z": (1.0, 1)})
    table = tmp_path / "pairs.tsv"
    table.write_text("".join("\t".join(pair) + "\n" for pair in pairs))
    assert score_pairs(Lengths(), str(table), PairsConfig(text="2", pair="1", label="3")).groups["y"] == (0.0, 1)
    assert score_pairs(Lengths(), str(table), PairsConfig(text="1", pair="2", label=None)) == (0.5, 4, {})
