"""How Gemini is told to think: a level from 3 on, a budget of tokens at 2.5 (S14).

Not every model can leave it: there, `off` is the least that it takes.
"""

import re
from typing import Any

from windlass.models.dialect import Effort

_NAME = re.compile(r"gemini-(\d+)(?:\.(\d+))?")
_BUDGETED = (2, 5)
_LEVELLED = (3, 0)

_BUDGETS: dict[Effort, int] = {"low": 1_024, "medium": 8_192, "high": 24_576}
_BUDGET_MIN = 512


def signs_calls(model: str) -> bool:
    """Whether the model refuses its calls without their signatures; it takes media in results."""
    version = _version(model)
    return version is not None and version >= _LEVELLED


def thinking(model: str, effort: Effort | None, output_max: int) -> dict[str, Any] | None:
    version = _version(model)
    if effort is None or version is None or version < _BUDGETED:
        return None
    pro = "-pro" in model
    shown = {} if effort == "off" else {"includeThoughts": True}
    if version >= _LEVELLED:
        return {**shown, "thinkingLevel": _level(effort, version, pro=pro)}
    if effort == "off":
        return {"thinkingBudget": 128 if pro else 0}
    # The output cap holds thoughts and answer; some of it must be left for the answer.
    budget = max(min(_BUDGETS[effort], output_max * 3 // 4), _BUDGET_MIN)
    return {**shown, "thinkingBudget": budget}


def _level(effort: Effort, version: tuple[int, int], *, pro: bool) -> str:
    match effort:
        case "off":
            return "low" if pro else "minimal"
        case "medium" if pro and version == _LEVELLED:
            return "high"  # The first of them knows two levels.
        case "low" | "medium" | "high":
            return effort


def _version(model: str) -> tuple[int, int] | None:
    """None if it is no Gemini. A name without a number, such as `gemini-flash-latest`, is new."""
    if "gemini" not in model:
        return None
    found = _NAME.search(model)
    return (int(found[1]), int(found[2] or 0)) if found else (99, 0)
