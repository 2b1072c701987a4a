"""The program that holds a local model: llama.cpp's own server, in a process of its own.

The law: a crash in native code must not take the runtime with it, so this runs as a child; and it
never outlives its parent, whatever that dies of. It imports nothing of ours, so that it starts
fast: `python -P server.py`, the order on stdin, one line on stdout once it listens.
"""

import ctypes
import json
import os
import signal
import sys
from importlib import import_module
from typing import Any

PR_SET_PDEATHSIG = 1
LOG_ERRORS = 1
CACHE_MIB = 1_024
"""Memory for the prompts of agents that take turns, so that none is read anew each time."""


def main() -> None:
    order: dict[str, Any] = json.loads(sys.stdin.buffer.readline())
    _exit_with_parent(order["parent"])
    server = _start_server(order)
    ready = json.dumps({"url": server.listening_address})
    print(ready, flush=True)  # noqa: T201 - the parent waits for it
    # The parent holds the other end and never writes again: what ends this is the parent's end.
    sys.stdin.buffer.read()
    os._exit(0)


def _exit_with_parent(parent: int) -> None:
    """Let the kernel end this process with its parent, even while a model is being loaded."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(0)


def _start_server(order: dict[str, Any]) -> Any:  # noqa: ANN401 - its library tells no types
    """A server that has loaded the model and listens on a free port, for as long as it is held."""
    library: Any = import_module("xllamacpp")
    settings = library.CommonParams()
    settings.model.path = order["path"]
    settings.model_alias = {order["alias"]}
    settings.n_ctx = order["window"]
    settings.hostnames = ["127.0.0.1"]
    settings.port = 0
    settings.api_keys = [order["key"]]
    settings.ui = False
    settings.endpoint_slots = False
    settings.verbosity = LOG_ERRORS
    # One request at a time, each with the whole window; others wait their turn.
    settings.n_parallel = 1
    settings.cache_ram_mib = CACHE_MIB
    settings.warmup = False
    settings.cpuparams.n_threads = order["threads"]
    settings.cpuparams_batch.n_threads = order["threads"]
    return library.Server(settings)


if __name__ == "__main__":
    main()
