"""Every error with its fix: exceptions, failures, codes of the service, exit codes."""

import ast
import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import get_args

from reference.cells import table_cell
from windlass.cli.exit_codes import EXIT_CODE_TABLE
from windlass.core import errors
from windlass.server.dispatch import all_routes
from windlass.server.errors import _KNOWN_ERRORS  # pyright: ignore[reportPrivateUsage]

SERVER = Path(__file__).resolve().parents[2] / "src" / "windlass" / "server"
FAULTS: Mapping[str, tuple[str, str]] = {
    "rate_limit": ("the provider takes no more for now", "wait; lower the rate, or add fallbacks"),
    "auth": ("the key is missing, wrong or has no access", "set the key that the message names"),
    "context_overflow": ("the request is longer than the window", "turn on compaction"),
    "bad_request": ("the provider refused the request", "read its message; change the options"),
    "server": ("the provider failed", "nothing: it is asked again; add fallbacks"),
    "network": ("the connection failed or broke", "look at the network, the URL and the proxy"),
    "stalled": ("nothing came for too long", "raise `Timeouts`, if the model is that slow"),
    "incomplete_stream": ("the reply ended before its end", "nothing: it is asked again"),
    "malformed_stream": ("the reply could not be read", "look at the server behind `base_url`"),
    "other": ("a failure of another kind", "read the message"),
    "output_misfit": ("no reply fitted the output type", "simplify the type, or raise `retries`"),
    "tools": ("the tools themselves kept failing", "look at the servers of the tools"),
    "journal": ("the journal accepted no more records", "look at the disk or the database"),
    "bug": ("an exception that nobody expected", "report it, with its traceback"),
}
"""What each kind of failure means, and what a person can do."""


RUN_FAILED = ("424, 502", "The run failed.", "See `failures of a run` above; repeat it after 502.")
"""What an endpoint for OpenAI clients says; its code is the kind of failure, if that is known."""
EXCEPTIONS = """\
# Errors

## Exceptions

Sorted by who must act. Those that programs meet can be imported from `windlass`.
"""
FAILURES = """\
## Failures of a run

`result.error.kind`, and `ModelError.kind`. A kind that is asked again is first tried as often as
`RetryPolicy` says, then with the fallbacks.
"""
CODES = """\
## Codes of the service

Every error has the body `{"error": {"code": …, "message": …, "hint": …}}`. Programs look at the
code; it does not change. The endpoints of other protocols put the same into the shape of their
protocol.
"""


def build_errors() -> str:
    """Return the page."""
    tree = inspect.cleandoc(errors.__doc__ or "").partition("\n\n")[2]
    failures = ["| kind | asked again | what happened | what to do |", "|---|---|---|---|"]
    for kind in get_args(errors.FaultKind):
        happened, fix = FAULTS[kind]
        again = "yes" if kind in errors.RETRYABLE_KINDS else "no"
        failures.append(f"| `{kind}` | {again} | {happened} | {fix} |")
    codes = ["| code | status | what happened | what to do |", "|---|---|---|---|"]
    for code, (status, message, hint) in sorted(service_errors().items()):
        codes.append(f"| `{code}` | {status} | {table_cell(message)} | {table_cell(hint)} |")
    exits = ["| exit code | |", "|---|---|"]
    for line in EXIT_CODE_TABLE.strip().splitlines():
        number, _, words = line.strip().partition(" ")
        exits.append(f"| {number} | {table_cell(words.strip())} |")
    blocks = [
        f"{EXCEPTIONS}\n```text\n{tree}\n```",
        FAILURES,
        "\n".join(failures),
        CODES,
        "\n".join(codes),
        "## Exit codes of the command line",
        "\n".join(exits),
    ]
    return "\n\n".join(blocks) + "\n"


def service_errors() -> dict[str, tuple[str, str, str]]:
    """Return each code of the service with its statuses, what happened and what to do."""
    found: dict[str, list[tuple[str, str, str]]] = {"run_failed": [RUN_FAILED]}
    for kind, status, code, hint, _ in _KNOWN_ERRORS:
        message = inspect.cleandoc(kind.__doc__ or "").splitlines()[0]
        found.setdefault(code, []).append((str(status), message, hint))
    expected = sorted({code for route in all_routes() for code in route.errors})
    for path in sorted(SERVER.rglob("*.py")):
        for written, place in _raised_in(ast.parse(path.read_text("utf-8"))):
            # A code such as `…_not_found` stands for those of the routes that fit.
            pattern = re.escape(written).replace("…", r"\w+")
            fitting = [code for code in expected if re.fullmatch(pattern, code)]
            for code in fitting if "…" in written else [written]:
                found.setdefault(code, []).append(place)
    return {code: _join_places(places) for code, places in found.items()}


def _raised_in(tree: ast.Module) -> Iterator[tuple[str, tuple[str, str, str]]]:
    """Each error of a module: its code, and its status, what happened and what to do."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(
                func=ast.Name("ApiError" | "OpenAIError"),
                args=[ast.Constant(int(status)), code, message, *hints],
            ) if (words := _words_of(code)) != "…":
                hint = _words_of(hints[0]) if hints else ""
                yield words, (str(status), _words_of(message), hint)
            case _:
                pass


def _join_places(places: Sequence[tuple[str, str, str]]) -> tuple[str, str, str]:
    """One line for all the places that raise a code: each wording once."""
    columns = [list(dict.fromkeys(filter(None, column))) for column in zip(*places, strict=True)]
    statuses, messages, hints = columns
    return ", ".join(statuses), " / ".join(messages), " / ".join(hints)


def _words_of(node: ast.expr) -> str:
    """A message as people read it: what is put in at run time is an ellipsis."""
    match node:
        case ast.Constant(str(text)):
            return text
        case ast.JoinedStr(values):
            return "".join(_words_of(value) for value in values)
        case ast.BoolOp(values=values):
            return next((words for words in map(_words_of, values) if words != "…"), "")
        case ast.IfExp(body=body, orelse=other):
            return " / ".join(filter(None, (_words_of(body), _words_of(other))))
        case _:
            return "…"
