"""Checks the types of the page's modules, which stand in their comments, with TypeScript."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from mcp_servers import ROOT, node_program
from node_clients import fetch_packages

MODULES = ROOT / "src" / "windlass" / "server" / "page" / "static"
OPTIONS = {
    "strict": True,
    "noUncheckedIndexedAccess": True,
    "noUnusedLocals": True,
    "noUnusedParameters": True,
    "checkJs": True,
    "allowJs": True,
    "noEmit": True,
    "target": "es2023",
    "module": "esnext",
    "moduleResolution": "bundler",
    "lib": ["es2023", "dom", "dom.iterable"],
    "types": [],
}


def check_types() -> tuple[int, str]:
    """Return the exit code of the type checker, and what it says."""
    folder = fetch_packages("page")
    with tempfile.TemporaryDirectory() as place:
        config = Path(place) / "tsconfig.json"
        settings = {"compilerOptions": OPTIONS, "include": [str(MODULES / "*.js")]}
        config.write_text(json.dumps(settings), "utf-8")
        program = folder / "node_modules" / "typescript" / "bin" / "tsc"
        done = subprocess.run(
            [node_program(), str(program), "-p", str(config)],
            capture_output=True,
            text=True,
            check=False,
        )
    return done.returncode, done.stdout + done.stderr


if __name__ == "__main__":
    code, words = check_types()
    sys.stdout.write(words or "The types of the page fit.\n")
    sys.exit(code)
