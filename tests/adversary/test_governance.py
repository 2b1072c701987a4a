"""Attempts to run what no gate allowed, and to pass off one approval for another.

Each attack here failed, or works no more: a call runs only as somebody judged it, and a yes is for
what was shown to whoever said it.
"""

import asyncio
import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from windlass import (
    Agent,
    Allow,
    AllowAlways,
    Ask,
    Deny,
    Fact,
    Modify,
    NothingToDo,
    Question,
    SessionBusy,
    answer,
    tool,
)
from windlass.core.errors import ConfigError, JournalCorrupt, SetupDrifted
from windlass.core.events import CallAnswered, CallJudged, CallStarted, MailRefused
from windlass.core.messages import ToolSpec
from windlass.core.setup import LoopPolicy, digest
from windlass.core.verdicts import Verdict
from windlass.gates.combined import all_of
from windlass.gates.grants import GrantGate, make_grant
from windlass.gates.policy_file import load_policy
from windlass.gates.presets import allow_all, ask, read_only
from windlass.gates.rules import Rule, RuleGate
from windlass.journals.archive import export_session, import_session
from windlass.journals.codec import chain_hash, chain_root, encode_fact
from windlass.journals.forking import fork
from windlass.journals.memory import MemoryJournal
from windlass.journals.sqlite.journal import SqliteJournal
from windlass.ports import Gate, GateRequest
from windlass.testing import FixedGate, ScriptedModel, VirtualClock, call
from windlass.testing.journals import append_facts

Odd = Any
sent: list[tuple[str, object]] = []
SPEC = ToolSpec("send", "", {"type": "object", "properties": {"to": {"type": "string"}}})


@tool
def send(to: str, n: int | float | bool = 0) -> str:  # noqa: FBT001, PYI041 - told apart here
    """Send something."""
    sent.append((to, n))
    return "sent"


@tool(effect="read")
def look(at: str) -> str:
    """Look at something."""
    sent.append(("looked", at))
    return at


@pytest.fixture(autouse=True)
def _forget() -> None:
    sent.clear()


def one_letter(to: str = "ann", **more: object) -> ScriptedModel:
    return ScriptedModel([[call("send", {"to": to, **more})], "Done."])


async def upto(journal: MemoryJournal, kind: type[Fact], *, into: str = "cut") -> None:
    """A session whose driver died right after a fact of this kind."""
    facts = await journal.read("s")
    last = max(at for at, fact in enumerate(facts, 1) if isinstance(fact, kind))
    await append_facts(journal, into, facts[:last])


# ── what a gate is shown ─────────────────────────────────────────────────────


def scribbling(request: GateRequest) -> Verdict:
    """A gate with a bug: it tidies the arguments up in place, and allows."""
    arguments: Odd = request.arguments
    arguments["to"] = "nobody"
    return Allow()


@pytest.mark.contract("G1")
@pytest.mark.parametrize("order", [1, -1], ids=["before", "after"])
async def test_a_gate_that_scribbles_hides_nothing_from_the_others(
    order: int, clock: VirtualClock
) -> None:
    """Else the next gate judges what will not run, and what it denies runs."""
    gates = [FixedGate(scribbling), RuleGate([Rule("deny", "send(to=ann)")], default="allow")]
    gate = all_of(*gates[::order])
    await Agent(one_letter(), tools=[send], gate=gate, clock=clock).run("Go.")
    assert sent == []


@pytest.mark.contract("T4")
@pytest.mark.parametrize("written", ['{"to": "ann"}', "{'to': 'ann'}"], ids=["whole", "repaired"])
async def test_a_gate_that_scribbles_changes_nothing(written: str, clock: VirtualClock) -> None:
    model = ScriptedModel([[call("send", written)], "Done."])
    await Agent(model, tools=[send], gate=FixedGate(scribbling), clock=clock).run("Go.")
    assert sent == [("ann", 0)]


