"""`windlass new`: a project with an agent, a policy, tests and a service, ready to be changed."""

import importlib.util
import keyword
import re
import shlex
from pathlib import Path
from string import Template

import click

from windlass.core.errors import ConfigError

NAME_LENGTH_MAX = 40
NAME = re.compile(r"[A-Za-z](?:[A-Za-z0-9_-]*[A-Za-z0-9])?")
"""Names that both a Python package and the `name` in `pyproject.toml` may have."""

AGENT = Template('''"""The agent of $name: its tools, its instructions and its limits."""

from dataclasses import dataclass, field
from pathlib import Path

from windlass import NOT_DONE, Agent, Limits, RunContext, Toolbox, tool
from windlass.gates import load_policy
from windlass.ports import Approver, GivenJournal, Model

MODEL = "openai:gpt-5"
POLICY = Path(__file__).parent.parent / "policy.toml"


@dataclass
class Orders:
    """What the tools work with. Replace it with your database."""

    prices: dict[int, int] = field(default_factory=lambda: {7: 1200, 8: 35})
    refunds: dict[str, int] = field(default_factory=dict[str, int])


@tool(effect="read")
def look_up(context: RunContext[Orders], order: int) -> str:
    """Look up what an order cost."""
    price = context.deps.prices.get(order)
    return "There is no such order." if price is None else f"It cost {price} USD."


def find_refund(context: RunContext[Orders], order: int, usd: int) -> object:
    """Find out after a crash whether the refund was made."""
    return "Refunded." if context.idempotency_key in context.deps.refunds else NOT_DONE


@tool(question="Refund {usd:,} USD for order {order}?", reconcile=find_refund)
def refund(context: RunContext[Orders], order: int, usd: int) -> str:
    """Pay money back."""
    context.deps.refunds[context.idempotency_key] = usd
    return "Refunded."


def make_agent(
    model: Model | str = MODEL,
    *,
    orders: Orders | None = None,
    journal: GivenJournal | str | None = None,
    approver: Approver | None = None,
) -> Agent[str]:
    """Make the agent. Tests pass a script as its model, and orders of their own."""
    return Agent(
        model,
        name="$name",
        instructions="You help customers with their orders. Look an order up before you refund it.",
        tools=Toolbox([look_up, refund], deps=orders or Orders()),
        gate=load_policy(POLICY),
        limits=Limits(steps=20, usd=1),
        journal=journal,
        approver=approver,
    )
''')
SERVE = Template('''"""What `windlass serve serve:agents` serves."""

from $name.agent import make_agent

agents = [make_agent()]
''')
TESTS = Template('''"""The agent with a script instead of a model: no key, no network, no wait."""

from windlass import Allow
from windlass.ports import GivenJournal
from windlass.testing import Prompt, ScriptedModel, ScriptedReply, call, cut_power_everywhere

from $name.agent import Orders, make_agent

ASKED = {"order": 8, "usd": 35}
SCRIPT = [call("look_up", {"order": 8}), call("refund", ASKED), "Done."]


async def test_a_refund_waits_for_a_person() -> None:
    with ScriptedModel(SCRIPT) as model:
        agent = make_agent(model)
        waiting = await agent.run("Refund order 8.", session="s")
        [question] = waiting.questions
        assert (question.question, question.arguments) == ("Refund 35 USD for order 8?", ASKED)
        result = await agent.answer("s", question.call_id, Allow())
    assert result.output == "Done."


async def test_it_refunds_once_wherever_the_power_fails() -> None:
    def reply(prompt: Prompt) -> ScriptedReply:
        # Not the next reply in turn: after a restart, the model is asked again from the middle.
        return SCRIPT[len(prompt.messages) // 2]

    async def scenario(journal: GivenJournal, orders: Orders) -> tuple[str, list[int]]:
        model = ScriptedModel([reply] * 3)
        agent = make_agent(model, orders=orders, journal=journal, approver=lambda question: True)
        result = await agent.run("Refund order 8.", session="s", key="once")
        if result.questions:  # The power failed while the question was open.
            result = await agent.resume("s")
        return result.output, list(orders.refunds.values())

    ends = await cut_power_everywhere(scenario, world=Orders)
    assert ends[0].end == ("Done.", [35])
''')
CONFTEST = 'pytest_plugins = ["windlass.testing.plugin"]\n'
POLICY = """# What the agent may do. `windlass policy check policy.toml` reads it as a service does.
default = "deny"
allow = ["look_up"]
ask = ["refund"]
"""
PYPROJECT = Template("""[project]
name = "$name"
version = "0.1.0"
requires-python = ">=3.11"
dependencies = ["windlass[serve]"]

[dependency-groups]
dev = ["pytest"]

[tool.pytest.ini_options]
pythonpath = ["."]
testpaths = ["tests"]

[tool.ruff]
line-length = 100
""")
README = Template("""# $name

An agent that looks up orders and, if a person agrees, refunds them.

    pytest                       # needs no key: a script replaces the model
    export OPENAI_API_KEY=...
    windlass serve serve:agents  # the page, the questions and the API

- `$name/agent.py`: the tools, the instructions and the limits. Begin here.
- `policy.toml`: what may run, what a person is asked about, what is denied.
- `serve.py`: what the service serves.
- `tests/test_agent.py`: a refund waits for a person, and happens once wherever the power fails.
""")
IGNORED = ".venv/\n__pycache__/\n*.db\n*.db-*\n.env\n"


def list_files(name: str) -> dict[str, str]:
    """Return the files of a new project, by their paths in its folder."""
    return {
        "README.md": README.substitute(name=name),
        "pyproject.toml": PYPROJECT.substitute(name=name),
        "policy.toml": POLICY,
        "serve.py": SERVE.substitute(name=name),
        f"{name}/__init__.py": "",
        f"{name}/agent.py": AGENT.substitute(name=name),
        "tests/conftest.py": CONFTEST,
        "tests/test_agent.py": TESTS.substitute(name=name),
        ".gitignore": IGNORED,
    }


@click.command()
@click.argument("name")
def new(name: str) -> None:
    """Make a project in the folder NAME: an agent, a policy, tests and a service.

    The agent is an example to change. Its tests need no key.
    """
    folder = Path(name)
    package = check_name(folder.absolute().name)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(f"{folder} exists and is not empty: choose another name.")
    for path, text in list_files(package).items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    click.echo(f"Made the project {package}. Next:\n")
    click.echo(f"  cd {shlex.quote(str(folder))}\n  pytest\n  export OPENAI_API_KEY=...")
    click.echo("  windlass serve serve:agents")


def check_name(name: str) -> str:
    """Return the name of the Python package for a project.

    Raises ConfigError if it cannot be one, or would hide a module that the project needs.
    """
    package = name.replace("-", "_")
    if not NAME.fullmatch(name) or len(name) > NAME_LENGTH_MAX or keyword.iskeyword(package):
        raise ConfigError(
            f"{name!r} cannot name a Python package: use at most {NAME_LENGTH_MAX} letters (a to "
            "z), digits and dashes, begin with a letter, and use no keyword of Python."
        )
    spec = importlib.util.find_spec(package)
    # Without an origin it is only a folder, perhaps the one that was made for this project.
    if package in {"serve", "tests"} or (spec is not None and spec.origin is not None):
        raise ConfigError(f"{name!r} is the name of another Python module: choose another name.")
    return package
