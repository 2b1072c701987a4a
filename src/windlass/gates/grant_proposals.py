"""The pattern that is proposed when a person allows calls like one for the rest of a session.

Invariant: a proposal covers the call itself, and stays near to it: the same command of the same
program, the same folder, the same site. Where that would allow much more than the person has seen,
as with `rm` or `python`, nothing is proposed but exactly this call.
"""

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import urlsplit

from windlass.core.errors import ConfigError
from windlass.core.messages import ToolSpec
from windlass.gates.globs import HOLE
from windlass.gates.grants import make_grant
from windlass.gates.patterns import PreparedCall
from windlass.gates.shell_commands import SHELLS

SUBCOMMAND_PROGRAMS = frozenset(
    ("cargo", "docker", "gh", "git", "go", "kubectl", "npm", "pip", "pnpm", "poetry", "uv", "yarn")
)
"""Programs whose first word says what they do."""
RUNNERS = frozenset(("npm run", "pnpm run", "uv run", "yarn run", "poetry run", "docker run"))
"""Their next word says what they do."""
EXECUTING_PROGRAMS = frozenset(
    ("awk", "env", "eval", "exec", "find", "node", "perl", "php", "python", "python3", "ruby")
)
REACHING_PROGRAMS = frozenset(("curl", "nc", "rsync", "scp", "ssh", "wget"))
RISKY_PROGRAMS = frozenset(
    ("chmod", "chown", "dd", "doas", "kill", "mv", "rm", "sed", "su", "sudo", "tee", "xargs")
)
UNPROPOSED_PROGRAMS = SHELLS | EXECUTING_PROGRAMS | REACHING_PROGRAMS | RISKY_PROGRAMS
"""Programs that do whatever their arguments say."""
MODULE_WORDS = 3
"""Of a command such as `python -m pytest`."""


def propose_pattern(tool: ToolSpec, arguments: Mapping[str, Any]) -> str:
    """A pattern for calls like this one; empty if only exactly this call should be allowed."""
    call = PreparedCall(tool, arguments)
    name = call.main_argument
    value = call.argument_value(name) if name is not None else None
    if name is None or not isinstance(value, str):
        return ""
    match call.argument_kind(name):
        case "command":
            inner = _propose_command(call)
        case "path":
            folder = str(PurePosixPath(value).parent)
            inner = value if folder in (".", "/") else f"{folder}/**"
        case "url":
            inner = _propose_url(value)
        case "text":
            inner = ""
    pattern = f"{tool.name}({inner})" if inner else ""
    return pattern if pattern and covers_call(tool, arguments, pattern) else ""


def covers_call(tool: ToolSpec, arguments: Mapping[str, Any], pattern: str) -> bool:
    """Whether a pattern certainly covers a call."""
    try:
        make_grant(tool, arguments, pattern, ())
    except ConfigError:
        return False
    return True


def describe_reach(pattern: str) -> str:
    """What a pattern allows beside the call that was asked about, in words."""
    tool, _, inner = pattern.partition("(")
    inner = inner.removesuffix(")")
    if not inner:
        return f"every call of {tool}"
    if inner.endswith(" *"):
        return f"every command that begins with `{inner[:-2]}`"
    if inner.endswith("/**"):
        return f"{tool} for every file below {inner[:-3]}"
    if inner.endswith("/*"):
        return f"{tool} for everything at {inner[:-2]}"
    if "*" in inner:
        return f"every call of {tool} whose main argument looks like {inner}"
    return f"every call of {tool} for {inner}, whatever its other arguments are"


def _propose_command(call: PreparedCall) -> str:
    """The words that all parts of a command begin with, if they are parts of one program."""
    beginnings: set[str] = set()
    has_more = False
    for piece in call.pieces:
        if piece.is_aside:
            continue
        if piece.part is None or piece.doubt:
            return ""
        words = piece.part.spellings[0].split(" ")
        count = _count_leading_words(words)
        if not count or any(HOLE in word for word in words[:count]):
            return ""
        beginnings.add(" ".join(words[:count]))
        has_more = has_more or len(words) > count
    if len(beginnings) != 1:
        return ""
    beginning = beginnings.pop()
    return f"{beginning} *" if has_more else beginning


def _count_leading_words(words: list[str]) -> int:
    """How many words say what a command does; 0 if that takes all of them."""
    program = words[0]
    if program.startswith("python") and words[1:2] == ["-m"] and len(words) >= MODULE_WORDS:
        return MODULE_WORDS
    if program in UNPROPOSED_PROGRAMS or program[:1] in "<>" or "/" in program or "=" in program:
        return 0
    if program not in SUBCOMMAND_PROGRAMS:
        return 1
    if len(words) == 1 or words[1].startswith("-"):
        return 0
    if " ".join(words[:2]) in RUNNERS:
        return 3 if len(words) > 2 and words[2] not in UNPROPOSED_PROGRAMS else 0  # noqa: PLR2004
    return 2


def _propose_url(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}/*" if parts.netloc and "@" not in parts.netloc else ""
