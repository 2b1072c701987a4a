"""Clients of protocols that are not ours, from npm, pinned and kept in `.cache/node_clients`.

`python tests/support/node_clients.py` fetches them all; the tests do so too, each what it needs.
What cannot be had fails a test in CI, and skips it elsewhere, with the reason.
"""

import asyncio
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from mcp_servers import ROOT, ServerMissing, fetch_once, node_program, npm_install

CACHE = ROOT / ".cache" / "node_clients"
SCRIPTS = Path(__file__).resolve().parent / "node"
RUN_S = 60

PACKAGES: dict[str, tuple[str, ...]] = {
    "a2a": ("@a2a-js/sdk@1.3.0",),
    "acp": ("acpx@0.19.1",),
    "ag_ui": ("@ag-ui/client@1.0.0",),
    "mcp": ("@modelcontextprotocol/inspector@2.12.0",),
    "openai": ("ai@6.0.326", "@ai-sdk/openai@3.0.139", "@ai-sdk/openai-compatible@2.0.87"),
    "page": ("axe-core@4.14.0", "typescript@7.0.2"),
}
"""Each has its own folder."""


def fetch_packages(name: str) -> Path:
    """Return the folder with the packages of one protocol. Raises ServerMissing."""
    folder = CACHE / name
    with fetch_once(folder, PACKAGES[name]) as needed:
        if needed:
            folder.mkdir(parents=True)
            npm_install(folder, PACKAGES[name])
    return folder


def require_packages(name: str) -> Path:
    """Return the folder with the packages, for a test."""
    try:
        return fetch_packages(name)
    except ServerMissing as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(f"cannot be fetched here: {error}")


async def run_script(folder: Path, script: str, *arguments: str) -> Any:
    """Run a script of `tests/support/node`, and return the JSON that it prints at its end."""
    source = (SCRIPTS / script).read_text("utf-8")
    # Modules are looked up from the folder of the script.
    place = folder / script
    if not place.exists() or place.read_text("utf-8") != source:
        # Other workers may start it at this moment, so it is there whole or not at all.
        written = folder / f"{os.getpid()}.{script}"
        written.write_text(source, "utf-8")
        written.replace(place)
    process = await asyncio.create_subprocess_exec(
        node_program(),
        str(place),
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(RUN_S):
            printed, failed = await process.communicate()
    except TimeoutError:
        process.kill()
        await process.wait()
        raise
    assert process.returncode == 0, failed.decode()
    return json.loads(printed.decode().splitlines()[-1])


def main() -> None:
    for name in PACKAGES:
        began = time.monotonic()
        folder = fetch_packages(name)
        size = sum(each.stat().st_size for each in folder.rglob("*") if each.is_file())
        seconds = time.monotonic() - began
        sys.stdout.write(f"{name}: {seconds:.0f} s, {size / 2**20:.0f} MB\n")


if __name__ == "__main__":
    main()
