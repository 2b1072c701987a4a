"""W4, U2: nobody is asked about a call that cannot succeed as things are now."""

from pathlib import Path
from typing import Any

import pytest

from windlass import Agent, Question
from windlass.core.messages import ToolResults
from windlass.core.verdicts import Allow
from windlass.testing import ScriptedModel, call
from windlass.tools.files.file_tools import file_tools
from windlass.tools.files.workspace import Workspace

pytestmark = pytest.mark.contract("W4", "U2")


async def test_an_edit_that_cannot_be_made_is_refused_and_the_next_is_asked_about(
    tmp_path: Path,
) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("def first():\n    return 1\n")
    asked: list[Any] = []

    async def approver(question: Question) -> Allow:
        asked.append(question)
        return Allow()

    def edit(old: str) -> Any:
        return call("edit", {"path": "notes.txt", "edits": [{"old": old, "new": "x"}]})

    model = ScriptedModel([[edit("def frist():")], [edit("def first():")], "Done."])
    agent = Agent(model, tools=file_tools(Workspace(tmp_path)), approver=approver)
    result = await agent.run("go")
    assert result.completed
    assert [question.arguments["edits"][0]["old"] for question in asked] == ["def first():"]
    results = model.prompts[1].messages[-1]
    assert isinstance(results, ToolResults)
    told = results.items[0].result.text
    assert "would fail" in told
    assert "The nearest text is at line 1: 'def first():'." in told
    assert file.read_text() == "x\n    return 1\n"
