"""Manifests of tools and the browser from the settings: a person names them, no project can."""

from pathlib import Path

import pytest

from page_browser import find_browser
from windlass.project.agents import build_toolbox
from windlass.project.layers import LoadedSettings
from windlass.project.permissions import named_files
from windlass.project.settings import BROWSER_MODES, SETTING_KEYS, Settings
from windlass.project.trust import open_project

MANIFEST = """
[[tool]]
name = "today"
description = "The date."
effect = "read"
[tool.command]
argv = ["date"]
"""


@pytest.mark.slow
def test_tools_of_a_manifest_join_the_others(tmp_path: Path) -> None:
    path = tmp_path / "tools.toml"
    path.write_text(MANIFEST)
    loaded = LoadedSettings(Settings(tool_files=(str(path),)), {}, {})
    toolbox = build_toolbox(loaded, tmp_path, open_project(tmp_path))
    assert "today" in [spec.name for spec in toolbox.specs]
    # What changes it decides what the next run may do, so that a model cannot change it unasked.
    assert str(path) in named_files(loaded)
    assert SETTING_KEYS["tool_files"].of_person


@pytest.mark.slow
def test_a_browser_joins_the_tools_only_if_a_person_says_so(tmp_path: Path) -> None:
    find_browser()
    project = open_project(tmp_path)
    offered: dict[str, list[str]] = {}
    for mode in BROWSER_MODES:
        toolbox = build_toolbox(LoadedSettings(Settings(browser=mode), {}, {}), tmp_path, project)
        offered[mode] = [spec.name for spec in toolbox.specs if spec.name.startswith("browser_")]
    assert offered["off"] == []
    assert len(offered["on"]) == len(offered["unconfined"]) == 6
    assert SETTING_KEYS["browser"].of_person


def test_a_search_engine_joins_the_tools_only_if_a_person_says_so(tmp_path: Path) -> None:
    project = open_project(tmp_path)
    offered: dict[str, bool] = {}
    for engine in ("", "duckduckgo", "searxng=https://search.example"):
        loaded = LoadedSettings(Settings(web_search=engine), {}, {})
        toolbox = build_toolbox(loaded, tmp_path, project)
        offered[engine] = "web_search" in [spec.name for spec in toolbox.specs]
    assert offered == {"": False, "duckduckgo": True, "searxng=https://search.example": True}
    assert SETTING_KEYS["web_search"].of_person
