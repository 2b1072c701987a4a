"""Whether and when a step asks its model again."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from facts import failed_attempt, make_fault
from windlass.core.decide.retrying import backoff_s, can_retry_same_model
from windlass.core.errors import Fault
from windlass.core.events import AttemptFailed
from windlass.core.setup import LoopPolicy, RetryPolicy


def again(
    *failures: AttemptFailed,
    retries: RetryPolicy | None = None,
    rules: LoopPolicy | None = None,
    since: float = 0.0,
) -> bool:
    return can_retry_same_model(retries or RetryPolicy(), rules or LoopPolicy(), failures, since)


# ── how often ────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("count", "more"), [(1, True), (3, True), (4, False)])
def test_four_requests_if_none_was_ever_opened(count: int, more: bool) -> None:  # noqa: FBT001
    """S3: establish, 3 retries."""
    assert again(*[failed_attempt()] * count) is more


@pytest.mark.parametrize(("count", "more"), [(4, True), (5, True), (6, False)])
def test_six_requests_in_all(count: int, more: bool) -> None:  # noqa: FBT001
    """S3: stream, 6 attempts."""
    assert again(*[failed_attempt(established=True)] * count) is more


def test_one_counter_for_both_kinds() -> None:
    """S3: never 24 requests."""
    mixed = [failed_attempt(established=at == 0) for at in range(6)]
    assert again(*mixed[:5])
    assert not again(*mixed)


def test_the_cap_of_all_holds_for_requests_that_never_opened() -> None:
    assert not again(*[failed_attempt()] * 2, retries=RetryPolicy(attempts_max=2))


def test_what_cannot_be_mended_is_not_asked_again() -> None:
    """S2."""
    assert not again(failed_attempt("auth", retryable=False))


def test_only_the_last_failure_says_whether_asking_helps() -> None:
    assert again(failed_attempt("auth", retryable=False), failed_attempt())


# ── visible text ─────────────────────────────────────────────────────────────


def test_after_visible_text_the_step_restarts_by_default() -> None:
    """S6."""
    assert again(failed_attempt(visible=True, established=True))


def test_after_visible_text_the_step_may_fail() -> None:
    """S6: `on_partial="fail"`."""
    assert not again(
        failed_attempt(visible=True, established=True), rules=LoopPolicy(on_partial="fail")
    )


# ── how long ─────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("wait_s", "more"), [(99.0, True), (100.0, True), (100.5, False)])
def test_one_time_budget_for_all_retries_of_a_step(wait_s: float, more: bool) -> None:  # noqa: FBT001
    """S3: from the first request to the start of the last one."""
    limits = RetryPolicy(budget_s=300.0, retry_after_max_s=1_000.0)
    assert again(failed_attempt(wait_s=wait_s, at=1_200.0), retries=limits, since=1_000.0) is more


@pytest.mark.parametrize(("wait_s", "more"), [(60.0, True), (60.1, False), (86_400.0, False)])
def test_a_long_wait_ends_the_step_at_once(wait_s: float, more: bool) -> None:  # noqa: FBT001
    """S3: `Retry-After` is honoured up to a bound."""
    assert again(failed_attempt(wait_s=wait_s), retries=RetryPolicy(budget_s=1e9)) is more


def test_our_own_wait_is_never_too_long() -> None:
    limits = RetryPolicy(wait_max_s=120.0, retry_after_max_s=60.0)
    assert again(failed_attempt(wait_s=110.0), retries=limits)


def test_the_provider_says_how_long_to_wait() -> None:
    """S3: `Retry-After` is honoured."""
    asked = Fault("rate_limit", "slow down", retryable=True, retry_after_s=7.0)
    assert backoff_s(RetryPolicy(), 3, asked, 0.5) == 7.0


@pytest.mark.parametrize(
    ("failures", "most"), [(0, 1.0), (1, 2.0), (2, 4.0), (3, 8.0), (4, 16.0), (5, 16.0)]
)
def test_the_wait_doubles_up_to_its_cap(failures: int, most: float) -> None:
    """S3: 1 s, doubled each time, up to 16 s."""
    assert backoff_s(RetryPolicy(), failures, make_fault(), 1.0) == most


@given(st.integers(0, 100), st.floats(0, 1))
def test_the_wait_is_jittered_in_full(failures: int, roll: float) -> None:
    """S3: full jitter."""
    wait_s = backoff_s(RetryPolicy(), failures, make_fault(), roll)
    assert 0.0 <= wait_s <= 16.0
    assert wait_s == roll * backoff_s(RetryPolicy(), failures, make_fault(), 1.0)
