"""Completion in the shells themselves, where they are installed."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from qkv.recipes import recipe_names
from workbench import SOURCE

needs = {
    shell: pytest.mark.skipif(shutil.which(shell) is None, reason=f"{shell} is not installed")
    for shell in ("bash", "zsh", "fish")
}
# Each prints the completions of the line in $LINE, one per line.
ASKS = {
    "bash": "source script; read -ra COMP_WORDS <<< \"$LINE\"; [[ $LINE == *' ' ]] && COMP_WORDS+=(''); "
    "COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); \"$(complete -p qkv | sed 's/.*-F \\([^ ]*\\).*/\\1/')\" qkv; "
    "printf '%s\\n' \"${COMPREPLY[@]}\"",
    # _arguments takes the completions from a list of its own; here it prints them.
    "zsh": "compdef() { asked=$1 }; _arguments() { print -r -- $1 }; _files() { print files }; source ./script; "
    'words=(${(z)LINE}); [[ $LINE == *" " ]] && words+=(""); CURRENT=$#words; $asked',
    "fish": 'source script; complete -C "$LINE" | string split -f 1 \\t',
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a qkv command, and with a script for each shell."""
    found = tmp_path_factory.mktemp("completion")
    command = found / "qkv"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m qkv "$@"\n')
    command.chmod(0o755)
    return found


def ask(shell: str, line: str, folder: Path) -> str:
    """Return what a shell completes a line to."""
    path = os.pathsep.join((str(folder), os.environ["PATH"]))
    env = {**os.environ, "PATH": path, "PYTHONPATH": str(SOURCE), "LINE": line, "HOME": str(folder)}
    script = subprocess.run([folder / "qkv", "completion", shell], env=env, capture_output=True, text=True, check=True).stdout
    (folder / "script").write_text(script)
    options = {"bash": ["--norc"], "zsh": ["-f"], "fish": ["--no-config"]}[shell]
    done = subprocess.run([shell, *options, "-c", ASKS[shell]], cwd=folder, env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.needs_fork
@pytest.mark.parametrize("shell", [pytest.param(name, marks=mark) for name, mark in needs.items()])
def test_verbs_options_and_recipes_are_completed(shell: str, folder: Path) -> None:
    assert {"train", "translate"} <= set(ask(shell, "qkv tra", folder).replace('"', "\n").split())
    assert "--accept-changes" in ask(shell, "qkv train --acc", folder)
    recipes = ask(shell, "qkv train transformer-", folder)
    assert [name for name in recipe_names() if name in recipes] == [n for n in recipe_names() if n.startswith("transformer-")]
    assert "skipgram" in ask(shell, "qkv vectors train skip", folder)
    (folder / "run-a").mkdir(exist_ok=True)
    files = ask(shell, "qkv look run-", folder).split()
    assert files == {"bash": [], "zsh": ["files"], "fish": ["run-a/"]}[shell]  # bash adds files itself (-o default)


def test_the_help_lists_no_options_for_completion(folder: Path) -> None:
    env = {**os.environ, "PYTHONPATH": str(SOURCE)}
    done = subprocess.run([sys.executable, "-m", "qkv", "--help"], env=env, capture_output=True, text=True)
    assert "completion" in done.stdout and "--install-completion" not in done.stdout and "--show-completion" not in done.stdout
