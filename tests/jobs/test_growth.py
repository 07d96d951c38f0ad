"""A run that starts from another one with new pieces: old rows stay, new ones are means, and it translates as before."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import qkv
from qkv.base.config import read_yaml
from qkv.base.errors import ConfigError
from qkv.data.corpora import Tokenizers
from qkv.folder.networks import read_translator_run
from qkv.folder.run import read_run
from qkv.jobs.train import train
from qkv.parts.vocabulary_rows import change_vocabularies
from qkv.text.tokenizer import Tokenizer, TokenizerConfig, train_tokenizer
from qkv.text.vocabulary_growth import tokens_of_pieces
from qkv.training import checkpoints
from translator_runs import T5, write_pairs_run
from translator_runs import TRANSFORMER as POST_NORM

OLD = [("one two", "eins zwei"), ("two three", "zwei drei"), ("three one", "drei eins"), ("one one", "eins eins")]
NEW = [("one dog", "一只狗"), ("two dogs", "两只狗"), ("three dogs", "三只狗"), ("one dog two", "一只狗两")]
TRANSFORMER = {**POST_NORM, "tied": "target"}
RNN = {"kind": "rnn", "width": 8, "embedding_width": 8, "layers": 1, "tied": "target"}
CONVOLUTION = {"kind": "convolution", "width": 8, "embedding_width": 8, "encoder_layers": 1, "decoder_layers": 1}
UNILM = {"kind": "unilm", "width": 8, "feedforward": 8, "heads": 2, "layers": 1, "max_positions": 40}
MODELS = {
    "transformer": TRANSFORMER,
    "one vocabulary": {**TRANSFORMER, "tied": "all", "norm": "pre", "output_bias": True},
    "untied": {**TRANSFORMER, "tied": "none"},
    "rnn": RNN,
    "convolution": CONVOLUTION,
    "tied convolution": {**CONVOLUTION, "tied": "target"},
    "t5": T5,
    "t5 1.1": {**T5, "tied": "inputs"},
    "unilm": UNILM,
}
SHARED = ("one vocabulary", "t5", "t5 1.1", "unilm")


def tokenizer_of(sides: tuple[int, ...], kind: str = "bpe") -> Tokenizer:
    config = TokenizerConfig(kind=kind, vocab=40, special_tokens=("[MASK]",))  # type: ignore[arg-type]
    return train_tokenizer(config, [pair[side] for pair in OLD * 5 for side in sides])


def write_start(folder: Path, name: str) -> Path:
    source, target = [tokenizer_of((0, 1))] * 2 if name in SHARED else [tokenizer_of((0,)), tokenizer_of((1,))]
    objective = {"objective": {"kind": "masked-translation"}} if name == "unilm" else {}
    data = {"train": "x", "dev": "x", "max_tokens": 20}
    return write_pairs_run(folder, MODELS[name], source, target, data=data, decoding={"beam": 1, "max_length": 9}, **objective)


def grow(tmp_path: Path, start: Path | None, out: str = "grown", **settings: Any) -> Path:
    """Adapt a run to the new pairs; names of settings have __ for the dot."""
    file = tmp_path / "new.tsv"
    file.write_text("".join(f"{source}\t{target}\n" for source, target in NEW * 3))
    given = {"start": start and str(start), "data.train": str(file), "data.dev": str(file), "data.check.duplicates": "keep"}
    given |= {
        "metrics": ["exact"],
        "data.max_tokens": 20,
        "training.steps": 1,
        "training.learning_rate": 1e-9,
        "training.device": "cpu",
        "tokenizer.grow": 20,
    }
    return train("adapt", tmp_path / out, settings=given | {k.replace("__", "."): v for k, v in settings.items()})


@pytest.mark.parametrize("name", MODELS)
def test_every_translator_grows(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    start = write_start(tmp_path / "start", name)
    more = {"objective__kind": "masked-translation"} if name == "unilm" else {}
    grown = grow(tmp_path, start, **more)
    assert "pieces added to" in capsys.readouterr().err
    (_, old), (_, new) = read_run(start), read_run(grown)
    assert new.shared == old.shared
    assert json.loads((grown / "config.json").read_text())["vocabularies"] == [len(new.source), len(new.target)]
    assert len(new.target) > len(old.target) and max(new.target.encode("一只狗")) >= len(old.target)
    assert new.target.decode(new.target.encode("一只狗")) == "一只狗"

    was, now = (read_translator_run(run).model() for run in (start, grown))
    for side, module in (("source", "source_embedding"), ("target", "target_embedding"), ("target", "output")):
        rows = tokens_of_pieces(getattr(old, side), getattr(new, side))
        wanted = torch.stack([getattr(was, module).weight[ids].mean(0) for ids in rows])
        torch.testing.assert_close(getattr(now, module).weight, wanted, rtol=0, atol=1e-6)

    before, after = qkv.load(start), qkv.load(grown)
    texts = ["one two", "three three one", "two", "one"]
    assert max(max(new.source.encode(text)) for text in texts) < len(old.source)
    # The logit of a new piece is a mean of old logits, and so never the largest one.
    assert after.translate(texts) == before.translate(texts)


def test_old_rows_stay_exactly(tmp_path: Path) -> None:
    start = read_translator_run(write_start(tmp_path / "start", "convolution"))
    model, source = start.model(), start.tokenizers.source
    weights = change_vocabularies(model, [[n] for n in range(len(source))], [[2], [0, 1]])
    assert torch.equal(weights["source_embedding.weight"], start.weights["source_embedding.weight"])
    assert torch.equal(weights["output.direction"][0], start.weights["output.direction"][2])
    made = weights["output.direction"][1] / weights["output.direction"][1].norm() * weights["output.length"][1]
    torch.testing.assert_close(made, model.output.weight[:2].mean(0))
    assert torch.equal(weights["encoder_input.direction"], start.weights["encoder_input.direction"])


def test_new_pieces_can_be_generated_even_if_old_ones_never_are(tmp_path: Path) -> None:
    model = read_translator_run(write_start(tmp_path / "start", "one vocabulary")).model()
    with torch.no_grad():
        model.output.bias[:] = torch.arange(len(model.output.bias)).float()
        model.output.bias[[5, 6]] = -1e4
    rows = [[5], [5, 7], [5, 6], [1, 3]]
    bias = change_vocabularies(model, rows, rows)["output.bias"]
    everything = [n for n in range(len(model.output.bias)) if n not in (5, 6)]
    assert bias.tolist() == pytest.approx([-1e4, 7, sum(everything) / len(everything), 2])


def test_it_learns_a_new_language(tmp_path: Path) -> None:
    start = write_start(tmp_path / "start", "transformer")
    grown = grow(tmp_path, start, training__learning_rate=2e-2, training__patience=None, training__steps=240)
    assert qkv.load(grown).translate([source for source, _ in NEW]) == [target for _, target in NEW]
    before = json.loads((grown / "before.json").read_text())
    assert list(before["dev"].values()) == qkv.load(start).translate(list(before["dev"])), "the translations of the start itself"


def test_it_resumes(tmp_path: Path) -> None:
    start = write_start(tmp_path / "start", "one vocabulary")
    options = {"steps": 8, "save_every": 4, "keep_checkpoints": True, "learning_rate": 1e-2}
    settings: dict[str, Any] = {f"training__{key}": value for key, value in options.items()}
    grown = grow(tmp_path, start, **settings)
    whole = load_file(grown / "model.safetensors")
    shutil.rmtree(checkpoints.folders(grown)[-1])
    for name in ("result.json", "model.safetensors"):
        (grown / name).unlink()
    resumed = load_file(grow(tmp_path, start, **settings) / "model.safetensors")
    assert all(torch.equal(resumed[name], whole[name]) for name in whole)
    with pytest.raises(ConfigError, match=r"cannot continue with tokenizer.grow: 20 -> 30: its weights would not fit"):
        train(dict(read_yaml(grown / "recipe.yaml"), tokenizer={"grow": 30}), grown, accept_changes=True)


def test_what_cannot_grow_is_refused_before_any_work(tmp_path: Path) -> None:
    start = write_start(tmp_path / "start", "transformer")
    for begin, settings, message in (
        (start, {"tokenizer__grow": 0}, "tokenizer.grow: .*greater than 0"),
        (start, {"tokenizer__shared__kind": "bpe"}, "leave the other keys of tokenizer out"),
        (None, {"model__kind": "transformer"}, "adds pieces to the tokenizer of another run; give start"),
    ):
        with pytest.raises(ConfigError, match=message):
            grow(tmp_path, begin, **settings)
    assert not (tmp_path / "grown").exists()


def test_each_side_learns_from_its_own_text(tmp_path: Path) -> None:
    start = write_start(tmp_path / "start", "transformer")
    tokenizers: Tokenizers = read_run(grow(tmp_path, start))[1]
    pieces = [{*side.pieces(range(len(side)))} for side in tokenizers]
    assert "▁dog" in pieces[0] and "▁dog" not in pieces[1]
    assert "只狗" in pieces[1] and "狗" not in pieces[0]


def test_a_grown_run_grows_again(tmp_path: Path) -> None:
    grown = grow(tmp_path, write_start(tmp_path / "start", "transformer"), tokenizer__grow=3)
    (_, once), (_, twice) = read_run(grown), read_run(grow(tmp_path, grown, "again"))
    for old, new in zip(once, twice, strict=True):
        assert len(new) > len(old) and new.pieces(range(len(old))) == old.pieces(range(len(old)))
