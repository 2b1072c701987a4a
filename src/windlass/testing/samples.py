"""Sample facts for tests of journals: a valid session with every kind of fact in it."""

from collections.abc import Sequence
from decimal import Decimal

from msgspec.structs import replace

from windlass.core.context_facts import UndoneCall
from windlass.core.control_facts import NestedQuestion
from windlass.core.errors import Fault
from windlass.core.events import (
    AnswerCounted,
    AnswerForwarded,
    AttemptFailed,
    AttemptStarted,
    BudgetAllotted,
    BudgetAwaited,
    BudgetWaitEnded,
    CallAnswered,
    CallFinished,
    CallJudged,
    CallLate,
    CallStarted,
    CallWaiting,
    ContextCompacted,
    Fact,
    KnowledgeRecalled,
    LimitsRaised,
    LookupsPlanned,
    MailRefused,
    NoteGiven,
    PromptWithdrawn,
    ReleaseAsked,
    ReplyJudged,
    Reservation,
    RunContinued,
    RunEnded,
    RunPaused,
    RunQueued,
    RunReleased,
    RunResumed,
    RunStarted,
    SessionImported,
    SessionProgress,
    SteeringGiven,
    SteeringTaken,
    StepProposed,
    UndoPlanned,
)
from windlass.core.limits import Amount, Budget, Limits, RaisedLimits, SessionLimits
from windlass.core.messages import (
    ArgumentChange,
    AssistantMessage,
    CallOutcome,
    Charge,
    FilePart,
    ImagePart,
    Message,
    TextPart,
    ThinkingPart,
    ToolCall,
    ToolResult,
    ToolResults,
    ToolSpec,
    Usage,
    UserMessage,
)
from windlass.core.setup import Compaction, Hydration, ModelInfo, Price, Reference, Setup, digest
from windlass.core.verdicts import (
    Allow,
    Approval,
    Ask,
    Deny,
    Grant,
    InvalidCall,
    LentRoles,
    Modify,
    Starter,
    VerifiedPerson,
)


def note_facts(first: int, last: int, text: str = "note") -> list[Fact]:
    """Return small facts with the sequence numbers `first` to `last`."""
    numbers = range(first, last + 1)
    return [NoteGiven(f"{text} {at}", "same_call", seq=at, at=1e9 + at) for at in numbers]


SAMPLE_AMOUNT = Amount(Decimal("0.25"), 5_000)
SAMPLE_RESERVATION = Reservation(1_000, 500, Decimal("0.01"))
SAMPLE_CHARGE = Charge(
    "m:x", usage=Usage(100, 20, cache_read=10, reasoning=5), usd=Decimal("0.00123")
)
SAMPLE_ARGUMENTS = {"to": "ann", "n": [1, None, 2.5]}


def facts_of_every_kind() -> list[Fact]:
    """Return a valid session with every kind of fact and every kind of content."""
    prompt = (
        TextPart("Look, then send. 🙂"),
        ImagePart("image/png", b"\x89PNG\x00\xff"),
        FilePart("text/plain", "notes.txt", b"", None),
    )
    fault = Fault("rate_limit", "slow down", retryable=True, retry_after_s=1.5)
    return number_facts(
        [
            RunStarted(1, prompt, setup=_sample_setup(), earlier=_earlier_messages()),
            AttemptStarted(1, 1, "m:x", SAMPLE_RESERVATION),
            AttemptFailed(fault, established=True, visible=True, partial="I", wait_s=1.0),
            AttemptStarted(1, 2, "m:x", SAMPLE_RESERVATION),
            *_step_facts(),
            CallLate("a", ToolResult.from_text("value", "too late")),
            SessionImported("elsewhere"),
            NoteGiven("You said that before.", "same_call"),
            ContextCompacted(3, how="mask"),
            AttemptStarted(2, 1, "m:small", SAMPLE_RESERVATION, purpose="compaction"),
            ContextCompacted(
                1, "Goals: to send.", "summary", Charge("m:small", "compaction", Usage(9, 2))
            ),
            BudgetAllotted("team", SAMPLE_AMOUNT, dry=True, held=Amount(Decimal(2), 7)),
            BudgetAwaited("team", Amount(Decimal(2), 7), 2.0),
            BudgetWaitEnded("team"),
            SteeringGiven((TextPart("Hurry."),), by="ann"),
            SteeringTaken(),
            *_control_facts(),
            AttemptStarted(2, 1, "m:x", SAMPLE_RESERVATION, landing=True),
            StepProposed(AssistantMessage((TextPart("Sent."),)), "end", Charge("m:x")),
            ReplyJudged(Allow()),
            PromptWithdrawn(2, by="ann", mail=9),
            RunEnded("completed", "done", partial=""),
            *_queued_facts(),
            *_second_run_facts(),
        ]
    )


