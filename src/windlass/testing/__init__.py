"""The world, replaced: doubles for every port, virtual time, and the suites that each must pass.

    from windlass.testing import ScriptedModel, call, say

Load `windlass.testing.plugin` into pytest, and each `async def test_*` runs on virtual time.
"""

from windlass.testing.blobs import BlobsConformance
from windlass.testing.cassettes import Cassette, CassetteMismatch
from windlass.testing.clock import (
    ClockConformance,
    Deadlock,
    TaskLeaked,
    VirtualClock,
    VirtualLoop,
    run_virtual,
)
from windlass.testing.events import Trace, check_trace
from windlass.testing.fault_server import Asked, FaultServer, in_thread
from windlass.testing.faults import (
    BareJournal,
    CutJournal,
    FailingJournal,
    HungJournal,
    OutsideJournal,
    PowerCut,
    WaitingJournal,
)
from windlass.testing.gates import BrokenGate, FixedGate, GateConformance
from windlass.testing.journals import JournalConformance
from windlass.testing.leases import FollowingConformance, LeasingConformance
from windlass.testing.listing import ListingConformance
from windlass.testing.models import ModelConformance
from windlass.testing.pools import PoolsConformance
from windlass.testing.prompts import PromptChecker, check_prompt
from windlass.testing.script_words import (
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
from windlass.testing.scripted_model import Reply, ScriptedModel, ScriptExhausted
from windlass.testing.tools import (
    Behaviour,
    Delay,
    Explode,
    Hang,
    IgnoreCancel,
    Ran,
    RecordingTools,
    ToolsConformance,
    call_context,
    cleared,
)

__all__ = [
    "Asked",
    "BareJournal",
    "Behaviour",
    "BlobsConformance",
    "BrokenGate",
    "Cassette",
    "CassetteMismatch",
    "ClockConformance",
    "CutJournal",
    "Deadlock",
    "Delay",
    "Explode",
    "FailingJournal",
    "FaultServer",
    "FixedGate",
    "FollowingConformance",
    "GateConformance",
    "Hang",
    "HungJournal",
    "IgnoreCancel",
    "JournalConformance",
    "LeasingConformance",
    "ListingConformance",
    "ModelConformance",
    "OutsideJournal",
    "PoolsConformance",
    "PowerCut",
    "PromptChecker",
    "Ran",
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
    "call_context",
    "check_prompt",
    "check_trace",
    "cleared",
    "cut",
    "drop",
    "end",
    "fail",
    "in_thread",
    "length",
    "pause",
    "refuse",
    "run_virtual",
    "say",
    "stall",
    "think",
    "usage",
]
