"""The peers that are compared, each with its own environment in `.cache/peers`.

Run as a script, it installs all of them. A peer that cannot be installed is named and left out; it
never stops the others.
"""

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
CACHE = ROOT / ".cache" / "peers"
FETCH_S = 420
STAMP = ".fetched"


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """A contestant: the packages of its environment, and the driver that runs it."""

    name: str
    packages: tuple[str, ...] = ()
    """The version of the first one is shown. Without packages: the environment of this program."""

    @property
    def driver(self) -> Path:
        return HERE / "drivers" / f"{self.name.replace('-', '_')}_driver.py"

    @property
    def python(self) -> Path:
        return CACHE / self.name / "bin" / "python" if self.packages else Path(sys.executable)

    @property
    def is_ready(self) -> bool:
        stamp = CACHE / self.name / STAMP
        return not self.packages or (
            stamp.is_file() and stamp.read_text("utf-8") == self._requirements_stamp
        )

    @property
    def _requirements_stamp(self) -> str:
        return "\n".join(self.packages)

    def fetch_environment(self) -> str:
        """Make its environment. Returns why that failed, or an empty text."""
        if self.is_ready:
            return ""
        folder = CACHE / self.name
        create = [sys.executable, "-m", "venv", "--clear", str(folder)]
        # With the bytecode, as an installed package has it: importing must not compile.
        install = [str(self.python), "-m", "pip", "--disable-pip-version-check", "install"]
        install += ["--quiet", "--compile", *self.packages]
        for command in (create, install):
            if failed := _run_quietly(command):
                return failed
        (folder / STAMP).write_text(self._requirements_stamp, "utf-8")
        return ""


WINDLASS = Peer(name="windlass")
PEERS: tuple[Peer, ...] = (
    Peer(name="pydantic-ai", packages=("pydantic-ai-slim[openai,dbos]",)),
    Peer(name="openai-agents", packages=("openai-agents",)),
    Peer(
        name="langgraph",
        packages=("langgraph", "langchain", "langchain-openai", "langgraph-checkpoint-sqlite"),
    ),
    Peer(name="smolagents", packages=("smolagents[openai]",)),
    # With packages that it imports without declaring them.
    Peer(name="qwen-agent", packages=("qwen-agent", "tqdm", "soundfile", "python-dateutil")),
    Peer(name="strands", packages=("strands-agents[openai]",)),
)
CONTESTANTS: tuple[Peer, ...] = (WINDLASS, *PEERS)


def choose_peers(names: Sequence[str]) -> list[Peer]:
    """Return Windlass and the named peers that are installed. Others are reported and left out."""
    found: list[Peer] = []
    for peer in CONTESTANTS:
        if peer.packages and names and peer.name not in names:
            continue
        if peer.is_ready:
            found.append(peer)
        else:
            print(f"{peer.name} is not installed: run `make bench-peers`")
    return found


def _run_quietly(command: Sequence[str]) -> str:
    inherited = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=FETCH_S, env=inherited, check=False
        )
    except subprocess.TimeoutExpired:
        return f"not within {FETCH_S} s"
    if done.returncode == 0:
        return ""
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    return lines[-1] if lines else f"exit code {done.returncode}"


def main() -> None:
    CACHE.mkdir(parents=True, exist_ok=True)
    (CACHE / ".gitignore").write_text("*\n", "utf-8")
    for peer in PEERS:
        failed = peer.fetch_environment()
        print(f"{peer.name}: {failed or 'ready'}", flush=True)


if __name__ == "__main__":
    main()
