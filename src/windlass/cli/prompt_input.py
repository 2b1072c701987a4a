"""The prompt of a run: words, standard input, images; and the schema of its reply."""

import os
import select
import stat
import sys
from collections.abc import Sequence
from typing import Any

import msgspec

from windlass.agent.attachments import attach
from windlass.cli.options import read_option_file
from windlass.core.errors import ConfigError
from windlass.core.messages import ContentPart, Label, TextPart
from windlass.core.schema import JsonSchema

PATIENCE_S = 3.0
"""How long standard input may be silent before a message says that it is being read."""


class PromptInput(msgspec.Struct, frozen=True):
    """A prompt, and how far its words are the person's own."""

    parts: tuple[ContentPart, ...]
    typed: str
    """What the person wrote on the command line."""
    labels: tuple[Label, ...]
    """What came in by a pipe or as an image may be private, and anyone may have made it."""


def read_prompt(words: Sequence[str], images: Sequence[str] = ()) -> PromptInput:
    """Read the prompt; raises ConfigError if it is empty."""
    typed = " ".join(words)
    text = typed
    labels: tuple[Label, ...] = ()
    if text == "-":
        # The prompt itself was piped in, as scripts do it.
        text = _read_stdin()
    elif _is_piped():
        piped = _read_stdin().rstrip("\n")
        text = "\n\n".join(part for part in (text, piped) if part)
        if typed and piped:
            labels = ("untrusted", "private")
    if not text.strip():
        raise ConfigError('the prompt is empty: write windlass run "…", or pipe it in')
    if images:
        # A picture can hold what a person keeps to themselves, and words that a stranger wrote.
        labels = ("untrusted", "private")
    parts = (TextPart(text), *(attach(image) for image in images))
    return PromptInput(parts, typed, labels)


def read_schema(path: str | None) -> dict[str, Any] | None:
    """The JSON Schema in a file; raises ConfigError if it is not one."""
    if path is None:
        return None
    try:
        schema = msgspec.json.decode(read_option_file(path, "--output-schema"), type=dict[str, Any])
    except msgspec.MsgspecError as error:
        raise ConfigError(f"--output-schema {path}: it is not a JSON object: {error}") from None
    try:
        JsonSchema(schema)
    except ConfigError as error:
        raise ConfigError(f"--output-schema {path}: {error}") from None
    return schema


def _is_piped() -> bool:
    """Whether standard input is a pipe, a file or a socket, and not a terminal."""
    try:
        mode = os.fstat(sys.stdin.fileno()).st_mode
    except (OSError, ValueError):
        # Standard input is not a file, as in a test that replaces it.
        return not sys.stdin.isatty()
    # /dev/null is a device, and so counts as "nothing was piped in".
    return stat.S_ISFIFO(mode) or stat.S_ISREG(mode) or stat.S_ISSOCK(mode)


def _read_stdin() -> str:
    """All of standard input. After PATIENCE_S, a message says that it is being waited for."""
    try:
        ready, _, _ = select.select([sys.stdin], [], [], PATIENCE_S)
        if not ready and not sys.stdin.isatty():
            message = "reading the prompt from standard input (to run without it: </dev/null)"
            print(f"windlass: {message}", file=sys.stderr)
    except (OSError, ValueError):
        pass  # An object that is not a file cannot be waited for, only read.
    try:
        return sys.stdin.read()
    except UnicodeDecodeError:
        raise ConfigError("standard input is not text (UTF-8)") from None
