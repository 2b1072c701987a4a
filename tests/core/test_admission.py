"""Who is next, and how many at once."""

from windlass.core.rate_limits import (
    PRIORITY_KEY,
    WINDOW_START,
    FairQueue,
    RequestWindow,
    read_priority,
)


def drain(queue: FairQueue[str]) -> list[str]:
    return [queue.pop() for _ in range(len(queue))]


def test_groups_are_served_in_turns_however_much_one_of_them_asks_for() -> None:
    queue: FairQueue[str] = FairQueue()
    for nth in range(4):
        queue.push("greedy", f"greedy {nth}")
    queue.push("modest", "modest 0")
    queue.push("modest", "modest 1")
    assert drain(queue) == [
        "greedy 0",
        "modest 0",
        "greedy 1",
        "modest 1",
        "greedy 2",
        "greedy 3",
    ]


def test_a_group_that_comes_late_does_not_catch_up_on_what_it_never_asked_for() -> None:
    queue: FairQueue[str] = FairQueue()
    for nth in range(6):
        queue.push("early", f"early {nth}")
    assert [queue.pop() for _ in range(3)] == ["early 0", "early 1", "early 2"]
    for nth in range(3):
        queue.push("late", f"late {nth}")
    assert drain(queue) == ["late 0", "early 3", "late 1", "early 4", "late 2", "early 5"]


def test_a_higher_priority_comes_first() -> None:
    queue: FairQueue[str] = FairQueue()
    queue.push("a", "later")
    queue.push("a", "now", priority=5)
    queue.push("b", "last", priority=-1)
    assert queue.peek() == "now"
    assert drain(queue) == ["now", "later", "last"]


def test_a_window_grows_with_each_request_that_was_accepted_while_it_is_used() -> None:
    window = RequestWindow()
    for _ in range(int(WINDOW_START)):
        window.in_flight += 1
    assert not window.has_room
    window.note_accepted()
    assert window.has_room
    window.in_flight = 0
    size = window.size
    window.note_accepted()
    assert window.size == size


def test_a_refusal_halves_the_window_once_for_all_that_were_under_way() -> None:
    window = RequestWindow()
    window.in_flight = int(WINDOW_START)
    for _ in range(16):
        window.note_refused(now=100.0, wait_s=1.0)
    assert window.size == WINDOW_START / 2
    window.note_refused(now=101.0, wait_s=1.0)
    assert window.size == WINDOW_START / 4
    window.in_flight = 0
    window.note_refused(now=200.0, wait_s=1.0)
    assert window.size == 1


def test_after_a_refusal_the_window_grows_slowly() -> None:
    window = RequestWindow()
    window.in_flight = 8
    window.note_refused(now=100.0, wait_s=1.0)
    for _ in range(4):
        window.note_accepted()
    assert window.size == 4
    window.note_accepted()
    assert window.size == 5


def test_a_window_keeps_to_its_limit() -> None:
    window = RequestWindow(most=2)
    for _ in range(10):
        window.in_flight = 2
        window.note_accepted()
    assert window.size == 2


def test_a_priority_that_is_not_a_number_is_none() -> None:
    assert read_priority({PRIORITY_KEY: 3}) == 3
    assert read_priority({PRIORITY_KEY: "high"}) == 0
    assert read_priority({}) == 0


def test_a_reported_quota_does_not_open_a_window_beyond_what_was_refused() -> None:
    """F1: the provider has the last word, whatever it reports."""
    window = RequestWindow(start=40)
    window.in_flight = 40
    window.note_refused(now=0.0, wait_s=1.0)
    window.open_to(10_000)
    assert window.size == 20
