"""Write what a release is made of as CycloneDX 1.6, from the locks: no network, no clock.

    python tools/sbom.py > windlass.cdx.json

Every package that an installation with any extra would bring is a component, with its version, its
licence and the hashes of the lock; scope and extras say who gets it. Tools of development are not
in it. The same commit gives the same bytes.
"""

import json
import re
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from dependency_audit import ELSEWHERE
from select_locked import ENTRY, ROOT, VIA, list_direct, normalize_name, select_locked

_PIN = re.compile(r"^[^=\s]+==(?P<version>\S+)")
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")
_DEVELOPMENT = "dev"
_OWN_LOCKS = {"local": "local.txt"}
"""Extras that the lock for development does not have."""

Component = dict[str, Any]


def describe_release(root: Path) -> Component:
    """Return the whole document."""
    project = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]
    licences = json.loads((root / "requirements" / "audit.json").read_text("utf-8"))["licences"]
    entries, extras = read_entries(root, project)
    own = f"pkg:pypi/{project['name']}@{project['version']}"
    addresses = {name: _address(name, entry) for name, entry in entries.items()}
    components = [
        _describe_package(name, entry, extras[name], licences.get(name, {}))
        for name, entry in sorted(entries.items())
    ]
    needs: dict[str, set[str]] = {address: set() for address in addresses.values()}
    direct = list_direct(project, list_extras(project))
    needs[own] = {addresses[name] for name in direct if name in addresses}
    for name, entry in entries.items():
        for user in map(normalize_name, VIA.findall(entry)):
            if user in addresses:
                needs[addresses[user]].add(addresses[name])
    body = {
        "metadata": {"component": _describe_own(project, own)},
        "components": components,
        "dependencies": [
            {"ref": address, "dependsOn": sorted(needs[address])} for address in sorted(needs)
        ],
    }
    serial = uuid5(NAMESPACE_URL, json.dumps(body, sort_keys=True))
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{serial}",
        "version": 1,
        **body,
    }


def read_entries(
    root: Path, project: Mapping[str, Any]
) -> tuple[dict[str, str], dict[str, list[str]]]:
    """Return the entry of each package in its lock, and the extras that bring it: none, for all."""
    entries: dict[str, str] = {}
    extras: dict[str, list[str]] = {}
    for extra in ("", *list_extras(project)):
        lock = (root / "requirements" / _OWN_LOCKS.get(extra, "dev.txt")).read_text("utf-8")
        chosen = select_locked(project, lock, [extra] if extra else [])
        for entry in ENTRY.findall(chosen):
            if ELSEWHERE.search(entry.partition("\n")[0]):
                continue
            name = normalize_name(entry)
            if not extra:
                extras[name] = []
            elif name not in entries or extras[name]:
                extras.setdefault(name, []).append(extra)
            entries.setdefault(name, entry)
    return entries, extras


def list_extras(project: Mapping[str, Any]) -> list[str]:
    """Return the extras that users can install."""
    return sorted(set(project["optional-dependencies"]) - {_DEVELOPMENT})


def _describe_own(project: Mapping[str, Any], address: str) -> Component:
    return {
        "type": "library",
        "bom-ref": address,
        "name": project["name"],
        "version": project["version"],
        "description": project["description"],
        "licenses": [{"expression": project["license"]}],
        "purl": address,
    }


def _describe_package(
    name: str, entry: str, extras: list[str], licences: Mapping[str, str]
) -> Component:
    address = _address(name, entry)
    version = _version(entry)
    found: Component = {
        "type": "library",
        "bom-ref": address,
        "name": name,
        "version": version,
        "scope": "optional" if extras else "required",
        "licenses": [{"expression": licences[version]}] if version in licences else [],
        "purl": address,
        # One of these files is installed; which one depends on the machine.
        "hashes": [{"alg": "SHA-256", "content": one} for one in _HASH.findall(entry)],
    }
    if extras:
        found["properties"] = [{"name": "windlass:extra", "value": one} for one in extras]
    return found


def _address(name: str, entry: str) -> str:
    return f"pkg:pypi/{name}@{_version(entry)}"


def _version(entry: str) -> str:
    found = _PIN.match(entry)
    if found is None:
        raise ValueError(f"this entry of a lock pins no version: {entry.splitlines()[0]}")
    return found["version"]


def main() -> None:
    """Print the document."""
    sys.stdout.write(json.dumps(describe_release(ROOT), indent=1) + "\n")


if __name__ == "__main__":
    main()
