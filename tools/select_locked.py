"""Print the locked requirements of the package with some extras, with their hashes.

    python tools/select_locked.py postgres jwt > selected.txt

`requirements/dev.txt` pins everything that any extra needs. An installation takes what its extras
need, and pip still checks every file. Needs nothing but Python.
"""

import re
import sys
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
_NAME = re.compile(r"[A-Za-z0-9._-]+")
VIA = re.compile(r"^ +#(?: via)? +([A-Za-z0-9._-]+)", re.MULTILINE)
"""A package that needs the one of the entry."""
ENTRY = re.compile(r"^[A-Za-z0-9][^\n]*\n(?:[ \t][^\n]*\n)*", re.MULTILINE)
"""A package of a lock file: its pin, its hashes, and who needs it."""


def normalize_name(requirement: str) -> str:
    """Return the name of a package as all spellings of it are compared."""
    found = _NAME.match(requirement)
    return re.sub(r"[-_.]+", "-", found[0]).lower() if found else ""


def select_locked(project: Mapping[str, Any], lock: str, extras: Sequence[str]) -> str:
    """Return the entries of a lock file that the project needs with these extras.

    Raises ValueError if there is no such extra, or the lock file lacks one of its packages.
    """
    entries = {normalize_name(entry): entry for entry in ENTRY.findall(lock)}
    wanted = list_direct(project, extras)
    missing = sorted(wanted - entries.keys())
    if missing:
        raise ValueError(f"the lock file does not have {', '.join(missing)}: run make lock")
    users = {
        name: {normalize_name(user) for user in VIA.findall(entry)}
        for name, entry in entries.items()
    }
    while more := {name for name in users if name not in wanted and users[name] & wanted}:
        wanted |= more
    return "".join(entries[name] for name in sorted(wanted))


def list_direct(project: Mapping[str, Any], extras: Iterable[str]) -> set[str]:
    """Return the packages that the project itself names, with these extras.

    Raises ValueError if there is no such extra.
    """
    optional = project["optional-dependencies"]
    found = list(project["dependencies"])
    for extra in extras:
        if extra not in optional:
            raise ValueError(f"there is no extra {extra!r}; there are {', '.join(optional)}")
        found += optional[extra]
    return set(map(normalize_name, found))


def main() -> None:
    """Print what the extras of the command line need."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    lock = (ROOT / "requirements" / "dev.txt").read_text("utf-8")
    try:
        sys.stdout.write(select_locked(project, lock, sys.argv[1:]))
    except ValueError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
