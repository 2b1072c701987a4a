"""A shell in an empty project, with a scripted provider, for tests at a real terminal."""

import os
import re
import sys
from pathlib import Path

from terminal import ROWS, Terminal
from windlass.testing import FaultServer

WINDLASS = [sys.executable, "-m", "windlass.cli"]


class WindlassShell:
    """A shell in an empty project, with a scripted provider."""

    def __init__(self, folder: Path, server: FaultServer) -> None:
        self.project = folder / "project"
        self.project.mkdir()
        self.server = server
        home = str(folder / "home")
        hidden = re.compile(".*COLOR.*|COLUMNS|LINES|.*_API_KEY|WINDLASS_.*")
        kept = {name: value for name, value in os.environ.items() if not hidden.fullmatch(name)}
        self.env = kept | {
            "HOME": home,
            "XDG_CONFIG_HOME": home,
            "XDG_STATE_HOME": home,
            "XDG_DATA_HOME": home,
            "OPENAI_BASE_URL": server.url,
            "OPENAI_API_KEY": "sk-test-0123456789abcdef",
            "PYTHONIOENCODING": "utf-8",
            "LC_ALL": "C.UTF-8",
        }

    def windlass(self, *args: str, width: int = 80, rows: int = ROWS, **env: str) -> Terminal:
        return Terminal(
            [*WINDLASS, *args], env=self.env | env, cwd=self.project, width=width, rows=rows
        )
