"""Measure the code base: how many files one opens, how modules import one another, how small functions are.

PYTHONPATH=src python tests/house.py [--tree PATH] [--files] [--private [ROOM]] [--json] [--quick]

`--tree` measures another checkout; `--files` adds the files, tests, names, cycles and the import chain behind the figures;
`--private` lists only the short private functions that are used once. All but the traced training reads source code alone.
"""

import argparse
import ast
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

Function = ast.FunctionDef | ast.AsyncFunctionDef
KINDS = {"models", "objectives", "recipe", "recipes"}  # rooms whose classes are the kinds of models, objectives and recipes
LOADED = {"Translator", "Reader", "TextEncoder", "Generator", "TextGenerator", "Restorer", "Infiller"}  # loaded runs
LOADED_IN = {"runs", "inference"}
SHORT = 3  # lines of a function's body that is short
TRAININGS = ("translation", "bert")


class Class(NamedTuple):
    """A class at the top level of a module."""

    module: str
    name: str

    @property
    def room(self) -> str:
        return room(self.module)


class Test(NamedTuple):
    """A test for the type of a value: where it stands, and the class it tests for."""

    where: str
    tested: Class


def room(module: str) -> str:
    """Return the top-level package or module that a module belongs to."""
    return [*module.split("."), "__init__"][1]


class Module:
    """The syntax tree of one file, and the names that it imports."""

    def __init__(self, path: Path, name: str):
        self.path, self.name = path, name
        self.text = path.read_text(encoding="utf-8")
        self.tree = ast.parse(self.text)
        self.package = name if path.name == "__init__.py" else name.rpartition(".")[0]

    @cached_property
    def functions(self) -> list[Function]:
        return [node for node in ast.walk(self.tree) if isinstance(node, Function)]

    @cached_property
    def classes(self) -> dict[str, ast.ClassDef]:
        return {node.name: node for node in self.tree.body if isinstance(node, ast.ClassDef)}

    @cached_property
    def uses(self) -> Counter[str]:
        """How often each name is read, as a variable or as an attribute."""
        names = (node for node in ast.walk(self.tree) if isinstance(node, ast.Name | ast.Attribute))
        return Counter(node.id if isinstance(node, ast.Name) else node.attr for node in names if isinstance(node.ctx, ast.Load))

    def source_of(self, node: ast.ImportFrom) -> str:
        """Return the full name of the module that a `from` import reads."""
        if not node.level:
            return node.module or ""
        package = self.package.split(".")
        return ".".join([*package[: len(package) - node.level + 1], *([node.module] if node.module else [])])

    @cached_property
    def imported(self) -> dict[str, tuple[str, str]]:
        """Names that are imported anywhere in the file, each with its module and its name there."""
        found = {}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.ImportFrom):
                found |= {alias.asname or alias.name: (self.source_of(node), alias.name) for alias in node.names}
        return found


