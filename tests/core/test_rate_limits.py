"""The arithmetic of shared quotas."""

from hypothesis import given
from hypothesis import strategies as st

from windlass.core.rate_limits import (
    CLOSED_MAX_S,
    LimitReport,
    ProviderQuota,
    QuotaBucket,
    RateLimits,
)

NOW = 1_800_000_000.0
FULL = RateLimits(LimitReport(100, 80, reset_s=20), LimitReport(1_000, 1_000))


def test_a_report_says_how_fast_a_bucket_refills() -> None:
    quota = ProviderQuota(at=NOW).take_report(FULL)
    assert quota.requests == QuotaBucket(100, 80, per_s=1)
    assert quota.advance(NOW + 5).requests == QuotaBucket(100, 85, per_s=1)
    assert quota.advance(NOW + 500).requests == QuotaBucket(100, 100, per_s=1)


def test_a_report_lowers_an_estimate_and_never_raises_it() -> None:
    quota = ProviderQuota(at=NOW).take_report(FULL)
    lower = quota.take_report(RateLimits(LimitReport(100, 3, reset_s=97)))
    assert lower.requests is not None
    assert lower.requests.remaining == 3
    assert lower.tokens == quota.tokens
    raised = lower.take_report(FULL)
    assert raised.requests is not None
    assert raised.requests.remaining == 3


def test_a_limit_that_the_provider_changed_counts_at_once() -> None:
    quota = ProviderQuota(at=NOW).take_report(RateLimits(LimitReport(10, 0, reset_s=10)))
    raised = quota.take_report(RateLimits(LimitReport(1_000, 900, reset_s=10)))
    assert raised.requests == QuotaBucket(1_000, 900, per_s=10)


def test_an_old_report_counts_with_what_came_back_since() -> None:
    quota = ProviderQuota(at=NOW).take_report(FULL, age_s=10)
    assert quota.requests is not None
    assert quota.requests.remaining == 90


def test_nothing_is_lent_while_the_provider_asks_to_wait() -> None:
    quota = ProviderQuota(at=NOW).take_report(FULL).close(10)
    kept, loan = quota.lend(1, 10)
    assert kept == quota
    assert (loan.requests, loan.wait_s, loan.closed_s) == (0, 10, 10)
    _, loan = quota.advance(NOW + 10).lend(1, 10)
    assert loan.requests == 1


def test_a_wait_that_is_too_long_is_looked_at_again() -> None:
    assert ProviderQuota(at=NOW).close(86_400).closed_s == CLOSED_MAX_S


def test_a_clock_that_runs_backwards_gives_nothing_back_and_closes_nothing_longer() -> None:
    quota = ProviderQuota(at=NOW).take_report(FULL).close(10).advance(NOW - 3_600)
    assert quota.requests == QuotaBucket(100, 80, per_s=1)
    assert quota.closed_s == 10


def test_one_borrower_leaves_something_for_others() -> None:
    quota = ProviderQuota(at=NOW).take_report(FULL)
    left, loan = quota.lend(1_000, 1_000)
    assert (loan.requests, loan.tokens) == (40, 500)
    assert left.requests is not None
    assert left.requests.remaining == 40


def test_a_loan_covers_a_request_or_nothing() -> None:
    scarce = RateLimits(LimitReport(10, 1, reset_s=9), LimitReport(1_000, 100, reset_s=90))
    quota = ProviderQuota(at=NOW).take_report(scarce)
    _, loan = quota.lend(4, 800)
    assert (loan.requests, loan.tokens) == (0, 0)
    assert loan.wait_s == 10
    _, loan = quota.lend(1, 100)
    assert (loan.requests, loan.tokens, loan.wait_s) == (1, 100, 0)


def test_a_request_larger_than_the_limit_waits_for_a_full_bucket() -> None:
    quota = ProviderQuota(at=NOW).take_report(RateLimits(tokens=LimitReport(100, 50, reset_s=5)))
    _, loan = quota.lend(1, 5_000)
    assert loan.wait_s == 5
    left, loan = quota.advance(NOW + 5).lend(1, 5_000)
    assert loan.tokens == 5_000
    assert left.tokens is not None
    assert left.tokens.remaining < 0


def test_without_limits_everything_is_lent() -> None:
    quota, loan = ProviderQuota(at=NOW).lend(5, 5_000)
    assert loan.is_unlimited
    assert quota == ProviderQuota(at=NOW)


@given(
    st.lists(st.tuples(st.floats(0, 3), st.integers(1, 9), st.integers(0, 300)), max_size=60),
    st.integers(1, 50),
)
def test_no_more_is_lent_than_the_bucket_held_and_got_back(
    borrowings: list[tuple[float, int, int]], limit: int
) -> None:
    """Whoever borrows, and whenever."""
    report = RateLimits(LimitReport(limit, limit / 2, reset_s=limit / 2))
    quota = ProviderQuota(at=NOW).take_report(report)
    now, lent = NOW, 0.0
    for pause_s, requests, tokens in borrowings:
        now += pause_s
        quota, loan = quota.advance(now).lend(requests, tokens)
        lent += loan.requests or 0
    assert lent <= limit / 2 + (now - NOW) + 1e-6
