"""Windlass: an agent runtime whose journal is the run.

    from windlass import Agent, tool

Here are agents, tools, facts, messages, limits and errors. Further public modules are
`windlass.evaluation`, `windlass.gates`, `windlass.journals`, `windlass.knowledge`,
`windlass.models`, `windlass.ports`, `windlass.project`, `windlass.telemetry`, `windlass.testing`
and `windlass.tools`. The module that defines a name is imported when the name is first used.
"""

from typing import TYPE_CHECKING

from windlass.lazy_modules import LazyModules, lazy_attributes

if TYPE_CHECKING:
    from windlass.agent.agent import Agent as Agent
    from windlass.agent.answering import answer as answer
    from windlass.agent.attachments import attach as attach
    from windlass.agent.control import (
        cancel as cancel,
        pause as pause,
        raise_limits as raise_limits,
        resume as resume,
        steer as steer,
    )
    from windlass.agent.event_stream import EventStream as EventStream
    from windlass.agent.folder_store import FolderStore as FolderStore
    from windlass.agent.handles import RunHandle as RunHandle
    from windlass.agent.handover import (
        TeamResult as TeamResult,
        hand_over_tool as hand_over_tool,
        run_with_handover as run_with_handover,
    )
    from windlass.agent.knowledge_tools import (
        knowledge_tools as knowledge_tools,
        project_instructions as project_instructions,
        recaller as recaller,
        remember_run as remember_run,
        skill_tool as skill_tool,
    )
    from windlass.agent.options import AgentOptions as AgentOptions, Briefing as Briefing
    from windlass.agent.prompt_queue import withdraw_prompt as withdraw_prompt
    from windlass.agent.subagents import delegate as delegate
    from windlass.core.audit.explain import explain as explain
    from windlass.core.audit.replay import replay as replay
    from windlass.core.setup import (
        Compaction as Compaction,
        Hydration as Hydration,
        Reference as Reference,
    )
    from windlass.core.context_facts import UndoneCall as UndoneCall
    from windlass.core.errors import (
        ConfigError as ConfigError,
        JournalCorrupt as JournalCorrupt,
        JournalFailed as JournalFailed,
        ModelError as ModelError,
        ModelRetry as ModelRetry,
        NothingToDo as NothingToDo,
        QuestionDecided as QuestionDecided,
        RunUnfinished as RunUnfinished,
        SessionBusy as SessionBusy,
        SetupDrifted as SetupDrifted,
        WindlassError as WindlassError,
        WorkspaceMissing as WorkspaceMissing,
    )
    from windlass.core.events import (
        AttemptDiscarded as AttemptDiscarded,
        AttemptFailed as AttemptFailed,
        AttemptRetrying as AttemptRetrying,
        AttemptStarted as AttemptStarted,
        BudgetAllotted as BudgetAllotted,
        CallAnswered as CallAnswered,
        CallDelta as CallDelta,
        CallFinished as CallFinished,
        CallJudged as CallJudged,
        CallLate as CallLate,
        CallProgress as CallProgress,
        CallStarted as CallStarted,
        ContextCompacted as ContextCompacted,
        Event as Event,
        Fact as Fact,
        KnowledgeRecalled as KnowledgeRecalled,
        LookupsPlanned as LookupsPlanned,
        ModelFellBack as ModelFellBack,
        NestedEvent as NestedEvent,
        NoteGiven as NoteGiven,
        ReplyJudged as ReplyJudged,
        RunEnded as RunEnded,
        RunResumed as RunResumed,
        RunStarted as RunStarted,
        RunSuspended as RunSuspended,
        SessionImported as SessionImported,
        SteeringGiven as SteeringGiven,
        SteeringTaken as SteeringTaken,
        StepProposed as StepProposed,
        StreamStalled as StreamStalled,
        TextDelta as TextDelta,
        ThinkingDelta as ThinkingDelta,
        UndoPlanned as UndoPlanned,
        UsageDelta as UsageDelta,
    )
    from windlass.core.fold.run import fold as fold
    from windlass.core.limits import (
        Budget as Budget,
        Limits as Limits,
        RaisedLimits as RaisedLimits,
        SessionLimits as SessionLimits,
    )
    from windlass.core.messages import (
        AssistantMessage as AssistantMessage,
        FilePart as FilePart,
        ImagePart as ImagePart,
        Message as Message,
        TextPart as TextPart,
        ThinkingPart as ThinkingPart,
        ToolCall as ToolCall,
        ToolResult as ToolResult,
        ToolResults as ToolResults,
        ToolSpec as ToolSpec,
        Usage as Usage,
        UserMessage as UserMessage,
    )
    from windlass.core.projection.changes import forget_streamed_text as forget_streamed_text
    from windlass.core.projection.entries import (
        EarlierEntry as EarlierEntry,
        FailureEntry as FailureEntry,
        FallbackEntry as FallbackEntry,
        ModelNoteEntry as ModelNoteEntry,
        NoticeEntry as NoticeEntry,
        PromptEntry as PromptEntry,
        SteeringEntry as SteeringEntry,
    )
    from windlass.core.projection.project import (
        apply_event as apply_event,
        nest_events as nest_events,
        project_events as project_events,
    )
    from windlass.core.event_json import parse_event as parse_event
    from windlass.core.question import Question as Question
    from windlass.core.projection.runs import (
        RunStatus as RunStatus,
        RunView as RunView,
    )
    from windlass.core.projection.streaming import StreamingReply as StreamingReply
    from windlass.core.projection.view import (
        CallView as CallView,
        NestedView as NestedView,
        Projection as Projection,
        ReplyEntry as ReplyEntry,
    )
    from windlass.core.result import (
        FailedByBug as FailedByBug,
        FailedByJournal as FailedByJournal,
        FailedByModel as FailedByModel,
        FailedByOutput as FailedByOutput,
        FailedByTools as FailedByTools,
        OutputMissing as OutputMissing,
        RunFailed as RunFailed,
        RunResult as RunResult,
    )
    from windlass.core.secrets.mask import Mask as Mask
    from windlass.core.setup import (
        LoopPolicy as LoopPolicy,
        ModelInfo as ModelInfo,
        Price as Price,
        RetryPolicy as RetryPolicy,
    )
    from windlass.core.verdicts import (
        Allow as Allow,
        AllowAlways as AllowAlways,
        Ask as Ask,
        Deny as Deny,
        Modify as Modify,
    )
    from windlass.core.setup import WorkFolder as WorkFolder
    from windlass.models.options import ModelOptions as ModelOptions
    from windlass.ports import Timeouts as Timeouts
    from windlass.runtime.governor import ProviderGovernor as ProviderGovernor
    from windlass.tools.breaker import ToolUnavailable as ToolUnavailable
    from windlass.tools.function import (
        NOT_DONE as NOT_DONE,
        UNKNOWN as UNKNOWN,
        Tool as Tool,
        tool as tool,
    )
    from windlass.tools.run_context import RunContext as RunContext
    from windlass.tools.toolbox import Toolbox as Toolbox

