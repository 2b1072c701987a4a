"""Rules that ask for people: in code, in policy files, in several gates, and after a crash."""

from contextlib import suppress
from pathlib import Path

import pytest
from msgspec.structs import replace

from windlass import Agent, Allow, AllowAlways, Deny, LoopPolicy, RunFailed, tool
from windlass.core.errors import AnswerNotQualified, ConfigError
from windlass.core.events import CallAnswered, CallJudged
from windlass.core.mail import AnswerMail, Letter
from windlass.core.messages import ToolSpec
from windlass.core.verdicts import Approval, Ask, Grant, VerifiedPerson
from windlass.gates import Rule, RuleGate, all_of, ask, parse_policy
from windlass.gates.grants import GrantGate
from windlass.journals import MemoryJournal
from windlass.journals.answer_proofs import find_answer_problem, find_proven, sign_answer
from windlass.journals.service_keys import ServiceKeys, make_signing_key
from windlass.ports import GateRequest, GivenJournal
from windlass.testing import PowerCut, PowerCutJournal, ScriptedModel, call

FINANCE = Approval("finance", 2, not_starter=True)
SPEC = ToolSpec("refund", "Pays back.", {"type": "object"}, "write")
REQUEST = GateRequest("s", "c", SPEC, {"amount": 7})


async def list_needed(gate: RuleGate | GrantGate, request: GateRequest = REQUEST) -> object:
    verdict = await gate.judge(request)
    return verdict.approvals if isinstance(verdict, Ask) else verdict


@pytest.mark.contract("G10", "G4")
async def test_code_and_policy_files_say_the_same() -> None:
    in_code = RuleGate([Rule("ask", "refund", approval=FINANCE)], default="allow", name="policy")
    text = """
        default = "allow"
        [[rule]]
        ask = "refund"
        role = "finance"
        people = 2
        not_starter = true
    """
    in_file = parse_policy(text)
    assert await list_needed(in_code) == await list_needed(in_file) == (FINANCE,)
    assert in_code.name == in_file.name
    assert in_code.name != RuleGate([Rule("ask", "refund")], default="allow", name="policy").name
    preset = ask(role="finance", people=2, not_starter=True)
    assert await list_needed(preset) == (FINANCE,)
    assert preset.name != ask().name


