"""A claim: what it says and predicts, the experiment that tests it, and the rule of its verdict.

A claim's file in library/ ends in `CLAIM = Claim(...)`. `measure` is called once for each cell, that is for each variant and
seed, and returns figures; `parts` and `controls` are rules over them (verdict.py). Everything that is predicted stands in the
file before any run.
"""

import ast
import difflib
import hashlib
import shutil
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from types import ModuleType
from typing import Any

from qkv.base.errors import ConfigError, QkvError
from qkv.claims.verdict import MIN_SEEDS, VerdictRule

LIBRARY = Path(__file__).parent / "library"
TOPICS = ("order and length", "attention itself", "training deep nets", "cost", "pretraining", "words", "looking")
SIZES = ("quick", "cpu", "gpu")
Measured = dict[str, float | list[float]]  # name of a figure -> a number, or a curve of numbers


@dataclass(frozen=True)
class Cell:
    """One variant with one seed: what `measure` is given. Settings of the size, then of the variant, are `cell["name"]`."""

    variant: str
    seed: int
    settings: Mapping[str, Any]
    device: str  # cpu or cuda
    folder: Path  # for files; deleted after the cell
    text: Path | None = None  # --text: natural text, for claims that can use it

    def __getitem__(self, name: str) -> Any:
        return self.settings[name]

    @property
    def recipe_settings(self) -> dict[str, Any]:
        """The settings with a dot in their name: they change a recipe, as `--set` does."""
        return {name: value for name, value in self.settings.items() if "." in name}

    def new_folder(self, name: str) -> Path:
        """Return a path below the cell's folder that nothing is at; what an earlier attempt left there is deleted."""
        path = self.folder / name
        shutil.rmtree(path, ignore_errors=True)
        return path


@dataclass(frozen=True)
class Panel:
    """A part of a claim's picture: the figures and variants that it shows, and how it draws them (pictures.py)."""

    figures: tuple[str, ...]
    variants: tuple[str, ...]  # () for all
    draw: Callable[[Any], Any]  # from an experiment's Result to a Picture


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A claim of the literature. Texts are plain; `explanation` is for a pupil, `formula` one line."""

    topic: str
    statement: str  # the claim in one sentence
    source: str  # paper and section, or "folklore"
    measured: str  # what is measured, on what
    prediction: str  # what the claim predicts, in direction and size, written before any run
    explanation: str
    formula: str
    changes: str  # what would change the verdict, and what this experiment does not show
    variants: Mapping[str, Mapping[str, Any]]  # name -> the settings in which it differs from the others
    sizes: Mapping[str, Mapping[str, Any]]  # cpu -> settings of all variants; quick and gpu -> what differs from cpu
    measure: Callable[[Cell], Measured]
    parts: Sequence[VerdictRule]
    further: Sequence[VerdictRule] = ()  # predictions beside the claim (reasons, limits, uses): shown, and not counted
    controls: Sequence[VerdictRule] = ()
    picture: Sequence[Panel]  # under each other: strip(...), curves(...) of pictures.py
    units: Mapping[str, str]  # figure -> what it is, for tables and axes
    revised: str = ""  # what was changed after figures had been seen, and which figures
    seeds: int = 5  # 3 where one cell takes above 5 minutes
    timed: bool = False  # whether it measures time, so that cells must not run side by side
    uses_text: bool = False  # whether it takes --text

    def __post_init__(self) -> None:
        if self.topic not in TOPICS:
            raise ConfigError(f"topic {self.topic!r} is not known; choose one of {', '.join(TOPICS)}")
        for field in fields(self):
            if field.type is str and field.name != "revised" and not getattr(self, field.name).strip():
                raise ConfigError(f"{field.name} is empty; a claim says everything before it is run")
        if self.seeds < MIN_SEEDS or not self.parts:
            raise ConfigError(f"a claim needs at least {MIN_SEEDS} seeds and one part")
        if "cpu" not in self.sizes or "quick" not in self.sizes or set(self.sizes) - set(SIZES):
            raise ConfigError(f"sizes must have quick and cpu, and may have gpu; got {', '.join(self.sizes)}")
        for rule in self.rules:
            unknown = rule.variants() - set(self.variants)
            if unknown:
                raise ConfigError(f"{rule.says!r} is about {', '.join(sorted(unknown))}, and there is no such variant")
            if rule.figure not in self.units:
                raise ConfigError(f"{rule.says!r} is about {rule.figure}, which is not in units")
        panels = self.picture if isinstance(self.picture, Sequence) else ()
        if not panels or not all(isinstance(panel, Panel) and panel.figures for panel in panels):
            raise ConfigError('picture must be a list of panels, such as [strip("loss")]')
        for panel in panels:
            if strange := {*panel.figures} - {*self.units} | {*panel.variants} - {*self.variants}:
                raise ConfigError(f"the picture shows {', '.join(sorted(strange))}, which is no figure in units and no variant")

    @property
    def rules(self) -> list[VerdictRule]:
        """Everything that is judged: parts, further predictions and controls."""
        return [*self.parts, *self.further, *self.controls]

    def settings(self, size: str, variant: str) -> dict[str, Any]:
        """Return the settings of a variant at a size."""
        return {**self.sizes["cpu"], **(self.sizes[size] if size != "cpu" else {}), **self.variants[variant]}


@dataclass(frozen=True)
class NamedClaim:
    """A claim with the name of its file, and a digest of the code that its figures depend on."""

    name: str
    file: Path
    claim: Claim
    code: str


def claim_names() -> list[str]:
    """Return the names of the claims that come with the package."""
    return sorted(path.stem.replace("_", "-") for path in LIBRARY.glob("[!_]*.py"))


def find_claim(name: str) -> NamedClaim:
    """Return a claim by its name, or from the user's own file."""
    if name.endswith(".py"):
        file = Path(name)
        if not file.exists():
            raise ConfigError(f"{name}: no such file; give a file that ends in CLAIM = Claim(...), or a name (see qkv claims)")
        if file.stem.replace("_", "-") in claim_names() and file.resolve().parent != LIBRARY.resolve():
            raise ConfigError(f"{name}: {file.stem} is a claim of qkv, and would share its folder; give the file another name")
    else:
        file = LIBRARY / f"{name.replace('-', '_')}.py"
        if name not in claim_names():
            wanted = name.lower().replace("_", "-")
            near = difflib.get_close_matches(wanted, claim_names(), n=1) or [one for one in claim_names() if wanted in one]
            hint = f"did you mean {near[0]}?" if near else "see qkv claims"
            raise ConfigError(f"no claim {name!r}; {hint}")
    text = file.read_text(encoding="utf-8")
    claim = _execute(file, text).get("CLAIM")
    if not isinstance(claim, Claim):
        raise ConfigError(f"{file}: has no CLAIM = Claim(...); see docs/claims.md")
    return NamedClaim(file.stem.replace("_", "-"), file, claim, code_digest(text))


