"""A session from a stranger's file: nothing that was allowed in it is allowed here (G6, J8)."""

import asyncio
import io
from collections.abc import Sequence

import pytest

from proof.simulate import draw_plan, play_plan
from windlass import Agent, Allow, AllowAlways, answer, tool
from windlass.core.audit.replay import replay
from windlass.core.errors import ConfigError, IllegalFact, JournalCorrupt
from windlass.core.events import CallJudged, CallStarted, Fact, RunStarted, SessionImported
from windlass.core.fold.run import apply_fact, fold
from windlass.core.session_summary import row_of
from windlass.gates.presets import allow_all, ask
from windlass.journals.archive import export_session, import_session
from windlass.journals.codec import chain_hash, chain_root
from windlass.journals.forking import fork
from windlass.journals.memory import MemoryJournal
from windlass.ports import GateRequest, Journal
from windlass.project.launches import CONTEXT_KEY, last_launch
from windlass.project.permissions import ADDRESSES_KEY
from windlass.testing import ScriptedModel, call
from windlass.testing.journals import append_facts

sent: list[str] = []


@tool
def send(to: str) -> str:
    """Send something."""
    sent.append(to)
    return f"sent to {to}"


@pytest.fixture(autouse=True)
def _forget() -> None:
    sent.clear()


def make_agent(journal: MemoryJournal, script: Sequence[object], **options: object) -> Agent:
    settings = {"gate": ask(), **options}
    return Agent(ScriptedModel([*script]), tools=[send], journal=journal, **settings)  # type: ignore[arg-type]


async def import_copy(journal: Journal, session: str = "s") -> MemoryJournal:
    """The session, exported and imported on another machine."""
    page = io.BytesIO()
    await export_session(journal, session, page.write)
    other = MemoryJournal()
    assert await import_session(other, page) == session
    return other


async def approved_session() -> MemoryJournal:
    """A session in which a person has said yes, and the call has not started yet."""
    journal = MemoryJournal()
    agent = make_agent(journal, [[call("send", {"to": "mallory"})]])
    result = await agent.run("Go.", session="s", caller="admin", context={"role": "admin"})
    (question,) = result.questions
    await answer(journal, "s", question.call_id, Allow(), digest=question.digest, by="victim")
    return journal


@pytest.mark.contract("G6")
@pytest.mark.parametrize("gate", [ask(), allow_all()], ids=["ask", "allow_all"])
async def test_an_approval_in_the_file_runs_nothing(gate: object) -> None:
    """Not even with a gate that allows everything: the call may have been written by hand."""
    victim = await import_copy(await approved_session())
    agent = make_agent(victim, ["Done."], gate=gate)
    result = await agent.resume("s", consent=True)
    assert result.outcome == "suspended"
    assert sent == []
    (question,) = result.questions
    assert question.arguments == {"to": "mallory"}
    result = await agent.answer("s", question.call_id, Allow(), digest=question.digest)
    assert (result.outcome, sent) == ("completed", ["mallory"])
    assert replay("s", await victim.read("s")).is_same


@pytest.mark.contract("G6")
async def test_a_verdict_in_the_file_runs_nothing() -> None:
    """The call was allowed by the attacker's own gate, and had started or not."""
    journal = MemoryJournal()
    agent = make_agent(journal, [[call("send", {"to": "mallory"})], "Done."], gate=allow_all())
    await agent.run("Go.", session="s")
    facts = await journal.read("s")
    sent.clear()
    for kind in (CallJudged, CallStarted):
        at = next(fact.seq for fact in facts if isinstance(fact, kind))
        cut = MemoryJournal()
        await append_facts(cut, "s", facts[:at])
        victim = await import_copy(cut)
        result = await make_agent(victim, [], gate=allow_all()).resume("s", consent=True)
        assert (result.outcome, sent) == ("suspended", [])
        assert "imported" in result.questions[0].question


@pytest.mark.contract("G6")
async def test_a_grant_in_the_file_grants_nothing() -> None:
    journal = MemoryJournal()
    agent = make_agent(journal, [[call("send", {"to": "ann"})], "Done."])
    (question,) = (await agent.run("Go.", session="s")).questions
    await agent.answer("s", question.call_id, AllowAlways("send(*)"))
    assert fold("s", await journal.read("s")).grants
    victim = await import_copy(journal)
    sent.clear()
    agent = make_agent(victim, [[call("send", {"to": "mallory"})]])
    result = await agent.run("More.", session="s")
    assert (result.outcome, sent) == ("suspended", [])


@pytest.mark.contract("G7")
@pytest.mark.contract("D1")
async def test_a_key_in_the_file_is_not_a_start_that_was_made_here() -> None:
    """Whoever starts with that key later gets a run of their own, not the stranger's result."""
    theirs = MemoryJournal()
    await make_agent(theirs, ["It is paid, says a stranger."]).run(
        "Pay.", session="s", key="pay-42"
    )
    journal = await import_copy(theirs)
    agent = make_agent(journal, ["It is paid."])
    handle = await agent.start("Pay.", session="s", key="pay-42")
    assert (await handle.result()).text == "It is paid."
    # From here on, the key is one of this journal.
    again = await agent.start("Pay.", session="s", key="pay-42")
    assert (await again.result()).text == "It is paid."
    # A fork from before the import begins a run of its own as well.
    name = await fork(journal, "s", len(await theirs.read("s")))
    other = make_agent(journal, ["It is paid in the fork."])
    started = await other.start("Pay.", session=name, key="pay-42")
    assert (await started.result()).text == "It is paid in the fork."


