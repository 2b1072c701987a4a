"""Small programs of ours that run as processes of their own, outside any sandbox.

Invariant: a helper runs only what this process read when it was started. Windlass may be installed
in the workspace, where a command of a model can change files: so a helper's source is read once,
when the module that needs it is imported, and handed over as text. It is run by the interpreter
that our environment was made from, without site packages and without the variables of Python. No
program is taken from a folder inside the workspace, or around it.
"""

import os
import pwd
import shutil
import sys
from importlib.abc import InspectLoader
from pathlib import Path

_TOP_LEVEL_PARTS = 2
"""Of the path of a folder such as `/opt`, which is shared by many programs."""
_BOOT = """
import sys, types
def load(name, source):
    module = sys.modules[name] = types.ModuleType(name)
    exec(compile(source, name, "exec"), module.__dict__)
    return module
"""


def build_program(*modules: str) -> str:
    """Return a program that loads these modules in this order, and calls `main()` of the last.

    The modules are imported already. They may import those before them, and otherwise only the
    standard library. Raises ImportError if the source of one cannot be read.
    """
    lines = [_BOOT]
    lines += [f"module = load({name!r}, {_read_source(name)!r})" for name in modules]
    return "\n".join([*lines, "module.main()\n"])


def _read_source(name: str) -> str:
    spec = sys.modules[name].__spec__
    loader = spec.loader if spec else None
    if isinstance(loader, InspectLoader):
        source = loader.get_source(name)
    elif spec is not None and spec.origin is not None:
        # pytest loads the modules of packages with a plugin itself, and knows no source.
        source = Path(spec.origin).read_text("utf-8")
    else:
        source = None
    if source is None:
        raise ImportError(f"the source of {name} is missing: install Windlass again", name=name)
    return source


def python_command(program: str) -> list[str]:
    """Return the command line that runs a program of `build_program`."""
    return [base_python(), "-I", "-S", "-W", "ignore", "-c", program]


def base_python() -> str:
    """Return the interpreter that our environment was made from; our own if it is not known.

    The one in an environment is a link or a copy, and may be inside the workspace.
    """
    # It lacks a public name; the module `venv` uses this one too.
    base: str = getattr(sys, "_base_executable", "") or sys.executable
    return base if os.access(base, os.X_OK) else sys.executable


def find_program(name: str, root: Path, path: str | None = None) -> str | None:
    """Return the path of a program on `PATH`, or None.

    None also if the author of the workspace could have put it there. A folder of the workspace, or
    a relative one, may be on `PATH`, with programs of a command or of a stranger in it. What is
    around the workspace counts as well: an agent may work in a part of what a stranger wrote, and
    nothing in it says reliably where that begins.
    """
    foreign = _outermost_folder(root.resolve())
    for folder in absolute_entries(path):
        if Path(folder).resolve().is_relative_to(foreign):
            continue
        found = shutil.which(name, path=folder)
        if found is not None and not Path(found).resolve().is_relative_to(foreign):
            return found
    return None


def absolute_entries(path: str | None = None) -> list[str]:
    """Return the folders of `PATH` that are the same whatever the current folder is."""
    folders = os.get_exec_path() if path is None else path.split(os.pathsep)
    return [folder for folder in folders if Path(folder).is_absolute()]


def _outermost_folder(root: Path) -> Path:
    """Return the highest folder around a workspace that is not the whole home folder or disk.

    Programs of the user are in folders such as `~/.local/bin` and `/opt/tools/bin`.
    """
    homes = {Path.home().resolve(), Path(pwd.getpwuid(os.geteuid()).pw_dir).resolve()}
    shared = {folder for home in homes for folder in (home, *home.parents)}
    found = root
    for folder in root.parents:
        if folder in shared or len(folder.parts) <= _TOP_LEVEL_PARTS:
            break
        found = folder
    return found


def find_repository(folder: Path) -> Path:
    """Return the root of the repository that a folder is in, or the folder itself."""
    places = (folder, *folder.parents)
    return next((place for place in places if (place / ".git").exists()), folder)