@pytest.mark.contract("G2")
async def test_a_gate_that_scribbles_does_not_reach_a_grant() -> None:
    """A yes for `nobody` lifts no question about `ann`, whatever the gate makes of its copy."""

    def asks(request: GateRequest) -> Verdict:
        scribbling(request)
        return Ask("May it?")

    grant = make_grant(SPEC, {"to": "nobody"}, "", ())
    request = GateRequest("s", "c1", SPEC, {"to": "ann"}, grants=(grant,))
    assert isinstance(await GrantGate(FixedGate(asks)).judge(request), Ask)


@pytest.mark.contract("G1")
async def test_a_gate_cannot_write_what_the_program_says(clock: VirtualClock) -> None:
    """The trusted context of a run is the program's alone, for all of its calls."""

    def scribbles(request: GateRequest) -> Verdict:
        context: Odd = request.context
        seen.append(dict(context))
        context["admin"] = True
        return Allow()

    seen: list[dict[str, object]] = []
    script = [[call("send", {"to": "ann"})], [call("send", {"to": "bob"})], "Done."]
    agent = Agent(ScriptedModel(script), tools=[send], gate=FixedGate(scribbles), clock=clock)
    await agent.run("Go.", context={"admin": False})
    assert seen == [{"admin": False}] * 2


@pytest.mark.contract("G2")
@pytest.mark.parametrize(("given", "wanted"), [(1, True), (1, 1.0), (0, False), (2.0, 2)])
async def test_a_change_that_python_calls_none_is_one(
    given: object, wanted: object, clock: VirtualClock
) -> None:
    """`1 == True` in Python; to whoever gets it they are two things."""
    gate = all_of(FixedGate(Modify({"to": "ann", "n": wanted}, "as it must be")), allow_all())
    await Agent(one_letter(n=given), tools=[send], gate=gate, clock=clock).run("Go.")
    assert repr(sent) == repr([("ann", wanted)])


@pytest.mark.contract("G1")
@pytest.mark.parametrize(
    "name",
    [
        "Send",
        "send ",
        " send",
        "send\u200b",
        "\uff53end",
        "send\0",
        "mcp__send",
        "../send",
        "se-nd",
    ],
)
async def test_a_name_that_is_nearly_one_is_none(name: str, clock: VirtualClock) -> None:
    """A rule and the dispatch must not read a name in two ways."""
    gate = RuleGate([Rule("deny", "send")], default="allow")
    model = ScriptedModel([[call(name, {"to": "ann"})], "Done."])
    await Agent(model, tools=[send], gate=gate, clock=clock).run("Go.")
    assert sent == []


@pytest.mark.contract("R3")
@pytest.mark.parametrize(
    "written",
    [
        '{"to": "bob", "to": "ann"}',
        '{"to": "bob", "t\\u006f": "ann"}',
        '{"to": "bob"}{"to": "ann"}',
        '{"to": "bob"} // {"to": "ann"}\n{"to": "ann"}',
    ],
)
async def test_arguments_with_two_readings_run_in_neither(
    written: str, clock: VirtualClock
) -> None:
    gate = RuleGate([Rule("allow", "send(to=bob)")], default="deny")
    model = ScriptedModel([[call("send", written)], "Done."])
    await Agent(model, tools=[send], gate=gate, clock=clock).run("Go.")
    assert sent in ([], [("bob", 0)])


# ── what another driver goes on with ─────────────────────────────────────────


@pytest.mark.contract("G1")
async def test_what_another_gate_allowed_is_judged_by_the_one_that_is_there(
    clock: VirtualClock,
) -> None:
    """J9: a stricter policy, and a run that died between the old one's yes and the call."""
    journal = MemoryJournal()
    model = one_letter()
    await Agent(model, tools=[send], gate=allow_all(), journal=journal, clock=clock).run(
        "Go.", session="s"
    )
    await upto(journal, CallJudged)
    sent.clear()
    strict = Agent(
        ScriptedModel(["Done."]), tools=[send], gate=read_only(), journal=journal, clock=clock
    )
    with pytest.raises(SetupDrifted):
        await strict.resume("cut")
    assert (await strict.resume("cut", consent=True)).completed
    assert sent == []
    verdicts = [fact.verdict for fact in await journal.read("cut") if isinstance(fact, CallJudged)]
    assert [type(one) for one in verdicts] == [Allow, Deny]


