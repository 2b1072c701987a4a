"""Characters that a server cuts in half, over real HTTP and piece by piece."""

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass import Agent, tool
from windlass.core.events import CallDelta, ReplyEnd, ReplyPiece, TextDelta, ThinkingDelta
from windlass.models.character_halves import HalfJoiner, replace_halves
from windlass.testing import VirtualClock
from windlass.testing.chat_wire import DONE, finish_chunk, text_answer, text_chunk, usage_chunk
from windlass.testing.fault_server import FaultServer
from windlass.testing.wire import WireAct, stream_answer

FIRST, SECOND = "\\ud83d", "\\ude80"
LOST = "\N{REPLACEMENT CHARACTER}"


def raw_event(json_text: str) -> bytes:
    return f"data: {json_text}\n\n".encode()


def delta(json_text: str) -> bytes:
    return raw_event(f'{{"choices":[{{"index":0,"delta":{{"content":"{json_text}"}}}}]}}')


def arguments(json_text: str, name: str = "") -> bytes:
    named = f'"id":"c","function":{{"name":"{name}","arguments":"{json_text}"}}'
    more = f'"function":{{"arguments":"{json_text}"}}'
    call = f'{{"index":0,{named if name else more}}}'
    return raw_event(f'{{"choices":[{{"index":0,"delta":{{"tool_calls":[{call}]}}}}]}}')


async def answer_of(acts: Sequence[WireAct], clock: VirtualClock) -> tuple[str, int]:
    """The text of the reply, and how often the model was asked."""
    end = (finish_chunk(), usage_chunk(), DONE)
    async with FaultServer(stream_answer(*acts, *end)) as server:
        agent = Agent("openai-compatible:m", base_url=server.url, key="k", clock=clock)
        result = await agent.run("Hello?")
        return result.text, len(server.requests)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("acts", "text"),
    [
        ((delta(f"Go {FIRST}"), delta(f"{SECOND} now")), "Go \U0001f680 now"),
        ((delta(FIRST), delta(SECOND)), "\U0001f680"),
        ((delta(f"a{FIRST}"), text_chunk("b")), f"a{LOST}b"),
        ((delta(f"a{SECOND}"), text_chunk("b")), f"a{LOST}b"),
        ((text_chunk("a"), delta(f"b{FIRST}")), f"ab{LOST}"),
        ((delta(f"{FIRST}{FIRST}"), delta(SECOND)), f"{LOST}\U0001f680"),
        ((delta(f"{FIRST}{SECOND}{FIRST}"), usage_chunk(), delta(SECOND)), "\U0001f680" * 2),
        ((delta(f"\\\\ud83d{FIRST}"), delta(SECOND)), "\\ud83d\U0001f680"),
    ],
    ids=["cut", "bare", "first alone", "second alone", "at the end", "two", "again", "backslash"],
)
async def test_halves_of_a_character_are_joined(
    acts: tuple[WireAct, ...], text: str, clock: VirtualClock
) -> None:
    """S9: one request, and the text that the model wrote."""
    assert await answer_of(acts, clock) == (text, 1)


@pytest.mark.slow
async def test_halves_in_arguments_are_joined(clock: VirtualClock) -> None:
    """S9: a call gets the character, and keeps its name."""
    said: list[str] = []

    @tool
    def post(text: str) -> str:
        """Post a text."""
        said.append(text)
        return "posted"

    acts = (arguments(f'{{\\"text\\": \\"{FIRST}', "post"), arguments(f'{SECOND}\\"}}'))
    called = stream_answer(*acts, finish_chunk("tool_calls"), usage_chunk(), DONE)
    async with FaultServer(called, text_answer("Done.")) as server:
        agent = Agent(
            "openai-compatible:m", base_url=server.url, key="k", tools=[post], clock=clock
        )
        await agent.run("Go.")
    assert said == ["\U0001f680"]


def test_json_without_lone_halves_is_left_alone() -> None:
    assert replace_halves(b'"\\ud83d\\ude80 \\\\ud83d \\n \\u00e9"') is None
    assert replace_halves(b"{broken") is None


def joined(*pieces: ReplyPiece) -> list[ReplyPiece]:
    return list(HalfJoiner().join_pieces(pieces))


def test_a_half_does_not_join_one_of_another_stream() -> None:
    half, other = chr(0x100000 + 0xD83D), chr(0x100000 + 0xDE80)
    assert joined(ThinkingDelta(half), TextDelta(other), ReplyEnd()) == [
        ThinkingDelta(LOST),
        TextDelta(LOST),
        ReplyEnd(),
    ]
    calls = (CallDelta(0, "a", "f", half), CallDelta(1, "b", "g", other))
    assert joined(*calls, ReplyEnd()) == [
        CallDelta(0, "a", "f", ""),
        CallDelta(0, arguments=LOST),
        CallDelta(1, "b", "g", LOST),
        ReplyEnd(),
    ]


@given(st.text(), st.lists(st.integers(0, 40)))
def test_text_that_is_cut_anywhere_is_whole_again(text: str, cuts: list[int]) -> None:
    """S9: whichever units a server cuts at, the text is the same."""
    units = text.encode("utf-16-le", "surrogatepass")
    places = [0, *sorted(2 * cut for cut in cuts if 2 * cut < len(units)), len(units)]
    pieces: list[ReplyPiece] = []
    for start, end in pairwise(places):
        part = units[start:end].decode("utf-16-le", "surrogatepass")
        halves = {half: 0x100000 + half for half in range(0xD800, 0xE000)}
        pieces.append(TextDelta(part.translate(halves)))
    found = "".join(
        piece.text for piece in joined(*pieces, ReplyEnd()) if isinstance(piece, TextDelta)
    )
    assert found == units.decode("utf-16-le", "replace")
