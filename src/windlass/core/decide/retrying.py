"""Which model a step asks, whether again and when: a pure rule over the failures on record."""

from msgspec.structs import replace

from windlass.core.errors import Fault
from windlass.core.events import AttemptFailed
from windlass.core.setup import LoopPolicy, ModelInfo, RetryPolicy, Setup
from windlass.core.state import RunState


def backoff_s(retries: RetryPolicy, failures: int, fault: Fault, roll: float) -> float:
    """Return the seconds to wait: what the provider asked for, or a doubling time with full jitter.

    `roll` is a random number from 0 to 1. The runtime draws it, because the core is pure, and
    records the wait.
    """
    if fault.retry_after_s is not None:
        return fault.retry_after_s
    return roll * min(retries.wait_max_s, retries.wait_base_s * 2.0**failures)


def wait_max_s(retries: RetryPolicy) -> float:
    """Return the longest wait after which a step asks again."""
    return max(retries.retry_after_max_s, retries.wait_max_s)


def explain_long_wait(retries: RetryPolicy, fault: Fault) -> Fault:
    """Return the fault, with what to do if the provider asks for a wait that is too long."""
    wait_s = fault.retry_after_s
    if not fault.retryable or wait_s is None or wait_s <= wait_max_s(retries):
        return fault
    return replace(
        fault,
        message=f"{fault.message.rstrip('.')}. The provider asks to wait {wait_s:g} s, and "
        f"RetryPolicy(retry_after_max_s={retries.retry_after_max_s:g}) allows less. Run it again "
        "after that time, allow a longer wait, or give the agent fallbacks.",
    )


def can_retry_same_model(
    retries: RetryPolicy,
    rules: LoopPolicy,
    failures: tuple[AttemptFailed, ...],
    asking_since: float | None,
) -> bool:
    """Whether a step with these failures may ask the same model again, not only a fallback."""
    last = failures[-1]
    since = last.at if asking_since is None else asking_since
    attempts_max = retries.attempts_max
    if not any(failure.established for failure in failures):
        # No stream ever opened: the server may be down, so fewer attempts are worth it.
        attempts_max = min(retries.establish_max, attempts_max)
    return (
        can_ask_any_model(rules, last)
        and len(failures) < attempts_max
        and last.wait_s <= wait_max_s(retries)
        and last.at + last.wait_s - since <= retries.budget_s
    )


def can_ask_any_model(rules: LoopPolicy, last: AttemptFailed) -> bool:
    """Whether asking again, this model or a fallback, can help and shows no text a second time."""
    return last.fault.retryable and not (last.visible and rules.on_partial == "fail")


def explain_partial(rules: LoopPolicy, run: RunState) -> Fault:
    """Return the last fault, with the setting that kept the run from asking again if one did."""
    last = run.failures[-1]
    rules = _rules_of_run(rules, run)
    if not last.fault.retryable or can_ask_any_model(rules, last):
        return last.fault
    return replace(
        last.fault,
        message=f"{last.fault.message.rstrip('.')}. Some of the reply was shown already, and "
        'on_partial="fail" ends the run then; with on_partial="restart" it asks again.',
    )


def choose_model(setup: Setup, run: RunState) -> ModelInfo | None:
    """Return the model that was asked last, or the next fallback; None if all have failed."""
    models = (setup.model, *setup.fallbacks)
    at = 0
    for place, info in enumerate(models):
        if info.name == run.model:
            at = place
            break
    if not run.failures:
        return models[at]
    rules = _rules_of_run(setup.rules, run)
    if can_retry_same_model(setup.retries, rules, run.failures, run.asking_since):
        return models[at]
    if can_ask_any_model(rules, run.failures[-1]) and at + 1 < len(models):
        return models[at + 1]
    return None


def _rules_of_run(rules: LoopPolicy, run: RunState) -> LoopPolicy:
    """Return the rules with what the run itself recorded about broken replies."""
    return replace(rules, on_partial=run.on_partial) if run.on_partial else rules