def _execute(file: Path, text: str) -> dict[str, Any]:
    """Run a claim's file. No compiled copy is used: it might be older than the text, whose digest names the figures."""
    module = ModuleType(f"{'qkv.claims.library' if file.parent == LIBRARY else 'claim'}.{file.stem}")
    module.__file__ = str(file)
    sys.modules[module.__name__] = module  # dataclasses of the file look their module up
    try:
        exec(compile(text, file, "exec"), module.__dict__)
    except SyntaxError as error:
        raise ConfigError(f"{file}, line {error.lineno}: {error.msg}") from None
    except QkvError as error:
        raise ConfigError(f"{file}: {error}") from None
    except Exception as error:
        if file.parent == LIBRARY:
            raise  # our own mistake
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(file)]
        raise ConfigError(f"{file}, line {lines[-1]}: {type(error).__name__}: {error}") from error
    return module.__dict__


def code_digest(text: str) -> str:
    """Return a digest of the code in a claim's file that its figures depend on.

    Docstrings, comments, and the arguments of Claim beside `measure` do not count: words and pictures can be improved, and
    rules judged anew, without computing the figures again. Settings are in the key of each cell.
    """
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.FunctionDef | ast.ClassDef) and ast.get_docstring(node) is not None:
            node.body = node.body[1:]
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Claim":
            node.keywords = [keyword for keyword in node.keywords if keyword.arg == "measure"]
    # An import counts if code that is left uses it; rules and pictures may be imported freely.
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    for node in tree.body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            node.names = [one for one in node.names if (one.asname or one.name).partition(".")[0] in used]
    tree.body = [node for node in tree.body if not isinstance(node, ast.Import | ast.ImportFrom) or node.names]
    return hashlib.blake2b(repr(_plain(tree)).encode(), digest_size=8).hexdigest()


def _plain(node: Any) -> Any:
    """Return a syntax tree as plain values, without empty fields, which differ by the version of Python."""
    if isinstance(node, ast.AST):
        return [type(node).__name__, *((name, _plain(value)) for name, value in ast.iter_fields(node) if value not in (None, []))]
    return list(map(_plain, node)) if isinstance(node, list) else node
