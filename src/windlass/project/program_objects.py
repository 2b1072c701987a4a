"""What `MODULE:NAME` on a command line names: an object of the user's own program.

One place for all commands that take a program, so that all of them tell a module that is missing
from a name that the module does not have.
"""

import importlib
import sys
from pathlib import Path
from types import FunctionType
from typing import Any

from windlass.core.errors import ConfigError
from windlass.core.suggestions import suggest_names


def import_object(target: str, *, example: str, suggested: tuple[type, ...]) -> Any:  # noqa: ANN401 - whatever the module has
    """Return what `MODULE:NAME` names; modules of the current folder are found too.

    If the module has no such name, the error suggests names of objects of the types in `suggested`.
    Raises ConfigError if the target is not written as MODULE:NAME, or does not exist.
    """
    module_name, _, attribute = target.partition(":")
    if not module_name or not attribute:
        raise ConfigError(f"{target!r}: write it as MODULE:NAME, such as {example}")
    if module_name.endswith(".py") or not all(map(str.isidentifier, module_name.split("."))):
        raise ConfigError(
            f"{target!r}: {module_name} is not the name of a module. Name it as Python imports it "
            f"from this folder: {example} for app.py, lib.{example} for lib/app.py"
        )
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and module_name.startswith(error.name):
            raise ConfigError(f"{target!r}: there is no module {error.name} here") from None
        raise
    if not hasattr(module, attribute):
        names = [
            name
            for name, value in vars(module).items()
            if isinstance(value, suggested) and not name.startswith("_")
            # A function that the module only imported is hardly what was meant.
            if not isinstance(value, FunctionType) or value.__module__ == module_name
        ]
        hint = suggest_names(attribute, names)
        raise ConfigError(f"{target!r}: the module {module_name} has no {attribute!r}.{hint}")
    return getattr(module, attribute)
