"""What must not type-check does not.

In `cases/`, each `# expect: words` comment stands above a line that pyright must refuse
with a message that holds these words. Any other error is a failure as well.
"""

import json
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import pytest

HERE = Path(__file__).parent
EXPECT = re.compile(r"^\s*# expect: (?P<words>.+?)\s*$")

Error = tuple[int, str]
"""Line, counted from one, and message."""


def expectations(source: str) -> dict[int, list[str]]:
    """By line, what must be said about it; comments in a row speak of the same line."""
    found: dict[int, list[str]] = defaultdict(list)
    waiting: list[str] = []
    for number, line in enumerate(source.splitlines(), 1):
        if expected := EXPECT.match(line):
            waiting.append(expected["words"])
        elif waiting:
            found[number] = waiting
            waiting = []
    found[0] = waiting  # An expectation with no line after it can never be met.
    return found


def mismatches(source: str, errors: Iterable[Error]) -> list[str]:
    """What was expected and not said, and what was said and not expected."""
    expected = expectations(source)
    said: dict[int, list[str]] = defaultdict(list)
    for number, message in errors:
        said[number].append(message)
    missing = [
        f"line {number}: expected {words!r}, got {said[number]}"
        for number, wanted in sorted(expected.items())
        for words in wanted
        if not any(words in message for message in said[number])
    ]
    surplus = [
        f"line {number}: unexpected: {message}"
        for number, messages in sorted(said.items())
        for message in messages
        if not any(words in message for words in expected.get(number, []))
    ]
    return missing + surplus


def pyright(folder: Path) -> dict[str, list[Error]]:
    """Every error in a folder with its own settings, by file name."""
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable]
    done = subprocess.run(
        [*command, "--project", folder], capture_output=True, text=True, check=False
    )
    errors: dict[str, list[Error]] = defaultdict(list)
    for found in json.loads(done.stdout)["generalDiagnostics"]:
        if found["severity"] == "error":
            line = found["range"]["start"]["line"] + 1
            errors[Path(found["file"]).name].append((line, found["message"]))
    return errors


@pytest.mark.slow
def test_what_must_not_type_check_does_not() -> None:
    errors = pyright(HERE)
    wrong = {
        case.name: found
        for case in sorted((HERE / "cases").glob("*.py"))
        if (found := mismatches(case.read_text("utf-8"), errors[case.name]))
    }
    assert wrong == {}


SOURCE = """\
# expect: not assignable
# expect: "int"
wrong: int = "three"
right = 3
"""
MESSAGE = 'Type "str" is not assignable to declared type "int"'


@pytest.mark.parametrize(
    ("errors", "count"),
    [
        ([(3, MESSAGE)], 0),
        ([], 2),
        ([(3, "something else")], 3),
        ([(4, MESSAGE)], 3),
        ([(3, MESSAGE), (4, "something else")], 1),
    ],
    ids=["as expected", "no error", "another error", "another line", "one too many"],
)
def test_the_harness_notices(errors: list[Error], count: int) -> None:
    assert len(mismatches(SOURCE, errors)) == count


def test_an_expectation_at_the_end_of_a_file_is_never_met() -> None:
    assert len(mismatches("right = 3\n# expect: something\n", [])) == 1
