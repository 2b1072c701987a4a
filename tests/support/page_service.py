"""A service with agents whose models follow a script by the prompt: for tests of the page.

`python page_service.py JOURNAL PORT` serves until it is ended. It prints its address, a token and a
login code.
What a model says follows from the conversation alone, so that a service that was killed goes on.
"""

import asyncio
import base64
import sys
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

from windlass import Agent, Limits, RetryPolicy, tool
from windlass.core.events import ReplyPiece
from windlass.core.messages import AssistantMessage, ImagePart, UserMessage
from windlass.core.setup import ModelInfo, Price
from windlass.core.verdicts import Allow, Ask, Verdict
from windlass.core.view import Prompt
from windlass.gates import Rule, RuleGate, allow_all
from windlass.ports import GateRequest
from windlass.server.access import LOCAL_OWNER
from windlass.server.aiohttp_server import listen
from windlass.server.dispatch import Dispatcher
from windlass.server.service import Service
from windlass.testing import ScriptedModel, call, drop, fail, say, think, usage
from windlass.tools.files.file_tools import file_tools
from windlass.tools.files.workspace import Workspace

Reply = Sequence[Any] | str
Scene = Callable[[int, str], Reply]
"""The reply of a step, counted from zero, to a prompt."""
PRICE = Price(Decimal(3), Decimal(15))
PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
TERMINAL = (
    "\x1b[1m===== test session starts =====\x1b[0m\ncollected 42 items\n\n"
    "tests/test_rates.py \x1b[32m......................\x1b[0m\n"
    "tests/test_totals.py \x1b[31mF\x1b[0m\x1b[32m...................\x1b[0m\n\n"
    "\x1b[31mFAILED tests/test_totals.py::test_rounding\x1b[0m - assert 10.01 == 10.0\n"
    "progress  10%\rprogress 100%\n\x1b[31m1 failed\x1b[0m, \x1b[32m41 passed\x1b[0m in 1.84s"
)
HOSTILE = (
    '<script>document.title="owned"</script><img src=x onerror="document.title=\'owned\'">'
    "<a href=\"javascript:document.title='owned'\">x</a> [click](javascript:alert(1)) "
    "![p](http://192.0.2.1/pixel.png) <http://192.0.2.1/x> \u202egnp.exe \x1b]0;owned\x07 {{7*7}} "
    "</textarea></title></style><svg onload=\"document.title='owned'\">"
)
FIXED = """def total(lines: list[Line]) -> Decimal:
    \"\"\"Return the sum of all lines, rounded once.\"\"\"
    return sum((line.amount for line in lines), Decimal(0)).quantize(CENT)
"""
MARKDOWN = f"""The rounding is done **twice**: once for each line and once for the sum.

### What I would change

1. Keep `Decimal` until the end, as in [the guide](https://docs.python.org/3/library/decimal.html).
2. Round in one place only.

```python
{FIXED}```

| invoice | before | after |
|---|---:|---:|
| A-1001 | 10.01 | 10.00 |
| A-1002 | 99.95 | 99.95 |

> The test `test_rounding` fails before and passes after.
"""


@tool(effect="read")
def read(path: str) -> str:
    """Read a file of the workspace."""
    return (
        f"# {path}\n\ndef total(lines):\n    return sum(round(line.amount, 2) for line in lines)\n"
    )


@tool(effect="read")
def look(path: str) -> ImagePart:
    """Look at a picture."""
    return ImagePart("image/png", PIXEL)


@tool(effect="write")
def edit(path: str, edits: list[dict[str, Any]]) -> str:
    """Change a file of the workspace."""
    return f"{len(edits)} edit in {path}"


@tool(effect="write")
async def bash(command: str) -> str:
    """Run a command."""
    if command.startswith("sleep"):
        await asyncio.sleep(float(command.split()[1]))
        return "rested"
    if command.startswith("false"):
        raise ValueError("the command ended with 1")
    if command.startswith("seq"):
        return "\n".join(f"line {number}" for number in range(int(command.split()[1])))
    return TERMINAL


@tool(effect="write", external=True)
def send_mail(to: str, subject: str, text: str) -> str:
    """Send a mail."""
    return f"sent to {to}"