def _earlier_messages() -> tuple[Message, ...]:
    """Return a conversation that was handed in, with a call and an attachment."""
    call = ToolCall("e1", "look", '{"at":"door"}', provider_id="call_1")
    seen = (TextPart("A door."), ImagePart("image/png", b"\x89PNG\x00door"))
    return (
        UserMessage((TextPart("What is there?"), ImagePart("image/png", b"\x89PNG\x00hall"))),
        AssistantMessage((ThinkingPart("Where?", "sig"), call), "m:x"),
        ToolResults((CallOutcome(call, ToolResult("value", seen)),)),
        AssistantMessage((TextPart("A door."),)),
    )


def _control_facts() -> list[Fact]:
    """Return what people do to a run from outside: pause, release, continue, raise its limits."""
    raised = RaisedLimits(usd=Decimal("7.5"), session_steps=99)
    return [
        RunPaused("lunch", by="ann", mail=1),
        RunReleased("paused"),
        MailRefused(2, "cancel", "it was for run 7", by="bob"),
        RunResumed(),
        RunContinued(by="bob", mail=3),
        LimitsRaised(raised, by="ann", mail=4),
        RunPaused("used up", cause="budget", needed=Amount(Decimal("0.01"), 20)),
        LimitsRaised(RaisedLimits(tokens=5_000_000), mail=5),
        AnswerForwarded("s/a", "c1_0", by="ann", mail=6),
        ReleaseAsked("drain", by="ann", mail=7),
        RunPaused("parked: 2 drivers died while look ran", by="helper", cause="deaths"),
        RunContinued(by="ann", mail=8),
    ]


def _waiting_facts() -> list[Fact]:
    """Return a call that waits for its sub-agent, and is then run again."""
    question = NestedQuestion(
        "s/h2_0", "c1_0", "send", '{"to":"ann"}', "May I?", "digest", 2e9, ("top", "helper"), "r"
    )
    return [
        CallWaiting("h2_0", "s/h2_0", (question,)),
        RunResumed(below=(SessionProgress("s/h2_0", 7),)),
        CallStarted("h2_0", "key-h"),
    ]


def _second_run_facts() -> list[Fact]:
    """Return a run with recalled knowledge and a lookup, which then fails."""
    prompt = (TextPart("Again, see notes.txt."),)
    trusted = {"tenant": "north", "level": 2}
    paid = Charge("m:child", "subagent", Usage(3, 1), Decimal("0.0001"))
    return [
        RunStarted(
            2,
            prompt,
            None,
            "ann",
            trusted,
            pinned=True,
            parent="above/c1_0",
            agent="porter",
            mail=3,
        ),
        KnowledgeRecalled("Ann is a dentist.", ("private",)),
        LookupsPlanned((ToolCall("h2_0", "look", '{"at":"notes.txt"}'),)),
        CallJudged("h2_0", Ask("May I?", arguments={"at": "notes"})),
        CallAnswered(
            "h2_0",
            Allow("always"),
            digest({"at": "notes"}),
            "ann",
            Grant("look", pattern="look(n*)"),
        ),
        *_approval_facts(),
        CallStarted("h2_0", "key-h"),
        *_waiting_facts(),
        CallFinished("h2_0", ToolResult.from_text("value", "Be quick."), (paid,)),
        AttemptStarted(3, 1, "m:x", SAMPLE_RESERVATION),
        RunEnded("failed", "why", Fault("bug", "oh"), "Al", charge=SAMPLE_CHARGE, charges=(paid,)),
        *_undo_facts(),
    ]


def _approval_facts() -> list[Fact]:
    """Return a permission that is taken back for a question, to which two people agree."""
    return [
        CallJudged("h2_0", _ask_two_people()),
        AnswerCounted(
            "h2_0",
            Modify({"at": "letters"}, "not the notes"),
            digest({"at": "notes"}),
            "bea",
            mail=10,
            accepted_at=5.0,
            signature="k1.sig",
            person=_sample_person("bea"),
        ),
        CallAnswered(
            "h2_0",
            Allow(),
            digest({"at": "letters"}),
            "carl",
            mail=11,
            accepted_at=6.0,
            person=_sample_person("carl"),
        ),
    ]


