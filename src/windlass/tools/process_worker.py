"""Runs one call of a tool in its own process: the other end of `process_calls`.

Standard input brings the length of a request and the request, as JSON: the function and its
arguments. The answer goes to standard output in the same form. Then the process waits to be killed,
together with whatever the tool has started.

Invariant: if the process that started this one dies, standard input ends, and this process kills
its whole group.
"""

import json
import os
import runpy
import signal
import sys
import threading
from collections.abc import Callable
from importlib import import_module
from typing import Any, BinaryIO, cast

import msgspec

from windlass.core.errors import ModelRetry
from windlass.tools.function import Tool
from windlass.tools.run_context import RunContext
from windlass.tools.signature import ToolSignature, read_signature

WORKER_NAME = "__windlass_worker__"
"""The `__name__` of a script that is run to find a tool in it. It is not `__main__`, so that the
script starts nothing."""


def serve_one_call() -> None:
    """Take one request from standard input, and answer it on standard output."""
    # What the tool prints must not get into the answer.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    _answer_request(sys.stdin.buffer, answers)


def _answer_request(requests: BinaryIO, answers: BinaryIO) -> None:
    size = int.from_bytes(requests.read(8), "big")
    request: dict[str, Any] = json.loads(requests.read(size))
    threading.Thread(target=_die_with_parent, args=(requests,), daemon=True).start()
    data = json.dumps(run_request(request)).encode()
    answers.write(len(data).to_bytes(8, "big") + data)
    answers.flush()
    threading.Event().wait()


def run_request(request: dict[str, Any]) -> dict[str, Any]:
    """Call the function, and return its value or its error as plain data."""
    try:
        value = msgspec.to_builtins(_call_function(request))
    except BaseException as error:  # noqa: BLE001 - it is raised again where the call was made
        name = type(error).__name__
        return {"error": name, "text": str(error), "retry": isinstance(error, ModelRetry)}
    return {"value": value}


def _call_function(request: dict[str, Any]) -> object:
    found: Any = _find_function(request["module"], request["script"], request["name"])
    function: Callable[..., object] = found
    if isinstance(found, Tool):
        signature: ToolSignature = found.signature
        function = cast("Callable[..., object]", found.function)
    elif request["is_plain"]:
        return function(**request["arguments"])
    else:
        signature = read_signature(function, request["name"])
    positional, named = signature.bind_arguments(request["arguments"], RunContext(deps=None))
    return function(*positional, **named)


def _find_function(module: str, script: str, name: str) -> object:
    found: Any
    if script:
        namespace = runpy.run_path(script, run_name=WORKER_NAME)
        first, *rest = name.split(".")
        found = namespace[first]
    else:
        found = import_module(module)
        rest = name.split(".")
    for part in rest:
        found = getattr(found, part)
    return found


def _die_with_parent(requests: BinaryIO) -> None:
    requests.read()
    os.killpg(0, signal.SIGKILL)
