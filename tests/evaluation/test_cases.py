"""Files of cases: JSONL, YAML and Python, with mistakes told by their place."""

from pathlib import Path

import pytest

from windlass.core.errors import ConfigError
from windlass.evaluation import Case, load_cases, sample_cases, write_cases
from windlass.evaluation.cases import choose_cases, make_id

pytestmark = pytest.mark.contract("Q1")
JSONL = (
    '{"id": "a", "prompt": "Do it.", "workspace": "files", "tags": ["quick"]}\n\n'
    '{"id": "b", "prompt": "And this.", "expected": {"n": 1}, "checks": [{"never": "delete"}]}\n'
)
YAML = """
cases:
  - id: a
    prompt: Do it.
    workspace: files
    tags: [quick]
  - id: b
    prompt: And this.
    expected: {n: 1}
    checks:
      - never: delete
"""
PYTHON = """
from windlass.evaluation import Case

def cases():
    yield Case(id="a", prompt="Do it.", workspace="files", tags=("quick",))
    yield Case(id="b", prompt="And this.", expected={"n": 1}, checks=({"never": "delete"},))
"""


@pytest.mark.parametrize(("name", "text"), [("c.jsonl", JSONL), ("c.yaml", YAML), ("c.py", PYTHON)])
def test_the_same_cases_in_three_formats(tmp_path: Path, name: str, text: str) -> None:
    file = tmp_path / name
    file.write_text(text)
    assert load_cases(file) == [
        Case(id="a", prompt="Do it.", workspace=str(tmp_path / "files"), tags=("quick",)),
        Case(id="b", prompt="And this.", expected={"n": 1}, checks=({"never": "delete"},)),
    ]


def test_cases_come_from_json_tables_and_folders(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"cases": [{"id": "a", "prompt": "One."}]}')
    (tmp_path / "b.csv").write_text(
        '\ufeffid,prompt,tags,expected\nb,"Two, please.",x y,2\nc,Three.,,\n', "utf-8"
    )
    (tmp_path / "c.tsv").write_text("id\tprompt\nd\tFour.\n")
    (tmp_path / "readme.txt").write_text("Not cases.")
    assert load_cases(tmp_path) == [
        Case(id="a", prompt="One."),
        Case(id="b", prompt="Two, please.", tags=("x", "y"), expected="2"),
        Case(id="c", prompt="Three."),
        Case(id="d", prompt="Four."),
    ]


def test_datasets_of_others_are_read_by_their_columns(tmp_path: Path) -> None:
    """Files of Hugging Face, on disk: other columns are metadata, and rows are numbered."""
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    rows = [{"question": "2+2?", "answer": "4", "level": 1, "steps": ["a"]}]
    parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "test.parquet")
    (tmp_path / "test.jsonl").write_text('{"question": "2+2?", "answer": "4", "level": 1}')
    fields = {"prompt": "question", "expected": "answer"}
    for name in ("test.parquet", "test.jsonl"):
        (case,) = load_cases(tmp_path / name, fields=fields)
        assert case == Case(id="test-1", prompt="2+2?", expected="4", metadata={"level": 1})
    with pytest.raises(ConfigError, match=r"no column 'qestion'.*question"):
        load_cases(tmp_path / "test.jsonl", fields={"prompt": "qestion"})
    with pytest.raises(ConfigError, match=r"no field 'promt'.*prompt"):
        load_cases(tmp_path / "test.jsonl", fields={"promt": "question"})


def test_a_sample_is_the_same_for_the_same_seed() -> None:
    cases = [Case(id=f"c{number}", prompt="x") for number in range(50)]
    drawn = sample_cases(cases, 0.2, seed=7)
    assert len(drawn) == 10
    assert sample_cases(list(reversed(cases)), 10, seed=7) == drawn
    assert sample_cases(cases, 10, seed=8) != drawn
    assert len({case.id for case in sample_cases(cases, 500)}) == 50
    kept = list(sample_cases([*cases, Case(id="new", prompt="x")], 11, seed=7))
    assert {case.id for case in drawn} <= {case.id for case in kept}, (
        "an added case must not change which others are drawn"
    )
    for size in (0, -1, 1.5):
        with pytest.raises(ConfigError, match="a number of cases, or a share"):
            sample_cases(cases, size)


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    cases = [Case(id="a", prompt="Do it."), Case(id="b", prompt="x", expected=[1])]
    assert write_cases(tmp_path / "c.jsonl", cases) == 2
    assert load_cases(tmp_path / "c.jsonl") == cases


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("c.jsonl", '{"id": "a", "prompt": "x"}\n{"id": ', "c.jsonl:2: not a line of JSON"),
        ("c.jsonl", '{"id": "a", "promt": "x"}', "no field 'promt'.*prompt"),
        ("c.jsonl", '{"id": "a/b", "prompt": "x"}', "letters, digits"),
        ("c.jsonl", '{"id": "a"}', "either a prompt or a fork"),
        ("c.jsonl", '{"id": "a", "prompt": "x"}\n' * 2, "two cases have the id 'a'"),
        ("c.jsonl", "", "no cases"),
        ("c.yaml", "a: [", "not YAML"),
        ("c.yaml", "a: 1", "a list of cases"),
        ("c.py", "cases = 3", "a list `cases`"),
        ("c.py", "cases = [3]", "not a Case"),
        ("c.txt", "x", ".yaml, .yml or .py"),
        ("missing.jsonl", None, "cannot be read"),
        ("missing.py", None, "no such file"),
    ],
)
def test_mistakes_are_told_with_their_place(
    tmp_path: Path, name: str, text: str | None, problem: str
) -> None:
    file = tmp_path / name
    if text is not None:
        file.write_text(text)
    with pytest.raises(ConfigError, match=problem):
        load_cases(file)


def test_cases_are_chosen_by_id_and_tag() -> None:
    cases = [Case(id="a", prompt="x", tags=("quick",)), Case(id="b", prompt="x")]
    assert [case.id for case in choose_cases(cases, [])] == ["a", "b"]
    assert [case.id for case in choose_cases(cases, ["quick"])] == ["a"]
    assert [case.id for case in choose_cases(cases, ["b"])] == ["b"]
    with pytest.raises(ConfigError, match="no case has the id or tag 'quik'"):
        choose_cases(cases, ["quik"])


def test_attachments_go_with_the_prompt(tmp_path: Path) -> None:
    (tmp_path / "a.pdf").write_bytes(b"%PDF-1.4")
    file = tmp_path / "c.jsonl"
    file.write_text('{"id": "a", "prompt": "Read it.", "attachments": ["a.pdf"]}')
    case = load_cases(file)[0]
    assert len(case.build_prompt()) == 2
    assert case.digest != Case(id="a", prompt="Read it.").digest


def test_ids_of_sessions() -> None:
    assert make_id("ann.report/3 x@7") == "ann.report-3-x@7"
    assert make_id("///") == "case"
