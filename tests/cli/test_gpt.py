"""qkv train, evaluate and generate for a GPT."""

import json
import math
from pathlib import Path

import pytest

from encoder_recipes import finetuning_values, pretraining_values, save_recipe, write_examples, write_text
from workbench import Commands


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_text(tmp_path_factory.mktemp("gpt") / "text.txt")


@pytest.fixture(scope="module")
def gpt(commands: Commands, text: Path) -> Path:
    """A GPT that knows the text a little; tests must not change it."""
    values = pretraining_values("causal", text)
    values["training"] |= {"steps": 150, "validate_every": 150, "save_every": 150}
    values["tokenizer"] = {"kind": "byte-bpe", "vocab": 350}
    done = commands.run("train", save_recipe(text.parent / "gpt.yaml", values), "--out", text.parent / "run")
    assert done.code == 0, done.err
    return text.parent / "run"


def test_evaluate_says_what_training_said(commands: Commands, gpt: Path, text: Path) -> None:
    done = commands.run("evaluate", gpt, "--json")
    assert done.code == 0, done.err
    found, known = json.loads(done.out), json.loads((gpt / "result.json").read_text())["scores"]
    assert found["scores"] == pytest.approx({name.removeprefix("dev_"): value for name, value in known.items()}, rel=1e-5)
    assert found["scores"]["perplexity"] == pytest.approx(math.exp(found["scores"]["loss"]), rel=1e-5)
    done = commands.run("evaluate", gpt, "--data", text)
    assert "bits per byte" in done.out and "of 60 documents" in done.out


def test_bits_per_byte_do_not_depend_on_how_the_text_is_cut(commands: Commands, gpt: Path, text: Path) -> None:
    """Nats in all, over the bytes of the text: with the line break between two documents, and one end for each."""
    scores = json.loads(commands.run("evaluate", gpt, "--data", text, "--json").out)
    size = sum(len(document.encode()) + 1 for document in text.read_text().strip().split("\n\n"))
    predicted = scores["tokens"] + scores["documents"]
    assert scores["scores"]["bits_per_byte"] == pytest.approx(scores["scores"]["loss"] * predicted / math.log(2) / size, rel=1e-4)


def test_pairs_of_a_right_text_and_a_wrong_one(commands: Commands, gpt: Path, tmp_path: Path) -> None:
    lines = ["The old tree grows.\ttree The grows old.\torder", "The red ship floats.\tThe red ship ship.\tverb"]
    (tmp_path / "pairs.tsv").write_text("\n".join(lines) + "\n")
    columns = ("--set", "text=1", "--set", "pair=2", "--set", "label=3")
    done = commands.run("evaluate", gpt, "--pairs", tmp_path / "pairs.tsv", *columns, "--json")
    assert done.code == 0, done.err
    assert json.loads(done.out) == {"accuracy": 1.0, "pairs": 2, "groups": {"order": [1.0, 1], "verb": [1.0, 1]}}
    shown = commands.run("evaluate", gpt, "--pairs", tmp_path / "pairs.tsv", *columns)
    assert "verb" in shown.out and "2 pairs scored" in shown.out
    for wrong, says in {
        ("--set", "how=each"): "how=each; set how=left",
        ("--data", "x.txt"): "--data is not for --pairs; leave it out",
        ("--set", "text=9"): "3 columns, at least 9 are wanted",
    }.items():
        done = commands.run("evaluate", gpt, "--pairs", tmp_path / "pairs.tsv", *columns, *wrong)
        assert done.code == 2 and says in done.err and done.err.count("\n") == 1


def test_generate(commands: Commands, gpt: Path) -> None:
    greedy = commands.run("generate", gpt, "The old", "--tokens", "20")
    assert greedy.code == 0 and greedy.out.startswith("The old ") and len(greedy.out) > 20, greedy.err
    assert commands.run("generate", gpt, "The old", "--tokens", "20").out == greedy.out
    assert commands.run("generate", gpt, "--tokens", "20", stdin=b"The old\n").out == greedy.out
    stopped = commands.run("generate", gpt, "The old", "--tokens", "20", "--stop", ".", "--stop", "\n")
    assert stopped.out == greedy.out.split(".")[0].split("\n")[0] + "\n"


