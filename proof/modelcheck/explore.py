"""Explores every state that a model can reach, breadth first, and tells the way to a bad one.

The law: the explorer knows nothing of the protocol. A model gives its first state and the steps
from a state; a step that breaks a rule raises RuleViolation. Steps of the environment (a crash, a
message that is posted) may never come, so the end must be within reach without them.
"""

import gc
from array import array
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, Protocol, TypeVar

StateT = TypeVar("StateT", bound=Hashable)


class RuleViolation(Exception):
    """A step broke a rule of the protocol."""


class ModelStep(NamedTuple, Generic[StateT]):
    """One step from a state."""

    actor: str
    """Who takes it."""
    text: str
    after: Callable[[], StateT]
    """Returns the next state; raises RuleViolation."""
    is_environment: bool = False


class ProtocolModel(Protocol[StateT]):
    """What can be explored."""

    def first_state(self) -> StateT: ...

    def steps(self, state: StateT) -> Sequence[ModelStep[StateT]]:
        """Return the steps from a state, always in the same order."""
        ...

    def canonical(self, state: StateT) -> tuple[StateT, bool]:
        """Return the state that stands for this one, and whether the two drivers changed places."""
        ...

    def is_finished(self, state: StateT) -> bool:
        """Whether nothing is left to be done, if the environment does nothing more."""
        ...


@dataclass(frozen=True)
class Counterexample:
    """The shortest way to a state that breaks a rule."""

    rule: str
    choices: tuple[int, ...]
    """Which of the steps was taken, in each state: what `replay` takes."""
    steps: tuple[str, ...]
    """The same in words."""

    def describe(self) -> str:
        """Return it as a numbered list, with the broken rule at the end."""
        lines = [f"{nth:3d}. {step}" for nth, step in enumerate(self.steps, 1)]
        choices = ",".join(map(str, self.choices))
        return "\n".join([*lines, f"     broken: {self.rule}", f"     replay: {choices}"])


@dataclass
class Exploration:
    """What an exploration found."""

    states: int = 0
    steps: int = 0
    depth: int = 0
    """The number of steps on the shortest way to the state that is farthest away."""
    is_complete: bool = True
    """Whether every state that can be reached was seen; False if a bound cut it off."""
    counterexample: Counterexample | None = None


@dataclass
class _Search(Generic[StateT]):
    """The states so far, by number, and how each was first reached."""

    model: ProtocolModel[StateT]
    numbers: dict[StateT, int] = field(default_factory=dict[StateT, int])
    parents: "array[int]" = field(default_factory=lambda: array("l"))
    choices: "array[int]" = field(default_factory=lambda: array("l"))
    edges_from: "array[int]" = field(default_factory=lambda: array("l"))
    """With `edges_to`: the steps that need no environment."""
    edges_to: "array[int]" = field(default_factory=lambda: array("l"))
    good: list[int] = field(default_factory=list[int])
    """The states that are finished, and those whose steps were not explored."""

    def number_state(self, state: StateT, parent: int, choice: int) -> tuple[int, bool]:
        number = self.numbers.setdefault(state, len(self.parents))
        is_new = number == len(self.parents)
        if is_new:
            self.parents.append(parent)
            self.choices.append(choice)
        return number, is_new

    def way_to(self, number: int) -> tuple[int, ...]:
        way: list[int] = []
        while number > 0:
            way.append(self.choices[number])
            number = self.parents[number]
        return tuple(reversed(way))


def explore(
    model: ProtocolModel[StateT], *, depth_max: int | None = None, states_max: int | None = None
) -> Exploration:
    """Explore all states up to a bound; stops at the first rule that is broken."""
    # Millions of tuples without a cycle: looking for cycles among them would take most of the time.
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        return _explore(model, depth_max, states_max)
    finally:
        if was_enabled:
            gc.enable()


def _explore(
    model: ProtocolModel[StateT], depth_max: int | None, states_max: int | None
) -> Exploration:
    search = _Search(model)
    found = Exploration()
    first, _ = model.canonical(model.first_state())
    search.number_state(first, -1, -1)
    frontier = [first]
    while frontier:
        next_frontier: list[StateT] = []
        for state in frontier:
            number = search.numbers[state]
            beyond = states_max is not None and len(search.parents) >= states_max
            if beyond or (depth_max is not None and found.depth >= depth_max):
                found.is_complete = False
                search.good.append(number)
                continue
            if model.is_finished(state):
                search.good.append(number)
            try:
                found.steps += _expand(search, state, number, next_frontier)
            except _Broken as broken:
                found.states = len(search.parents)
                choices = (*search.way_to(number), broken.choice)
                found.counterexample = _explain(model, choices, broken.rule)
                return found
        if next_frontier:
            found.depth += 1
        frontier = next_frontier
    found.states = len(search.parents)
    stuck = _first_stuck(search)
    if stuck is not None:
        rule = (
            "the session never comes to its end, although nothing more goes wrong: "
            "a message is never taken, or a run that needs a driver gets none"
        )
        found.counterexample = _explain(model, search.way_to(stuck), rule)
    return found


class _Broken(Exception):
    def __init__(self, choice: int, rule: str) -> None:
        super().__init__(rule)
        self.choice = choice
        self.rule = rule


def _expand(search: _Search[StateT], state: StateT, number: int, frontier: list[StateT]) -> int:
    model = search.model
    steps = model.steps(state)
    for choice, step in enumerate(steps):
        try:
            after, _ = model.canonical(step.after())
        except RuleViolation as violation:
            raise _Broken(choice, str(violation)) from None
        reached, is_new = search.number_state(after, number, choice)
        if is_new:
            frontier.append(after)
        if not step.is_environment:
            search.edges_from.append(number)
            search.edges_to.append(reached)
    return len(steps)


def _first_stuck(search: _Search[StateT]) -> int | None:
    """Return the first state from which no finished state can be reached without environment."""
    into: dict[int, list[int]] = {}
    for origin, target in zip(search.edges_from, search.edges_to, strict=True):
        into.setdefault(target, []).append(origin)
    reached = bytearray(len(search.parents))
    waiting = list(search.good)
    for number in waiting:
        reached[number] = 1
    while waiting:
        for origin in into.get(waiting.pop(), ()):
            if not reached[origin]:
                reached[origin] = 1
                waiting.append(origin)
    stuck = reached.find(0)
    return None if stuck < 0 else stuck


def _explain(model: ProtocolModel[StateT], choices: Sequence[int], rule: str) -> Counterexample:
    steps = [text for text, _ in replay(model, choices)]
    return Counterexample(rule, tuple(choices), tuple(steps))


def replay(
    model: ProtocolModel[StateT], choices: Sequence[int]
) -> Iterator[tuple[str, StateT | None]]:
    """Take the chosen steps again. Yields each step in words, and the state after it.

    The state is None after a step that breaks a rule. Drivers keep their names, although the
    explorer treats two states as one that differ only in which of them is which.
    """
    state, swapped = model.canonical(model.first_state())
    is_swapped = swapped
    for choice in choices:
        step = model.steps(state)[choice]
        actor = _OTHER_DRIVER.get(step.actor, step.actor) if is_swapped else step.actor
        text = f"{actor}: {step.text}"
        try:
            state, swapped = model.canonical(step.after())
        except RuleViolation as violation:
            yield f"{text}: {violation}", None
            return
        is_swapped ^= swapped
        yield text, state


_OTHER_DRIVER = {"driver A": "driver B", "driver B": "driver A"}
