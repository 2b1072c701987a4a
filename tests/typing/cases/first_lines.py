"""What a program writes first has the type that it looks like, for mypy as well as for pyright."""

from dataclasses import dataclass
from typing import assert_type

from windlass import Agent, RunResult


@dataclass
class Answer:
    town: str


agent = Agent("openai:gpt-5")
assert_type(agent, Agent[str])
assert_type(agent.run_sync("Which town?"), RunResult[str])

typed = Agent("openai:gpt-5", instructions="Be brief.", output_type=Answer)
assert_type(typed, Agent[Answer])
assert_type(typed.run_sync("Which town?"), RunResult[Answer])
assert_type(typed.run_sync("Which town?").output, Answer)


def count(counter: Agent[int]) -> None: ...


# expect: "Agent[str]"
count(agent)
# expect: "str"
wrong: int = agent.run_sync("Which town?").output
# expect: "steps"
Agent("openai:gpt-5", steps=3)
