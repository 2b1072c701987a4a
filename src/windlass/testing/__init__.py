"""Test doubles for every port, fault injection, virtual time and conformance suites.

This is what users test their agents, and their own journals, gates, models and tools, with:

    from windlass.testing import ScriptedModel, call, say

Load `windlass.testing.plugin` into pytest, and each `async def test_*` runs on virtual time.
"""

from typing import TYPE_CHECKING

from windlass.lazy_modules import LazyModules, lazy_attributes

if TYPE_CHECKING:
    from windlass.core.view import Prompt as Prompt
    from windlass.testing.blobs import BlobStoreConformance as BlobStoreConformance
    from windlass.testing.budgets import SharedBudgetsConformance as SharedBudgetsConformance
    from windlass.testing.cassettes import (
        Cassette as Cassette,
        CassetteMismatch as CassetteMismatch,
    )
    from windlass.testing.catalog import SessionCatalogConformance as SessionCatalogConformance
    from windlass.testing.clock import (
        ClockConformance as ClockConformance,
        Deadlock as Deadlock,
        TaskLeaked as TaskLeaked,
        VirtualClock as VirtualClock,
        VirtualLoop as VirtualLoop,
        run_virtual as run_virtual,
    )
    from windlass.testing.events import Trace as Trace, check_trace as check_trace
    from windlass.testing.fault_server import (
        FaultServer as FaultServer,
        ReceivedRequest as ReceivedRequest,
        serve_in_thread as serve_in_thread,
    )
    from windlass.testing.faults import (
        BareJournal as BareJournal,
        FailingJournal as FailingJournal,
        HungJournal as HungJournal,
        PowerCut as PowerCut,
        PowerCutEnd as PowerCutEnd,
        PowerCutJournal as PowerCutJournal,
        RealTimeJournal as RealTimeJournal,
        WaitingJournal as WaitingJournal,
        cut_power_everywhere as cut_power_everywhere,
    )
    from windlass.testing.gates import (
        BrokenGate as BrokenGate,
        FixedGate as FixedGate,
        GateConformance as GateConformance,
    )
    from windlass.testing.journals import JournalConformance as JournalConformance
    from windlass.testing.leases import (
        AppendSignalsConformance as AppendSignalsConformance,
        SessionLeasesConformance as SessionLeasesConformance,
    )
    from windlass.testing.live import LiveChannelConformance as LiveChannelConformance
    from windlass.testing.mailbox import MailboxConformance as MailboxConformance
    from windlass.testing.models import ModelConformance as ModelConformance
    from windlass.testing.prompts import (
        PromptChecker as PromptChecker,
        check_prompt as check_prompt,
    )
    from windlass.testing.script_words import (
        call as call,
        cut as cut,
        drop as drop,
        end as end,
        fail as fail,
        length as length,
        pause as pause,
        refuse as refuse,
        say as say,
        stall as stall,
        think as think,
        usage as usage,
    )
    from windlass.testing.scripted_model import (
        ScriptedModel as ScriptedModel,
        ScriptedReply as ScriptedReply,
        ScriptExhausted as ScriptExhausted,
    )
    from windlass.testing.shared_records import (
        SharedQuotaConformance as SharedQuotaConformance,
        SharedRecordsConformance as SharedRecordsConformance,
    )
    from windlass.testing.tools import (
        Behaviour as Behaviour,
        Delay as Delay,
        Hang as Hang,
        IgnoreCancel as IgnoreCancel,
        RaiseFromRun as RaiseFromRun,
        RecordedCall as RecordedCall,
        RecordingTools as RecordingTools,
        ToolsConformance as ToolsConformance,
        call_context as call_context,
        cleared_call as cleared_call,
    )
    from windlass.testing.work import WorkConformance as WorkConformance

LAZY_MODULES: LazyModules = {
    "windlass.core.view": "Prompt",
    "windlass.testing.blobs": "BlobStoreConformance",
    "windlass.testing.budgets": "SharedBudgetsConformance",
    "windlass.testing.cassettes": "Cassette CassetteMismatch",
    "windlass.testing.catalog": "SessionCatalogConformance",
    "windlass.testing.clock": (
        "ClockConformance Deadlock TaskLeaked VirtualClock VirtualLoop run_virtual"
    ),
    "windlass.testing.events": "Trace check_trace",
    "windlass.testing.fault_server": "FaultServer ReceivedRequest serve_in_thread",
    "windlass.testing.faults": (
        "BareJournal FailingJournal HungJournal PowerCut PowerCutEnd PowerCutJournal "
        "RealTimeJournal WaitingJournal cut_power_everywhere"
    ),
    "windlass.testing.gates": "BrokenGate FixedGate GateConformance",
    "windlass.testing.journals": "JournalConformance",
    "windlass.testing.leases": "AppendSignalsConformance SessionLeasesConformance",
    "windlass.testing.live": "LiveChannelConformance",
    "windlass.testing.mailbox": "MailboxConformance",
    "windlass.testing.models": "ModelConformance",
    "windlass.testing.prompts": "PromptChecker check_prompt",
    "windlass.testing.script_words": (
        "call cut drop end fail length pause refuse say stall think usage"
    ),
    "windlass.testing.scripted_model": "ScriptExhausted ScriptedModel ScriptedReply",
    "windlass.testing.shared_records": "SharedQuotaConformance SharedRecordsConformance",
    "windlass.testing.tools": (
        "Behaviour Delay Hang IgnoreCancel RaiseFromRun RecordedCall RecordingTools "
        "ToolsConformance call_context cleared_call"
    ),
    "windlass.testing.work": "WorkConformance",
}
if not TYPE_CHECKING:  # To a type checker, `__getattr__` would make every name a valid one.
    __getattr__ = lazy_attributes(__name__, LAZY_MODULES)
