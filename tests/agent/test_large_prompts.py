"""A prompt of many megabytes: the event loop goes on while it is searched for secrets."""

import asyncio

import pytest

from windlass import Agent, FilePart, RunStarted, TextPart
from windlass.core.messages import ContentPart
from windlass.journals.memory import MemoryJournal
from windlass.runtime.recorder import LONG_PROMPT_CHARS
from windlass.testing import ScriptedModel

pytestmark = pytest.mark.slow

SECRET = "crm-canary-3141-abc"
WORDS = "The quick brown-fox jumps_over the lazy dog. "
LONG = f"{WORDS * 200_000} {SECRET} {WORDS}"
"""9 MB, with a secret near the end."""
TICKS_MIN = 20
"""Far fewer than there are; on the event loop there are three, whatever the size."""


@pytest.mark.realtime
@pytest.mark.contract("C1")
@pytest.mark.parametrize(
    "prompt",
    [
        LONG,
        (TextPart("Read this."), FilePart("text/plain", "long.txt", LONG.encode())),
    ],
    ids=["text", "attachment"],
)
def test_the_event_loop_goes_on_while_a_long_prompt_is_masked(
    prompt: str | tuple[ContentPart, ...],
) -> None:
    """G8, C1: counted in turns of another task, from the call of `run` to the recorded prompt."""
    ticks = 0
    ticks_at_record = 0

    def on_event(event: object) -> None:
        nonlocal ticks_at_record
        if isinstance(event, RunStarted):
            ticks_at_record = ticks

    async def main() -> None:
        async def count_turns() -> None:
            nonlocal ticks
            while True:
                await asyncio.sleep(0.001)
                ticks += 1

        counting = asyncio.create_task(count_turns())
        journal = MemoryJournal()
        with ScriptedModel(["Done."]) as model:
            agent = Agent(model, journal=journal, secrets={"crm": SECRET})
            await agent.run(prompt, session="s", on_event=on_event)
        counting.cancel()
        recorded = (await journal.read("s"))[0]
        assert isinstance(recorded, RunStarted)
        last = recorded.prompt[-1]
        text = last.text if isinstance(last, TextPart) else repr(last)
        assert SECRET not in text
        assert "[secret: crm]" in text

    assert len(LONG) > LONG_PROMPT_CHARS
    asyncio.run(main())
    assert ticks_at_record >= TICKS_MIN