class SceneModel:
    """A model that plays the scene which the prompt names first."""

    def __init__(self, scenes: dict[str, Scene], name: str, pace_s: float = 0.004) -> None:
        self.info = ModelInfo(name, PRICE, 200_000)
        self._scenes = scenes
        self._pace_s = pace_s

    async def stream(self, prompt: Prompt) -> AsyncGenerator[ReplyPiece]:
        words, step = _find_scene(prompt)
        scene = self._scenes.get(words.split(maxsplit=1)[0].strip(":,.").lower(), _say_done)
        reply = scene(step, words)
        items: list[Any] = [reply] if isinstance(reply, str) else list(reply)
        count = sum(len(str(item)) for item in items)
        items.append(usage(input=2_400 + 700 * step, output=40 + count // 4, cache_read=1_900))
        player = ScriptedModel([items], info=self.info, token_chars=6, pace_s=self._pace_s)
        async for piece in player.stream(prompt):
            yield piece


def _find_scene(prompt: Prompt) -> tuple[str, int]:
    """Return the last words of a person, and how often the model has replied to them."""
    step = 0
    for message in reversed(prompt.messages):
        if isinstance(message, AssistantMessage):
            step += 1
        elif isinstance(message, UserMessage) and not message.note and message.text.strip():
            return message.text, step
    return "done", step


def _say_done(_step: int, words: str) -> Reply:
    return f"Understood: {words[:80]}"


def _fix(step: int, _words: str) -> Reply:
    edits = [
        {
            "old": "def total(lines):\n    return sum(round(line.amount, 2) for line in lines)\n",
            "new": FIXED,
        }
    ]
    plan: list[Reply] = [
        [
            think("The rounding looks suspicious. I read the file first, then run the tests."),
            say("I look at the code and run the tests."),
            call("read", {"path": "billing/totals.py"}),
        ],
        [call("bash", {"command": "pytest -q tests/test_totals.py tests/test_rates.py"})],
        [
            say("One test fails because each line is rounded."),
            call("edit", {"path": "billing/totals.py", "edits": edits}),
        ],
        MARKDOWN,
    ]
    return plan[min(step, len(plan) - 1)]


def _report(step: int, _words: str) -> Reply:
    text = "Hello,\n\nthe totals of September are right now.\n\nRegards"
    arguments = {"to": "accounts@example.com", "subject": "Totals of September", "text": text}
    plan: list[Reply] = [
        [call("research", {"task": "find the totals of September"})],
        [call("send_mail", arguments)],
        "The mail is sent.",
    ]
    return plan[min(step, len(plan) - 1)]


def _slow(step: int, words: str) -> Reply:
    seconds = float(words.split()[1]) if len(words.split()) > 1 else 3.0
    if step:
        return "It is over."
    return [call("bash", {"command": f"sleep {seconds}"})]


def _run_suite(step: int, _words: str) -> Reply:
    if step:
        return "The suite passes."
    return [say("I run the whole suite."), call("bash", {"command": "sleep 900 # make test"})]


def _explain(step: int, _words: str) -> Reply:
    if step == 0:
        return [
            call("read", {"path": "billing/rates.py"}),
            call("read", {"path": "billing/tax.py"}),
        ]
    return (
        "Rates come from `rates.toml`, and **tax is added last**: `total = net * (1 + rate)`. "
        "Nothing else reads the file."
    )


def _write_long(_step: int, words: str) -> Reply:
    count = int(words.split()[1])
    return " ".join(f"word{number}" for number in range(count)) + " the end."


def _steps(step: int, words: str) -> Reply:
    count = int(words.split()[1])
    if step >= count:
        return "All steps are done."
    return [say(f"Step {step + 1}."), call("read", {"path": f"file{step}.txt"})]


def _log(step: int, _words: str) -> Reply:
    if step == 0:
        return [call("bash", {"command": "seq 20000"})]
    return "The log is long."


def _fail(step: int, _words: str) -> Reply:
    if step == 0:
        return [call("bash", {"command": "false --really"})]
    return "The command failed."


def _fail_check(_step: int, _words: str) -> Reply:
    return [fail("auth", "the key of the provider was refused")]


def _delegate(step: int, _words: str) -> Reply:
    return "It is tested." if step else [call("research", {"task": "test the totals"})]


def _hostile(step: int, _words: str) -> Reply:
    if step == 0:
        arguments = {"to": HOSTILE, "subject": HOSTILE, "text": HOSTILE}
        return [think(HOSTILE), say(HOSTILE), call("send_mail", arguments)]
    return HOSTILE + "\n\n```" + HOSTILE + "\n" + HOSTILE + "\n```\n"


def _picture(step: int, _words: str) -> Reply:
    return "A small picture." if step else [call("look", {"path": "chart.png"})]


def _broken(step: int, _words: str) -> Reply:
    _BREAKS["count"] = _BREAKS.get("count", 0) + 1
    if _BREAKS["count"] == 1:
        return [say("This text does not cou"), drop()]
    return "This text counts."


_BREAKS: dict[str, int] = {}
SCENES: dict[str, Scene] = {
    "fix": _fix,
    "run": _run_suite,
    "explain": _explain,
    "check": _fail_check,
    "report": _report,
    "slow": _slow,
    "write": _write_long,
    "steps": _steps,
    "many": _steps,
    "delegate": _delegate,
    "log": _log,
    "fail": _fail,
    "hostile": _hostile,
    "picture": _picture,
    "broken": _broken,
}


def _find_totals(step: int, _words: str) -> Reply:
    if step == 0:
        return [say("I look them up."), call("read", {"path": "totals/september.csv"})]
    return "September: 12,480.00 in 214 invoices."


def _test_totals(step: int, _words: str) -> Reply:
    return "All pass." if step else [call("bash", {"command": "pytest -q tests/test_totals.py"})]


def build_agents(pace_s: float = 0.004) -> list[Agent[Any]]:
    """Return the agents: one that fixes, with a sub-agent, and one that only reads."""
    research = Agent(
        SceneModel({"find": _find_totals, "test": _test_totals}, "scripted:small", pace_s),
        name="research",
        tools=[read, bash],
        instructions="You look things up and answer in one sentence.",
    )
    rules = RuleGate(
        [
            Rule("allow", "@read"),
            Rule("allow", "research"),
            Rule("ask", "bash", "A command can change anything in the workspace."),
        ],
        default="ask",
        name="billing",
    )
    builder = Agent(
        SceneModel(SCENES, "scripted:large", pace_s),
        name="builder",
        tools=[read, look, edit, bash, send_mail, research.as_tool("research")],
        instructions="You maintain the billing code. You explain what you change.",
        gate=rules,
        retries=RetryPolicy(wait_base_s=0.05),
    )
    free = Agent(
        SceneModel(SCENES, "scripted:large", pace_s),
        name="reader",
        tools=[read, look, bash],
        instructions="You answer questions about the code.",
        gate=allow_all(),
        limits=Limits(steps=5_000),
        retries=RetryPolicy(wait_base_s=0.05),
    )
    return [builder, free]


class HourGate:
    """Asks about every call, and waits an hour for the answer."""

    name = "hour"
    judges_replies = False

    async def judge(self, request: GateRequest) -> Verdict:
        """Ask, whatever the call is."""
        return Ask(f"May {request.tool.name} run?", "hour", time.time() + 3_600)

    async def judge_reply(self, session: str, text: str) -> Allow:
        """Allow every reply."""
        return Allow()


def _replace(step: int, words: str) -> Reply:
    if step:
        return "It is replaced."
    content = "first\nnew \u202e words\nlast\n"
    return [call("write", {"path": words.split()[1], "content": content})]


def build_keeper(folder: Path) -> Agent[Any]:
    """Return an agent that changes the files of a folder."""
    model = SceneModel({"replace": _replace}, "scripted:small")
    return Agent(model, name="keeper", tools=file_tools(Workspace(folder)), gate=HourGate())


async def serve(journal: str, port: int) -> None:
    """Serve until the process is ended."""
    agents = [*build_agents(), build_keeper(Path(journal).parent)]
    service = Service(agents, journal=journal)
    async with service, listen(Dispatcher(service), port=port) as address:
        token = await service.tokens.create("", ["admin"])
        code = await service.tokens.create_login(LOCAL_OWNER)
        sys.stdout.write(f"{address} {token.secret} {code}\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], int(sys.argv[2])))
