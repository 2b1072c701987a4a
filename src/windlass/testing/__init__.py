"""The world, replaced: doubles for every port, virtual time, and the suites that each must pass.

    from windlass.testing import ScriptedModel, call, say

Load `windlass.testing.plugin` into pytest, and each `async def test_*` runs on virtual time.
"""

from windlass.testing.clock import (
    ClockConformance,
    Deadlock,
    TaskLeaked,
    VirtualClock,
    VirtualLoop,
    run_virtual,
)
from windlass.testing.events import Trace, check_trace
from windlass.testing.faults import (
    CutJournal,
    FailingJournal,
    HungJournal,
    OutsideJournal,
    PowerCut,
    WaitingJournal,
)
from windlass.testing.gates import BrokenGate, FixedGate, GateConformance
from windlass.testing.journals import JournalConformance
from windlass.testing.models import ModelConformance
from windlass.testing.prompts import PromptChecker, check_prompt
from windlass.testing.script import Reply, ScriptedModel, ScriptExhausted
from windlass.testing.tools import RecordingTools, ToolsConformance
from windlass.testing.vocabulary import (
    call,
    cut,
    drop,
    end,
    fail,
    length,
    pause,
    refuse,
    say,
    stall,
    think,
    usage,
)

__all__ = [
    "BrokenGate",
    "ClockConformance",
    "CutJournal",
    "Deadlock",
    "FailingJournal",
    "FixedGate",
    "GateConformance",
    "HungJournal",
    "JournalConformance",
    "ModelConformance",
    "OutsideJournal",
    "PowerCut",
    "PromptChecker",
    "RecordingTools",
    "Reply",
    "ScriptExhausted",
    "ScriptedModel",
    "TaskLeaked",
    "ToolsConformance",
    "Trace",
    "VirtualClock",
    "VirtualLoop",
    "WaitingJournal",
    "call",
    "check_prompt",
    "check_trace",
    "cut",
    "drop",
    "end",
    "fail",
    "length",
    "pause",
    "refuse",
    "run_virtual",
    "say",
    "stall",
    "think",
    "usage",
]