class House:
    """All modules of one checkout of the package."""

    def __init__(self, tree: Path):
        self.tree, self.root = tree, tree / "src" / "qkv"
        self.modules: dict[str, Module] = {}
        for path in sorted(self.root.rglob("*.py")):
            parts = path.relative_to(self.root.parent).with_suffix("").parts
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            self.modules[name] = Module(path, name)

    # Classes

    def class_named(self, module: Module, name: str) -> Class | None:
        """Return the class of the package that a name stands for in a module, through imports from one module to the next."""
        seen = set()
        while (module.name, name) not in seen:
            seen.add((module.name, name))
            if name in module.classes:
                return Class(module.name, name)
            source, name = module.imported.get(name, ("", name))
            if source not in self.modules:
                return None
            module = self.modules[source]
        return None

    def classes_in(self, module: Module, expression: ast.expr) -> Iterator[Class]:
        """Return the classes of the package that an expression names: `A`, `module.A`, `A | B`, `(A, B)`, a constant of these."""
        for node in ast.walk(expression):
            found = None
            if isinstance(node, ast.Name):
                found = self.class_named(module, node.id)
                constant = None if found else constant_of(module, node.id)
                if constant is not None:
                    yield from self.classes_in(module, constant)
            elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                source, name = module.imported.get(node.value.id, ("", ""))
                inner = self.modules.get(f"{source}.{name}")
                found = self.class_named(inner, node.attr) if inner else None
            if found:
                yield found

    @cached_property
    def kinds(self) -> set[Class]:
        """Classes of the rooms of models, objectives and recipes, what they derive from, and the classes of loaded runs."""
        found: set[Class] = set()
        for module in self.modules.values():
            if room(module.name) in KINDS:
                found |= {Class(module.name, name) for name in module.classes}
            if room(module.name) in LOADED_IN:
                found |= {Class(module.name, name) for name in module.classes if name in LOADED}
        queue = [each for each in found if each.room in KINDS]
        while queue:
            module_name, name = queue.pop()
            module = self.modules[module_name]
            for base in module.classes[name].bases:
                new = set(self.classes_in(module, base)) - found
                found |= new
                queue += new
        return {each for each in found if each.room != "base"}

    def type_tests(self) -> list[Test]:
        """Tests for kinds of models, objectives, recipes and loaded runs, outside the room that defines the class."""
        found = []
        for module in self.modules.values():
            for line, expression in type_tests_in(module.tree):
                tested = [each for each in self.classes_in(module, expression) if each in self.kinds]
                tested = [each for each in tested if each.room != room(module.name)]
                if tested:
                    found.append(Test(f"{self.short(module)}:{line}", tested[0]))
        return found

    @cached_property
    def kind_names(self) -> set[str]:
        """Names of kinds in recipes: the values that models and objectives declare for their key `kind`."""
        return {
            value.value
            for module in self.modules.values()
            if room(module.name) in ("models", "objectives")
            for definition in module.classes.values()
            for field in definition.body
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and field.target.id == "kind"
            for value in ast.walk(field.annotation)
            if isinstance(value, ast.Constant) and isinstance(value.value, str)
        }

    def kind_comparisons(self) -> list[str]:
        """Comparisons of a kind with the name of a model or an objective, outside the rooms that define them."""
        found = []
        for module in self.modules.values():
            if room(module.name) in KINDS:
                continue
            for node in ast.walk(module.tree):
                if isinstance(node, ast.Compare) and ast.unparse(node.left).split(".")[-1] == "kind":
                    compared = {c.value for c in ast.walk(node) if isinstance(c, ast.Constant)} & self.kind_names
                    found += [f"{self.short(module)}:{node.lineno} {ast.unparse(node)}"] if compared else []
        return found

    def names_used_twice(self) -> dict[str, list[str]]:
        """Public top-level names of classes that several modules use, each with these modules."""
        users = defaultdict(list)
        for module in self.modules.values():
            for name in module.classes:
                users[name].append(self.short(module))
        return {name: files for name, files in sorted(users.items()) if len(files) > 1 and not name.startswith("_")}

    # Functions

    def lengths(self) -> list[int]:
        """Lines of each function, from `def` to its end."""
        return [node.end_lineno - node.lineno + 1 for module in self.modules.values() for node in module.functions]  # type: ignore[operator]

    def one_statement(self) -> int:
        """How many functions have a body of a single statement."""
        return sum(len(body(node)) == 1 for module in self.modules.values() for node in module.functions)

    def short_private(self) -> list[str]:
        """Private functions of at most SHORT lines that are used once, as file:line name."""
        return [where for where, node in self.private_used_once() if body_lines(node) <= SHORT]

    def private_used_once(self) -> list[tuple[str, Function]]:
        """Private functions that are used once, each with its place."""
        found = []
        for module in self.modules.values():
            defined = Counter(node.name for node in module.functions)
            for node in module.functions:
                name = node.name
                if name.startswith("_") and not name.startswith("__"):
                    # A file that defines the name itself means its own function; where a name is defined twice, each has a share.
                    uses = module.uses[name] + sum(
                        other.uses[name]
                        for other in self.modules.values()
                        if other is not module and not any(each.name == name for each in other.functions)
                    )
                    if uses == defined[name]:
                        found.append((f"{self.short(module)}:{node.lineno} {name}", node))
        return found

    # Imports

    def imports(self, inside_functions: bool = False) -> dict[str, set[str]]:
        """The modules of the package that each module imports."""
        return {
            name: {found for found in self.imported_by(module, inside_functions) if found != name}
            for name, module in self.modules.items()
        }

    def imported_by(self, module: Module, inside_functions: bool) -> Iterator[str]:
        for node in import_statements(module.tree, inside_functions):
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names if alias.name in self.modules)
            elif (source := module.source_of(node)) in self.modules:
                inner = {alias.name for alias in node.names if f"{source}.{alias.name}" in self.modules}
                yield from (f"{source}.{name}" for name in inner)
                if len(inner) < len(node.names):
                    yield source

    def short(self, module: Module) -> str:
        return str(module.path.relative_to(self.root))