async def test_what_the_file_says_about_caller_and_context_is_not_believed() -> None:
    victim = await import_copy(await approved_session())
    state = fold("s", await victim.read("s"))
    assert state.run is not None
    assert (state.run.caller, state.run.context) == ("", {})
    assert "untrusted" in state.labels


@pytest.mark.contract("G7")
async def test_addresses_that_were_typed_elsewhere_were_not_typed_here() -> None:
    """The flow guard lets a typed address pass, and a file could say that anything was typed."""
    journal = MemoryJournal()
    context = {ADDRESSES_KEY: ["https://evil.example/"]}
    agent = make_agent(journal, [[call("send", {"to": "mallory"})]])
    await agent.run("Go.", session="s", context=context)
    victim = await import_copy(journal)
    seen: list[object] = []

    class Recorder:
        name = "recorder"
        judges_replies = False

        async def judge(self, request: GateRequest) -> Allow:
            seen.append(request.context.get(ADDRESSES_KEY))
            return Allow()

    agent = make_agent(victim, ["Done."], gate=Recorder())
    result = await agent.resume("s", consent=True)
    (question,) = result.questions
    await agent.answer("s", question.call_id, Allow(), digest=question.digest)
    await make_agent(victim, [[call("send", {"to": "x"})], "Done."], gate=Recorder()).run(
        "More.", session="s"
    )
    assert seen
    assert set(seen) == {None}


@pytest.mark.contract("G6")
async def test_the_fold_refuses_a_permission_without_a_question() -> None:
    victim = await import_copy(await approved_session())
    state = fold("s", await victim.read("s"))
    call_id = state.step_calls[0].id
    with pytest.raises(IllegalFact, match="a person has to be asked"):
        apply_fact(state, CallJudged(call_id, Allow(), seq=state.seq + 1))
    with pytest.raises(IllegalFact, match="does not name the calls"):
        apply_fact(state, SessionImported(seq=state.seq + 1))


@pytest.mark.contract("J8")
async def test_a_fork_from_before_the_import_is_imported_too() -> None:
    victim = await import_copy(await approved_session())
    length = len(await victim.read("s"))
    name = await fork(victim, "s", length - 1)
    result = await make_agent(victim, [], gate=allow_all()).resume(name, consent=True)
    assert (result.outcome, sent) == ("suspended", [])


@pytest.mark.contract("J8")
async def test_folder_and_flags_in_the_file_are_not_taken() -> None:
    launch = {"folder": "/", "flags": {"permission_mode": "allow-all"}}
    journal = MemoryJournal()
    agent = make_agent(journal, [[call("send", {"to": "mallory"})]])
    await agent.run("Go.", session="s", context={CONTEXT_KEY: launch})
    assert last_launch(await journal.read("s")) is not None
    victim = await import_copy(journal)
    assert last_launch(await victim.read("s")) is None


@pytest.mark.contract("J8")
@pytest.mark.slow
def test_any_session_can_be_imported_at_any_record() -> None:
    """No call is left that runs by itself, the list says the same, and the session replays."""
    for seed in range(25):
        asyncio.run(import_at_every_record(play_plan(draw_plan(seed)).facts))


async def import_at_every_record(facts: Sequence[Fact]) -> None:
    for at in range(1, len(facts) + 1):
        journal = MemoryJournal()
        await append_facts(journal, "sim", facts[:at])
        imported = await (await import_copy(journal, "sim")).read("sim")
        state = fold("sim", imported)
        assert {one.phase for one in state.step_calls} <= {"proposed", "closed"}
        assert state.grants == ()
        assert row_of(state).asked == 0
        assert replay("sim", imported).is_same


def forge_archive(body: bytes, session: str = "s") -> io.BytesIO:
    proof = chain_hash(chain_root(session).hash, body).hex().encode()
    head = b'{"format":"windlass-session","version":1,"session":"%b"}\n' % session.encode()
    line = b'{"hash":"%b","record":%b}\n{"hash":"%b","end":1}\n' % (proof, body, proof)
    return io.BytesIO(head + line)


@pytest.mark.contract("J10")
@pytest.mark.parametrize("levels", [5_000, 200_000])
async def test_deep_json_is_refused_by_its_line(levels: int) -> None:
    deep = b'{"a":' * levels + b"1" + b"}" * levels
    body = b'{"v":1,"type":"RunStarted","seq":1,"run":1,"prompt":[],"context":%b}' % deep
    with pytest.raises(JournalCorrupt, match="line 2: "):
        await import_session(MemoryJournal(), forge_archive(body))
    with pytest.raises(JournalCorrupt, match="line 1: "):
        await import_session(MemoryJournal(), io.BytesIO(deep + b"\n"))


@pytest.mark.contract("J10")
async def test_a_file_that_is_no_session_is_refused() -> None:
    body = b'{"v":1,"type":"SteeringTaken","seq":1}'.replace(b"SteeringTaken", b"Heeded")
    with pytest.raises(JournalCorrupt, match="not a session"):
        await import_session(MemoryJournal(), forge_archive(body))


@pytest.mark.contract("U1")
async def test_a_name_that_steers_the_terminal_is_refused() -> None:
    journal = MemoryJournal()
    facts = await (await approved_session()).read("s")
    assert isinstance(facts[0], RunStarted)
    await append_facts(journal, "\x1b]0;owned\x07", facts)
    page = io.BytesIO()
    await export_session(journal, "\x1b]0;owned\x07", page.write)
    with pytest.raises(ConfigError, match="choose another name"):
        await import_session(MemoryJournal(), page)
    assert await import_session(MemoryJournal(), page, into="plain") == "plain"
