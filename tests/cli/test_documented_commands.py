"""The commands in the README and in docs/ run."""

import itertools
import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import qkv
from encoder_recipes import write_examples, write_text
from encoder_runs import write_run
from workbench import WORDS, CommandResult, Commands, write_corpus

ROOT = Path(__file__).parents[2]
# The documented models, made small enough for a test.
SMALL = {
    "transformer-small": {
        "model.width": 16, "model.feedforward": 32, "model.heads": 2, "model.encoder_layers": 1, "model.decoder_layers": 1,
        "tokenizer.shared.vocab": 60, "training.steps": 20, "training.warmup": 5, "training.batch_tokens": 200, "score_dev": 4,
    },
    "rnn-small": {
        "model.width": 16, "model.embedding_width": 16, "tokenizer.shared.vocab": 60, "training.steps": 5,
        "training.batch_tokens": 200,
        "score_dev": 4,
    },
    "convolution-small": {
        "model.width": 16, "model.embedding_width": 16, "model.encoder_layers": 1, "model.decoder_layers": 1,
        "tokenizer.shared.vocab": 60, "training.steps": 5, "training.batch_tokens": 200, "score_dev": 4,
    },
    "bert-mini": {
        "model.width": 16, "model.feedforward": 32, "model.heads": 2, "model.layers": 1, "tokenizer.vocab": 200,
        "training.steps": 2,
        "training.batch_tokens": 4096,
    },
    "t5-mini": {
        "model.width": 16, "model.feedforward": 32, "model.heads": 2, "model.head_width": 8, "model.encoder_layers": 1,
        "model.decoder_layers": 1, "tokenizer.vocab": 200, "training.steps": 3, "training.batch_tokens": 256,
    },
    "text-to-text": {"training.steps": 3, "training.batch_tokens": 200, "score_dev": 4},
    "unilm-mini": {
        "model.width": 16, "model.feedforward": 32, "model.heads": 2, "model.layers": 1, "tokenizer.vocab": 200,
        "training.steps": 3,
        "training.batch_tokens": 256,
    },
    "translate-unilm": {"training.steps": 3, "training.batch_tokens": 200, "score_dev": 4},
    "electra-small": {
        "model.width": 16, "model.feedforward": 32, "model.heads": 2, "model.layers": 2, "model.embedding_width": 16,
        "tokenizer.vocab": 200, "training.steps": 5, "training.batch_tokens": 256,
    },
    "gpt-mini": {
        "model.width": 16, "model.feedforward": 64, "model.heads": 2, "model.layers": 2, "tokenizer.vocab": 300,
        "training.steps": 5,
        "training.batch_tokens": 512,
    },
    "finetune": {"training.epochs": 1, "training.batch_tokens": 256},
}  # fmt: skip


