"""The program of the code interpreter: runs pieces of code, one after another, in one namespace.

It runs in the sandbox without the rest of the package, with whatever Python 3 is there. It reads
requests from a named pipe, one line of JSON each, and writes each reply into a file, which is
complete once it has its name.
"""

import ast
import base64
import contextlib
import io
import json
import os
import sys
import traceback
from typing import Any

OUTPUT_CHARS_MAX = 200_000
FIGURES_MAX = 4


def collect_figures() -> "list[str]":
    """Return the open figures of matplotlib as PNG in base64, and close them."""
    plots: Any = sys.modules.get("matplotlib.pyplot")
    if plots is None:
        return []
    images: list[str] = []
    for number in plots.get_fignums()[:FIGURES_MAX]:
        data = io.BytesIO()
        plots.figure(number).savefig(data, format="png")
        images.append(base64.b64encode(data.getvalue()).decode())
    plots.close("all")
    return images


def run_code(code: str, names: "dict[str, Any]") -> None:
    """Run a piece of code, and print the value of its last expression, as a notebook does."""
    tree = ast.parse(code, "<python>")
    last = None
    end = tree.body[-1] if tree.body else None
    if isinstance(end, ast.Expr):
        tree.body.pop()
        last = ast.Expression(end.value)
    exec(compile(tree, "<python>", "exec"), names)  # noqa: S102 - its task
    if last is not None:
        value = eval(compile(last, "<python>", "eval"), names)  # noqa: S307 - as above
        if value is not None:
            print(repr(value))  # noqa: T201 - what the model reads


def answer(request: "dict[str, str]", names: "dict[str, Any]") -> "dict[str, Any]":
    """Return the reply to one request."""
    output = io.StringIO()
    failed = False
    images: list[str] = []
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        try:
            run_code(request["code"], names)
            images = collect_figures()
        except BaseException:  # noqa: BLE001 - also SystemExit: the interpreter goes on
            failed = True
            traceback.print_exc()
    text = output.getvalue()
    if len(text) > OUTPUT_CHARS_MAX:
        half = OUTPUT_CHARS_MAX // 2
        left_out = len(text) - OUTPUT_CHARS_MAX
        text = f"{text[:half]}\n[… {left_out} characters …]\n{text[-half:]}"
    return {"output": text, "failed": failed, "images": images}


def serve(folder: str) -> None:
    """Answer requests until the pipe is removed."""
    names: dict[str, Any] = {"__name__": "__main__"}
    while True:
        with open(os.path.join(folder, "requests"), encoding="utf-8") as requests:  # noqa: PTH118, PTH123
            for line in requests:
                request = json.loads(line)
                reply = json.dumps(answer(request, names))
                path = os.path.join(folder, request["reply"])  # noqa: PTH118
                with open(f"{path}.part", "w", encoding="utf-8") as file:  # noqa: PTH123
                    file.write(reply)
                os.rename(f"{path}.part", path)  # noqa: PTH104


def main() -> None:
    """Run as a program: its argument is the folder of the pipe."""
    sys.path.insert(0, os.getcwd())  # noqa: PTH109
    serve(sys.argv[1])
