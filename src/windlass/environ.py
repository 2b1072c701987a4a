"""The environment in, plain values out: the one reader of it, with what a `.env` file adds."""

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

CAPTURE_VARIABLE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
CAPTURE_VALUES = ("true", "1", "span_only", "span_and_event")

SECRET_CHARS_MIN = 8
SECRET_SUFFIXES = ("APIKEY", "TOKEN", "SECRET", "PASSWORD", "PASSWD", "PASSPHRASE")
SECRET_WORDS = frozenset((*SECRET_SUFFIXES, "KEY", "CREDENTIAL", "CREDENTIALS", "COOKIE"))
HARMLESS_SUFFIXES = frozenset(
    ("FILE", "PATH", "DIR", "URL", "URI", "NAME", "USER", "TYPE", "ID", "COUNT")
)
URL_PASSWORD = re.compile(r"://[^\s/@:]*+:([^\s/@]++)@")
ASSIGNMENT = re.compile(r"\s*(?:export\s+)?([A-Za-z_]\w*)\s*=\s*(.*)")


def read_environment(folder: Path | None = None) -> Mapping[str, str]:
    """The environment, with what a `.env` file adds to it; what is set already stays as it is."""
    path = (folder or Path.cwd()) / ".env"
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        return os.environ
    return {**dict(parse_assignments(text)), **os.environ}


def xdg_folder(kind: str, default: str) -> Path:
    """The user's folder of a kind (CONFIG, STATE, CACHE) for Windlass."""
    named = os.environ.get(f"XDG_{kind}_HOME", "")
    return (Path(named) if Path(named).is_absolute() else Path.home() / default) / "windlass"


def captures_content(environ: Mapping[str, str] | None = None) -> bool:
    """Whether traces may hold what was said, as OpenTelemetry's own variable says."""
    environ = read_environment() if environ is None else environ
    return environ.get(CAPTURE_VARIABLE, "").strip().lower() in CAPTURE_VALUES


def find_secrets(environ: Mapping[str, str]) -> dict[str, str]:
    """The values that must not be seen, by the names of their variables, which say so.

    The password inside an address is one too, whatever its variable is called.
    """
    found = {name: value for name, value in environ.items() if _is_secret(name, value)}
    for name, value in environ.items():
        address = URL_PASSWORD.search(value) if "://" in value else None
        if address and len(address[1]) >= SECRET_CHARS_MIN:
            found.setdefault(name, address[1])
    return found


def _is_secret(name: str, value: str) -> bool:
    words = name.upper().split("_")
    says_so = words[-1] not in HARMLESS_SUFFIXES and (
        not SECRET_WORDS.isdisjoint(words) or words[-1].endswith(SECRET_SUFFIXES)
    )
    # Some variables name the file that the secret is in.
    return says_so and len(value) >= SECRET_CHARS_MIN and not _is_path(value)


def _is_path(value: str) -> bool:
    try:
        return "/" in value and Path(value).expanduser().exists()
    except (OSError, ValueError, RuntimeError):
        return False


def parse_assignments(text: str) -> Iterator[tuple[str, str]]:
    """The names and values of a `.env` file."""
    for line in text.splitlines():
        found = ASSIGNMENT.fullmatch(line)
        if found:
            yield found[1], _unquote_value(found[2].strip())


def _unquote_value(text: str) -> str:
    if text[:1] in ("'", '"'):
        end = text.find(text[0], 1)
        return text[1:end] if end > 0 else text[1:]
    return re.split(r"\s+#", text, maxsplit=1)[0].strip()
