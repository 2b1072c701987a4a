"""What a person is shown of a call before it runs holds no secret of the agent (W4)."""

from pathlib import Path

import pytest

from windlass import Agent
from windlass.agent.call_previews import preview_call
from windlass.agent.options import parts_of
from windlass.testing import ScriptedModel
from windlass.tools import Workspace, file_tools

SECRET = "the first line of it\nand the second one"


@pytest.mark.contract("W4")
@pytest.mark.parametrize(
    ("before", "content"), [(SECRET, "x"), ("x", SECRET), (SECRET, f"{SECRET}\nmore")]
)
async def test_a_secret_of_several_lines_is_not_shown_line_by_line(
    tmp_path: Path, before: str, content: str
) -> None:
    (tmp_path / "notes.txt").write_text(before)
    tools = file_tools(Workspace(tmp_path))
    parts = parts_of(Agent(ScriptedModel([]), tools=tools, secrets=[SECRET]))
    shown = await preview_call(parts, "write", {"path": "notes.txt", "content": content})
    assert shown is not None
    assert shown.note.endswith("The difference has a secret in it, and is not shown.")
    assert not shown.diff
