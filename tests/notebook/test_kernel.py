"""A notebook that is really executed, by a kernel of its own."""

from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

SETUP = """
import asyncio, os
os.environ.pop("OPENAI_API_KEY", None)
from windlass import Agent, tool
from windlass.gates import ask
from windlass.journals import MemoryJournal
from windlass.notebook import show
from windlass.testing import ScriptedModel, call, say

lifted = []

@tool
def lift(tonnes: int) -> str:
    "Lift a load."
    lifted.append(tonnes)
    return f"lifted {tonnes} t"

journal = MemoryJournal()
script = [call("lift", {"tonnes": 2}), "Two tonnes are up."]
agent = Agent(ScriptedModel(script), name="crane", tools=[lift], gate=ask(), journal=journal)
"""
FIND_BUTTONS = """
from ipywidgets import Button, Widget
from ipywidgets.widgets.widget import _instances
buttons = {each.description: each for each in _instances.values() if isinstance(each, Button)}
"""
CELLS = {
    "setup": SETUP,
    "agent": "agent",
    "live": 'result = await show(Agent(ScriptedModel([[say("Hel"), say("lo <b>.")]])), "Hi.")',
    "result": "result",
    "ask": 'waiting = await show(agent, "Lift two tonnes.", session="s")',
    "click": FIND_BUTTONS + 'print(lifted)\nbuttons["Allow"].click()',
    "after": "await asyncio.sleep(0.2)\nprint(lifted)",
    "message": "result.messages[0]",
    "no key": 'x = 1\nAgent("openai:gpt-5")',
    "sync": 'Agent(ScriptedModel(["Sync."])).run_sync("Hi.").text',
}


@pytest.fixture(scope="module")
def cells() -> dict[str, Any]:
    """The cells of the notebook after they were run, by name."""
    notebook = nbformat.v4.new_notebook()
    notebook.cells = [nbformat.v4.new_code_cell(code) for code in CELLS.values()]
    client = NotebookClient(notebook, timeout=50, kernel_name="python3", allow_errors=True)
    client.execute()
    return dict(zip(CELLS, notebook.cells, strict=True))


def html_in(cell: Any) -> str:
    return "".join(output.get("data", {}).get("text/html", "") for output in cell.outputs)


def printed_in(cell: Any) -> str:
    return "".join(output.get("text", "") for output in cell.outputs)


@pytest.mark.slow
def test_values_are_shown_rich(cells: dict[str, Any]) -> None:
    """U3: an agent, a result and a message, as HTML and as Markdown."""
    for name, words in (("agent", "crane"), ("result", "completed"), ("message", "Hi.")):
        assert words in html_in(cells[name])
        assert words in cells[name].outputs[0].data["text/markdown"]


@pytest.mark.slow
def test_a_run_is_shown_as_it_works_in_one_output(cells: dict[str, Any]) -> None:
    """U3: with one line; what the model wrote is text."""
    (output,) = cells["live"].outputs
    assert "Hello &lt;b&gt;." in output.data["text/html"]
    assert "completed" in output.data["text/html"]


@pytest.mark.slow
def test_a_question_has_buttons_and_a_click_goes_on(cells: dict[str, Any]) -> None:
    """U3, G6: the cell ends, nothing runs, and a click runs it."""
    assert any("widget-view" in str(output.get("data")) for output in cells["ask"].outputs)
    assert printed_in(cells["click"]) == "[]\n"
    assert printed_in(cells["after"]) == "[2]\n"


@pytest.mark.slow
def test_a_missing_key_is_one_line(cells: dict[str, Any]) -> None:
    """U3."""
    (error,) = cells["no key"].outputs
    (line,) = error.traceback
    assert line == (
        'ConfigError: no key for "openai". Set OPENAI_API_KEY, or pass key=. (line 2 of this cell)'
    )


@pytest.mark.slow
def test_run_sync_works_in_a_running_loop(cells: dict[str, Any]) -> None:
    assert cells["sync"].outputs[0].data["text/plain"] == "'Sync.'"
