"""The core cannot wait: it pulls in nothing that could."""

import subprocess
import sys
from pathlib import Path

import pytest

import windlass.core

CORE = Path(windlass.core.__file__).parent
MODULES = [f"windlass.core.{path.stem}" for path in CORE.glob("[!_]*.py")]
FORBIDDEN = ("asyncio", "socket", "subprocess", "threading", "logging", "aiohttp")
# The front door of the package imports everything, so the core is imported past it.
PAST_THE_DOOR = f"""
import sys, types
sys.modules["windlass"] = types.ModuleType("windlass")
sys.modules["windlass"].__path__ = [{str(CORE.parent)!r}]
"""


def imported(*modules: str) -> set[str]:
    imports = "".join(f"import {module}\n" for module in modules)
    command = [sys.executable, "-c", f"{PAST_THE_DOOR}{imports}print(*sys.modules)"]
    return set(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())


@pytest.fixture(scope="module")
def pulled_in() -> set[str]:
    return imported(*MODULES) - imported()


def test_all_of_the_core_was_imported(pulled_in: set[str]) -> None:
    assert pulled_in.issuperset(MODULES)


@pytest.mark.parametrize("forbidden", FORBIDDEN)
def test_importing_the_core_pulls_in_nothing_that_waits(
    pulled_in: set[str], forbidden: str
) -> None:
    """L1: what decides is sync and pure."""
    assert forbidden not in pulled_in
