"""Completion in the shells themselves, where they are installed."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from qkv.recipes import recipe_names
from workbench import SOURCE

# Each prints the completions of the line in $LINE.
ASKS = {
    "bash": 'source ./script; read -ra COMP_WORDS <<< "$LINE"; COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); '
    "\"$(complete -p qkv | sed 's/.*-F \\([^ ]*\\).*/\\1/')\" qkv; printf '%s\\n' \"${COMPREPLY[@]}\"",
    # _arguments takes the completions from a list of its own; here it prints them.
    "zsh": "compdef() { asked=$1 }; _arguments() { print -r -- $1 }; _files() { print files }; source ./script; "
    "words=(${(z)LINE}); CURRENT=$#words; $asked",
    "fish": 'source ./script; complete -C "$LINE"',
}


def ask(shell: str, line: str, folder: Path) -> str:
    """Return what a shell completes a line to."""
    command, script = folder / "qkv", folder / "script"
    env = {**os.environ, "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": str(SOURCE), "LINE": line}
    env["HOME"] = str(folder)
    if not script.exists():
        command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m qkv "$@"\n')
        command.chmod(0o755)
        made = subprocess.run([command, "completion", shell], env=env, capture_output=True, text=True, check=True)
        script.write_text(made.stdout)
    options = {"bash": ["--norc"], "zsh": ["-f"], "fish": ["--no-config"]}[shell]
    done = subprocess.run([shell, *options, "-c", ASKS[shell]], cwd=folder, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.needs_fork
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_verbs_options_recipes_and_files_are_completed(shell: str, tmp_path: Path) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    assert {"train", "translate"} <= set(ask(shell, "qkv tra", tmp_path).replace('"', "\n").split())
    assert "--accept-changes" in ask(shell, "qkv train --acc", tmp_path)
    recipes = ask(shell, "qkv train transformer-", tmp_path)
    assert [name for name in recipe_names() if name in recipes] == [n for n in recipe_names() if n.startswith("transformer-")]
    (tmp_path / "run-a").mkdir()
    files = ask(shell, "qkv look run-", tmp_path).split()
    assert files[:1] == {"bash": [], "zsh": ["files"], "fish": ["run-a/"]}[shell]  # bash adds files itself (-o default)


def test_the_help_lists_no_options_for_completion() -> None:
    env = {**os.environ, "PYTHONPATH": str(SOURCE)}
    done = subprocess.run([sys.executable, "-m", "qkv", "--help"], env=env, capture_output=True, text=True)
    assert "completion" in done.stdout and "--install-completion" not in done.stdout and "--show-completion" not in done.stdout
