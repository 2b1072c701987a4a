"""Lazy imports of our own modules: in one format that types, the import contract and a test read.

Invariant: a module that is imported by name, when it is first used, is listed in a table called
`LAZY_MODULES`, next to the same import under `TYPE_CHECKING`. Python reads the table; type checkers
and the import contract read the import. `tests/test_tidy.py` checks that the two agree, and that no
other text names a module of ours.

A package that offers names without loading their modules has this in its `__init__`:

    from typing import TYPE_CHECKING

    from windlass.lazy_modules import LazyModules, lazy_attributes

    if TYPE_CHECKING:
        from windlass.journals.memory import MemoryJournal as MemoryJournal
        from windlass.journals.sqlite.journal import SqliteJournal as SqliteJournal

    LAZY_MODULES: LazyModules = {
        "windlass.journals.memory": "MemoryJournal",
        "windlass.journals.sqlite.journal": "SqliteJournal",
    }
    if not TYPE_CHECKING:  # To a type checker, `__getattr__` would make every name a valid one.
        __getattr__ = lazy_attributes(__name__, LAZY_MODULES)

A name is in two places, because type checkers do not run code and Python does not import what only
they read. `Name as Name` tells them that the name is offered to others; `__all__` is made from the
table.

Any other module may have such a table, for example one of functions that few programs need. A name
in the table must not be the name of a submodule of the same package: once a submodule is imported,
Python sets it as an attribute of the package, and the two would replace each other.
"""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, TypeAlias

LazyModules: TypeAlias = Mapping[str, str]
"""The names that a module defines, with spaces between them, by the full name of the module."""


def find_homes(modules: LazyModules) -> dict[str, str]:
    """Return the module that defines each name of a table."""
    return {name: module for module, names in modules.items() for name in names.split()}


def lazy_attributes(importer: str, modules: LazyModules) -> Callable[[str], Any]:
    """Return the `__getattr__` (PEP 562) of a module, which imports what the table names.

    The value is then set on the module itself, so that each name is looked up here only once. The
    names are also listed by `dir()`, and those of a package are its `__all__`.
    """
    homes = find_homes(modules)
    namespace = vars(sys.modules[importer])
    namespace["__dir__"] = lambda: sorted({*namespace, *homes})
    if "__path__" in namespace:
        namespace["__all__"] = sorted(homes)

    def load_attribute(name: str) -> Any:  # noqa: ANN401 - whatever the module defines
        module = homes.get(name)
        if module is None:
            raise AttributeError(f"module {importer!r} has no attribute {name!r}")
        value = getattr(import_module(module), name)
        namespace[name] = value
        return value

    return load_attribute
