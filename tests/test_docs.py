"""The documentation keeps up with the code."""

import importlib.util
import json
import re
import shlex
from dataclasses import fields
from itertools import pairwise
from pathlib import Path
from types import ModuleType

import pytest
import typer

import qkv
from qkv.base.config import key_paths
from qkv.cli.app import app
from qkv.lens.figures import VIEWS
from qkv.lens.head_patterns import DESCRIPTIONS
from qkv.lens.view import AttentionView
from qkv.models import FAMILIES
from qkv.objectives import OBJECTIVES
from qkv.recipes import CLASSES, RECIPES, load_recipe, recipe_names
from qkv.text.tokenizer import TokenizerConfig

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = [
    ROOT / "README.md",
    ROOT / "README.zh-CN.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
    ROOT / "SECURITY.md",
    ROOT / "CODE_OF_CONDUCT.md",
    *sorted(DOCS.rglob("*.md")),
]
PAGES = [page for page in PAGES if page.parent != DOCS / "reference"]  # made by `make docs`
KINDS = [
    CLASSES[objective.config_class.job][family.config, objective.config_class]
    for kind, objective in OBJECTIVES.items()
    for family in FAMILIES.values()
    if kind in family.objectives or (objective.config_class.job == "finetuning" and family.kind == "bert")
]
DATA = {"data.train": "train.tsv", "data.dev": "dev.tsv", "data.text": "text.txt", "start": "runs/encoder"}


def module_of_docs(name: str) -> ModuleType:
    """Return a module that `make docs` imports."""
    spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


CHINESE = module_of_docs("chinese")


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8"))
    broken = []
    for link in links:
        if link.startswith(("http://", "https://")):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if target.parent == DOCS / "reference":  # made by `make docs`, which follows these links
            continue
        if target.parent == CHINESE.TEXTS:  # made of these texts
            target = target.with_suffix(".md")
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    assert broken == []


def test_every_picture_is_shown_on_a_page() -> None:
    shown = {
        (page.parent / link).resolve()
        for page in PAGES
        for link in re.findall(r"!\[[^\]]*\]\(([^)\s]+)\)", page.read_text(encoding="utf-8"))
    }
    pictures = {path.resolve() for path in DOCS.rglob("*") if path.suffix in {".png", ".svg"}}
    assert sorted(pictures - shown) == []


KEYS = sorted({path for kind in KINDS for path in key_paths(kind)})


@pytest.mark.parametrize("key", sorted({path.split(".")[-1] for path in KEYS}))
def test_every_key_of_a_recipe_is_explained(key: str) -> None:
    page = (DOCS / "recipes.md").read_text(encoding="utf-8")
    assert any(f"{start}{key}{end}" in page for start in "`." for end in "`:."), f"docs/recipes.md does not mention {key}"


def documented_keys() -> set[str]:
    """Return the keys in the key columns of docs/recipes.md, such as `width` or `check.max_chars`."""
    found, column = set(), None
    for line in (DOCS / "recipes.md").read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.split("|")]
        if len(cells) < 3:
            column = None  # not a line of a table
        elif column is None:
            column = cells.index("key") if "key" in cells else 0
        else:
            found |= set(re.findall(r"`([^`]+)`", cells[column]))
    return found


@pytest.mark.parametrize("key", sorted(documented_keys()))
def test_every_documented_key_exists(key: str) -> None:
    assert any(f".{path}".endswith(f".{key}") for path in KEYS), f"docs/recipes.md explains {key}, which no recipe has"


def documented_commands() -> list[list[str]]:
    """Return the qkv commands in the code blocks and tables of all pages, each as its words."""
    found = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for row in re.findall(r"^\|.*", text, re.MULTILINE):
            found += [shlex.split(command) for command in re.findall(r"`(qkv [a-z][^`]*)`", row)]
        for block in re.findall(r"^```\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
            lines = block.replace("\\\n", " ").splitlines()
            commands = [match[1] for line in lines if (match := re.search(r"(?:^|\$ |\| |/bin/)(qkv [a-z].*)", line))]
            found += [shlex.split(command, comments=True) for command in commands]
    return found


def test_chinese_pages_and_english_ones_are_linked() -> None:
    files = (path for path in DOCS.rglob("*") if path.suffix in {".md", ".ipynb"})
    known = {path.relative_to(DOCS).with_suffix("").as_posix() for path in files}
    pages = {page for page in known if page.startswith("zh/")}
    alone = {page for page in pages if CHINESE.other_language(page) not in known}
    assert len(pages) > 20 and alone == {"zh/chinese-text"}
    linked = {CHINESE.other_language(CHINESE.other_language(page)) for page in pages - alone}
    assert linked == pages - alone


@pytest.mark.parametrize("words", documented_commands(), ids=" ".join)
def test_every_documented_command_exists(words: list[str]) -> None:
    command = typer.main.get_command(app)
    rest = words[1:]
    while isinstance(command, typer.core.TyperGroup) and not (command.invoke_without_command and not rest):
        command = command.commands[rest.pop(0)]
    known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    assert [word for word in rest if word.startswith("--") and word not in known] == []
    if rest and not rest[0].startswith("--"):  # it stands for a whole command, not for the verb
        needed = [option for option in command.params if option.required and option.param_type_name == "option"]
        assert [option.opts[0] for option in needed if not set(option.opts) & set(rest)] == []


TRAININGS = [words for words in documented_commands() if words[1] == "train" and len(words) > 3 and words[-1] != "..."]


@pytest.mark.parametrize("words", TRAININGS, ids=" ".join)
def test_every_documented_training_has_a_valid_recipe(words: list[str]) -> None:
    given = [after for word, after in pairwise(words) if word == "--set"]
    assert load_recipe(words[2], given).training


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_python_on_a_page_compiles_and_imports(page: Path) -> None:
    for block in re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL):
        compile(block, str(page), "exec")
        imports = [line for line in block.splitlines() if line.startswith(("import qkv", "from qkv"))]
        exec("\n".join(imports), {})
        used = set(re.findall(r"\bqkv\.(\w+)\(", block))
        assert [name for name in used if not hasattr(qkv, name)] == []


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 120


