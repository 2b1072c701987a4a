"""`windlass eval`: exit codes for CI, a table, one HTML file, and what is in the journal."""

import json
import re
from pathlib import Path

import pytest

from cli_types import Cli
from windlass.testing.chat_wire import call_chunks, chat_answer, text_answer
from windlass.testing.fault_server import FaultServer

pytestmark = [pytest.mark.contract("Q4"), pytest.mark.slow, pytest.mark.realtime]

CASES = "\n".join(
    json.dumps({"id": f"o{number}", "prompt": f"Refund order {number}."}) for number in (1, 2, 3)
)
PROGRAM = '''
"""An agent that refunds all orders but those that are named in a file."""
from pathlib import Path
from windlass import Agent, tool
from evaluated import PRICED, answer_order, model_of, question_of
from windlass.testing import say

def reply(prompt):
    refused = Path("refused.txt").read_text().split() if Path("refused.txt").exists() else []
    if any(f"order {number}." in question_of(prompt) for number in refused):
        return say("No.")
    return answer_order(prompt)

@tool(effect="read")
def look_up(order: int) -> str:
    return "It is there."

@tool
def refund(order: int) -> str:
    return "Refunded."

agent = Agent(model_of(reply), tools=[look_up, refund])

def make():
    return Agent(model_of(reply), tools=[look_up, refund], instructions="Be quick.")

def make_for(trial):
    assert trial.workspace is not None
    return Agent(model_of(reply), tools=[look_up, refund])

number = 3
'''


@pytest.fixture
def shop(project: Path) -> Path:
    """A project with cases, an agent and a journal."""
    (project / "cases.jsonl").write_text(CASES)
    (project / "shop_program.py").write_text(PROGRAM)
    return project


def run(cli: Cli, *words: str, target: str = "shop_program:agent") -> tuple[int, str]:
    words = ("eval", "run", "cases.jsonl", target, "--journal", "j.db", *words)
    done = cli(*words)
    return done.exit_code, done.output


def test_a_report_is_shown_and_written(cli: Cli, shop: Path) -> None:
    code, shown = run(
        cli,
        "--name",
        "a",
        "--repeat",
        "2",
        "--check",
        "used:refund",
        "--json",
        "r.json",
        "--html",
        "r.html",
    )
    assert code == 0, shown
    assert "6 of 6 trials passed: 100 % (61 to 100 %)" in shown
    assert "pass@2 100 %, pass^2 100 %" in shown
    assert "eval/a/o1/1" in shown
    assert json.loads((shop / "r.json").read_text())["name"] == "a"
    assert "<svg" in (shop / "r.html").read_text()
    again = cli("eval", "report", "r.json")
    assert "6 of 6" in again.output
    stored = cli("eval", "report", "a", "--journal", "j.db")
    assert "6 of 6" in stored.output
    listed = cli("eval", "list", "--journal", "j.db")
    assert "6 of 6" in listed.output
    watched = cli("eval", "watch", "a", "--journal", "j.db")
    assert (watched.exit_code, "6 of 6" in watched.output) == (0, True)
    session = cli("sessions", "show", "eval/a/o1/1", "--journal", "j.db")
    assert "Refund order 1." in session.output


def test_the_gate_fails_a_change_that_made_it_worse(cli: Cli, shop: Path) -> None:
    """Q4: exit code 1, and the case that collapsed is named."""
    repeat = ("--repeat", "5", "--check", "used:refund")
    assert run(cli, "--name", "before", "--json", "before.json", *repeat)[0] == 0
    assert run(cli, "--name", "same", "--baseline", "before", *repeat)[0] == 0
    (shop / "refused.txt").write_text("2")
    code, shown = run(
        cli, "--name", "after", "--baseline", "before.json", "--json", "after.json", *repeat
    )
    assert code == 1
    assert "Worse beyond chance: 100 % became 67 %" in shown
    assert "o2: 5/5 became 0/5" in shown
    compared = cli("eval", "compare", "before.json", "after.json", "--html", "c.html")
    assert compared.exit_code == 1
    assert "Compared with before" in (shop / "c.html").read_text()
    assert cli("eval", "compare", "after", "before", "--journal", "j.db").exit_code == 0


