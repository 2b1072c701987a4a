"""The shape of the source: lines, imports, the longest chain of imports, functions with one use."""

import ast
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2] / "src" / "windlass"
COMMON_NAME = 5
"""A file name that is used so often says little about the file."""


@dataclass(slots=True)
class ModuleShape:
    """What is counted in one module."""

    path: Path
    lines: int
    import_lines: int = 0
    imported: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])
    """Module and name of each `from … import`."""
    texts: set[str] = field(default_factory=set[str])
    """The modules of each plain `import`, and the strings: one that names a module imports it."""
    defined: list[str] = field(default_factory=list[str])
    """The names of its functions."""
    used: Counter[str] = field(default_factory=Counter[str])
    """How often it uses each name. An import is not a use."""


@cache
def read_source() -> Mapping[str, ModuleShape]:
    """Return the shape of each module, by its full name."""
    found: dict[str, ModuleShape] = {}
    for path in sorted(SOURCE.rglob("*.py")):
        parts = path.relative_to(SOURCE.parent).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        text = path.read_text("utf-8")
        found[name] = ModuleShape(path, len(text.splitlines()))
        for node in ast.walk(ast.parse(text, str(path))):
            _count_node(node, found[name])
    return found


def _count_node(node: ast.AST, shape: ModuleShape) -> None:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            shape.used[name] += 1
        case ast.Constant(value=str(text)):
            shape.texts.add(text)
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            shape.defined.append(name)
        case ast.ImportFrom(module=str(module), names=aliases):
            shape.import_lines += (node.end_lineno or node.lineno) - node.lineno + 1
            shape.imported.update((module, alias.name) for alias in aliases)
        case ast.Import(names=aliases):
            shape.import_lines += 1
            shape.texts.update(alias.name for alias in aliases)
        case _:
            pass


def measure_packages() -> dict[str, tuple[int, int]]:
    """Return lines and modules of each package; `windlass` is what is beside the packages."""
    lines: Counter[str] = Counter()
    modules: Counter[str] = Counter()
    for shape in read_source().values():
        parts = shape.path.relative_to(SOURCE).parts
        package = parts[0] if len(parts) > 1 else SOURCE.name
        lines[package] += shape.lines
        modules[package] += 1
    return {package: (lines[package], modules[package]) for package in sorted(lines)}


def measure_shape() -> dict[str, float]:
    """Return the figures of the whole source, by their names."""
    shapes = read_source().values()
    lines = sum(shape.lines for shape in shapes)
    return {
        "lines": lines,
        "modules": len(shapes),
        "import lines, %": 100 * sum(shape.import_lines for shape in shapes) / lines,
        "functions used in one place, %": _share_used_once(),
        "longest chain of imports": len(find_longest_chain()),
        "file names used five times or more": len(find_common_names()),
    }


def find_common_names() -> list[str]:
    """Return the file names that are used in too many folders."""
    names = Counter(shape.path.name for shape in read_source().values())
    del names["__init__.py"]
    return sorted(name for name, count in names.items() if count >= COMMON_NAME)


def find_longest_chain() -> list[str]:
    """Return the longest chain of modules that import one another, from its top to its end.

    Imports count wherever they are: inside of functions, under `TYPE_CHECKING`, and as the name of
    a module in a string, as the tables of lazy imports have it. A module that is in the chain
    already does not lengthen it.
    """
    imports = {name: sorted(_find_imports(name)) for name in read_source()}
    longest: dict[str, list[str]] = {}

    def chain_from(name: str) -> list[str]:
        if name not in longest:
            longest[name] = []  # ends a cycle
            below = [chain_from(other) for other in imports[name]]
            longest[name] = [name, *max(below, key=len)] if below else [name]
        return longest[name]

    return max((chain_from(name) for name in imports), key=len)


def _find_imports(importer: str) -> set[str]:
    """Return the modules of ours that a module imports."""
    known = read_source()
    shape = known[importer]
    inner = {(f"{module}.{name}", module) for module, name in shape.imported}
    named = {name if name in known else module for name, module in inner} | shape.texts
    return (named & known.keys()) - {SOURCE.name, importer}


def _share_used_once() -> float:
    """Return the share of functions whose name is used in exactly one place, in percent.

    Names are compared, and not what they are bound to.
    """
    defined = Counter(name for shape in read_source().values() for name in shape.defined)
    used: Counter[str] = Counter()
    for shape in read_source().values():
        used.update(shape.used)
    once = sum(1 for name, count in defined.items() if count == 1 and used[name] == 1)
    return 100 * once / defined.total()