def _ask_two_people() -> Ask:
    """Return a question that two people of a group have to agree to."""
    approval = Approval("finance", 2, not_starter=True, expires_after_s=60.0, escalate_to="board")
    return Ask("May I?", "r", 60.0, None, (approval,), 4.0, Starter("ann", "ann"))


def _sample_person(name: str) -> VerifiedPerson:
    """Return a person of the group that has to agree."""
    lent = (LentRoles("dora", ("board",)),)
    return VerifiedPerson(name, name, ("finance",), lent, "page, 192.0.2.7")


def _queued_facts() -> list[Fact]:
    """Return what happens to the second run before a driver begins it."""
    return [
        RunQueued(
            2,
            3,
            caller="ann",
            agent="porter",
            key="order-7",
            digest="digest",
            session_id="5e551",
            labels=("private",),
            context={"tenant": "north"},
        ),
        RunPaused("", by="ann"),
        RunContinued(by="bob"),
    ]


def _undo_facts() -> list[Fact]:
    """Return a run that undoes a call of the first one."""
    undone = UndoneCall("d", "u3_0", "value", "sent", "letter 7")
    return [
        RunStarted(3, (TextPart("Undo what run 1 did."),), None, "ann", agent="porter"),
        UndoPlanned((ToolCall("u3_0", "undo_send", '{"to":"bob"}'),), (undone,), run=1),
        CallJudged("u3_0", Allow()),
        CallStarted("u3_0", "key-u", "undo_send", snapshot="letter 7"),
        CallFinished("u3_0", ToolResult.from_text("value", "recalled"), name="undo_send"),
        RunEnded("completed", undo=False),
    ]


def _step_facts() -> list[Fact]:
    """Return a step with four calls: one runs, one is asked about, one is invalid, one modified."""
    calls = (
        ToolCall("a", "look", '{"at":"ø"}', provider_id="p1", signature="s"),
        ToolCall("b", "send", '{"to":"ann","n":18446744073709551616}'),
        ToolCall("c", "nothing", "{"),
        ToolCall("d", "send", ""),
    )
    thought = (ThinkingPart("Let me see.", signature="sig"), TextPart("I look."), *calls)
    result = ToolResult(
        "value", (TextPart("long " * 5_000), ImagePart("image/png", b"\x89PNG\x00\xff"))
    )
    return [
        StepProposed(AssistantMessage(thought, "m:x"), "calls", SAMPLE_CHARGE),
        CallJudged("a", Allow("rule 1"), changes=(ArgumentChange("at", "trimmed"),), resource="r"),
        CallJudged("b", Ask("May I?", "rule 2", expires_at=2e9), SAMPLE_ARGUMENTS),
        CallJudged("c", InvalidCall("unknown_tool", "There is no such tool.")),
        CallJudged("d", Modify({"to": "bob"}, "not ann")),
        RunResumed(("tool send changed",), setup=_sample_setup()),
        CallAnswered("b", Deny("no"), digest(SAMPLE_ARGUMENTS), by="ann"),
        CallStarted("a", "key-a"),
        CallFinished("a", result),
        CallStarted("d", "key-d"),
        CallFinished("d", ToolResult.from_text("error", "no such address")),
    ]


def number_facts(facts: Sequence[Fact]) -> list[Fact]:
    """Return the facts with sequence numbers from 1 and times that grow."""
    return [replace(fact, seq=at, at=1e9 + at / 8) for at, fact in enumerate(facts, 1)]


def _sample_setup() -> Setup:
    price = Price(Decimal("1.25"), Decimal(10), cache_read=Decimal("0.125"))
    look = ToolSpec("look", "Looks.", {"type": "object"}, effect="read", labels=("untrusted",))
    send = ToolSpec("send", "Sends.", {"type": "object", "properties": {"to": {"minLength": 1}}})
    return Setup(
        model=ModelInfo("m:x", price, window=100_000),
        instructions="Be brief.",
        tools=(look, send),
        gate="rules 1",
        judge_replies=True,
        output_schema={"type": "string"},
        limits=Limits(steps=5, usd=Decimal("0.5"), seconds=60.0, idle_seconds=30.0),
        session_limits=SessionLimits(usd=Decimal(2)),
        budgets=(Budget("team", Decimal(20), per="day"),),
        compaction=Compaction(window=8_000, strategies=("summary", "window")),
        summariser=ModelInfo("m:small"),
        hydration=Hydration(references=(Reference(r"\w+\.txt", "look", "at"),)),
        recalls=True,
    )
