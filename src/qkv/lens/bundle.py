"""Bundling of JavaScript modules into one script, for pages that work offline from a single file.

Browsers refuse to import modules from files on the disk. So each module becomes a function that returns what it exports, and an
import of it becomes a constant. What our modules use is understood: named imports from files beside them, and `export` before
a declaration or `export { name } from "./file.js"`.
"""

import re
from pathlib import Path

IMPORT = re.compile(r'^import \{([^}]*)\} from "([^"]+)";$', re.MULTILINE)
REEXPORT = re.compile(r'^export \{([^}]*)\} from "([^"]+)";$', re.MULTILINE)
EXPORT = re.compile(r"^export (?=(?:async )?(?:function\*?|const|let|class) (\w+))", re.MULTILINE)


def bundle(entry: Path, name: str) -> str:
    """Return a script that sets window.`name` to an object with everything that the module `entry` exports."""
    modules: dict[Path, str] = {}
    _add(entry.resolve(), modules)
    code = "\n".join(modules.values())
    return f'"use strict";\n(() => {{\n{code}window.{name} = {_constant(entry.resolve(), modules)};\n}})();\n'


def _add(path: Path, modules: dict[Path, str], importing: tuple[Path, ...] = ()) -> None:
    """Add a module after all that it imports."""
    if path in importing:
        raise ValueError(f"{path.name} imports itself, by {', '.join(one.name for one in importing)}")
    if path in modules:
        return
    text = path.read_text(encoding="utf-8")
    for pattern in (IMPORT, REEXPORT):
        for _, file in pattern.findall(text):
            _add((path.parent / file).resolve(), modules, (*importing, path))
    exported = [match.group(1) for match in EXPORT.finditer(text)]
    exported += [one for names, _ in REEXPORT.findall(text) for one in _names(names)]

    def imported(match: re.Match[str]) -> str:
        other = (path.parent / match.group(2)).resolve()
        return f"const {{ {', '.join(_names(match.group(1)))} }} = {_constant(other, modules)};"

    for pattern in (IMPORT, REEXPORT):
        text = pattern.sub(imported, text)
    text = EXPORT.sub("", text)
    if re.search(r"^(import|export)\b", text, re.MULTILINE):
        raise ValueError(f"{path.name} has an import or an export of a form that is not bundled")
    modules[path] = ""  # its place gives its number
    modules[path] = f"const {_constant(path, modules)} = (() => {{\n{text}return {{ {', '.join(exported)} }};\n}})();\n"


def _constant(path: Path, modules: dict[Path, str]) -> str:
    """Return the name of the constant that holds a module's exports."""
    return f"module{[*modules].index(path)}"


def _names(names: str) -> list[str]:
    return [one.strip() for one in names.split(",") if one.strip()]
