"""The program that runs a local model: llama.cpp's own server, in its own process.

Invariant: it is a child process, so that a crash in native code cannot take the runtime with it,
and it never outlives its parent, however that ends. It imports nothing of Windlass, so that it
starts fast. Usage: `python -P server.py`, settings as JSON on stdin, one line on stdout once it
listens.
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
"""Memory for the prompts of agents that take turns, so that none is processed again each time."""


def main() -> None:
    settings: dict[str, Any] = json.loads(sys.stdin.buffer.readline())
    parent = settings["parent"]
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        # The parent may have ended before the call above.
        if os.getppid() != parent:
            os._exit(0)
    server = _start_server(settings)
    ready = json.dumps({"url": server.listening_address})
    print(ready, flush=True)  # noqa: T201 - the parent waits for it
    # The parent keeps stdin open and never writes again, so this returns when the parent has ended.
    sys.stdin.buffer.read()
    os._exit(0)


def _start_server(settings: dict[str, Any]) -> Any:  # noqa: ANN401 - its library has no types
    """Return a server that has loaded the model and listens on a free port.

    It runs for as long as the returned object is referenced.
    """
    library: Any = import_module("xllamacpp")
    params = library.CommonParams()
    params.model.path = settings["path"]
    params.model_alias = {settings["alias"]}
    params.n_ctx = settings["window"]
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.api_keys = [settings["key"]]
    params.ui = False
    params.endpoint_slots = False
    params.verbosity = LOG_ERRORS
    # One request at a time, each with the whole window; other requests wait.
    params.n_parallel = 1
    params.cache_ram_mib = CACHE_MIB
    params.warmup = False
    params.cpuparams.n_threads = settings["threads"]
    params.cpuparams_batch.n_threads = settings["threads"]
    return library.Server(params)


if __name__ == "__main__":
    main()
