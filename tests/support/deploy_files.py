"""The files in `deploy/`, read as those programs read them that use them."""

import configparser
from pathlib import Path

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"


def read_instructions() -> list[tuple[str, str]]:
    """Return the instructions of the container file, with their arguments on one line."""
    text = (DEPLOY / "Containerfile").read_text().replace("\\\n", " ")
    lines = (line.strip() for line in text.splitlines())
    return [
        (line.split(None, 1)[0], line.split(None, 1)[1])
        for line in lines
        if line and not line.startswith("#")
    ]


def read_unit(name: str) -> dict[str, dict[str, str]]:
    parser = configparser.ConfigParser(interpolation=None, delimiters=("=",))
    parser.optionxform = str  # pyright: ignore[reportAttributeAccessIssue] - names keep their case
    parser.read_string((DEPLOY / name).read_text())
    return {section: dict(parser[section]) for section in parser.sections()}