def documented(page: str, section: str = "") -> list[list[str]]:
    """Return the commands in a section of a page, each as its words, without `qkv`; without a section those before the first."""
    parts = (ROOT / page).read_text(encoding="utf-8").split("\n## ")
    text = {"": parts[0], **{part.partition("\n")[0]: part for part in parts[1:]}}[section]
    blocks = re.findall(r"^```\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in block.replace("\\\n", " ").splitlines() if line.startswith("qkv ")]
    commands = [shlex.split(line, comments=True)[1:] for line in lines]
    return [list(itertools.takewhile(lambda word: word != ">", words)) for words in commands]


def run_all(commands: Commands, lines: list[list[str]], folder: Path) -> Iterator[tuple[str, CommandResult]]:
    """Run commands one after the other, with their files in a folder; yield each command's verb and result."""
    files = re.compile(r"(runs/[\w-]+|[\w-]+\.(?:tsv|txt|npy|html|png|json|bin)|for-\w+|CHECKPOINT|VECTORS)$")
    for verb, *words in lines:
        small = SMALL[words[0]] if verb == "train" else {}
        settings = [word for key, value in small.items() for word in ("--set", f"{key}={value}")]
        paths = [files.sub(lambda name: str(folder / name[0]), word) for word in words]
        done = commands.run(verb, *paths, *settings)
        assert done.code == 0, f"{verb} {' '.join(words)}: {done.err}"
        yield verb, done


def verbs(lines: list[list[str]]) -> list[str]:
    return [verb for verb, *_ in lines]


def test_commands_for_other_architectures(commands: Commands, tmp_path: Path) -> None:
    write_corpus(tmp_path)
    write_text(tmp_path / "my.txt")
    lines = documented("docs/architectures.md") + documented("docs/architectures.md", "Long texts")
    assert verbs(lines) == ["train", "train", "train", "evaluate", "train"]
    assert all(done.out or verb == "train" for verb, done in run_all(commands, lines, tmp_path))


def test_commands_for_t5_and_unilm(commands: Commands, tmp_path: Path) -> None:
    write_corpus(tmp_path)
    write_text(tmp_path / "my.txt")
    lines = documented("docs/translate.md", "T5 and UniLM: pretrain, then translate")
    assert [verb for verb, _ in run_all(commands, lines, tmp_path)] == ["train"] * 4


def test_commands_for_word_vectors(commands: Commands, tmp_path: Path) -> None:
    words = ["king", "queen", "man", "woman", "dog", "paris", "water", "music", *WORDS]
    (tmp_path / "my.txt").write_text("".join(" ".join(words[i:] + words[:i]) + "\n" for i in range(len(words))) * 10)
    (tmp_path / "reviews.txt").write_text("__label__good fine\n__label__bad poor\n" * 10)
    (tmp_path / "texts.txt").write_text("fine\npoor\n")
    (tmp_path / "wordsim353.tsv").write_text("king\tqueen\t8\ndog\tparis\t1\nman\twoman\t7\n")
    (tmp_path / "questions-words.txt").write_text(": family\nman king woman queen\n")
    lines = [
        ["VECTORS" if word == "vectors" and number else word for number, word in enumerate(line)]
        for line in documented("docs/vectors.md")
    ]
    lines[0] += ["--set", "snapshots=3"]  # the page shows neighbours through training
    outputs = {line[1]: done.out for line, (_, done) in zip(lines, run_all(commands, lines, tmp_path), strict=True)}
    assert [*outputs] == ["train", "classify", "neighbours", "analogy", "evaluate", "map", "convert"]
    assert all((tmp_path / f"{name}.html").exists() for name in ("map", "analogy", "neighbours"))
    assert (tmp_path / "map.png").exists() and (tmp_path / "vectors.bin").exists()


def test_commands_for_your_own_text(commands: Commands, tmp_path: Path) -> None:
    write_corpus(tmp_path)
    (tmp_path / "input.txt").write_text("sun rain\n\nold tree sings\n")
    (tmp_path / "allowed.txt").write_text("sol\npluvia arbor\n")
    write_run(tmp_path / "runs" / "bert", heads=("masked",))
    assert commands.run("export", tmp_path / "runs" / "bert", "--to", "hf", "--out", tmp_path / "CHECKPOINT").code == 0
    lines = documented("README.md", "Your own text") + documented("docs/look.md") + documented("docs/export.md")
    lines += documented("docs/look.md", "Arithmetic")
    assert verbs(lines) == [
        "doctor", "train", "translate", "evaluate", "look", "look", "look", "look", "export", "translate", "translate", "export",
        "export", "import", "arithmetic", "arithmetic", "arithmetic",
    ]  # fmt: skip
    for verb, done in run_all(commands, lines, tmp_path):
        if verb == "translate":
            assert done.out.count("\n") == 3 and done.out.split("\n")[1] == ""
    assert all(
        (tmp_path / name).exists()
        for name in ("page.html", "picture.png", "numbers.json", "steps.json", "for-transformers/config.json")
    )
    shutil.copytree(tmp_path / "runs" / "mine", tmp_path / "runs" / "other")
    lines = documented("docs/translate.md", "Options")
    assert [verb for verb, _ in run_all(commands, lines, tmp_path)] == ["translate"] * 4 + ["evaluate"]


def test_commands_for_encoders(commands: Commands, tmp_path: Path) -> None:
    write_text(tmp_path / "my.txt")
    examples = write_examples(tmp_path, "classification")
    for part, name in {"train": "train.tsv", "dev": "dev.tsv", "test": "new.tsv"}.items():
        Path(examples[part]).rename(tmp_path / name)
    (tmp_path / "texts.txt").write_text("Paris is the capital.\nThe lazy dog.\n")
    write_run(tmp_path / "written", heads=("masked",))
    assert commands.run("export", tmp_path / "written", "--to", "hf", "--out", tmp_path / "CHECKPOINT").code == 0
    lines = documented("docs/encoders.md") + documented("docs/encoders.md", "Use")
    assert verbs(lines) == ["train", "train", "predict", "export", "import", "fill", "embed", "predict"]
    outputs = [done.out for _, done in run_all(commands, lines, tmp_path)]
    assert len(outputs[2].splitlines()) == 24 and len(outputs[5].splitlines()) == 5
    assert (tmp_path / "predictions.tsv").read_text() == outputs[2]
    assert (tmp_path / "for-transformers" / "config.json").exists()
    vectors = qkv.load(tmp_path / "runs" / "theirs", "cpu").embed(["Paris is the capital.", "The lazy dog."])
    np.testing.assert_allclose(np.load(tmp_path / "vectors.npy"), vectors, atol=1e-5)


def test_commands_for_a_gpt(commands: Commands, tmp_path: Path) -> None:
    write_text(tmp_path / "my.txt")
    write_text(tmp_path / "other.txt", seed=2)
    outputs = dict(run_all(commands, documented("docs/generate.md"), tmp_path))
    assert list(outputs) == ["train", "evaluate", "generate", "export"]
    assert "bits per byte" in outputs["evaluate"].out and outputs["generate"].out.startswith("Once upon a time")
    assert (tmp_path / "for-gpt2" / "tokenizer.json").exists()


def test_the_names_the_readme_uses_in_python_exist() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert "qkv.load(" in readme and callable(qkv.load)
    assert "qkv.look(" in readme and callable(qkv.look)


def test_every_target_the_readme_names_is_in_the_makefile() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in set(re.findall(r"make ([a-z-]+)", (ROOT / "README.md").read_text(encoding="utf-8"))):
        assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE), target
