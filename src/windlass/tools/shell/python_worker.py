"""The program of the code interpreter: runs pieces of code, one after another, in one namespace.

It runs in the sandbox without the rest of the package, with whatever Python 3 is there. It reads
requests from a named pipe, one line of JSON each, and writes each reply into a file, which is
complete once it has its name. Code may call tools of the agent: such a call is a file in the same
way, and its result comes through a second pipe.
"""

import ast
import base64
import builtins
import contextlib
import inspect
import io
import json
import keyword
import os
import re
import sys
import threading
import traceback
import types
from typing import Any

OUTPUT_CHARS_MAX = 200_000
FIGURES_MAX = 4


MORE = "more_arguments"
TYPES = {"string": str, "integer": int, "number": float, "boolean": bool, "array": list}


class ToolError(Exception):
    """A tool was not run, or it failed. `kind` says which: denied, invalid, error, timed_out."""

    def __init__(self, text: str, kind: str) -> None:
        super().__init__(text)
        self.kind = kind


class ToolCaller:
    """Passes calls to the runtime, one at a time, from any thread."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._results = open_pipe(folder, "results")
        self._calls = 0
        self._lock = threading.Lock()

    def call(self, name: str, arguments: "dict[str, Any]") -> str:
        """Return the result of a call as text; raises ToolError if it has none."""
        request = json.dumps({"name": name, "arguments": arguments}, allow_nan=False)
        with self._lock:
            self._calls += 1
            write_whole(os.path.join(self._folder, f"call-{self._calls}.json"), request)  # noqa: PTH118
            result = json.loads(self._results.readline())
        if result["kind"] != "value":
            raise ToolError(result["text"], result["kind"])
        return str(result["text"])

    def make_function(self, spec: "dict[str, Any]") -> Any:  # noqa: ANN401 - what it returns is called
        """Return a function with the name, the parameters and the description of a tool."""
        signature = build_signature(spec["parameters"])

        def function(*positional: Any, **named: Any) -> str:  # noqa: ANN401 - as the schema says
            given = dict(signature.bind(*positional, **named).arguments)
            if MORE not in spec["parameters"].get("properties", {}):
                given.update(given.pop(MORE, {}))
            return self.call(spec["name"], given)

        function.__name__ = function.__qualname__ = python_name(spec["name"])
        function.__doc__ = spec["description"]
        function.__signature__ = signature
        return function


def build_signature(schema: "dict[str, Any]") -> inspect.Signature:
    """Return the parameters of a JSON Schema: what is required first."""
    properties = schema.get("properties", {})
    required = [name for name in properties if name in schema.get("required", ())]
    optional = [name for name in properties if name not in required]
    parameters: list[inspect.Parameter] = []
    empty: Any = inspect.Parameter.empty
    for name in required + optional:
        if not name.isidentifier() or keyword.iskeyword(name):
            continue  # It can still be given as **{"its-name": …}.
        node: dict[str, Any] = properties[name] if isinstance(properties[name], dict) else {}
        kind = node.get("type")
        hint = TYPES.get(kind, empty) if isinstance(kind, str) else empty
        default = empty if name in required else node.get("default")
        either = inspect.Parameter.POSITIONAL_OR_KEYWORD
        parameters.append(inspect.Parameter(name, either, default=default, annotation=hint))
    takes_more = len(parameters) < len(properties) or schema.get("additionalProperties", True)
    if takes_more and MORE not in properties:
        parameters.append(inspect.Parameter(MORE, inspect.Parameter.VAR_KEYWORD))
    return inspect.Signature(parameters, return_annotation=str)


def python_name(name: str) -> str:
    """Return the name of a tool as one that code can use."""
    plain = re.sub(r"\W", "_", name)
    return f"{plain}_" if keyword.iskeyword(plain) or plain[:1].isdigit() else plain


def define_tools(specs: "list[dict[str, Any]]", folder: str, names: "dict[str, Any]") -> None:
    """Define the tools of the agent as functions; `tools` has all of them."""
    caller = ToolCaller(folder)
    functions = {python_name(spec["name"]): caller.make_function(spec) for spec in specs}
    names["ToolError"] = ToolError
    names["tools"] = types.SimpleNamespace(**functions)
    # Code counts on what Python itself calls open, list or print.
    names.update({name: one for name, one in functions.items() if not hasattr(builtins, name)})


def write_whole(path: str, text: str) -> None:
    """Write a file that has its name only once it is complete."""
    with open(f"{path}.part", "w", encoding="utf-8") as file:  # noqa: PTH123
        file.write(text)
    os.rename(f"{path}.part", path)  # noqa: PTH104


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


def answer(request: "dict[str, Any]", names: "dict[str, Any]") -> "dict[str, Any]":
    """Return the reply to one request."""
    output = io.StringIO()
    failed = False
    images: list[str] = []
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        try:
            run_code(request["code"], names)
            images = collect_figures()
        except BaseException:  # noqa: BLE001 - also SystemExit: the interpreter continues
            failed = True
            traceback.print_exc()
    text = output.getvalue()
    if len(text) > OUTPUT_CHARS_MAX:
        half = OUTPUT_CHARS_MAX // 2
        left_out = len(text) - OUTPUT_CHARS_MAX
        text = f"{text[:half]}\n[… {left_out} characters …]\n{text[-half:]}"
    return {"output": text, "failed": failed, "images": images}


def open_pipe(folder: str, name: str) -> "io.TextIOWrapper":
    """Open a pipe from the runtime."""
    return open(os.path.join(folder, name), encoding="utf-8")  # noqa: PTH118, PTH123


def serve(folder: str) -> None:
    """Answer requests until the process is ended."""
    names: dict[str, Any] = {"__name__": "__main__"}
    for line in open_pipe(folder, "requests"):
        request = json.loads(line)
        if request["tools"]:
            define_tools(request["tools"], folder, names)
        reply = json.dumps(answer(request, names))
        write_whole(os.path.join(folder, request["reply"]), reply)  # noqa: PTH118


def main() -> None:
    """Run as a program: its argument is the folder of the pipe."""
    sys.path.insert(0, os.getcwd())  # noqa: PTH109
    serve(sys.argv[1])
