"""The groups of public names in the reference, and how types read there."""

import ast
import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import get_args

import windlass
from windlass.lazy_modules import LazyModules, find_homes


@dataclass(frozen=True, slots=True)
class PublicPage:
    """Public names of one module that have a page together."""

    file: str
    title: str
    module: str
    about: str
    within: tuple[str, ...] = ()
    """Only names that these modules define; all that no other page has, if empty."""

    def names(self) -> list[str]:
        """The names: classes, then functions, then what stands for a type or a value."""
        module = importlib.import_module(self.module)
        others = [
            prefix
            for page in PUBLIC_PAGES.values()
            if page.module == self.module and page is not self
            for prefix in page.within
        ]
        if self.within:
            found = [name for name in module.__all__ if self._defines(name, self.within)]
        else:
            found = [name for name in module.__all__ if not self._defines(name, others)]
        return sorted(found, key=lambda name: _kind_order(getattr(module, name)))

    def _defines(self, name: str, prefixes: Sequence[str]) -> bool:
        home = home_of(self.module, name)
        return any(home == prefix or home.startswith(f"{prefix}.") for prefix in prefixes)


def _kind_order(value: object) -> int:
    if inspect.isclass(value):
        return 0
    return 1 if inspect.isroutine(value) else 2


def home_of(module: str, name: str) -> str:
    """The module that defines a public name."""
    table: LazyModules = getattr(importlib.import_module(module), "LAZY_MODULES", {})
    return find_homes(table).get(name) or getattr(
        getattr(importlib.import_module(module), name), "__module__", ""
    )


FRONT_PAGES = (
    PublicPage("agents", "windlass: agents and runs", "windlass", "Agents, runs, limits, answers."),
    PublicPage(
        "messages",
        "windlass: messages and events",
        "windlass",
        "What is said, recorded and streamed.",
        ("windlass.core.events", "windlass.core.messages"),
    ),
    PublicPage(
        "projection",
        "windlass: views of a run",
        "windlass",
        "What people see of a run, folded from its events.",
        ("windlass.core.projection",),
    ),
    PublicPage(
        "exceptions",
        "windlass: errors",
        "windlass",
        "What programs catch.",
        ("windlass.core.errors",),
    ),
)
"""The names of `windlass` itself, which are too many for one page."""


def _package_pages() -> Iterator[PublicPage]:
    """A page for each package below `windlass` that has a public list."""
    for found in pkgutil.iter_modules(windlass.__path__, "windlass."):
        module = importlib.import_module(found.name) if found.ispkg else None
        if hasattr(module, "__all__"):
            about = (module.__doc__ or "").partition("\n")[0]
            yield PublicPage(found.name.rpartition(".")[2], found.name, found.name, about)


PUBLIC_PAGES = {page.file: page for page in (*FRONT_PAGES, *_package_pages())}


def describe_object(module: str, name: str) -> str:
    """The text below the assignment of a constant or an alias; empty if it has none."""
    for home in dict.fromkeys((home_of(module, name), *_homes(module, name), module)):
        try:
            tree = ast.parse(inspect.getsource(importlib.import_module(home)))
        except (ImportError, TypeError, ValueError):
            continue
        for node, text in zip(tree.body, tree.body[1:], strict=False):
            match node, text:
                case (
                    ast.Assign(targets=[ast.Name(found)]) | ast.AnnAssign(target=ast.Name(found)),
                    ast.Expr(ast.Constant(str(words))),
                ) if found == name:
                    return inspect.cleandoc(words)
                case _:
                    pass
    return ""


def _homes(module: str, name: str) -> list[str]:
    """The modules that the package imports the name from."""
    tree = ast.parse(inspect.getsource(importlib.import_module(module)))
    return [
        node.module
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module
        if any(alias.name == name for alias in node.names)
    ]


def show_type(kind: object) -> str:
    """A type as it would be written, without the modules of its names."""
    if inspect.isclass(kind) and not get_args(kind):
        return kind.__name__
    return re.sub(r"\b(?:[a-z_]\w*\.)+(?=[A-Za-z_])", "", str(kind))
