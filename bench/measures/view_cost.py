"""Whether a long session stays as cheap as a short one when its view is compacted.

A view that is rebuilt from the whole transcript would cost more with every step. The floor of each
row is a step of a short session; `windlass` is a step of one that is several times as long.
"""

from functools import partial

from meter import BenchRow, Work, race_contestants

from windlass import Agent, Compaction, Limits, ModelInfo, tool
from windlass.core.setup import CompactionMethod
from windlass.testing import ScriptedModel, ScriptedReply, call

AIM = 1.2
TIMES = 4
WINDOW = 8_000
WAYS: dict[str, tuple[CompactionMethod, ...]] = {
    "left out": ("window",),
    "masked": ("mask", "window"),
    "summed up": ("summary", "window"),
}


@tool(effect="read")
async def read(at: int) -> str:
    """Read a page.

    Args:
        at: its number.
    """
    return f"page {at} " + "of a long book " * 80


def measure(length: int, rounds: int) -> list[BenchRow]:
    return [_make_row(way, strategies, length, rounds) for way, strategies in WAYS.items()]


def _make_row(
    way: str, strategies: tuple[CompactionMethod, ...], length: int, rounds: int
) -> BenchRow:
    lengths = {"floor": length, "windlass": length * TIMES}
    sides = {side: partial(_session_work, strategies, count) for side, count in lengths.items()}
    times = race_contestants(sides, rounds)
    each = {side: times[side].cpu_s / lengths[side] * 1e6 for side in sides}
    name = f"step, {way}, of {length * TIMES:,} to {length:,}"
    return BenchRow(name=name, unit="µs CPU", aim=AIM, **each)


def _session_work(strategies: tuple[CompactionMethod, ...], length: int) -> Work:
    script: list[ScriptedReply] = [call("read", {"at": at}) for at in range(length)]
    model = ScriptedModel([*script, "That is all."], info=ModelInfo("scripted:m", window=WINDOW))
    writer = ScriptedModel(["It is a long book."] * length, name="scripted:writer")
    agent = Agent(
        model,
        tools=[read],
        limits=Limits(steps=None),
        compaction=Compaction(strategies=strategies),
        summary_model=writer,
    )
    return lambda: agent.run("Read it.")
