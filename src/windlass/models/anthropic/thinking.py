"""How requests set the amount of thinking: each generation of Claude has its own way.

Up to 4.5 it takes a budget in tokens; from 4.6 on it takes an effort, and the model decides. From 5
on thinking is on by default, and most later models cannot switch it off: for those, `off` is the
lowest effort. A name that is not Claude's belongs to another server with this API; those take
budgets.
"""

import re
from typing import Any

from windlass.models.options import Effort

_MODEL_NAME = re.compile(r"claude-(?:([a-z]+)-)?(\d{1,2})(?:[-.](\d{1,2}))?(?!\d)")
_FIRST_TO_THINK = (3, 7)
_ADAPTIVE = (4, 6)
_NO_SAMPLING = (4, 7)
"""From here on temperature and the like are refused, and thinking is hidden unless asked for."""
_ON_BY_DEFAULT = (5, 0)

_BUDGETS: dict[Effort, int] = {"low": 2_048, "medium": 8_192, "high": 24_576}
_BUDGET_MIN = 1_024
"""The API refuses smaller budgets."""


def accepts_sampling(model: str) -> bool:
    """Whether the model accepts a temperature, as long as it does not think."""
    claude = _parse_model_name(model)
    return claude is None or claude[1] < _NO_SAMPLING


def thinking_settings(
    model: str, effort: Effort | None, output_max: int, *, forced: bool
) -> dict[str, Any]:
    """Return the fields of a request that set the thinking.

    `forced`: the request forces a tool call. A forced call and thinking exclude each other; the
    call wins.
    """
    claude = _parse_model_name(model)
    if effort is None:
        return _disabled_settings(*claude) if forced and claude else {}
    if claude is None or _FIRST_TO_THINK <= claude[1] < _ADAPTIVE:
        return {} if forced else _budget_settings(effort, output_max)
    family, version = claude
    if version < _FIRST_TO_THINK:
        return {}
    if forced or effort == "off":
        settings = _disabled_settings(family, version)
    else:
        thinking = {"type": "adaptive"}
        if version >= _NO_SAMPLING:
            thinking["display"] = "summarized"
        settings = {"thinking": thinking}
    if effort != "off":
        settings["output_config"] = {"effort": effort}
    elif version >= _ON_BY_DEFAULT:
        settings["output_config"] = {"effort": "low"}
    return settings


def _budget_settings(effort: Effort, output_max: int) -> dict[str, Any]:
    # The output cap covers thinking and answer. It is never raised, because it is what the run may
    # spend; so the budget shrinks, and some of the cap is left for the answer.
    budget = min(_BUDGETS.get(effort, 0), output_max * 3 // 4)
    if budget < _BUDGET_MIN:
        return {}
    return {"thinking": {"type": "enabled", "budget_tokens": budget}}


def _disabled_settings(family: str, version: tuple[int, int]) -> dict[str, Any]:
    """Return nothing for models that do not think by default or cannot stop thinking."""
    if version == _ON_BY_DEFAULT and family in {"opus", "sonnet"}:
        return {"thinking": {"type": "disabled"}}
    if version > _ON_BY_DEFAULT and family == "sonnet":
        return {"thinking": {"type": "between_tools"}}
    return {}


def _parse_model_name(model: str) -> tuple[str, tuple[int, int]] | None:
    """Return the family and version in a name of Claude's; None for any other name.

    The name may have a vendor's prefix.
    """
    found = _MODEL_NAME.search(model)
    if found is None:
        return None
    return found[1] or "", (int(found[2]), int(found[3] or 0))
