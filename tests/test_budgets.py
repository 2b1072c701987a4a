"""Budgets (V4): what following, loading and running the code costs, held where it is.

`make budgets` prints each figure beside its budget. A budget is the figure of the commit that set
it, and about 2 % more. CONTRIBUTING.md says when one is raised. Where the figure is above what we
aim at, the aim is beside it.
"""

import sys
from collections.abc import Mapping

import pytest

from proof.budgets.code_measures import (
    find_common_names,
    find_longest_chain,
    measure_packages,
    measure_shape,
)
from proof.budgets.run_measures import measure_runs

RUN_BUDGETS: Mapping[str, float] = {
    "functions of a run over HTTP": 521,  # aim: 380
    "files of a run over HTTP": 101,  # aim: 75
    "place of the loop in a run over HTTP": 126,  # aim: 90
    "functions of a scripted run": 326,
    "files of a scripted run": 68,
    "place of the loop in a scripted run": 113,  # aim: 90
    "functions of a served run": 790,  # aim: 520
    "files of a served run": 144,  # aim: 105
    "Python calls of a step": 930,
    "modules of a first run": 125,  # aim: 120
}
"""What a run costs: a prompt, a call of a tool, a text. A first run has a prompt and a text."""

SHAPE_BUDGETS: Mapping[str, float] = {
    "lines": 137_200,
    "modules": 724,
    "import lines, %": 9.1,  # aim: 6.5
    "functions used in one place, %": 28.6,  # aim: 24
    "longest chain of imports": 46,  # aim: 30
    "file names used five times or more": 0,
}

PACKAGE_BUDGETS: Mapping[str, tuple[int, int]] = {
    "agent": (8_620, 37),
    "cli": (13_500, 84),
    "client": (680, 4),
    "core": (16_350, 83),
    "evaluation": (6_050, 28),
    "fleet": (1_340, 7),
    "gates": (4_190, 24),
    "http": (940, 7),
    "journals": (14_900, 80),
    "knowledge": (2_750, 16),
    "models": (9_650, 61),
    "notebook": (250, 2),
    "ports": (1_350, 8),
    "project": (4_150, 23),
    "readers": (800, 5),
    "runtime": (4_800, 17),
    "server": (23_000, 117),
    "telemetry": (1_130, 8),
    "testing": (6_050, 28),
    "tools": (16_250, 85),
    "windlass": (1_790, 9),
}
"""Lines and modules of each package; `windlass` is what is beside the packages."""


def list_excesses(figures: Mapping[str, float], budgets: Mapping[str, float]) -> list[str]:
    """Each figure above its budget. A figure without a budget, or the reverse, is a mistake."""
    assert figures.keys() == budgets.keys()
    return [
        f"{name}: {figure:.6g}, budget {budgets[name]}"
        for name, figure in figures.items()
        if figure > budgets[name]
    ]


@pytest.mark.slow
def test_a_run_stays_within_its_budgets() -> None:
    """In a process of its own: the walk through the code, the calls of a step, what is loaded."""
    assert list_excesses(measure_runs(), RUN_BUDGETS) == []


def test_the_source_stays_within_its_budgets() -> None:
    excesses = list_excesses(measure_shape(), SHAPE_BUDGETS)
    assert excesses == [], [*find_longest_chain(), *find_common_names()]


@pytest.mark.parametrize("of", ["lines", "modules"])
def test_each_package_stays_within_its_budget(of: str) -> None:
    place = ("lines", "modules").index(of)
    figures = {name: figure[place] for name, figure in measure_packages().items()}
    budgets = {name: budget[place] for name, budget in PACKAGE_BUDGETS.items()}
    assert list_excesses(figures, budgets) == []


def print_figures() -> None:
    """Print each figure, and its budget."""
    budgets = {**RUN_BUDGETS, **SHAPE_BUDGETS}
    for name, figure in (measure_runs() | measure_shape()).items():
        sys.stdout.write(f"{name:38} {figure:10,.6g} {budgets[name]:10,.6g}\n")
    for name, (lines, modules) in measure_packages().items():
        lines_max, modules_max = PACKAGE_BUDGETS[name]
        sys.stdout.write(
            f"{name:38} {lines:10,} {lines_max:10,} lines {modules:5} {modules_max:5} modules\n"
        )


if __name__ == "__main__":
    print_figures()