LAZY_MODULES: LazyModules = {
    "windlass.agent.agent": "Agent",
    "windlass.agent.answering": "answer",
    "windlass.agent.attachments": "attach",
    "windlass.agent.control": "cancel pause raise_limits resume steer",
    "windlass.agent.event_stream": "EventStream",
    "windlass.agent.folder_store": "FolderStore",
    "windlass.agent.handles": "RunHandle",
    "windlass.agent.handover": "TeamResult hand_over_tool run_with_handover",
    "windlass.agent.knowledge_tools": (
        "knowledge_tools project_instructions recaller remember_run skill_tool"
    ),
    "windlass.agent.options": "AgentOptions Briefing",
    "windlass.agent.prompt_queue": "withdraw_prompt",
    "windlass.agent.subagents": "delegate",
    "windlass.core.audit.explain": "explain",
    "windlass.core.audit.replay": "replay",
    "windlass.core.context_facts": "UndoneCall",
    "windlass.core.errors": (
        "ConfigError JournalCorrupt JournalFailed ModelError ModelRetry NothingToDo "
        "QuestionDecided RunUnfinished SessionBusy SetupDrifted WindlassError WorkspaceMissing"
    ),
    "windlass.core.event_json": "parse_event",
    "windlass.core.events": (
        "AttemptDiscarded AttemptFailed AttemptRetrying AttemptStarted BudgetAllotted "
        "CallAnswered CallDelta CallFinished CallJudged CallLate CallProgress CallStarted "
        "ContextCompacted Event Fact KnowledgeRecalled LookupsPlanned ModelFellBack "
        "NestedEvent NoteGiven ReplyJudged RunEnded RunResumed RunStarted RunSuspended "
        "SessionImported SteeringGiven SteeringTaken StepProposed StreamStalled TextDelta "
        "ThinkingDelta UndoPlanned UsageDelta"
    ),
    "windlass.core.fold.run": "fold",
    "windlass.core.limits": "Budget Limits RaisedLimits SessionLimits",
    "windlass.core.messages": (
        "AssistantMessage FilePart ImagePart Message TextPart ThinkingPart ToolCall ToolResult "
        "ToolResults ToolSpec Usage UserMessage"
    ),
    "windlass.core.projection.changes": "forget_streamed_text",
    "windlass.core.projection.entries": (
        "EarlierEntry FailureEntry FallbackEntry ModelNoteEntry NoticeEntry PromptEntry "
        "SteeringEntry"
    ),
    "windlass.core.projection.project": "apply_event nest_events project_events",
    "windlass.core.projection.runs": "RunStatus RunView",
    "windlass.core.projection.streaming": "StreamingReply",
    "windlass.core.projection.view": "CallView NestedView Projection ReplyEntry",
    "windlass.core.question": "Question",
    "windlass.core.result": (
        "FailedByBug FailedByJournal FailedByModel FailedByOutput FailedByTools OutputMissing "
        "RunFailed RunResult"
    ),
    "windlass.core.secrets.mask": "Mask",
    "windlass.core.setup": (
        "Compaction Hydration LoopPolicy ModelInfo Price Reference RetryPolicy WorkFolder"
    ),
    "windlass.core.verdicts": "Allow AllowAlways Ask Deny Modify",
    "windlass.models.options": "ModelOptions",
    "windlass.ports": "Timeouts",
    "windlass.runtime.governor": "ProviderGovernor",
    "windlass.tools.breaker": "ToolUnavailable",
    "windlass.tools.function": "NOT_DONE Tool UNKNOWN tool",
    "windlass.tools.run_context": "RunContext",
    "windlass.tools.toolbox": "Toolbox",
}
if not TYPE_CHECKING:  # To a type checker, `__getattr__` would make every name a valid one.
    __getattr__ = lazy_attributes(__name__, LAZY_MODULES)
