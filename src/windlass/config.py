"""Files and environment in, plain values out. Nothing else in the package reads either."""

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

LINE = re.compile(r"\s*(?:export\s+)?([A-Za-z_]\w*)\s*=\s*(.*)")


def environment(folder: Path | None = None) -> Mapping[str, str]:
    """The environment, with what a `.env` file adds to it; what is set already stays as it is."""
    path = (folder or Path.cwd()) / ".env"
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        return os.environ
    return {**dict(assignments(text)), **os.environ}


def assignments(text: str) -> Iterator[tuple[str, str]]:
    """The names and values of a `.env` file."""
    for line in text.splitlines():
        found = LINE.fullmatch(line)
        if found:
            yield found[1], _value(found[2].strip())


def _value(text: str) -> str:
    if text[:1] in ("'", '"'):
        end = text.find(text[0], 1)
        return text[1:end] if end > 0 else text[1:]
    return re.split(r"\s+#", text, maxsplit=1)[0].strip()
