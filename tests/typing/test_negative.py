"""What must not type-check does not.

In `cases/`, each `# expect: words` comment stands above a line that pyright must refuse
with a message that holds these words. Any other error is a failure as well. What a user
writes first is checked by `mypy --strict`, too; Windlass itself is checked by pyright alone.
"""

import json
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path

import pytest

HERE = Path(__file__).parent
FIRST_LINES = HERE / "cases" / "first_lines.py"
README = HERE.parent.parent / "README.md"
PROGRAM = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
MYPY_ERROR = re.compile(r"^(?P<file>\w+\.py):(?P<line>\d+): error: (?P<message>.+)$", re.MULTILINE)
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


def mypy(folder: Path) -> dict[str, list[Error]]:
    """Every error that `mypy --strict` finds in a folder of programs, by file name."""
    options = ["--strict", "--no-error-summary", "--no-pretty", "--config-file="]
    files = sorted(path.name for path in folder.glob("*.py"))
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *options, *files],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
    errors: dict[str, list[Error]] = defaultdict(list)
    for found in MYPY_ERROR.finditer(done.stdout):
        errors[found["file"]].append((int(found["line"]), found["message"]))
    return errors


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.skipif(not find_spec("mypy"), reason="mypy is not installed: run `make setup`")
def test_mypy_accepts_the_programs_of_the_readme_and_what_users_write_first(
    tmp_path: Path,
) -> None:
    """U5."""
    programs = PROGRAM.findall(README.read_text("utf-8"))
    sources = {f"readme_{number}.py": source for number, source in enumerate(programs)}
    sources[FIRST_LINES.name] = FIRST_LINES.read_text("utf-8")
    for name, source in sources.items():
        (tmp_path / name).write_text(source, "utf-8")
    errors = mypy(tmp_path)
    wrong = {
        name: found
        for name, source in sources.items()
        if (found := mismatches(source, errors[name]))
    }
    assert programs
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
