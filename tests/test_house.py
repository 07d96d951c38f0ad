"""What holds for the whole code base; `python tests/house.py` prints the figures."""

from functools import cache
from pathlib import Path

import pytest

import house


@cache
def here() -> house.House:
    return house.House(Path(__file__).parents[1])


def test_a_public_name_of_a_class_is_used_for_one_class() -> None:
    twice = here().names_used_twice()
    assert not twice, "\n".join(f"{name}: {', '.join(files)}" for name, files in twice.items())


def test_nobody_asks_what_kind_of_system_it_has() -> None:
    tests = here().type_tests()
    assert not tests, "ask the family, the objective or the run instead:\n" + "\n".join(
        f"{test.where} {test.tested.name}" for test in tests
    )


def test_nobody_compares_a_kind_with_a_name() -> None:
    # ctranslate2 has a mapping for the Transformer alone; the benchmarks' sizes are a list of their own.
    excepted = {"interop/ctranslate2/writer.py", "bench/workload.py"}
    assert not [found for found in here().kind_comparisons() if found.split(":")[0] not in excepted]


def test_modules_do_not_import_in_a_circle() -> None:
    assert not house.cycles(here().imports(inside_functions=True))


def test_rooms_do_not_import_in_a_circle() -> None:
    assert not house.cycles(house.between_rooms(here().imports(inside_functions=True)))


def test_few_short_private_functions_are_used_once() -> None:
    assert len(here().short_private()) < 100


@pytest.mark.parametrize("training", house.TRAININGS)
def test_from_the_command_to_the_loss_are_ten_files(training: str) -> None:
    opened = house.files_to_the_loss(Path(__file__).parents[1], training)["opened"]
    assert len(opened) <= 10, opened


# The measure itself


@pytest.fixture
def made_up(tmp_path: Path) -> house.House:
    """A package of a few files, with one of each thing that is counted."""
    files = {
        "__init__.py": "",
        "jobs/__init__.py": "",
        "base/config.py": "class Config:\n    pass\n",
        "objectives/tagging.py": "class TaggingConfig:\n    kind: Literal['tagging'] = 'tagging'\n"
        "def inside(c):\n    return c.kind == 'tagging'\n",
        "data/labelled.py": "def f(kind, c):\n    return kind == 'full' or c.kind in ('tagging', 'o') or 'tagging' != c.name\n",
        "models/bert.py": "from qkv.base.config import Config\nclass BertConfig(Config):\n    pass\nclass Pair:\n    pass\n"
        "def inside(x):\n    return isinstance(x, BertConfig)\n",
        "models/__init__.py": "from .bert import BertConfig\n",
        "jobs/train.py": "from qkv import models\nfrom qkv.base.config import Config\n"
        "from qkv.models import BertConfig as B, bert\n"
        "BOTH = (int, B)\n"
        "def f(x):\n    from qkv.jobs import later\n    isinstance(x, int | B), isinstance(x, Config)\n"
        "    isinstance(x, bert.BertConfig) or isinstance(x, BOTH) or type(x) is B\n"
        "    match x:\n        case B():\n            return _once(x) + _twice(x) + _twice(x)\n"
        "def _once(x):\n    '''Doc.'''\n    return x\n"
        "def _twice(x):\n    return x\n",
        "jobs/later.py": "from qkv.jobs import train\nclass Pair:\n    pass\n",
    }
    for name, text in files.items():
        path = tmp_path / "src" / "qkv" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return house.House(tmp_path)


def test_what_is_counted_is_found(made_up: house.House) -> None:
    assert {test.tested for test in made_up.type_tests()} == {house.Class("qkv.models.bert", "BertConfig")}
    assert [test.where for test in made_up.type_tests()].count("jobs/train.py:8") == 3
    assert len(made_up.type_tests()) == 5
    assert made_up.kind_comparisons() == ["data/labelled.py:2 c.kind in ('tagging', 'o')"]
    assert made_up.names_used_twice() == {"Pair": ["jobs/later.py", "models/bert.py"]}
    assert made_up.short_private() == ["jobs/train.py:12 _once"]


def test_circles_and_chains_are_found(made_up: house.House) -> None:
    assert house.cycles(made_up.imports()) == []
    assert house.cycles(made_up.imports(inside_functions=True)) == [["qkv.jobs.later", "qkv.jobs.train"]]
    assert house.longest_chain(made_up.imports()) == [
        "qkv.jobs.later", "qkv.jobs.train", "qkv.models", "qkv.models.bert", "qkv.base.config",
    ]  # fmt: skip
    assert house.between_rooms(made_up.imports()) == {
        "base": set(),
        "data": set(),
        "objectives": set(),
        "models": {"base"},
        "jobs": {"base", "models"},
    }