def constant_of(module: Module, name: str) -> ast.expr | None:
    """Return the tuple or union that a module assigns to a name at its top level."""
    for node in module.tree.body:
        if isinstance(node, ast.Assign) and any(isinstance(target, ast.Name) and target.id == name for target in node.targets):
            return node.value if isinstance(node.value, ast.Tuple | ast.BinOp) else None
    return None


def type_tests_in(tree: ast.AST) -> Iterator[tuple[int, ast.expr]]:
    """The line and the tested types of each `isinstance`, `issubclass`, `type(x) is` and class pattern."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("isinstance", "issubclass"):
            yield node.lineno, node.args[1]
        elif isinstance(node, ast.Compare) and re.match(r"type\(.*\)$", ast.unparse(node.left)):
            yield node.lineno, node.comparators[0]
        elif isinstance(node, ast.MatchClass):
            yield node.lineno, node.cls


def import_statements(node: ast.AST, inside_functions: bool) -> Iterator[ast.Import | ast.ImportFrom]:
    """All imports below a node but those for type checkers."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield child
        elif isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            continue
        elif inside_functions or not isinstance(child, Function):
            yield from import_statements(child, inside_functions)


def body(node: Function) -> list[ast.stmt]:
    """The statements of a function without its docstring."""
    return node.body[1:] if ast.get_docstring(node) is not None else node.body


def body_lines(node: Function) -> int:
    statements = body(node)
    return statements[-1].end_lineno - statements[0].lineno + 1 if statements else 0  # type: ignore[operator]


# Graphs


def components(graph: dict[str, set[str]]) -> list[list[str]]:
    """Strongly connected components, each after those that it points to (Tarjan 1972)."""
    number: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        number[node] = low[node] = len(number)
        stack.append(node)
        for other in sorted(graph[node]):
            if other not in number:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], number[other])
        if low[node] == number[node]:
            at = stack.index(node)
            found.append(stack[at:])
            del stack[at:]

    for node in sorted(graph):
        if node not in number:
            visit(node)
    return found


def cycles(graph: dict[str, set[str]]) -> list[list[str]]:
    return [sorted(component) for component in components(graph) if len(component) > 1]


def longest_chain(graph: dict[str, set[str]]) -> list[str]:
    """The longest path, a cycle counting as one node."""
    chains: dict[str, list[str]] = {}
    for component in components(graph):
        below = [chains[other] for node in component for other in graph[node] if other not in component]
        chain = [" + ".join(sorted(component)), *max(below, key=len, default=[])]
        chains |= dict.fromkeys(component, chain)
    return max(chains.values(), key=len)


def between_rooms(graph: dict[str, set[str]]) -> dict[str, set[str]]:
    """The graph of rooms; files at the top level, which put the package together, are left out."""
    rooms: dict[str, set[str]] = {room(module): set() for module in graph if module.count(".") > 1}
    for module, others in graph.items():
        if room(module) in rooms:
            rooms[room(module)] |= {room(other) for other in others} & rooms.keys() - {room(module)}
    return rooms


# From the command to the loss


