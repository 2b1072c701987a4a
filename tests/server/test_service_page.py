"""The page about the service: its commands work as printed."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from service_process import free_port, serve_process

pytestmark = pytest.mark.slow

PAGE = Path(__file__).parents[2] / "docs" / "service.md"
BLOCK = re.compile(r"^```console(?P<info>[^\n]*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)


def read_commands() -> list[str]:
    """Return the commands of the page that can be run, each with its continued lines."""
    commands: list[str] = []
    for block in BLOCK.finditer(PAGE.read_text()):
        if "no-run" in block["info"]:
            continue
        continues = False
        for line in block["text"].splitlines():
            if line.startswith("$ "):
                commands.append(line[2:])
            elif continues:
                commands[-1] += f"\n{line}"
            continues = line.endswith("\\") and (continues or line.startswith("$ "))
    return commands


@pytest.mark.contract("A1")
def test_the_commands_of_the_page_work_as_printed(tmp_path: Path) -> None:
    commands = read_commands()
    assert len(commands) >= 8
    with serve_process(tmp_path, free_port()) as service:
        script = "set -e\nset -o pipefail\n"
        for command in commands:
            printed = command.replace("http://127.0.0.1:8420", service.address)
            script += f"echo '@@@'\n{printed}\necho\n"
        folder = Path(sys.executable).parent
        ran = subprocess.run(
            ["bash", "-c", script],
            env={
                **os.environ,
                "PATH": f"{folder}:/usr/bin:/bin",
                "WINDLASS_JOURNAL": str(tmp_path / "sessions.db"),
            },
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=50,
            check=False,
        )
    assert ran.returncode == 0, ran.stderr
    replies = ran.stdout.split("@@@")
    assert '{"session":"ann.report","run":1,"queued":0' in replies[2]
    assert "RunEnded" in replies[3]
    assert '"state":"completed"' in replies[4]
    assert '"error":{' not in ran.stdout