def test_every_view_habit_and_number_of_a_look_is_explained() -> None:
    page = (DOCS / "look.md").read_text(encoding="utf-8")
    numbers = {field.name for field in fields(AttentionView)} - {"texts"} | {"source", "target", "read", "words", "patterns"}
    missing = [name for name in (*VIEWS, *DESCRIPTIONS, *numbers) if f"`{name}`" not in page]
    assert missing == []


@pytest.mark.parametrize("name", recipe_names())
def test_every_recipe_is_whole_but_for_its_data(name: str) -> None:
    pretraining = FAMILIES.get(name.partition("-")[0].rstrip("2"), FAMILIES["transformer"]).loads_as != "translator"
    needed = ["data.text"] if pretraining else ["data.train", "data.dev"] + ["start"] * (name in ("adapt", "finetune"))
    recipe = load_recipe(name, [f"{key}={DATA[key]}" for key in needed])
    assert recipe.training.steps or recipe.training.epochs


@pytest.mark.parametrize("name", recipe_names())
def test_the_first_line_of_a_recipe_says_what_it_is(name: str) -> None:
    """By itself, as `qkv recipes` prints nothing else of it."""
    first = (RECIPES / f"{name}.yaml").read_text(encoding="utf-8").splitlines()[0]
    assert first.startswith("# ") and first.endswith(".")


def other_sizes() -> list[tuple[str, list[str]]]:
    """What the comments of recipes say of other sizes: the recipe, and the settings of each."""
    found = []
    for name in recipe_names():
        text = (RECIPES / f"{name}.yaml").read_text(encoding="utf-8")
        for sizes, more in re.findall(r"--set model\.size=([\w|.-]+\w)((?: --set \S+)*)", text):
            found += [(name, [f"model.size={size}", *more.split(" --set ")[1:]]) for size in sizes.split("|")]
    return found


@pytest.mark.parametrize(("name", "settings"), other_sizes(), ids=str)
def test_sizes_that_a_recipe_names_fit_it(name: str, settings: list[str]) -> None:
    assert load_recipe(name, ["data.text=text.txt", *settings]).model.kind


@pytest.mark.parametrize("name", [name for name in recipe_names() if name.startswith(("unilm", "t5"))])
def test_what_others_start_from_can_write_any_text(name: str) -> None:
    """As a translator has the tokenizer of the run that it starts from, with case or without, and what is unknown to it."""
    tokenizer = load_recipe(name, ["data.text=text.txt"]).tokenizer
    assert isinstance(tokenizer, TokenizerConfig) and tokenizer.kind == "unigram" and not tokenizer.lowercase


def test_reference_pages_have_every_key_and_command() -> None:
    reference = module_of_docs("reference")
    keys, commands = reference.keys_page(), reference.commands_page()
    assert [key for key in KEYS if f"| `{key.rpartition('.')[2]}` |" not in keys and key.count(".") == 1] == []
    assert "target tokens per update, over all processes" in keys  # comments in the code are what keys mean
    assert [name for name in typer.main.get_command(app).commands if f"## qkv {name}\n" not in commands] == []  # type: ignore[attr-defined]
    assert "Folder of a run" in commands
    assert [name for name in recipe_names() if f"## {name}\n" not in reference.recipes_page()] == []


def test_chinese_tutorials_have_a_text_for_each_text(tmp_path: Path) -> None:
    CHINESE.write(tmp_path)
    assert sorted(path.stem for path in tmp_path.iterdir()) == sorted(path.stem for path in CHINESE.TUTORIALS.glob("*.ipynb"))
    for path in tmp_path.iterdir():
        cells, theirs = (json.loads(one.read_text(encoding="utf-8"))["cells"] for one in (path, CHINESE.TUTORIALS / path.name))
        for cell, other in zip(cells, theirs, strict=True):
            if cell["cell_type"] == "code":
                assert cell == other
            else:
                assert re.search("[\u4e00-\u9fff]", cell["source"]), f"{path.name}: {cell['source'][:60]}"


def test_the_family_has_a_page_for_each_model_in_both_languages() -> None:
    english, chinese = ({path.name for path in folder.glob("*.md")} for folder in (DOCS / "family", DOCS / "zh" / "family"))
    assert english == chinese
    for name in sorted(english - {"index.md"}):
        blocks = [
            re.findall(r"```\n(.*?)```", (DOCS / part / name).read_text(encoding="utf-8"), re.DOTALL)
            for part in ("family", "zh/family")
        ]
        assert blocks[0] == blocks[1], f"{name}: the commands differ"
