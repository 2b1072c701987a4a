"""The rules for facts that the store accepts: who may write them, and which messages they take."""

from collections.abc import Sequence

from msgspec.structs import replace

from proof.modelcheck.explore import RuleViolation
from proof.modelcheck.fact_log import SESSION
from proof.modelcheck.letters import LaneState, untaken_letters
from proof.modelcheck.world import NOBODY, WorldState
from windlass.core.decide.scheduling import DEATHS_MAX
from windlass.core.events import (
    AttemptStarted,
    CallAnswered,
    Fact,
    MailRefused,
    RunContinued,
    RunEnded,
    RunQueued,
    RunReleased,
    RunResumed,
    RunStarted,
)
from windlass.core.fold.control import advance_questions, mail_places
from windlass.core.mail import MailLane
from windlass.core.state import State
from windlass.core.verdicts import AnswerKind, classify_answer


def check_batch(world: WorldState, before: State, facts: Sequence[Fact], driver: int) -> WorldState:
    """Check facts that a driver has just written, and remember what the rules need of them."""
    opener = world.opener
    for fact in facts:
        if isinstance(fact, RunStarted | RunResumed):
            _check_opening(world, before)
            opener = driver
            world = world._replace(is_forged=False)
        elif not isinstance(fact, MailRefused | RunQueued) and opener != driver:
            kind = type(fact).__name__
            raise RuleViolation(f"{kind} was accepted from a driver that does not have the session")
        if isinstance(fact, RunEnded | RunReleased):
            opener = NOBODY
        if isinstance(fact, AttemptStarted) and before.run is not None and before.run.pause:
            raise RuleViolation("a paused run made a request")
        if isinstance(fact, RunContinued):
            world = world._replace(taken_down=min(world.taken_down, 1))
        if isinstance(fact, CallAnswered):
            _check_answer(world, fact)
        world = _settle_message(world, before, fact)
    return follow_question(world._replace(opener=opener), facts)


def count_death(world: WorldState, is_driver: bool) -> WorldState:  # noqa: FBT001 - a fact
    """Count a process that its call has taken down, unless it had let go of the run before."""
    if not is_driver:
        return world
    if world.taken_down >= DEATHS_MAX:
        raise RuleViolation("a call took a third driver down, and nobody had continued the run")
    return world._replace(taken_down=world.taken_down + 1)


def _check_opening(world: WorldState, before: State) -> None:
    if before.is_paused and not untaken_letters(world.control, before.mail_taken):
        raise RuleViolation("a paused run is driven, although no message came for it")


def _settle_message(world: WorldState, before: State, fact: Fact) -> WorldState:
    """The message that a fact carries must be the first one that is owed in its lane."""
    for name, number in mail_places(fact):
        world = _settle_letter(world, before, fact, name, number)
    return world


def _settle_letter(
    world: WorldState, before: State, fact: Fact, name: MailLane, number: int
) -> WorldState:
    lane = world.prompts if name == "prompts" else world.control
    if not lane.owed or number < lane.owed[0].number:
        raise RuleViolation(f"message {number} was taken twice")
    letter = lane.owed[0]
    if number > letter.number:
        raise RuleViolation(f"message {number} was taken before message {letter.number}")
    is_own = before.run is not None and letter.run == before.run.number
    if isinstance(fact, RunEnded) and name == "control" and not is_own:
        raise RuleViolation(f"a cancel of run {letter.run} stopped another run")
    settled = lane._replace(owed=lane.owed[1:])
    if name == "prompts":
        return world._replace(prompts=settled)
    return world._replace(control=settled)


def tell_decision(world: WorldState, answer: AnswerKind) -> WorldState:
    """Tell a poster how the question was decided: all of them must hear the same."""
    if any(told != answer for told in world.told):
        raise RuleViolation(f"one person was told {world.told[0]}, another one {answer}")
    return world._replace(told=(answer,))


def _check_answer(world: WorldState, fact: CallAnswered) -> None:
    answer = classify_answer(fact.verdict)
    if answer not in world.told:
        raise RuleViolation(f"{answer} was recorded, and {world.told} was told")


def follow_question(world: WorldState, facts: Sequence[Fact]) -> WorldState:
    """Return the world with the row of the question as the store keeps it with an append."""
    row = world.question
    unsettled = {row.call_id: row} if row is not None and not row.is_settled else {}
    changed = advance_questions(SESSION, unsettled, facts)
    return world._replace(question=next(iter(changed.values()), row))


def forget_repeated_mail(state: State, fact: Fact) -> Fact:
    """Return a fact as a fold without the check of the cursor would take it."""
    if any(lane == "control" and at <= state.mail_taken for lane, at in mail_places(fact)):
        return replace(fact, mail=0)
    return fact


def empty_lane(taken: int) -> LaneState:
    """Return the lane of a fork or an import: no letters, and the cursor of its facts."""
    return LaneState(highest=taken)
