"""Runs programs in children of a Python that has imported Windlass already.

A child is forked, so that it neither starts Python nor imports anything again: that is most of the
cost of a short program. What a program does to its own process stays there.
"""

import os
import runpy
import sys
import traceback
import warnings
from multiprocessing import get_context
from pathlib import Path

from no_network import loopback_only

IMPORTED = ["windlass", "windlass.project", "windlass.testing", "warm_python"]

_warm = get_context("forkserver")
_warm.set_forkserver_preload(IMPORTED)


def run_program(program: Path, cwd: Path, *, seconds: float) -> tuple[int | None, str, str]:
    """Run a program, and return its exit code (None: it did not end), its output and its errors."""
    stdout = cwd / ".stdout"
    stderr = cwd / ".stderr"
    child = _warm.Process(target=_run, args=(program, cwd, stdout, stderr))
    child.start()
    child.join(seconds)
    exit_code = child.exitcode
    if exit_code is None:
        child.kill()
        child.join()
    child.close()
    return exit_code, stdout.read_text("utf-8"), stderr.read_text("utf-8")


def _run(program: Path, cwd: Path, stdout: Path, stderr: Path) -> None:
    for number, path in enumerate((stdout, stderr), 1):
        with path.open("wb") as stream:
            os.dup2(stream.fileno(), number)
    for name in [name for name in os.environ if name.endswith("_API_KEY")]:
        del os.environ[name]
    os.chdir(cwd)
    sys.argv = [str(program)]
    warnings.simplefilter("error")
    try:
        with loopback_only():
            runpy.run_path(str(program), run_name="__main__")
    except SystemExit:
        raise
    except BaseException:  # noqa: BLE001 - as Python itself would
        traceback.print_exc()
        sys.exit(1)
