"""The circuit breaker, with time as a number."""

from windlass.tools.breaker import CircuitBreaker


def failed(breaker: CircuitBreaker, now: float) -> None:
    passed = breaker.admit(now)
    assert passed
    breaker.record_outcome(passed, "failed", now)


def opened() -> CircuitBreaker:
    breaker = CircuitBreaker()
    for _ in range(5):
        failed(breaker, 0.0)
    return breaker


def test_it_opens_after_five_failures_in_a_row() -> None:
    """T11."""
    breaker = CircuitBreaker()
    for _ in range(4):
        failed(breaker, 0.0)
    assert breaker.admit(0.0) == "call"
    breaker.record_outcome("call", "worked", 0.0)
    for _ in range(4):
        failed(breaker, 0.0)
    assert breaker.admit(0.0) == "call", "a success in between starts the count anew"
    breaker.record_outcome("call", "failed", 0.0)
    assert breaker.admit(0.0) is None


def test_what_is_nobodys_failure_counts_for_nothing() -> None:
    """T11: neither up nor down."""
    breaker = CircuitBreaker()
    for _ in range(4):
        failed(breaker, 0.0)
    for _ in range(20):
        breaker.admit(0.0)
        breaker.record_outcome("call", "nothing", 0.0)
    failed(breaker, 0.0)
    assert breaker.admit(0.0) is None


def test_it_lets_one_probe_through_after_thirty_seconds() -> None:
    """T11: one at a time, and rejections do not make it longer."""
    breaker = opened()
    for now in (0.0, 10.0, 29.9):
        assert breaker.admit(now) is None
    assert breaker.wait_s(10.0) == 20.0
    assert breaker.admit(30.0) == "probe"
    assert breaker.admit(30.0) is None, "the probe is under way"
    breaker.record_outcome("probe", "failed", 31.0)
    assert breaker.admit(60.9) is None
    assert breaker.admit(61.0) == "probe"
    breaker.record_outcome("probe", "worked", 61.0)
    assert breaker.admit(61.0) == breaker.admit(61.0) == "call"


def test_a_probe_that_says_nothing_is_followed_by_another() -> None:
    """T11: a cancelled probe does not shut the door for ever."""
    breaker = opened()
    assert breaker.admit(30.0) == "probe"
    breaker.record_outcome("probe", "nothing", 30.0)
    assert breaker.admit(30.0) == "probe"


def test_calls_that_were_under_way_do_not_keep_it_open_for_longer() -> None:
    """T11."""
    breaker = CircuitBreaker(failures_max=1)
    assert breaker.admit(0.0) == breaker.admit(0.0) == "call"
    breaker.record_outcome("call", "failed", 0.0)
    breaker.record_outcome("call", "failed", 20.0)
    assert breaker.admit(30.0) == "probe"
