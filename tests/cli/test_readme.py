"""The commands printed in the README run."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import qkv
from encoder_recipes import write_examples, write_text
from encoder_runs import write_run
from workbench import CommandResult, Commands, write_corpus

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
# The README's models, made small enough for a test.
SMALL = {
    "transformer-small": {
        "model.width": 16, "model.feedforward": 32, "model.heads": 2, "model.encoder_layers": 1, "model.decoder_layers": 1,
        "tokenizer.shared.vocab": 60, "training.steps": 20, "training.warmup": 5, "training.batch_tokens": 200, "score_dev": 4,
    },
    "rnn-small": {
        "model.width": 16, "model.embedding_width": 16, "tokenizer.shared.vocab": 60, "training.steps": 5, "training.batch_tokens": 200,
        "score_dev": 4,
    },
    "bert-mini": {
        "model.width": 16, "model.feedforward": 32, "model.heads": 2, "model.layers": 1, "tokenizer.vocab": 200, "training.steps": 2,
        "training.batch_tokens": 4096,
    },
    "t5-mini": {
        "model.width": 16, "model.feedforward": 32, "model.heads": 2, "model.head_width": 8, "model.encoder_layers": 1,
        "model.decoder_layers": 1, "tokenizer.vocab": 200, "training.steps": 3, "training.batch_tokens": 256,
    },
    "text-to-text": {"training.steps": 3, "training.batch_tokens": 200, "score_dev": 4},
    "unilm-mini": {
        "model.width": 16, "model.feedforward": 32, "model.heads": 2, "model.layers": 1, "tokenizer.vocab": 200, "training.steps": 3,
        "training.batch_tokens": 256,
    },
    "translate-unilm": {"training.steps": 3, "training.batch_tokens": 200, "score_dev": 4},
    "electra-small": {
        "model.width": 16, "model.feedforward": 32, "model.heads": 2, "model.layers": 2, "model.embedding_width": 16,
        "tokenizer.vocab": 200, "training.steps": 5, "training.batch_tokens": 256,
    },
    "gpt-mini": {
        "model.width": 16, "model.feedforward": 64, "model.heads": 2, "model.layers": 2, "tokenizer.vocab": 300, "training.steps": 5,
        "training.batch_tokens": 512,
    },
    "finetune": {"training.epochs": 1, "training.batch_tokens": 256},
}  # fmt: skip


def typed(*sections: str) -> list[str]:
    """The commands in some sections, without `qkv`, redirections and comments."""
    bodies = {part.partition("\n")[0]: part for part in README.split("\n## ")}
    return [line for name in sections for line in re.findall(r"^\$ qkv (.+?)(?: >.*| +#.*)?$", bodies[name], flags=re.MULTILINE)]


def run_all(commands: Commands, lines: list[str], folder: Path) -> Iterator[tuple[str, CommandResult]]:
    """Run commands one after the other, with their files in a folder. -> the verb of each, and what came of it."""
    ours = re.compile(r"(runs/[\w-]+|\w+\.(?:tsv|txt|npy|html|png)|for-\w+|CHECKPOINT)$")
    for line in lines:
        words = [ours.sub(lambda name: str(folder / name[0]), word) for word in shlex.split(line)]
        small = SMALL[words[1]] if words[0] == "train" else {}
        done = commands.run(*words, *(word for key, value in small.items() for word in ("--set", f"{key}={value}")))
        assert done.code == 0, f"{line}: {done.err}"
        yield words[0], done


def test_the_commands_for_other_architectures_run(commands: Commands, tmp_path: Path) -> None:
    write_corpus(tmp_path)
    write_text(tmp_path / "my.txt")
    assert [verb for verb, _ in run_all(commands, typed("Other architectures"), tmp_path)] == ["train"] * 3


def test_the_commands_from_text_to_text_run(commands: Commands, tmp_path: Path) -> None:
    write_corpus(tmp_path)
    write_text(tmp_path / "my.txt")
    assert [verb for verb, _ in run_all(commands, typed("From text to text"), tmp_path)] == ["train"] * 4


def test_the_commands_for_word_vectors_run(commands: Commands, tmp_path: Path) -> None:
    write_text(tmp_path / "my.txt")
    *_, (verb, done) = run_all(commands, typed("Word vectors"), tmp_path)
    assert verb == "vectors" and done.out.count("\n") > 5


def test_the_commands_for_your_own_text_run_one_after_the_other(commands: Commands, tmp_path: Path) -> None:
    write_corpus(tmp_path)
    (tmp_path / "input.txt").write_text("sun rain\n\nold tree sings\n")
    lines = typed("Your own text", "Looking inside", "Export")
    verbs = ["train", "translate", "evaluate", "look", "look", "look", "export", "translate", "translate"]
    assert [line.split()[0] for line in lines] == verbs
    for verb, done in run_all(commands, lines, tmp_path):
        if verb == "translate":
            assert done.out.count("\n") == 3 and done.out.split("\n")[1] == ""
    assert (tmp_path / "page.html").exists() and (tmp_path / "picture.png").exists()


def test_the_commands_for_encoders_run_one_after_the_other(commands: Commands, tmp_path: Path) -> None:
    write_text(tmp_path / "my.txt")
    examples = write_examples(tmp_path, "classification")
    for part, name in {"train": "train.tsv", "dev": "dev.tsv", "test": "new.tsv"}.items():
        Path(examples[part]).rename(tmp_path / name)
    (tmp_path / "texts.txt").write_text("Paris is the capital.\nThe lazy dog.\n")
    write_run(tmp_path / "written", heads=("masked",))
    assert commands.run("export", tmp_path / "written", "--to", "hf", "--out", tmp_path / "CHECKPOINT").code == 0
    lines = typed("Encoders")
    assert [line.split()[0] for line in lines] == ["train", "train", "predict", "export", "import", "fill", "embed"]
    outputs = dict(run_all(commands, lines, tmp_path))
    assert len(outputs["predict"].out.splitlines()) == 24 and len(outputs["fill"].out.splitlines()) == 5
    assert (tmp_path / "for-transformers" / "config.json").exists()
    vectors = qkv.load(tmp_path / "runs" / "theirs", "cpu").embed(["Paris is the capital.", "The lazy dog."])
    np.testing.assert_allclose(np.load(tmp_path / "vectors.npy"), vectors, atol=1e-5)


def test_the_commands_for_a_gpt_run_one_after_the_other(commands: Commands, tmp_path: Path) -> None:
    write_text(tmp_path / "my.txt")
    write_text(tmp_path / "other.txt", seed=2)
    outputs = dict(run_all(commands, typed("GPT"), tmp_path))
    assert list(outputs) == ["train", "evaluate", "generate", "export"]
    assert "bits per byte" in outputs["evaluate"].out and outputs["generate"].out.startswith("Once upon a time")
    assert (tmp_path / "for-gpt2" / "tokenizer.json").exists()


def test_the_names_the_readme_uses_in_python_exist() -> None:
    assert "qkv.load(" in README and callable(qkv.load)
    assert "qkv.look(" in README and callable(qkv.look)


def test_every_target_the_readme_names_is_in_the_makefile() -> None:
    makefile = (Path(__file__).parents[2] / "Makefile").read_text(encoding="utf-8")
    for target in set(re.findall(r"make ([a-z-]+)", README)):
        assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE), target
