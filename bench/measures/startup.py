"""Start-up: `windlass --help`, and the first run of a program, as whole processes.

They run with compiled bytecode, as an installed package has it. Each process is timed from start to
end, or until its first request to a model arrives. The best time counts, because other load only
makes a process slower.
"""

import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

from meter import BenchRow, child_environment

RUN = """
from windlass import Agent
from windlass.testing import ScriptedModel
print(Agent(ScriptedModel(["Hello."])).run_sync("Hi.").text)
"""
FIRST_REQUEST = """
from windlass import Agent
from windlass.models import resolve_model
model = resolve_model("openai-compatible:m", base_url="http://127.0.0.1:{port}/v1", environ={{}})
Agent(model).run_sync("Hi.")
"""
AIMS_MS = {"windlass --help": 100.0, "a first scripted run": 150.0, "to the first request": 200.0}
FLOORS = {"python -c pass": "pass", "import click": "import click"}
OURS = {
    "windlass --help": "from windlass.cli import main; main(prog_name='windlass')",
    "a first scripted run": RUN,
}


def measure(rounds: int) -> list[BenchRow]:
    best = dict.fromkeys((*FLOORS, *AIMS_MS), float("inf"))
    with tempfile.TemporaryDirectory() as cache:
        for at in range(rounds + 1):
            for name, code in (FLOORS | OURS).items():
                taken_ms = _time_process(code, cache)
                if at > 0:  # The first round compiles.
                    best[name] = min(best[name], taken_ms)
            taken_ms = _time_first_request(cache)
            if at > 0:
                best["to the first request"] = min(best["to the first request"], taken_ms)
    return list(_make_rows(best))


def _make_rows(best: dict[str, float]) -> Iterator[BenchRow]:
    bare = best["python -c pass"]
    for name, aim in AIMS_MS.items():
        taken = best[name]
        yield BenchRow(name=f"{name}, in ms", floor=bare, windlass=taken, aim=aim)
        for floor in FLOORS:
            against = f"{name}, against {floor}"
            yield BenchRow(name=against, unit="ms wall", floor=best[floor], windlass=taken)


def _time_process(code: str, cache: str) -> float:
    """Return the milliseconds that a fresh interpreter with the same import path takes."""
    began = time.perf_counter()
    subprocess.run(
        [sys.executable, "-c", code, "--help"],
        env={**child_environment(), "PYTHONPYCACHEPREFIX": cache},
        stdout=subprocess.DEVNULL,
        check=True,
    )
    return (time.perf_counter() - began) * 1e3


def _time_first_request(cache: str) -> float:
    """Return the milliseconds from the start of a program to the first bytes of its request."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        code = FIRST_REQUEST.format(port=server.getsockname()[1])
        began = time.perf_counter()
        with subprocess.Popen(
            [sys.executable, "-c", code],
            env={**child_environment(), "PYTHONPYCACHEPREFIX": cache},
        ) as child:
            try:
                with server.accept()[0] as connection:
                    connection.recv(1)
                    return (time.perf_counter() - began) * 1e3
            finally:
                child.kill()