def test_what_was_not_run_or_not_compared_is_said(cli: Cli, shop: Path) -> None:
    """Q4: recorded trials are marked, and reports with other scorers are not compared."""
    cases = [json.loads(line) | {"expected": "refunded"} for line in CASES.splitlines()]
    (shop / "cases.jsonl").write_text("\n".join(map(json.dumps, cases)))
    code, shown = run(cli, "--name", "main", "--json", "main.json")
    assert code == 0, shown
    assert "Warning: There is no scorer" in shown
    assert 'Warning: 3 cases have "expected", and no scorer looks at it: add --check' in shown
    assert "recorded" not in shown
    code, shown = run(cli, "--name", "main", "--check", "output_contains", "--check", "ended_as")
    assert code == 0, shown
    assert re.search(r"eval/main/o1/1  3 steps, [0-9.]+ s, recorded", shown)
    assert "3 of 3 trials were already on record (last at 2" in shown
    assert "nothing was run. For new trials choose another --name." in " ".join(shown.split())
    assert "Warning" not in shown
    code, shown = run(
        cli, "--name", "b", "--check", "ended_as", "--baseline", "main.json", "--json", "b.json"
    )
    assert code == 2, shown
    shown = " ".join(shown.split())
    assert "scored differently (only in b: ended_as('completed'))" in shown
    assert (shop / "b.json").exists()
    assert run(cli, "--name", "unpaid", "--baseline", "missing.json")[0] != 0
    assert "unpaid" not in cli("eval", "list", "--journal", "j.db").output


def test_a_rate_can_be_demanded(cli: Cli, shop: Path) -> None:
    (shop / "refused.txt").write_text("1 2")
    code, shown = run(cli, "--check", "used:refund", "--fail-under", "0.5")
    assert code == 1
    assert "Fewer than 50 % passed" in shown
    assert run(cli, "--check", "used:refund", "--fail-under", "0.3")[0] == 0


@pytest.mark.contract("Q5")
def test_means_are_shown_by_group_and_can_be_demanded(cli: Cli, shop: Path) -> None:
    """Q5: a graded score has a gate of its own."""
    cases = [json.loads(line) | {"expected": "Order 1 is refunded."} for line in CASES.splitlines()]
    cases[0]["metadata"] = {"size": "small"}
    (shop / "cases.jsonl").write_text("\n".join(map(json.dumps, cases)))
    words = ("--check", "similar", "--group-by", "size", "--name", "g", "--repeat", "2")
    code, shown = run(cli, *words, "--score-min", "similar()=0.9")
    assert code == 0, shown
    assert "similar(): mean 0.967" in shown
    assert re.search(r"small +1 +2/2 +100 %", shown)
    code, shown = run(cli, *words, "--score-min", "similar()=0.99")
    assert (code, "The mean of similar() is 0.967, below 0.99." in shown) == (1, True)
    code, shown = run(cli, *words, "--score-min", "similr()=0.99")
    assert (code, "no score 'similr()' has values. Did you mean similar()" in shown) == (2, True)
    grouped = cli("eval", "report", "g", "--journal", "j.db", "--group-by", "size")
    assert "small" in grouped.output


def test_a_budget_that_is_used_up_has_its_own_exit_code(cli: Cli, shop: Path) -> None:
    code, shown = run(cli, "--name", "b", "--repeat", "9", "--budget", "0.003")
    assert code == 4, shown
    assert "not run" in shown
    assert run(cli, "--name", "b", "--repeat", "9", "--budget", "1")[0] == 0
    assert run(cli, "--name", "t", "--repeat", "9", "--budget-tokens", "2000")[0] == 4


@pytest.mark.contract("Q5")
def test_a_matrix_compares_programs_and_settings(cli: Cli, shop: Path, server: FaultServer) -> None:
    """Q5: one table of all variants; the same name runs nothing again."""
    words = ("eval", "matrix", "cases.jsonl", "shop_program:agent", "shop_program:make")
    words += ("--journal", "j.db", "--name", "m", "--check", "used:refund", "--json", "m.json")
    for _ in range(2):
        done = cli(*words)
        assert done.exit_code == 0, done.output
        assert re.search(r"shop_program:make +3/3 +100 %", done.output)
        assert "No two variants differ beyond chance." in done.output
    assert "m@shop_program:agent" in cli("eval", "list", "--journal", "j.db").output
    assert set(json.loads((shop / "m.json").read_text())["variants"]) == {
        "shop_program:agent",
        "shop_program:make",
    }
    server.add_answers(*[text_answer("Refunded.")] * 6)
    varied = ("eval", "matrix", "cases.jsonl", "-m", "openai-chat:m", "--tools", "none")
    done = cli(*varied, "--vary", "system=Short.", "--vary", "system=Long.", "--journal", "j.db")
    assert done.exit_code == 0, done.output
    assert "system=Short" in done.output
    for wrong, problem in (
        ((), "give several MODULE:NAME, or --vary"),
        (("shop_program:agent",), "at least 2 variants"),
        (("--vary", "modl=x"), "no setting 'modl'. Did you mean model"),
    ):
        refused = cli("eval", "matrix", "cases.jsonl", *wrong, "--journal", "j.db")
        assert (refused.exit_code, problem in refused.output) == (2, True), refused.output


