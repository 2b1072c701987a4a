"""The checker of fleets: a history that is sound passes, and each planted violation is found."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace as with_fields

from proof.fleet.app import CALLS, build_agent
from proof.fleet.effects import EffectLine, EffectService
from proof.fleet.history import PostedMessage, SessionHistory, check_history
from proof.fleet.provider import FleetProvider, StepAsked, write_prompt
from windlass.core.events import CallFinished, RunEnded, RunResumed, RunStarted, SteeringGiven
from windlass.core.mail import SteerMail
from windlass.core.messages import TextPart
from windlass.journals.memory import MemoryJournal

pytestmark = [pytest.mark.slow, pytest.mark.realtime]
SESSION = "s1"


async def record_history(folder: Path) -> SessionHistory:
    """Run a session that is spoken to, let go and taken over, on real HTTP."""
    provider = FleetProvider(latency_s=0.0)
    journal = MemoryJournal()
    prompt = write_prompt(SESSION)
    async with provider.server as server:
        agent = build_agent(url=server.url, effects=folder, worker="w1", journal=journal)
        await agent.start(prompt, session=SESSION, drive=False)
        first = asyncio.create_task(agent.drive(SESSION))
        while not EffectService(folder, SESSION).read():  # noqa: ASYNC110 - another task writes it
            await asyncio.sleep(0.01)
        steer = SteerMail(run=1, prompt=(TextPart("Hurry."),))
        receipt = await journal.post_mail(SESSION, steer)
        await asyncio.sleep(0.2)
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        other = build_agent(url=server.url, effects=folder, worker="w2", journal=journal)
        await other.drive(SESSION)
    return SessionHistory(
        SESSION,
        [PostedMessage("prompts", prompt, 1), PostedMessage("control", "Hurry.", receipt.number)],
        tuple(await journal.read(SESSION)),
        tuple(EffectService(folder, SESSION).read()),
        tuple(provider.requests_of(SESSION)),
    )


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> SessionHistory:
    return asyncio.run(record_history(tmp_path_factory.mktemp("effects")))


@pytest.mark.contract("F3")
def test_a_sound_history_passes(sound: SessionHistory) -> None:
    """F3: a session with a take-over and a message, as two workers left it."""
    assert any(isinstance(fact, RunResumed) for fact in sound.facts)
    assert {line.worker for line in sound.effects} == {"w1", "w2"}
    assert check_history(sound, CALLS) == []


def without(kind: type) -> Callable[[SessionHistory], Any]:
    return lambda history: replace(
        history, facts=[fact for fact in history.facts if not isinstance(fact, kind)]
    )


def change_effects(
    change: Callable[[list[EffectLine]], list[EffectLine]],
) -> Callable[[SessionHistory], SessionHistory]:
    return lambda history: replace(history, effects=change(list(history.effects)))


def add_message(message: PostedMessage) -> Callable[[SessionHistory], SessionHistory]:
    return lambda history: replace(history, posted=[*history.posted, message])


def repeat_fact(history: SessionHistory) -> SessionHistory:
    steering = next(fact for fact in history.facts if isinstance(fact, SteeringGiven))
    return replace(history, facts=[*history.facts, steering])


def change_words(history: SessionHistory) -> SessionHistory:
    facts = [
        with_fields(fact, prompt=(TextPart("Slow down."),))
        if isinstance(fact, SteeringGiven)
        else fact
        for fact in history.facts
    ]
    return replace(history, facts=facts)


def fail_run(history: SessionHistory) -> SessionHistory:
    end = with_fields(history.facts[-1], outcome="failed")
    return replace(history, facts=[*history.facts[:-1], end])


PLANTED: dict[str, tuple[str, Callable[[SessionHistory], SessionHistory]]] = {
    "a run that never ends": ("run not finished", without(RunEnded)),
    "a run that fails": ("run not finished", fail_run),
    "an acknowledged message that no fact heeds": (
        "message lost or heeded twice",
        add_message(PostedMessage("control", "Hello?", 7)),
    ),
    "a message that counts twice": ("message lost or heeded twice", repeat_fact),
    "a message with other words": ("message lost or heeded twice", change_words),
    "an acknowledged prompt that begins nothing": (
        "message lost or heeded twice",
        add_message(PostedMessage("prompts", "More.", 2)),
    ),
    "a fact that is missing": ("record not sound", without(CallFinished)),
    "an effect that happens twice": (
        "effect twice",
        change_effects(lambda lines: [*lines, lines[0]]),
    ),
    "an effect that is lost": (
        "effect lost",
        change_effects(lambda lines: [line for line in lines if line.key != lines[0].key]),
    ),
    "a token that two workers use": (
        "two drivers",
        change_effects(lambda lines: [*lines[:-1], with_fields(lines[-1], worker="w9")]),
    ),
    "a driver that acts after its successor": (
        "two drivers",
        change_effects(lambda lines: [*lines, with_fields(lines[-1], token=1)]),
    ),
    "a token that nobody was given": (
        "two drivers",
        change_effects(lambda lines: [*lines[:-1], with_fields(lines[-1], token=999)]),
    ),
    "a run that two versions drive": (
        "driven by another version",
        lambda history: replace(history, versions={"w1": "1", "w2": "2"}),
    ),
    "a reply that is asked for again": (
        "asked again once on record",
        lambda history: replace(
            history, requests=[*history.requests, StepAsked(1, "w1", history.requests[-1].at)]
        ),
    ),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_violation_is_found(name: str, sound: SessionHistory) -> None:
    """F3: the checker is itself tested, with one violation of each kind."""
    kind, plant = PLANTED[name]
    assert kind in {violation.kind for violation in check_history(plant(sound), CALLS)}


def test_a_message_without_an_acknowledgement_may_count_or_not(sound: SessionHistory) -> None:
    lost = PostedMessage("control", "Are you there?", None)
    assert check_history(add_message(lost)(sound), CALLS) == []
    starts = [fact for fact in sound.facts if isinstance(fact, RunStarted)]
    assert len(starts) == 1


def test_a_worker_that_was_stopped_may_repeat_one_request(sound: SessionHistory) -> None:
    """No provider knows of fencing tokens: the request was on record before the worker stopped."""
    late = StepAsked(1, "w1", sound.requests[-1].at)
    once = replace(sound, requests=[*sound.requests, late], excused=frozenset({"w1"}))
    assert check_history(once, CALLS) == []
    twice = replace(once, requests=[*once.requests, late])
    assert check_history(twice, CALLS) != []
