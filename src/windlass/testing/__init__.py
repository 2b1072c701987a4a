"""Test doubles for every port, fault injection, virtual time and conformance suites.

This is what users test their agents, and their own journals, gates, models and tools, with:

    from windlass.testing import ScriptedModel, call, say

Load `windlass.testing.plugin` into pytest, and each `async def test_*` runs on virtual time.
"""

from windlass.testing.blobs import BlobStoreConformance
from windlass.testing.budgets import SharedBudgetsConformance
from windlass.testing.cassettes import Cassette, CassetteMismatch
from windlass.testing.catalog import SessionCatalogConformance
from windlass.testing.clock import (
    ClockConformance,
    Deadlock,
    TaskLeaked,
    VirtualClock,
    VirtualLoop,
    run_virtual,
)
from windlass.testing.events import Trace, check_trace
from windlass.testing.fault_server import FaultServer, ReceivedRequest, serve_in_thread
from windlass.testing.faults import (
    BareJournal,
    FailingJournal,
    HungJournal,
    PowerCut,
    PowerCutJournal,
    RealTimeJournal,
    WaitingJournal,
)
from windlass.testing.gates import BrokenGate, FixedGate, GateConformance
from windlass.testing.journals import JournalConformance
from windlass.testing.leases import AppendSignalsConformance, SessionLeasesConformance
from windlass.testing.live import LiveChannelConformance
from windlass.testing.mailbox import MailboxConformance
from windlass.testing.models import ModelConformance
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
from windlass.testing.scripted_model import ScriptedModel, ScriptedReply, ScriptExhausted
from windlass.testing.shared_records import SharedQuotaConformance, SharedRecordsConformance
from windlass.testing.tools import (
    Behaviour,
    Delay,
    Hang,
    IgnoreCancel,
    RaiseFromRun,
    RecordedCall,
    RecordingTools,
    ToolsConformance,
    call_context,
    cleared_call,
)

__all__ = [
    "AppendSignalsConformance",
    "BareJournal",
    "Behaviour",
    "BlobStoreConformance",
    "BrokenGate",
    "Cassette",
    "CassetteMismatch",
    "ClockConformance",
    "Deadlock",
    "Delay",
    "FailingJournal",
    "FaultServer",
    "FixedGate",
    "GateConformance",
    "Hang",
    "HungJournal",
    "IgnoreCancel",
    "JournalConformance",
    "LiveChannelConformance",
    "MailboxConformance",
    "ModelConformance",
    "PowerCut",
    "PowerCutJournal",
    "PromptChecker",
    "RaiseFromRun",
    "RealTimeJournal",
    "ReceivedRequest",
    "RecordedCall",
    "RecordingTools",
    "ScriptExhausted",
    "ScriptedModel",
    "ScriptedReply",
    "SessionCatalogConformance",
    "SessionLeasesConformance",
    "SharedBudgetsConformance",
    "SharedQuotaConformance",
    "SharedRecordsConformance",
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
    "cleared_call",
    "cut",
    "drop",
    "end",
    "fail",
    "length",
    "pause",
    "refuse",
    "run_virtual",
    "say",
    "serve_in_thread",
    "stall",
    "think",
    "usage",
]
