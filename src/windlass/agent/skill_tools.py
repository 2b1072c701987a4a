"""What a project tells its agents, as an agent is given it: instructions, and a tool for skills.

The law: the same files give the same text, byte for byte, so that prompt caches hold.
"""

import os
from typing import Any

from windlass.knowledge.instructions import read_instructions
from windlass.knowledge.skills import Skills
from windlass.tools.function import Tool, tool


def skill_tool(skills: Skills) -> Tool[..., Any]:
    """The tool `skill`, which reads one of these up."""
    return tool(skills.skill, name="skill", effect="read")


def project_instructions(
    root: str | os.PathLike[str],
    *,
    skills: Skills | None = None,
    folder: str | os.PathLike[str] | None = None,
    before: str = "",
) -> str:
    """Instructions for an agent that works in a project.

    What you say `before` comes first, then `AGENTS.md` from the root down to the folder where the
    work is done, then a line for each skill.
    """
    sections = [before.strip(), read_instructions(root, folder).text]
    sections.append(skills.catalogue if skills is not None else "")
    return "\n\n".join(part for part in sections if part)
