"""Skills: a line each in the instructions, the body when it is asked for."""

from pathlib import Path

import pytest

from windlass import tool
from windlass.core.errors import ModelRetry
from windlass.knowledge.skills import Skills

pytestmark = pytest.mark.contract("X5")


def write(folder: Path, name: str, text: str) -> Path:
    place = folder / name
    place.mkdir(parents=True)
    (place / "SKILL.md").write_text(text)
    return place


def skill(name: str, words: str = "Does it.", body: str = "How to.") -> str:
    return f"---\nname: {name}\ndescription: {words}\n---\n\n{body}\n"


def test_the_catalogue_holds_names_and_descriptions_only(tmp_path: Path) -> None:
    write(tmp_path / "skills", "b", skill("beta", ">\n  Two\n  lines."))
    write(tmp_path / ".claude" / "skills", "a", skill("alpha", body="SECRET BODY"))
    write(tmp_path / ".agents" / "skills", "c", skill("gamma"))
    skills = Skills.from_project(tmp_path)
    assert skills.catalogue.split("\n")[1:] == [
        "- alpha: Does it.",
        "- beta: Two lines.",
        "- gamma: Does it.",
    ]
    assert "SECRET" not in skills.catalogue
    assert skills.problems == []
    assert Skills.from_project(tmp_path).catalogue == skills.catalogue
    assert len(skills) == 3


def test_a_project_without_skills_has_no_catalogue(tmp_path: Path) -> None:
    assert Skills.from_project(tmp_path).catalogue == ""


def test_the_body_comes_with_the_list_of_its_files(tmp_path: Path) -> None:
    place = write(tmp_path, "forms", skill("forms", body="Use fill.py."))
    (place / "scripts" / "__pycache__").mkdir(parents=True)
    (place / "scripts" / "fill.py").write_text("")
    (place / "scripts" / "__pycache__" / "fill.pyc").write_text("")
    (place / ".env").write_text("KEY=1")
    (place / "out").symlink_to("/etc/passwd")
    told = Skills([tmp_path]).skill("forms")
    assert told == f"Use fill.py.\n\nFiles of this skill, in {place}:\n- scripts/fill.py"


def test_a_body_without_files_is_just_that(tmp_path: Path) -> None:
    write(tmp_path, "one", skill("one"))
    assert Skills([tmp_path]).skill("one") == "How to."


def test_many_files_are_listed_in_part(tmp_path: Path) -> None:
    place = write(tmp_path, "one", skill("one"))
    for at in range(120):
        (place / f"{at:03}.txt").write_text("")
    lines = Skills([tmp_path]).skill("one").split("\n")
    assert (lines[-2], lines[-1]) == ("- 099.txt", "- and more")


def test_a_name_that_is_near_is_suggested(tmp_path: Path) -> None:
    write(tmp_path, "one", skill("pdf-forms"))
    with pytest.raises(ModelRetry, match=r"no skill 'pdf-form'. Did you mean pdf-forms\?"):
        Skills([tmp_path]).skill("pdf-form")


def test_of_two_with_one_name_the_first_wins(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(tmp_path / "skills", "x", skill("same", "First."))
    write(tmp_path / ".claude" / "skills", "x", skill("same", "Second."))
    skills = Skills.from_project(tmp_path)
    assert [one.description for one in skills] == ["First."]
    assert len(skills.problems) == 1
    assert "has the same name" in caplog.text


def test_one_folder_by_two_names_is_one(tmp_path: Path) -> None:
    write(tmp_path / ".agents" / "skills", "x", skill("same"))
    (tmp_path / ".claude").mkdir()
    (tmp_path / ".claude" / "skills").symlink_to(tmp_path / ".agents" / "skills")
    skills = Skills.from_project(tmp_path)
    assert (len(skills), skills.problems) == (1, [])


@pytest.mark.parametrize(
    "text",
    [
        "no head",
        "---\nname: x\n",
        "---\nname: x\n---\n",
        "---\ndescription: x\n---\n",
        "---\nname: a b\ndescription: x\n---\n",
        "---\nname: [x]\ndescription: x\n---\n",
    ],
)
def test_a_broken_skill_is_left_out_with_a_line(
    tmp_path: Path, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    place = write(tmp_path, "broken", text)
    write(tmp_path, "whole", skill("whole"))
    skills = Skills([tmp_path])
    assert [one.name for one in skills] == ["whole"]
    (problem,) = skills.problems
    assert problem.startswith(f"{place / 'SKILL.md'}: ")
    assert "\n" not in problem
    assert [record.getMessage() for record in caplog.records] == [problem]


def test_a_link_out_of_the_folder_is_not_read(tmp_path: Path) -> None:
    outside = write(tmp_path / "elsewhere", "x", skill("outside"))
    (tmp_path / "skills" / "x").mkdir(parents=True)
    (tmp_path / "skills" / "x" / "SKILL.md").symlink_to(outside / "SKILL.md")
    skills = Skills.from_project(tmp_path)
    assert len(skills) == 0
    assert len(skills.problems) == 1


def test_it_becomes_a_tool_as_it_is(tmp_path: Path) -> None:
    write(tmp_path, "one", skill("one"))
    made = tool(Skills([tmp_path]).skill, effect="read")
    assert made.name == "skill"
    assert made.spec.parameters["required"] == ["name"]
    assert made("one") == "How to."