@pytest.mark.contract("G1")
async def test_a_read_that_was_interrupted_is_judged_by_the_gate_that_is_there(
    clock: VirtualClock,
) -> None:
    """It is run again after a crash, and so it is judged again if the rules are others."""
    journal = MemoryJournal()
    model = ScriptedModel([[call("look", {"at": "it"})], "Done."])
    await Agent(model, tools=[look], gate=allow_all(), journal=journal, clock=clock).run(
        "Go.", session="s"
    )
    await upto(journal, CallStarted)
    sent.clear()
    gate = RuleGate([], default="deny")
    strict = Agent(ScriptedModel(["Done."]), tools=[look], gate=gate, journal=journal, clock=clock)
    await strict.resume("cut", consent=True)
    assert sent == []


@pytest.mark.contract("G6")
async def test_what_a_person_allowed_is_not_asked_again_under_other_rules(
    clock: VirtualClock,
) -> None:
    """A person's word, and the arguments that they gave, stand."""
    journal = MemoryJournal()
    first = Agent(one_letter(), tools=[send], gate=ask(), journal=journal, clock=clock)
    (question,) = (await first.run("Go.", session="s")).questions
    await answer(journal, "s", question.call_id, Modify({"to": "bob"}, "him"), clock=clock)
    gate = RuleGate([], default="ask")
    second = Agent(ScriptedModel(["Done."]), tools=[send], gate=gate, journal=journal, clock=clock)
    assert (await second.resume("s", consent=True)).completed
    assert sent == [("bob", 0)]


@pytest.mark.contract("L13")
async def test_a_tool_that_became_another_is_judged_anew(clock: VirtualClock) -> None:
    """The yes was for a tool that stayed at home."""

    @tool(name="send", external=True)
    def other(to: str) -> str:
        """Send something."""
        sent.append(("other", to))
        return "sent"

    journal, gate = MemoryJournal(), RuleGate([Rule("deny", "@external")], default="allow")
    agent = Agent(one_letter(), tools=[send], gate=gate, journal=journal, clock=clock)
    await agent.run("Go.", session="s")
    await upto(journal, CallJudged)
    sent.clear()
    model = ScriptedModel(["Done."])
    agent = Agent(model, tools=[other], gate=gate, journal=journal, clock=clock)
    assert (await agent.resume("cut", consent=True)).completed
    assert sent == []


# ── what a file says ─────────────────────────────────────────────────────────


async def exported(journal: MemoryJournal, session: str) -> list[bytes]:
    lines: list[bytes] = []
    await export_session(journal, session, lines.append)
    return lines


def forged(lines: Sequence[bytes], facts: Sequence[Fact], session: str) -> io.BytesIO:
    """A file that says what we want, with hashes that fit: they are no signature."""
    body, last = [lines[0]], chain_root(session).hash
    for fact in facts:
        record = encode_fact(fact).body
        last = chain_hash(last, record)
        body.append(msgspec.json.encode({"hash": last.hex(), "record": msgspec.Raw(record)}))
    body.append(msgspec.json.encode({"hash": last.hex(), "end": len(facts)}))
    return io.BytesIO(b"\n".join(line.strip() for line in body) + b"\n")


def _unjudged(facts: Sequence[Fact]) -> list[Fact]:
    """The call starts, and nobody judged it."""
    started = next(at for at, fact in enumerate(facts) if isinstance(fact, CallStarted))
    return [fact for fact in facts[: started + 1] if not isinstance(fact, CallJudged)]


