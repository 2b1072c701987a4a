"""How Gemini is told to think: a level from 3 on, a budget of tokens at 2.5 (S14).

Not every model can leave it: there, `off` is the least that it takes.
"""

import re
from typing import Any

from windlass.models.dialect import Effort

_MODEL_NAME = re.compile(r"gemini-(\d+)(?:\.(\d+))?")
_FIRST_WITH_BUDGETS = (2, 5)
_FIRST_WITH_LEVELS = (3, 0)

_BUDGETS: dict[Effort, int] = {"low": 1_024, "medium": 8_192, "high": 24_576}
_BUDGET_MIN = 512


def requires_signatures(model: str) -> bool:
    """Whether the model refuses its calls without their signatures; it takes media in results."""
    version = _parse_version(model)
    return version is not None and version >= _FIRST_WITH_LEVELS


def thinking_config(model: str, effort: Effort | None, output_max: int) -> dict[str, Any] | None:
    version = _parse_version(model)
    if effort is None or version is None or version < _FIRST_WITH_BUDGETS:
        return None
    pro = "-pro" in model
    shown = {} if effort == "off" else {"includeThoughts": True}
    if version >= _FIRST_WITH_LEVELS:
        return {**shown, "thinkingLevel": _thinking_level(effort, version, pro=pro)}
    if effort == "off":
        return {"thinkingBudget": 128 if pro else 0}
    # The output cap holds thoughts and answer; some of it must be left for the answer.
    budget = max(min(_BUDGETS[effort], output_max * 3 // 4), _BUDGET_MIN)
    return {**shown, "thinkingBudget": budget}


def _thinking_level(effort: Effort, version: tuple[int, int], *, pro: bool) -> str:
    match effort:
        case "off":
            return "low" if pro else "minimal"
        case "medium" if pro and version == _FIRST_WITH_LEVELS:
            return "high"  # The first of them knows two levels.
        case "low" | "medium" | "high":
            return effort


def _parse_version(model: str) -> tuple[int, int] | None:
    """None if it is no Gemini. A name without a number, such as `gemini-flash-latest`, is new."""
    if "gemini" not in model:
        return None
    found = _MODEL_NAME.search(model)
    return (int(found[1]), int(found[2] or 0)) if found else (99, 0)
