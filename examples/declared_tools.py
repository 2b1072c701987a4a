"""How does a program become a tool without Python? By a manifest that declares it."""

from pathlib import Path
from tempfile import mkdtemp

from windlass import Agent
from windlass.testing import ScriptedModel, call
from windlass.tools import load_tools

MANIFEST = """
[[tool]]
name = "sort_lines"
description = "Sort lines of text."
effect = "read"
timeout = 10
parameters = [
    { name = "text", type = "string", required = true },
    { name = "key", type = "integer", description = "the field to sort by" },
]
[tool.command]
argv = ["sort", "--key={key}"]
stdin = "{text}"
"""

manifest = Path(mkdtemp()) / "tools.toml"
manifest.write_text(MANIFEST)
asked = call("sort_lines", {"text": "jib 2\nhook 1\n; rm -rf 0\n", "key": 2})
model = ScriptedModel([asked, "Sorted."])
result = Agent(model, tools=load_tools(manifest)).run_sync("Sort them.")
print(result.messages[2].items[0].result.text.splitlines(), result.text)