def _answered_for_others(facts: Sequence[Fact]) -> list[Fact]:
    """Nobody asked, and somebody answers."""
    judged = next(at for at, fact in enumerate(facts) if isinstance(fact, CallJudged))
    call_id = next(fact.call_id for fact in facts if isinstance(fact, CallJudged))
    return [*facts[:judged], CallAnswered(call_id, Allow(), digest({"to": "ann"}))]


@pytest.mark.contract("J7")
@pytest.mark.parametrize("forge", [_unjudged, _answered_for_others])
async def test_a_file_whose_calls_nobody_judged_runs_nothing(
    forge: Callable[[Sequence[Fact]], list[Fact]], clock: VirtualClock
) -> None:
    """The fold does not believe it, even if its chain is whole: it is refused at the door."""
    journal = MemoryJournal()
    agent = Agent(one_letter(), tools=[send], gate=allow_all(), journal=journal, clock=clock)
    await agent.run("Go.", session="s")
    facts = [replace(one, seq=at) for at, one in enumerate(forge(await journal.read("s")), 1)]
    file, elsewhere = forged(await exported(journal, "s"), facts, "s"), MemoryJournal()
    sent.clear()
    with pytest.raises(JournalCorrupt, match="is not a session"):
        await import_session(elsewhere, file)
    assert list(await elsewhere.read("s")) == []
    assert sent == []


@pytest.mark.contract("J7")
async def test_a_file_with_other_arguments_is_not_taken(clock: VirtualClock) -> None:
    journal = MemoryJournal()
    agent = Agent(one_letter(), tools=[send], gate=ask(), journal=journal, clock=clock)
    await agent.run("Go.", session="s")
    lines = [line.replace(b"ann", b"bob") for line in await exported(journal, "s")]
    with pytest.raises(JournalCorrupt):
        await import_session(MemoryJournal(), io.BytesIO(b"".join(lines)))


@pytest.mark.contract("J8")
async def test_a_fork_does_not_repeat_what_may_have_happened(clock: VirtualClock) -> None:
    """A write that had begun is told as unknown, or asked about; it is not run by a fork."""
    journal = MemoryJournal()
    rules = LoopPolicy(on_unknown="ask")
    agent = Agent(
        one_letter(), tools=[send], gate=allow_all(), journal=journal, clock=clock, rules=rules
    )
    await agent.run("Go.", session="s")
    started = next(fact.seq for fact in await journal.read("s") if isinstance(fact, CallStarted))
    sent.clear()
    copy = await fork(journal, "s", started)
    agent = Agent(
        ScriptedModel([]), tools=[send], gate=allow_all(), journal=journal, clock=clock, rules=rules
    )
    result = await agent.resume(copy)
    assert (result.outcome, len(result.questions), sent) == ("suspended", 1, [])


@pytest.mark.contract("G4")
@pytest.mark.parametrize(
    "written",
    [
        b'# denied by default\rdefault = "allow"\n',
        b'\xef\xbb\xbfdefault = "allow"\n',
        'default = "allow"\n'.encode("utf-16"),
        b'default = "deny"\ndefault = "allow"\n',
        b'[[rule]]\nallow = "look"\ndefault = "allow"\n',
        b'default = "allow"\0\n',
        b'Default = "allow"\n',
        'def\u0430ult = "allow"\n'.encode(),
        b'allow = ["send"]\n[[rule]]\ndeny = "send"\n',
        b"flow_guard = 1\n",
    ],
    ids=lambda written: repr(written[:24]),
)
def test_a_policy_that_is_read_in_two_ways_is_not_read(written: bytes, tmp_path: Path) -> None:
    """Least of all one whose comment holds a line that most editors do not show as one."""
    place = tmp_path / "policy.toml"
    place.write_bytes(written)
    with pytest.raises(ConfigError):
        load_policy(place)


