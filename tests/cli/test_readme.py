"""The commands printed in the README run."""

import re
import shlex
from pathlib import Path

from workbench import Commands, write_corpus

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
# The README's model, made small enough for a test.
SMALL = {
    "model.width": 16, "model.inner": 32, "model.heads": 2, "model.encoder_layers": 1, "model.decoder_layers": 1,
    "tokenizer.shared.vocab": 60, "training.steps": 20, "training.warmup": 5, "training.batch_tokens": 200, "score_dev": 4,
}  # fmt: skip


def test_the_commands_for_your_own_text_run_one_after_the_other(commands: Commands, tmp_path: Path) -> None:
    write_corpus(tmp_path)
    (tmp_path / "input.txt").write_text("sun rain\n\nold tree sings\n")
    typed = re.findall(r"^\$ qkv (.+?)(?: >.*)?$", README, flags=re.MULTILINE)
    assert [line.split()[0] for line in typed] == ["train", "translate", "evaluate", "export", "translate", "translate"]
    for line in typed:
        words = [
            re.sub(r"(runs/[\w-]+|\w+\.(?:tsv|txt))$", lambda name: str(tmp_path / name[0]), word) for word in shlex.split(line)
        ]
        small = [word for key, value in SMALL.items() for word in ("--set", f"{key}={value}")] if words[0] == "train" else []
        done = commands.run(*words, *small)
        assert done.code == 0, done.err
        if words[0] == "translate":
            assert done.out.count("\n") == 3 and done.out.split("\n")[1] == ""


def test_the_names_the_readme_uses_in_python_exist() -> None:
    import qkv

    assert "qkv.load(" in README and callable(qkv.load)


def test_every_target_the_readme_names_is_in_the_makefile() -> None:
    makefile = (Path(__file__).parents[2] / "Makefile").read_text(encoding="utf-8")
    for target in set(re.findall(r"make ([a-z-]+)", README)):
        assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE), target
