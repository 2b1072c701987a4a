"""Who needs a driver: the one rule of sweeps, workers and `drive`."""

import pytest

from windlass.core.driver_needs import needs_driver
from windlass.core.events import (
    AttemptStarted,
    CallJudged,
    Fact,
    RunEnded,
    RunPaused,
    RunReleased,
    RunStarted,
    StepProposed,
)
from windlass.core.fold.run import fold
from windlass.core.messages import AssistantMessage, TextPart, ToolCall
from windlass.core.setup import ModelInfo, Setup
from windlass.core.state import State
from windlass.core.verdicts import Ask
from windlass.testing.samples import SAMPLE_RESERVATION, number_facts

START = RunStarted(1, (TextPart("Go."),), Setup(model=ModelInfo("m")))
ASKED = (
    AttemptStarted(1, 1, "m", SAMPLE_RESERVATION),
    StepProposed(AssistantMessage((ToolCall("a", "send", "{}"),)), "calls"),
    CallJudged("a", Ask("May I?")),
)


def state_after(*facts: Fact) -> State:
    return fold("s", number_facts([START, *facts]))


@pytest.mark.contract("D8", "D5")
@pytest.mark.parametrize(
    ("facts", "alone", "with_control", "with_prompts"),
    [
        pytest.param((), True, True, True, id="open"),
        pytest.param((RunReleased(),), True, True, True, id="released"),
        pytest.param((RunPaused(),), True, True, True, id="its driver died before it let go"),
        pytest.param((RunPaused(), RunReleased()), False, True, False, id="paused"),
        pytest.param(ASKED, False, True, False, id="waits for an answer"),
        pytest.param((RunEnded("completed"),), False, True, True, id="ended"),
    ],
)
def test_a_session_needs_a_driver(
    *, facts: tuple[Fact, ...], alone: bool, with_control: bool, with_prompts: bool
) -> None:
    """D5: nobody picks up a paused run, but a message to it is taken: it may end the pause."""
    state = state_after(*facts)
    assert needs_driver(state, has_control_mail=False, has_prompts=False) is alone
    assert needs_driver(state, has_control_mail=True, has_prompts=False) is with_control
    assert needs_driver(state, has_control_mail=False, has_prompts=True) is with_prompts
