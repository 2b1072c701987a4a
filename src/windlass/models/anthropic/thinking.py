"""How Claude is told to think: each generation of the models has another way (S14).

Up to 4.5 a budget of tokens; from 4.6 on an effort, with which the model decides by itself. From 5
on thinking is on unless switched off, and most models after that cannot switch it off: there, `off`
is the lowest effort. A name that is not Claude's is some other server's, which knows budgets.
"""

import re
from typing import Any

from windlass.models.dialect import Effort

_MODEL_NAME = re.compile(r"claude-(?:([a-z]+)-)?(\d{1,2})(?:[-.](\d{1,2}))?(?!\d)")
_FIRST_TO_THINK = (3, 7)
_ADAPTIVE = (4, 6)
_NO_SAMPLING = (4, 7)
"""From here on temperature and the like are refused, and thinking is hidden unless asked for."""
_ON_BY_DEFAULT = (5, 0)

_BUDGETS: dict[Effort, int] = {"low": 2_048, "medium": 8_192, "high": 24_576}
_BUDGET_MIN = 1_024


def accepts_sampling(model: str) -> bool:
    """Whether the model can be given a temperature, as long as it does not think."""
    named = _parse_model_name(model)
    return named is None or named[1] < _NO_SAMPLING


def thinking_settings(
    model: str, effort: Effort | None, output_max: int, *, forced: bool
) -> dict[str, Any]:
    """The fields of a request. A forced call and thinking exclude each other: the call wins."""
    named = _parse_model_name(model)
    if effort is None:
        return _disabled_settings(*named) if forced and named else {}
    if named is None:
        return {} if forced else _budget_settings(effort, output_max)
    family, version = named
    if version < _FIRST_TO_THINK:
        return {}
    if version < _ADAPTIVE:
        return {} if forced else _budget_settings(effort, output_max)
    if effort == "off":
        switched_off = _disabled_settings(family, version)
        lowest = {"output_config": {"effort": "low"}} if version >= _ON_BY_DEFAULT else {}
        return switched_off | lowest
    thinking = _disabled_settings(family, version) if forced else _adaptive_settings(version)
    return thinking | {"output_config": {"effort": effort}}


def _budget_settings(effort: Effort, output_max: int) -> dict[str, Any]:
    """The output cap holds thinking and answer, and is never raised: it is what may be spent."""
    budget = min(_BUDGETS.get(effort, 0), output_max * 3 // 4)
    if budget < _BUDGET_MIN:
        return {}
    return {"thinking": {"type": "enabled", "budget_tokens": budget}}


def _adaptive_settings(version: tuple[int, int]) -> dict[str, Any]:
    shown = {"display": "summarized"} if version >= _NO_SAMPLING else {}
    return {"thinking": {"type": "adaptive", **shown}}


def _disabled_settings(family: str, version: tuple[int, int]) -> dict[str, Any]:
    """Nothing where thinking is off by itself, and where it cannot be switched off."""
    if version == _ON_BY_DEFAULT and family in {"opus", "sonnet"}:
        return {"thinking": {"type": "disabled"}}
    if version > _ON_BY_DEFAULT and family == "sonnet":
        return {"thinking": {"type": "between_tools"}}
    return {}


def _parse_model_name(model: str) -> tuple[str, tuple[int, int]] | None:
    """The family and version in a model's name, with or without a vendor's prefix."""
    found = _MODEL_NAME.search(model)
    if found is None:
        return None
    return found[1] or "", (int(found[2]), int(found[3] or 0))