@pytest.mark.contract("M1")
@pytest.mark.parametrize("gate", [None, ask()], ids=["ended", "open"])
async def test_a_session_that_only_has_its_name_is_no_sub_agents(
    gate: Gate | None, clock: VirtualClock
) -> None:
    """Whoever may name sessions could else put words into a sub-agent's mouth, or work on it."""
    journal = MemoryJournal()
    planted = Agent(one_letter("evil"), tools=[send], gate=gate, journal=journal, clock=clock)
    await planted.run("Do evil.", session="s/c1_0")
    before = await journal.read("s/c1_0")
    sent.clear()
    inner = ScriptedModel(["I looked."])
    clerk = Agent(inner, name="clerk", tools=[send])
    model = ScriptedModel([[call("clerk", {"task": "Look."})], "Done."])
    with inner, model:
        boss = Agent(model, tools=[clerk.as_tool()], journal=journal, clock=clock)
        result = await boss.run("Go.", session="s")
    assert "I looked." in str(result.messages)
    assert (sent, await journal.read("s/c1_0")) == ([], before)


@pytest.mark.contract("M1")
async def test_a_deleted_session_does_not_answer_for_the_next(clock: VirtualClock) -> None:
    """Its sub-agents' sessions are still there; a new session of its name gets new work done."""
    journal = MemoryJournal()
    for task, said in (("Look here.", "Here."), ("Look there.", "There.")):
        inner = ScriptedModel([said])
        model = ScriptedModel([[call("clerk", {"task": task})], "Done."])
        with inner, model:
            clerk = Agent(inner, name="clerk")
            boss = Agent(model, tools=[clerk.as_tool()], journal=journal, clock=clock)
            result = await boss.run("Go.", session="s")
        assert said in str(result.messages)
        assert await journal.delete("s")


@pytest.mark.contract("G6")
async def test_a_fork_does_not_run_what_was_allowed_once(clock: VirtualClock) -> None:
    """A person's yes is for one call; a copy of the session asks again."""
    journal = MemoryJournal()

    def agent(*script: str | list[Any]) -> Agent[str]:
        model = ScriptedModel(script)
        return Agent(model, tools=[send], gate=ask(), journal=journal, clock=clock)

    (question,) = (await agent([call("send", {"to": "ann"})]).run("Go.", session="s")).questions
    await answer(journal, "s", question.call_id, Modify({"to": "bob"}, "him"), clock=clock)
    assert (await agent("Done.").resume("s")).completed
    facts = await journal.read("s")
    (answered,) = [fact.seq for fact in facts if isinstance(fact, CallAnswered)]
    copy = await fork(journal, "s", answered)
    result = await agent().resume(copy)
    assert (result.outcome, sent) == ("suspended", [("bob", 0)])
    (again,) = result.questions
    assert again.arguments == {"to": "bob"}
    assert (await agent("Done.").answer(copy, again.call_id, Allow())).completed
    assert sent == [("bob", 0)] * 2


# ── what a person said ───────────────────────────────────────────────────────


@pytest.mark.contract("G6")
@pytest.mark.parametrize(
    "reply",
    [
        1,
        "yes",
        "allow",
        Allow,
        object(),
        {"verdict": "allow"},
        [Allow()],
        Ask("You?"),
        Allow(rule=5),  # type: ignore[arg-type]
        AllowAlways(pattern=5),  # type: ignore[arg-type]
        AllowAlways(rule=5),  # type: ignore[arg-type]
        AllowAlways(pattern="bash"),
        AllowAlways(pattern="send(to=bob)"),
        Modify({"to": 5}, "odd"),
        Modify("to", "odd"),  # type: ignore[arg-type]
    ],
    ids=lambda one: repr(one).split(" at ")[0],
)
async def test_an_approver_that_answers_oddly_has_said_no(reply: Odd, clock: VirtualClock) -> None:
    """And the run goes on."""

    async def approver(_: Question) -> Odd:
        return reply

    result = await Agent(one_letter(), tools=[send], approver=approver, clock=clock).run("Go.")
    assert (result.outcome, sent) == ("completed", [])