@pytest.mark.contract("G4")
@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ('deny = "refund"\nrole = "finance"', "a rule that asks"),
        ('ask = "refund"\npeople = 0', "at least one person"),
        ('ask = "refund"\npeople = "two"', "line 1"),
        ('ask = "refund"\nescalate_to = "board"', "needs role="),
        ('ask = "refund"\nexpires_after_s = -1', "below zero"),
        ('ask = "refund"\nroles = "finance"', "unknown key 'roles'"),
    ],
)
def test_a_rule_that_nobody_could_meet_is_a_mistake(rule: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        parse_policy(f"[[rule]]\n{rule}\n")


@pytest.mark.contract("G10", "G9")
async def test_several_gates_need_the_people_of_each() -> None:
    legal = Approval("legal")
    gates = all_of(
        RuleGate([Rule("ask", "refund", approval=FINANCE)]),
        RuleGate([Rule("ask", "*", approval=legal)]),
    )
    verdict = await gates.judge(REQUEST)
    assert isinstance(verdict, Ask)
    assert verdict.approvals == (FINANCE, legal)


@pytest.mark.contract("G10")
async def test_every_command_of_a_line_brings_its_own_people() -> None:
    rules = [Rule("ask", "bash(pay *)", approval=FINANCE), Rule("ask", "bash(mail *)")]
    spec = ToolSpec("bash", "Runs.", {"type": "object"}, "write")
    request = replace(REQUEST, tool=spec, arguments={"command": "mail ann && pay 7"})
    assert await list_needed(RuleGate(rules), request) == (FINANCE,)


@pytest.mark.contract("G10")
async def test_no_grant_lifts_a_question_for_people() -> None:
    gate = GrantGate(ask(role="finance"))
    granted = replace(REQUEST, grants=(Grant("refund", pattern="refund(*)"), Grant("refund")))
    everything = replace(REQUEST, grants=(Grant("refund", pattern="refund"),))
    for request in (granted, everything):
        assert await list_needed(gate, request) == (Approval("finance"),)


@tool
def refund(amount: int) -> str:
    """Pay money back."""
    return f"paid {amount}"


@pytest.mark.contract("G10")
async def test_the_approver_of_a_run_is_not_asked_for_people() -> None:
    asked: list[str] = []

    def approve(question: object) -> bool:
        asked.append(str(question))
        return True

    model = ScriptedModel([[call("refund", {"amount": 7})], "Done."])
    agent = Agent(model, tools=[refund], gate=ask(people=2), approver=approve)
    held = await agent.run("Refund.")
    assert (held.outcome, asked) == ("suspended", [])
    (question,) = held.questions
    assert question.approvals == (Approval(people=2),)
    for answer in (AllowAlways(), Allow(), Deny("no")):
        with pytest.raises((ConfigError, AnswerNotQualified), match=r"each time|no person"):
            await agent.answer(held.session_id, question.call_id, answer)


def make_agent(journal: GivenJournal) -> Agent[str]:
    return Agent(
        ScriptedModel([[call("refund", {"amount": 7})], "Done."]),
        tools=[refund],
        gate=ask(role="finance"),
        journal=journal,
        rules=LoopPolicy(on_unknown="ask"),
    )


@pytest.mark.contract("G10", "D3")
async def test_a_call_that_a_crash_interrupted_needs_the_same_people_again() -> None:
    """Whoever may answer must not run again what certain people had to agree to."""
    asked_again = 0
    for at in range(1, 6):
        store = MemoryJournal()
        await make_agent(store).run("Refund.", session="s")
        (row,) = await store.read_questions("s")
        bea = VerifiedPerson("bea", "bea", ("finance",))
        message = AnswerMail(
            run=1, call_id=row.call_id, digest=row.digest, verdict=Allow(), person=bea
        )
        await store.post_mail("s", message, by="bea")
        with suppress(PowerCut, RunFailed), PowerCutJournal(store, at, "after") as dying:
            await make_agent(dying).resume("s")
        await make_agent(store).resume("s")
        for fact in await store.read("s"):
            if isinstance(fact, CallJudged) and isinstance(fact.verdict, Ask):
                assert fact.verdict.approvals == (Approval("finance"),)
                asked_again += fact.verdict.rule == "interrupted"
    assert asked_again


@pytest.mark.contract("G10")
def test_who_answered_is_part_of_what_a_service_signs(tmp_path: Path) -> None:
    """G10: with another name or other roles in the database, the answer does not count."""
    make_signing_key(tmp_path / "key")
    keys = ServiceKeys(signing_key=tmp_path / "key")
    bea = VerifiedPerson("bea", "bea", ("finance",))
    message = AnswerMail(run=1, call_id="c", digest="d", verdict=Allow(), person=bea)
    signature = sign_answer(keys, "s", message, "bea", 5.0)
    letter = Letter(number=1, at=5.0, message=message, by="bea", signature=signature)
    assert find_answer_problem(keys, "s", letter) is None
    eve = replace(bea, name="eve")
    for person in (None, eve, replace(bea, roles=("board",)), replace(bea, origin="elsewhere")):
        forged = replace(letter, message=replace(message, person=person))
        assert find_answer_problem(keys, "s", forged)
    judged = CallJudged("c", Ask("?", approvals=(Approval(people=2),)), digest="d", seq=1)
    fact = CallAnswered(
        "c", Allow(), "d", "bea", accepted_at=5.0, signature=signature, person=bea, seq=2
    )
    # Nothing proves the first of the two: the call is judged again.
    assert not find_proven(keys, "s", [judged, fact]).calls
