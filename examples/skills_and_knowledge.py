"""How does an agent learn about a project? From AGENTS.md, skills and notes."""

import argparse
import asyncio
from pathlib import Path
from tempfile import mkdtemp

from windlass import Agent, knowledge_tools, project_instructions, recaller, skill_tool
from windlass.knowledge import Memory, Skills, SqliteKnowledge
from windlass.testing import ScriptedModel, call

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--model", help="such as openai:gpt-5; without one, a script answers")
note = {"text": "The jib takes two coats.", "title": "Jib"}
SCRIPT = [call("skill", {"name": "paint"}), call("remember", note), "Painted.", "Two coats."]

root = Path(mkdtemp())
(root / "AGENTS.md").write_text("Answer in one sentence.\n")
(root / "skills" / "paint").mkdir(parents=True)
head = "---\nname: paint\ndescription: How things are painted.\n---\n"
(root / "skills" / "paint" / "SKILL.md").write_text(f"{head}Sand it first.\n")


async def main() -> None:
    skills = Skills.from_project(root)
    with SqliteKnowledge(root / "notes.db") as store:
        memory = Memory(store, project="crane")
        agent = Agent(
            parser.parse_args().model or ScriptedModel(SCRIPT),
            instructions=project_instructions(root, skills=skills),
            tools=[skill_tool(skills), *knowledge_tools(memory)],
            knowledge=recaller(memory),
        )
        print((await agent.run("Paint the jib.")).text)
        print((await agent.run("How many coats does the jib take?")).text)


asyncio.run(main())
