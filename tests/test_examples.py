"""Each example answers its one question: what it prints, without a key and without a network."""

import subprocess
import sys
from pathlib import Path

import pytest

from page_browser import find_browser
from warm_python import run_program

ROOT = Path(__file__).resolve().parent.parent
GUARD = ROOT / "tests" / "support" / "no_network.py"
PRINTS = {
    "first_agent": ["The jib weighs two tonnes.", "2 steps, 2 requests"],
    "approvals": ["suspended [('lift', {'tonnes': 2})]", "Two tonnes are up."],
    "budgets": [
        "up to $0.0001: budget_exceeded, $0",
        "up to $0.01: truncated, $0.0096",
        "up to $1: completed, $0.0182",
        "budget_exceeded: the budget team has no room for the next request",
        "$0.02971 of $0.03",
    ],
    "evaluation": ["careful: 92%, at least 74%", "hasty: 33%, at least 18%", "worse"],
    "openai_endpoint": ["The jib weighs two tonnes.", "Four tonnes."],
    "subagents": [
        "clerk completed",
        "smith completed",
        "The jib is 12 metres long, and not welded.",
    ],
    "local_model": [
        "get_weather: It is 18 degrees and sunny in Paris.",
        "18 degrees and sunny.",
    ],
    "skills_and_knowledge": ["Painted.", "Two coats."],
    "declared_tools": ["['hook 1', 'jib 2', '; rm -rf 0'] Sorted."],
    "cloud_models": ["Two tonnes. (the key came along: True)"],
    "tool_search": ["['search_tools', 'call_tool']", "vessel117: 3 hours"],
    "secret_store": ["found: True", "the key is [secret: HARBOUR_KEY]"],
    "mcp_questions": [
        "Book?",
        "MCP server 'trips' asks during trips__book: Where to?",
        "2 nights in Oslo",
        "[The server asked: Where to? - answered] It is booked.",
    ],
    "code_interpreter": ["338350"],
    "interpreter_tools": ["('Lisbon', 20)", "Lisbon was warmer. I looked at 20 days."],
    "browser": [
        'asked about browser_type textbox "Ship"',
        "the server got /booked?ship=Vesta",
        "It is booked.",
    ],
    "reply_cache": [
        "The jib weighs two tonnes. (0 of 1 from the disk)",
        *["The jib weighs two tonnes. (1 of 1 from the disk)"] * 2,
    ],
    "token_counts": [
        "Anthropic: 13 provider",
        "Groq: 6 estimate",
        "6 tokens or so: What does the jib weigh?",
        "7 tokens or so: Wie schwer ist der Ausleger?",
        '10 tokens or so: {"part": "jib", "tonnes": 2}',
    ],
    "text_protocols": [
        *["look_up('jib')"] * 3,
        *(f"{protocol}: Two tonnes." for protocol in ("react", "qwen", "text")),
    ],
    "documents": ["Two tonnes, for 900 EUR.", "In May."],
    "router": ["parts: Two tonnes.", "orders: On Monday."],
    "critic": ["The jib is heavy. Say how heavy.", "The jib weighs two tonnes. "],
    "discussion": [
        "chair: How do we move the jib?",
        "engineer: It weighs two tonnes.",
        "buyer: That is too heavy for our truck.",
        "engineer: Agreed.",
        "buyer: Then we rent one.",
    ],
    "hand_over": ["clerk: Two tonnes."],
    "remember": ["Ann wants weights in tonnes. (session monday, call c2_0)"],
    "hooks": ["s ended as completed", "It was not allowed."],
    "undo": ["['Vesta'] storm", "completed: [] calm"],
    "triage": [
        "asked about {'ticket': 7, 'text': 'We are on it.'}",
        "asked about {'ticket': 8, 'text': 'We are on it.'}",
        "Triage(urgent=[7], answered=[8])",
    ],
    "coding_agent": [
        *["value"] * 3,
        "lift() returned a tonne too little. It is mended, and the check passes.",
    ],
    "data_analyst": [
        "3",
        "{'north': 6, 'south': 9}",
        "South lifted 9 tonnes, and north 6.",
    ],
    "research": ["It is older. Its source was read: True"],
    "support_refunds": [
        "the process died while it paid",
        "42.50 USD are on their way to you. [42.5]",
    ],
    "nightly_report": ["42 orders."],
    "crawlers": ["Counter({'completed': 20}) 1"],
    "resume_after_crash": ["Bolt 1 is in; look after bolt 2.", "['1', '2']"],
}


def test_all_of_them_are_known() -> None:
    assert {path.stem for path in (ROOT / "examples").glob("*.py")} == set(PRINTS)


def check_output(name: str, output: str) -> None:
    # Who works side by side may end in any order.
    assert sorted(output.splitlines()) == sorted(PRINTS[name])


@pytest.mark.parametrize("name", PRINTS)
@pytest.mark.slow
def test_it_prints_its_answer(name: str, tmp_path: Path) -> None:
    if name == "browser":
        find_browser()
    program = ROOT / "examples" / f"{name}.py"
    exit_code, output, errors = run_program(program, tmp_path, seconds=50)
    assert exit_code == 0, errors
    check_output(name, output)


@pytest.mark.slow
def test_the_first_one_prints_its_answer_in_a_python_of_its_own(tmp_path: Path) -> None:
    """As a newcomer starts it: nothing is imported yet."""
    done = subprocess.run(
        [sys.executable, "-W", "error", GUARD, ROOT / "examples" / "first_agent.py"],
        capture_output=True,
        cwd=tmp_path,
        text=True,
        timeout=50,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    check_output("first_agent", done.stdout)
