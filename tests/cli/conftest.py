"""Small trained runs for all tests of the command line."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

from workbench import Commands, commands_in, write_recipe


@pytest.fixture(scope="session")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Commands:
    return commands_in(tmp_path_factory.getbasetemp())


@pytest.fixture(scope="session")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    changes = {
        "model": {"width": 32, "feedforward": 64},
        "training": {"steps": 120, "validate_every": 60, "save_every": 60, "snapshots": 4},
    }
    return write_recipe(tmp_path_factory.mktemp("cli"), **changes)


@pytest.fixture(scope="session")
def run(commands: Commands, recipe: Path) -> Path:
    """A trained run; tests must not change it."""
    folder = recipe.parent / "run"
    done = commands.run("train", recipe, "--out", folder)
    assert done.code == 0, done.err
    return folder


@pytest.fixture(scope="session")
def other(commands: Commands, recipe: Path) -> Path:
    """Another run on the same text: another tokenizer, another width, hardly trained."""
    folder = recipe.parent / "other"
    settings = ("--set", "model.width=16", "--set", "tokenizer.shared.kind=wordpiece", "--set", "training.steps=5")
    done = commands.run("train", recipe, "--out", folder, *settings)
    assert done.code == 0, done.err
    return folder