def test_old_trials_are_scored_again_without_a_model(cli: Cli, shop: Path) -> None:
    assert run(cli, "--name", "a", "--check", "used:refund")[0] == 0
    words = ("eval", "report", "a", "--journal", "j.db", "--cases", "cases.jsonl")
    scored = cli(*words, "--check", "never:refund")
    assert "0 of 3 trials passed" in scored.output
    assert "used:refund" not in scored.output


def test_recorded_sessions_are_cases(cli: Cli, shop: Path) -> None:
    """Q3: from the command line, onto another prompt, with the results on record."""
    assert run(cli, "--name", "a")[0] == 0
    kept = cli("sessions", "fork", "eval/a/o1/1", "--journal", "j.db", "--into", "sold-1")
    assert kept.exit_code == 0, kept.output
    words = ("eval", "run", "--from-sessions", "sold", "--journal", "j.db")
    made = cli(*words, "shop_program:make", "--check", "used:refund")
    assert made.exit_code == 0, made.output
    assert "1 of 1" in made.output
    live = cli(*words, "shop_program:make", "--fork-tools", "live")
    assert (live.exit_code, "snapshot of the workspace" in live.output) == (2, True)
    (shop / "files").mkdir()
    live = cli(
        *words,
        "shop_program:make_for",
        "--fork-tools",
        "live",
        "--workspace",
        "files",
        "--allow",
        "refund",
    )
    assert live.exit_code == 0, live.output


def test_a_function_makes_the_agent_of_each_trial(cli: Cli, shop: Path) -> None:
    (shop / "files").mkdir()
    (shop / "cases.jsonl").write_text(
        json.dumps({"id": "w", "prompt": "Refund order 1.", "workspace": "files"})
    )
    code, shown = run(cli, target="shop_program:make_for")
    assert code == 0, shown


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("eval", "run"), "a file of cases, or --from-sessions"),
        (("eval", "run", "missing.jsonl"), "cannot be read"),
        (("eval", "run", "cases.jsonl", "nothing"), "MODULE:NAME"),
        (("eval", "run", "cases.jsonl", "no_such_module:x"), "no module no_such_module"),
        (("eval", "run", "cases.jsonl", "shop_program:mak"), "has no 'mak'. Did you mean make"),
        (("eval", "run", "cases.jsonl", "shop_program:number"), "neither an Agent"),
        (("eval", "run", "cases.jsonl", "shop_program:agent", "--check", "x:y"), "no scorer 'x'"),
        (("eval", "run", "cases.jsonl", "shop_program:agent", "--budget", "much"), "--budget much"),
        (("eval", "run", "cases.jsonl", "shop_program:agent", "--only", "o9"), "no case has"),
        (("eval", "run", "cases.jsonl", "shop_program:agent", "--name", "a/b"), "letters"),
        (("eval", "report", "cases.jsonl"), "not a report"),
        (("eval", "report", "x.json", "--check", "ended_as"), "--check needs --cases"),
    ],
)
def test_mistakes_are_told_in_one_line(
    cli: Cli, shop: Path, words: tuple[str, ...], problem: str
) -> None:
    done = cli(*words)
    assert done.exit_code == 2, done.output
    assert problem in done.output
    assert "Traceback" not in done.output


def test_the_agent_of_the_settings_is_tried(cli: Cli, shop: Path, server: FaultServer) -> None:
    """In the trial's own copy of the workspace, with the tools of the command line."""
    (shop / "files").mkdir()
    (shop / "files" / "a.txt").write_text("The word is heron.")
    checks = [{"used": "read"}, {"output_contains": "heron"}]
    case = {"id": "w", "prompt": "Which word?", "workspace": "files", "checks": checks}
    (shop / "cases.jsonl").write_text(json.dumps(case))
    server.add_answers(
        chat_answer(call_chunks("read", '{"path":"a.txt"}')), text_answer("It is heron.")
    )
    done = cli("eval", "run", "cases.jsonl", "-m", "openai-chat:m", "--journal", "j.db")
    assert done.exit_code == 0, done.output
    assert "1 of 1 trials passed" in done.output
