"""The versions that are compared, the machine and the date."""

import os
import platform
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from roster import WINDLASS, Peer

VERSION = "from importlib.metadata import version; import sys; print(version(sys.argv[1]))"


def peer_titles(peers: Sequence[Peer]) -> dict[str, str]:
    """Return the name and version of each peer."""
    return {peer.name: f"{peer.name} {_installed_version(peer)}" for peer in peers}


def machine_and_day() -> str:
    """Describe the machine, with the date."""
    model = ""
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [x for x in info.read_text("utf-8").splitlines() if x.startswith("model name")]
        model = f" ({names[0].partition(':')[2].strip()})" if names else ""
    day = time.strftime("%Y-%m-%d", time.gmtime())
    system = f"{platform.system()} {platform.machine()}"
    cores = f"{os.cpu_count()} cores{model}"
    return f"{day}, Python {platform.python_version()}, {system}, {cores}."


def _installed_version(peer: Peer) -> str:
    package = peer.packages[0].partition("[")[0] if peer.packages else WINDLASS.name
    command = [str(peer.python), "-c", VERSION, package]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
