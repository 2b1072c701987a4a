"""The conformance suite for journals with budgets that many runs share."""

import asyncio
from decimal import Decimal
from random import Random

from windlass.core.limits import Amount, Budget
from windlass.ports import Journal
from windlass.testing.journals import JournalSuite, on_a_journal, on_two_journals

NOTHING = Amount(Decimal(0), 0)


def usd_amount(amount: str) -> Amount:
    return Amount(Decimal(amount))


class SharedBudgetsConformance(JournalSuite):
    """Runs of any process draw on a budget, and never more than it holds.

    The journal must take its time from `self.now`.
    """

    @on_two_journals
    async def test_runs_draw_until_it_is_dry(self, one: Journal, two: Journal) -> None:
        """Shared; the last one gets what is left."""
        budget = Budget("team", Decimal("1.00"))
        assert await one.read_spending(budget) == usd_amount("0")
        assert await one.draw_budget(budget, "a", 1, usd_amount("0.4")) == usd_amount("0.4")
        assert await two.draw_budget(budget, "b", 1, usd_amount("0.4")) == usd_amount("0.4")
        assert await one.draw_budget(budget, "a", 2, usd_amount("0.4")) == usd_amount("0.2")
        assert await two.draw_budget(budget, "c", 1, usd_amount("0.4")) == usd_amount("0")
        for journal in (one, two):
            assert await journal.read_spending(budget) == usd_amount("1")

    @on_a_journal
    async def test_what_others_hold_in_reserve_is_known(self, journal: Journal) -> None:
        """B2: what a run drew and has not spent, without its own tree; nothing once it settled."""
        budget = Budget("team", Decimal(10), 1_000)
        await journal.draw_budget(budget, "a", 1, Amount(Decimal(4), 40), Amount(Decimal(1), 10))
        await journal.draw_budget(budget, "a/c1", 1, Amount(Decimal(2), 20))
        await journal.draw_budget(budget, "ab", 1, Amount(Decimal(1), 5))
        assert await journal.read_reserved(budget, "b") == Amount(Decimal(6), 55)
        assert await journal.read_reserved(budget, "a") == Amount(Decimal(1), 5)
        await journal.draw_budget(budget, "a", 1, Amount(Decimal(4), 40), Amount(Decimal(4), 40))
        await journal.settle_budget(budget, "a/c1", 1, Amount(Decimal(2), 20))
        assert await journal.read_reserved(budget, "b") == Amount(Decimal(1), 5)
        assert await journal.read_reserved(Budget("other", Decimal(1)), "b") == usd_amount("0")

    @on_a_journal
    async def test_a_share_is_raised_and_never_lowered(self, journal: Journal) -> None:
        budget = Budget("team", Decimal(10))
        assert await journal.draw_budget(budget, "a", 1, usd_amount("3")) == usd_amount("3")
        assert await journal.draw_budget(budget, "a", 1, usd_amount("5")) == usd_amount("5")
        assert await journal.draw_budget(budget, "a", 1, usd_amount("1")) == usd_amount("5")
        assert await journal.draw_budget(budget, "a", 1, Amount()) == usd_amount("5")
        assert await journal.draw_budget(budget, "a", 1, usd_amount("99")) == usd_amount("10")
        assert await journal.read_spending(budget) == usd_amount("10")

    @on_two_journals
    async def test_asking_twice_is_asking_once(self, one: Journal, two: Journal) -> None:
        """A run that was killed asks again, perhaps from another process."""
        budget = Budget("team", Decimal(10), tokens=1_000)
        for journal in (one, one, two):
            wanted = Amount(Decimal(3), 100)
            assert await journal.draw_budget(budget, "a", 1, wanted) == wanted
            assert await journal.read_spending(budget) == wanted
        for journal in (two, one):
            spent = Amount(Decimal("2.5"), 70)
            await journal.settle_budget(budget, "a", 1, spent)
            assert await journal.read_spending(budget) == spent

    @on_a_journal
    async def test_what_is_not_needed_goes_back(self, journal: Journal) -> None:
        budget = Budget("team", Decimal(1))
        await journal.draw_budget(budget, "a", 1, usd_amount("1"))
        assert await journal.draw_budget(budget, "b", 1, usd_amount("0.5")) == usd_amount("0")
        await journal.settle_budget(budget, "a", 1, usd_amount("0.25"))
        assert await journal.draw_budget(budget, "b", 1, usd_amount("0.5")) == usd_amount("0.5")
        assert await journal.draw_budget(budget, "a", 1, usd_amount("1")) == usd_amount("0.5")

    @on_a_journal
    async def test_what_was_spent_counts_even_if_it_was_too_much(self, journal: Journal) -> None:
        budget = Budget("team", tokens=100)
        await journal.draw_budget(budget, "a", 1, Amount(tokens=100))
        await journal.settle_budget(budget, "a", 1, Amount(tokens=130))
        await journal.settle_budget(budget, "never drew", 1, Amount(tokens=5))
        assert await journal.read_spending(budget) == Amount(tokens=135)
        assert await journal.draw_budget(budget, "b", 1, Amount(tokens=1)) == Amount(tokens=0)
        assert await journal.draw_budget(budget, "a", 1, Amount(tokens=200)) == Amount(tokens=130)

    @on_a_journal
    async def test_a_budget_that_was_lowered_gives_no_more(self, journal: Journal) -> None:
        await journal.draw_budget(Budget("team", Decimal(10)), "a", 1, usd_amount("6"))
        lower = Budget("team", Decimal(5))
        assert await journal.draw_budget(lower, "a", 1, usd_amount("7")) == usd_amount("6")
        assert await journal.draw_budget(lower, "b", 1, usd_amount("1")) == usd_amount("0")
        await journal.settle_budget(lower, "a", 1, usd_amount("3"))
        assert await journal.draw_budget(lower, "b", 1, usd_amount("9")) == usd_amount("2")

    @on_a_journal
    async def test_only_what_a_budget_counts_is_counted(self, journal: Journal) -> None:
        money = Budget("money", Decimal(1))
        assert await journal.draw_budget(money, "a", 1, Amount(Decimal(1), 500)) == usd_amount("1")
        await journal.settle_budget(money, "a", 1, Amount(Decimal(1), 500))
        assert await journal.read_spending(money) == usd_amount("1")
        both = Budget("both", Decimal(1), tokens=10)
        assert await journal.draw_budget(both, "a", 1, usd_amount("2")) == Amount(Decimal(1), 0)
        assert await journal.draw_budget(both, "a", 1, Amount(tokens=7)) == Amount(Decimal(1), 7)

    @on_a_journal
    async def test_budgets_do_not_touch_one_another(self, journal: Journal) -> None:
        for name in ("one", "two"):
            budget = Budget(name, Decimal(1))
            assert await journal.draw_budget(budget, "a", 1, usd_amount("1")) == usd_amount("1")
        assert await journal.read_spending(Budget("three", Decimal(1))) == usd_amount("0")

    @on_a_journal
    async def test_a_run_counts_for_the_window_in_which_it_first_drew(
        self, journal: Journal
    ) -> None:
        """A new day has a full budget; a run of yesterday keeps using yesterday's."""
        budget = Budget("daily", Decimal(1), per="day")
        await journal.draw_budget(budget, "old", 1, usd_amount("0.9"))
        self.moment += 24 * 3600
        assert await journal.read_spending(budget) == usd_amount("0")
        assert await journal.draw_budget(budget, "new", 1, usd_amount("0.7")) == usd_amount("0.7")
        assert await journal.draw_budget(budget, "old", 1, usd_amount("2")) == usd_amount("1")
        await journal.settle_budget(budget, "old", 1, usd_amount("0.1"))
        assert await journal.read_spending(budget) == usd_amount("0.7")
        self.moment -= 24 * 3600
        assert await journal.read_spending(budget) == usd_amount("0.1")

    @on_a_journal
    async def test_money_is_exact(self, journal: Journal) -> None:
        """However small it is."""
        budget = Budget("team", Decimal(1))
        tiny = Decimal("0.0000000000000000000000000001")
        for run in range(1, 4):
            await journal.draw_budget(budget, "a", run, Amount(tiny * run))
        assert await journal.read_spending(budget) == Amount(tiny * 6)
        assert await journal.draw_budget(budget, "b", 1, usd_amount("1")) == Amount(1 - tiny * 6)

    @on_two_journals
    async def test_many_runs_at_once_never_overdraw(self, one: Journal, two: Journal) -> None:
        """Whatever the order, the shares add up to what is spent, and fit."""
        budget = Budget("team", Decimal(5), tokens=2_000)
        random = Random(3)

        async def run(number: int) -> Amount:
            share = NOTHING
            for _ in range(4):
                journal = random.choice((one, two))
                wanted = Amount(Decimal(random.randrange(40)) / 100, random.randrange(200))
                share = await journal.draw_budget(budget, f"s{number % 5}", number, wanted)
                if random.random() < 0.3:  # noqa: PLR2004
                    share = Amount((share.usd or Decimal(0)) / 2, (share.tokens or 0) // 2)
                    await journal.settle_budget(budget, f"s{number % 5}", number, share)
                assert is_within_budget(budget, await journal.read_spending(budget))
            return share

        shares = await asyncio.gather(*(run(number) for number in range(25)))
        money = sum((share.usd or Decimal(0) for share in shares), Decimal(0))
        tokens = sum(share.tokens or 0 for share in shares)
        assert await one.read_spending(budget) == Amount(money, tokens)


def is_within_budget(budget: Budget, amount: Amount) -> bool:
    """Whether an amount is within the limits of a budget."""
    fits = budget.usd is None or (amount.usd or Decimal(0)) <= budget.usd
    return fits and (budget.tokens is None or (amount.tokens or 0) <= budget.tokens)
