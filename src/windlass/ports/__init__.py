"""The ports: everything that the loop needs of the world, as small protocols.

Each port has a conformance suite in `windlass.testing`: what passes it can be plugged in.
"""

from windlass.ports.gates import Approver, ApproverReply, Gate, GateRequest
from windlass.ports.journals import (
    AppendSignals,
    AsyncClosableJournal,
    BlobStore,
    ClosableJournal,
    ConfirmableLease,
    Journal,
    Lease,
    LiveChannel,
    LiveSender,
    LiveSubscription,
    Mailbox,
    SessionCatalog,
    SessionLeases,
    SharedBudgets,
    SharedRecord,
    SharedRecords,
    SignedJournal,
)
from windlass.ports.models import (
    Model,
    RateLimitedModel,
    RefusesContent,
    RequestGovernor,
    RequestPermit,
    Timeouts,
)
from windlass.ports.tools import (
    CallContext,
    PreviewingTools,
    ReconcileOutcome,
    RecoverableTools,
    Tools,
)
from windlass.ports.world import CallerRun, ChildRun, Clock, Recaller, RunBoundTools, Watcher, World

__all__ = [
    "AppendSignals",
    "Approver",
    "ApproverReply",
    "AsyncClosableJournal",
    "BlobStore",
    "CallContext",
    "CallerRun",
    "ChildRun",
    "Clock",
    "ClosableJournal",
    "ConfirmableLease",
    "Gate",
    "GateRequest",
    "Journal",
    "Lease",
    "LiveChannel",
    "LiveSender",
    "LiveSubscription",
    "Mailbox",
    "Model",
    "PreviewingTools",
    "RateLimitedModel",
    "Recaller",
    "ReconcileOutcome",
    "RecoverableTools",
    "RefusesContent",
    "RequestGovernor",
    "RequestPermit",
    "RunBoundTools",
    "SessionCatalog",
    "SessionLeases",
    "SharedBudgets",
    "SharedRecord",
    "SharedRecords",
    "SignedJournal",
    "Timeouts",
    "Tools",
    "Watcher",
    "World",
]
