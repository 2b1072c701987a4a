"""The protocol of leases, mailbox and fence, as steps of two drivers, posters and a store.

What a fact changes, what comes next, which number a message gets, which append is refused and who
needs a driver are decided by the functions of the package. Abstract are only the store, which
keeps a lock and a mailbox, the process, which may crash, stop or be cut off between any two steps,
and the tool, whose effect is counted.
"""

from collections.abc import Sequence

from proof.modelcheck.driver_steps import DriverSteps
from proof.modelcheck.environment import environment_steps
from proof.modelcheck.explore import ModelStep
from proof.modelcheck.fact_log import FactLog
from proof.modelcheck.letters import LaneState, post_letter
from proof.modelcheck.world import NOBODY, DriverState, Scenario, WorldState, is_freed


class LeaseProtocol:
    """The model that is explored."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.log = FactLog(
            has_call=scenario.has_call,
            is_repeatable=scenario.is_poison,
            is_queued=scenario.is_queued,
            has_budget=scenario.has_budget,
        )

    def first_state(self) -> WorldState:
        """Return the beginning: a run is open, and the process that began it is dead.

        Or it was accepted, and waits for its first driver.
        """
        scenario = self.scenario
        prompts = LaneState()
        if scenario.is_queued:
            prompts = post_letter(prompts, "prompt", 0, 0, None)
        return WorldState(
            (DriverState(), DriverState()),
            self.log.first,
            prompts=prompts,
            posted=(0,) * len(scenario.posters),
            crashes=scenario.crashes,
            cuts=scenario.cuts,
            stops=scenario.stops,
            outages=scenario.outages,
            lost_tails=scenario.lost_tails,
            releases=scenario.releases,
            forks=scenario.forks,
            forgeries=scenario.forgeries,
        )

    def canonical(self, state: WorldState) -> tuple[WorldState, bool]:
        """Two states that differ only in which driver is which are one."""
        first, second = state.drivers
        if first <= second:
            return state, False
        swapped = state._replace(
            drivers=(second, first), lock=_other(state.lock), opener=_other(state.opener)
        )
        return swapped, True

    def is_finished(self, state: WorldState) -> bool:
        """Every message is on record, and the run has ended, is paused or waits for a person."""
        session = self.log[state.log].state
        row = state.question
        if row is not None and row.decision is not None and not row.is_settled:
            return False
        if state.rewound != NOBODY:
            return False
        at_rest = not session.is_active or session.is_paused or session.is_waiting
        # Another run holds its budget, and has not given anything back.
        at_rest = at_rest or (session.awaits_budget and not is_freed(self.scenario, state))
        # A prompt waits until the run before it has ended.
        is_settled = not (state.control.owed or (state.prompts.owed and not session.is_active))
        return at_rest and is_settled and all(d.place in ("idle", "dead") for d in state.drivers)

    def steps(self, state: WorldState) -> Sequence[ModelStep[WorldState]]:
        """Return all that can happen next."""
        found: list[ModelStep[WorldState]] = []
        for me in (0, 1):
            if state.drivers[me].place != "dead":
                found += DriverSteps(self.scenario, self.log, state, me).list_steps()
        found += environment_steps(self.scenario, self.log, state)
        return found


def _other(driver: int) -> int:
    return NOBODY if driver == NOBODY else 1 - driver
