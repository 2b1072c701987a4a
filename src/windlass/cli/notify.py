"""A sign to a person who looks elsewhere: a question waits, or a long run has ended.

The setting `notify` says how: the bell of the terminal, a message of the desktop (OSC 9, which many
terminals pass on), or a command of the user's own, which gets the message as its last argument.
Invariant: it never fails and is never waited for. A run does not depend on it.
"""

import shlex
import subprocess
import sys
from contextlib import suppress

from windlass.core.text_clip import printable_chars

LONG_RUN_S = 30.0
"""After a run that took so long, a person may be looking elsewhere."""
MESSAGE_CHARS_MAX = 200


def notify(how: str, message: str) -> None:
    """Give the sign. `how` is `bell`, `osc9`, `off`, or a command."""
    message = printable_chars(message)[:MESSAGE_CHARS_MAX]
    # A terminal that is gone, a command that does not exist, and quotes that do not match.
    with suppress(OSError, ValueError):
        match how:
            case "off" | "":
                pass
            case "bell":
                _write_code("\a")
            case "osc9":
                _write_code(f"\x1b]9;{message}\a")
            case _:
                subprocess.Popen(  # noqa: S603 - the user's own setting names it
                    [*shlex.split(how), message],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,
                )


def _write_code(code: str) -> None:
    """Write a code that moves no cursor to the terminal, and to nothing else."""
    for stream in (sys.stdout, sys.stderr):
        if stream.isatty():
            stream.write(code)
            stream.flush()
            return