def test_samples(commands: Commands, gpt: Path) -> None:
    way = ("--tokens", "15", "--temperature", "1.3", "--top-k", "40", "--top-p", "0.95", "--repetition-penalty", "1.2")
    one, again, other = (commands.run("generate", gpt, "The", *way, "--seed", seed).out for seed in ("4", "4", "5"))
    assert one == again != other
    several = commands.run("generate", gpt, "The", *way, "--seed", "4", "--samples", "3").out
    assert several.count("\n---\n") == 2 and all(text.startswith("The") for text in several.split("\n---\n"))
    assert one.rstrip("\n") in [text.rstrip("\n") for text in several.split("\n---\n")]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["generate", "RUN", ""], "qkv: the prompt is empty; give the beginning of a text\n"),
        (["generate", "RUN", "old " * 80], "tokens, and this model reads 64 together with its continuation; shorten it\n"),
        (
            ["generate", "RUN", "The", "--top-p", "1.1"],
            "qkv: decoding: top_p: input should be less than or equal to 1, got 1.1\n",
        ),
        (
            ["generate", "RUN", "The", "--temperature", "0"],
            "for the most probable token each time leave temperature and sampling out, got 0.0\n",
        ),
        (["generate", "RUN", "The", "--top-k", "3", "--set", "beam=3"], "qkv: beam 3 searches for the most likely text"),
        (["evaluate", "RUN", "--metrics", "bleu"], "leave it out\n"),
        (
            ["translate", "RUN"],
            "is a language model (gpt, trained for causal), not a translator; use qkv generate",
        ),
        (["fill", "RUN", "The [MASK]"], "filling in words needs the head 'masked'; this run's heads are: none; use qkv generate"),
        (
            ["train", "finetune", "--set", "start=RUN", "--set", "objective={kind: answering, all_answerable: false}"],
            "sees nothing",
        ),
    ],
    ids=lambda value: "-".join(value[:1] + value[3:]) if isinstance(value, list) else "",
)
def test_mistakes(commands: Commands, gpt: Path, words: list[str], message: str, tmp_path: Path) -> None:
    words = [word.replace("RUN", str(gpt)) for word in words]
    if words[0] == "train":
        words += ["--set", "data.train=a.tsv", "--set", "data.dev=a.tsv", "--out", str(tmp_path / "new")]
    done = commands.run(*words)
    assert done.code == 2 and done.out == "" and message in done.err and done.err.count("\n") == 1, done.err


def test_exported_and_imported_it_says_the_same(commands: Commands, gpt: Path, tmp_path: Path) -> None:
    assert commands.run("export", gpt, "--to", "hf", "--out", tmp_path / "hf").code == 0
    done = commands.run("import", tmp_path / "hf", "--out", tmp_path / "back")
    assert done.code == 0 and "gpt, " in done.out and "350 pieces; heads: none" in done.out, done.err
    words = ("The old", "--tokens", "12")
    assert commands.run("generate", tmp_path / "back", *words).out == commands.run("generate", gpt, *words).out


def test_it_can_be_fine_tuned(commands: Commands, gpt: Path, tmp_path: Path) -> None:
    values = finetuning_values("pair", write_examples(tmp_path, "pair"), gpt)
    values["training"] |= {"epochs": 1}
    done = commands.run("train", save_recipe(tmp_path / "pair.yaml", values), "--out", tmp_path / "pair")
    assert done.code == 0, done.err
    assert "accuracy" in commands.run("evaluate", tmp_path / "pair").out
    done = commands.run("export", tmp_path / "pair", "--to", "hf", "--out", tmp_path / "hf")
    assert done.code == 2 and "transformers' GPTs have no heads such as these" in done.err
    assert "(gpt, trained for classification), not a language model" in commands.run("generate", tmp_path / "pair", "The").err


def test_an_encoder_does_not_generate(commands: Commands, text: Path, tmp_path: Path) -> None:
    values = pretraining_values("masked", text)
    values["training"] |= {"steps": 1}
    assert commands.run("train", save_recipe(tmp_path / "bert.yaml", values), "--out", tmp_path / "bert").code == 0
    done = commands.run("generate", tmp_path / "bert", "The")
    assert done.code == 2 and "is an encoder (bert, trained for masked), not a language model" in done.err
    values["model"] = {"kind": "gpt"}
    done = commands.run("train", save_recipe(tmp_path / "wrong.yaml", values), "--out", tmp_path / "wrong")
    assert (
        done.code == 2
        and "is not one of bert, albert, ernie for objective.kind masked; model.kind gpt learns by causal" in done.err
    )