@pytest.mark.contract("G6")
async def test_an_approver_that_scribbles_on_the_question_changes_nothing(
    clock: VirtualClock,
) -> None:
    async def approver(question: Question) -> Allow:
        question.arguments["to"] = "bob"
        return Allow()

    await Agent(one_letter(), tools=[send], approver=approver, clock=clock).run("Go.")
    assert sent == [("ann", 0)]


@pytest.mark.contract("G6")
def test_arguments_that_look_alike_have_digests_of_their_own() -> None:
    alike = [1, 1.0, True, "1", "1 ", [1], {"1": 1}, None, "\u00e9", "e\u0301", "\u212b", "\u00c5"]
    assert len({digest({"n": one}) for one in alike}) == len(alike)
    assert digest({"a": 1, "b": 2}) == digest({"b": 2, "a": 1}), "the order of fields is no matter"


@pytest.mark.contract("G6")
@pytest.mark.parametrize("other", [True, 1.0], ids=lambda one: repr(one).split(" at ")[0])
async def test_always_for_exactly_this_is_not_for_what_python_calls_equal(
    other: object, clock: VirtualClock
) -> None:
    asked: list[object] = []

    async def approver(question: Question) -> AllowAlways | Deny:
        asked.append(question.arguments["n"])
        return AllowAlways() if len(asked) == 1 else Deny("no")

    script = [[call("send", {"to": "ann", "n": n})] for n in (1, other, 1)]
    agent = Agent(ScriptedModel([*script, "Done."]), tools=[send], approver=approver, clock=clock)
    await agent.run("Go.")
    assert repr(asked) == repr([1, other])
    assert repr(sent) == repr([("ann", 1), ("ann", 1)])


@pytest.mark.contract("G6")
@pytest.mark.realtime
async def test_of_two_answers_at_once_one_counts(tmp_path: Path) -> None:
    """Two journals on one file, as two processes have them."""
    place = tmp_path / "journal.db"
    one, two = SqliteJournal(place), SqliteJournal(place)
    agent = Agent(one_letter(), tools=[send], gate=ask(), journal=one)
    (question,) = (await agent.run("Go.", session="s")).questions
    answers = [
        answer(journal, "s", question.call_id, reply, digest=question.digest)
        for journal, reply in ((one, Allow()), (two, Deny("no")))
    ]
    outcomes = await asyncio.gather(*answers, return_exceptions=True)
    raised = [out for out in outcomes if isinstance(out, BaseException)]
    assert all(isinstance(out, SessionBusy | NothingToDo) for out in raised)
    with pytest.raises(NothingToDo):
        await answer(two, "s", question.call_id, Allow())
    await agent.resume("s")
    facts = await one.read("s")
    assert sum(isinstance(fact, CallAnswered) for fact in facts) == 1
    # The other one came too late: it was told so, or its message was refused.
    assert len(raised) + sum(isinstance(fact, MailRefused) for fact in facts) == 1
    await agent.aclose()
    one.close()
    two.close()


@pytest.mark.contract("G6")
async def test_an_answer_is_not_for_the_next_question(clock: VirtualClock) -> None:
    """The id and the digest of one question, given to a later one."""
    journal = MemoryJournal()
    script = [[call("send", {"to": "ann"})], [call("send", {"to": "bob"})], "Done."]
    agent = Agent(ScriptedModel(script), tools=[send], gate=ask(), journal=journal, clock=clock)
    (first,) = (await agent.run("Go.", session="s")).questions
    (second,) = (await agent.answer("s", first.call_id, Allow(), digest=first.digest)).questions
    with pytest.raises(ConfigError):
        await answer(journal, "s", second.call_id, Allow(), digest=first.digest, clock=clock)
    with pytest.raises(NothingToDo):
        await answer(journal, "s", first.call_id, Allow(), digest=first.digest, clock=clock)
    assert sent == [("ann", 0)]