def files_to_the_loss(tree: Path, training: str) -> dict[str, list[str]]:
    """Train a tiny model in a fresh process, and return the files on the way from the command to the loss.

    `opened`: files on the call stack when the model, the batches and the objective are built, when the model is first run, and
    when the loss is computed, from the command's own file (cli/train.py) on. `run`: all files with a function that runs before.
    """
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {"PYTHONPATH": str(tree / "src"), "QKV_CACHE": f"{folder}/cache", "OMP_NUM_THREADS": "1"}
        command = [sys.executable, __file__, "--tree", str(tree), "--trace", training]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=folder, check=False)
    if done.returncode:
        raise SystemExit(f"training {training} in {tree} failed:\n{done.stdout}{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def trace(tree: Path, training: str) -> None:
    """Train in this process, in the current folder; print the files as JSON."""
    lines = [" ".join(f"{letter}{number % 7}" for letter in "abcde"[: 2 + number % 4]) for number in range(60)]
    for name, part in (("train", lines[:40]), ("dev", lines[40:])):
        Path(f"{name}.tsv").write_text("".join(f"{line}\t{line[::-1]}\n" for line in part))
        Path(f"{name}.txt").write_text("".join(f"{line}\n\n" for line in part))
    common = ["training.steps=1", "training.warmup=1", "training.batch_tokens=256", "training.device=cpu"]
    common += ["training.precision=float32"]
    if training == "bert":
        own = ["data.text=train.txt", "data.dev=dev.txt", "data.length=32", "tokenizer.vocab=100"]
    else:
        own = ["data.train=train.tsv", "data.dev=dev.tsv", "tokenizer.shared.vocab=40", "score_dev=0"]
        own += ["model.width=16", "model.heads=2", "model.encoder_layers=1", "model.decoder_layers=1"]
    recipe = "bert-mini" if training == "bert" else "transformer-small"
    sys.argv = ["qkv", "train", recipe, "--out", "run", *(part for key in common + own for part in ("--set", key))]
    watch = Watch(tree / "src" / "qkv")
    from qkv import cli

    sys.setprofile(watch)
    try:
        cli.main()
    except SystemExit as end:
        if end.code:
            raise
    finally:
        sys.setprofile(None)
    if missing := [moment for moment in MOMENTS if moment not in watch.files]:
        raise SystemExit(f"never seen: {', '.join(missing)}")
    opened = set().union(*watch.files.values()) - {"cli/__init__.py"}  # which dispatches all verbs
    print(json.dumps({"opened": sorted(opened), "run": sorted(watch.run)}))


MOMENTS = ("model", "batches", "objective", "forward", "loss")


class Watch:
    """A profiler that keeps the files on the call stack at the first call of each moment."""

    def __init__(self, root: Path):
        self.root = f"{root.resolve()}{os.sep}"
        self.files: dict[str, set[str]] = {}
        self.run: set[str] = set()  # files with a function that was called before the loss

    def __call__(self, frame: Any, event: str, _: Any) -> None:
        if event != "call" or "loss" in self.files:
            return
        name, file = frame.f_code.co_name, frame.f_code.co_filename.removeprefix(self.root)
        if file != frame.f_code.co_filename and file not in self.run and "<module>" not in self.stack(frame).values():
            self.run.add(file)
        if name in ("__init__", "forward", "cross_entropy_sum"):
            moment = self.moment(frame)
            if moment is not None and moment not in self.files:
                self.files[moment] = set(self.stack(frame))

    def stack(self, frame: Any) -> dict[str, str]:
        """Return the files of the package on the call stack, each with the name of its outermost code."""
        found = {}
        while frame is not None:
            if frame.f_code.co_filename.startswith(self.root):
                found[frame.f_code.co_filename.removeprefix(self.root)] = frame.f_code.co_name
            frame = frame.f_back
        return found

    def moment(self, frame: Any) -> str | None:
        """Return the moment that a call is: by its name, and by the class of its `self`."""
        name = frame.f_code.co_name
        if name == "cross_entropy_sum":
            return "loss"
        # Classes, not files: a class may inherit its __init__, and a dataclass's is in no file.
        kind = type(frame.f_locals.get("self"))
        here = room(kind.__module__) if kind.__module__.startswith("qkv.") else ""
        if name == "forward":
            return "forward" if here in ("models", "parts") else None
        if here == "models" and hasattr(kind, "forward"):
            return "model"
        if here == "objectives" and hasattr(kind, "loss"):
            return "objective"
        return "batches" if here == "data" and "Batches" in kind.__name__ else None


# The table


def measure(tree: Path, quick: bool = False) -> dict[str, Any]:
    """Return all figures, and the lists behind them."""
    house = House(tree)
    graph, everywhere = house.imports(), house.imports(inside_functions=True)
    tests = house.type_tests()
    traced = {} if quick else {training: files_to_the_loss(tree, training) for training in TRAININGS}
    twice = house.names_used_twice()
    private = house.short_private()
    chain = longest_chain(graph)
    return {
        "figures": {
            **{f"files from `qkv train` to the loss, {training}": len(files["opened"]) for training, files in traced.items()},
            **{
                f"files with a function that runs before the loss, {training}": len(files["run"])
                for training, files in traced.items()
            },
            "type tests on models, objectives, recipes, loaded runs outside their rooms": len(tests),
            "files with such tests": len({test.where.split(":")[0] for test in tests}),
            "comparisons of a kind with the name of a model or an objective outside their rooms": len(house.kind_comparisons()),
            "public class names used for more than one class": len(twice),
            f"private functions of at most {SHORT} lines used once": len(private),
            f"private functions of at most {SHORT} statements used once": sum(
                len(body(node)) <= SHORT for _, node in house.private_used_once()
            ),
            "private functions used once": len(house.private_used_once()),
            "functions of one statement": house.one_statement(),
            "functions in all": len(house.lengths()),
            "median lines of a function": statistics.median(house.lengths()),
            "import cycles between modules": len(cycles(graph)),
            "import cycles between modules, imports inside functions too": len(cycles(everywhere)),
            "import cycles between rooms": len(cycles(between_rooms(graph))),
            "import cycles between rooms, imports inside functions too": len(cycles(between_rooms(everywhere))),
            "longest import chain, in modules": len(chain),
            "files": len(house.modules),
            "lines": sum(len(module.text.splitlines()) for module in house.modules.values()),
        },
        "files to the loss": {training: files["opened"] for training, files in traced.items()},
        "files run before the loss": {training: files["run"] for training, files in traced.items()},
        "type tests": [f"{test.where} {test.tested.name}" for test in tests],
        "comparisons of kinds": house.kind_comparisons(),
        "names used twice": twice,
        "short private functions": private,
        "cycles": cycles(graph) + cycles(everywhere) + cycles(between_rooms(graph)) + cycles(between_rooms(everywhere)),
        "longest import chain": chain,
    }


def show(found: dict[str, Any], details: bool) -> None:
    """Print the figures as a Markdown table, and on demand the lists behind them."""
    rows = [("what", "how many"), ("---", "---:"), *((name, f"{value:,}") for name, value in found["figures"].items())]
    print("\n".join(f"| {name} | {value} |" for name, value in rows))
    for name, value in found.items() if details else ():
        if name in ("figures", "short private functions"):
            continue
        parts = (f"{key}: {', '.join(items)}" for key, items in value.items()) if isinstance(value, dict) else value
        lines = [part if isinstance(part, str) else ", ".join(part) for part in parts]
        print(f"\n## {name}\n" + "\n".join(f"- {line}" for line in lines))


def main(arguments: Iterable[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tree", type=Path, default=Path(__file__).parents[1], help="the checkout to measure")
    parser.add_argument("--files", action="store_true", help="list what lies behind the figures")
    parser.add_argument("--private", nargs="?", const="", metavar="ROOM", help="list short private functions used once")
    parser.add_argument("--json", action="store_true", help="print everything as JSON")
    parser.add_argument("--quick", action="store_true", help="leave the traced training out")
    parser.add_argument("--trace", choices=TRAININGS, help=argparse.SUPPRESS)
    options = parser.parse_args(None if arguments is None else list(arguments))
    tree = options.tree.resolve()
    if options.trace:
        trace(tree, options.trace)
    elif options.private is not None:
        listed = [line for line in House(tree).short_private() if not options.private or line.startswith(f"{options.private}/")]
        print("\n".join([*listed, f"{len(listed)} in all"]))
    elif options.json:
        print(json.dumps(measure(tree, options.quick), indent=1))
    else:
        show(measure(tree, options.quick), options.files)


if __name__ == "__main__":
    main()
