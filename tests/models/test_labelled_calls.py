"""ReAct and the older format of Qwen: what goes out, and what is found in what comes in (P4)."""

import itertools
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transcripts import (
    CONVERSATION,
    HERE,
    TOOLS,
    assert_grows,
    encoded_histories,
    make_prompt,
    request_body,
)
from windlass import Agent, ModelOptions, tool
from windlass.core.events import (
    CallDelta,
    ReplyEnd,
    ReplyPiece,
    StopReason,
    TextDelta,
    ThinkingDelta,
)
from windlass.core.messages import (
    AssistantMessage,
    CallOutcome,
    TextPart,
    ThinkingPart,
    ToolCall,
    ToolResult,
    ToolResults,
    UserMessage,
)
from windlass.models.text_protocols.labelled_calls import (
    QWEN_LABELS,
    REACT_LABELS,
    QwenCalls,
    ReactCalls,
)
from windlass.models.text_protocols.labelled_scan import THOUGHT_SIGNATURE, LabelFormat, LabelScan
from windlass.models.vendors import ChatQuirks
from windlass.testing.chat_wire import text_answer
from windlass.testing.fault_server import FaultServer


def scan(labels: LabelFormat, *deltas: str, stop: StopReason = "end") -> list[ReplyPiece]:
    """The pieces of a reply, adjacent ones joined, and what shows nothing left out."""
    scanning = LabelScan(labels)
    pieces = [piece for delta in deltas for piece in scanning.scan_piece(TextDelta(delta))]
    whole: list[ReplyPiece] = []
    for piece in [*pieces, *scanning.scan_piece(ReplyEnd(stop))]:
        last = whole[-1] if whole else None
        match last, piece:
            case _, TextDelta(""):
                pass
            case TextDelta(before), TextDelta(text):
                whole[-1] = TextDelta(before + text)
            case ThinkingDelta(before, None), ThinkingDelta(text, signature):
                whole[-1] = ThinkingDelta(before + text, signature)
            case _:
                whole.append(piece)
    return whole


def thought(text: str) -> ThinkingDelta:
    return ThinkingDelta(text, THOUGHT_SIGNATURE)


def look(number: int = 0, arguments: str = '{"at": "door"}') -> CallDelta:
    return CallDelta(number, str(number + 1), "look", arguments)


END = ReplyEnd("end")
REACT = {
    "plain": ("Just words.", [TextDelta("Just words."), END]),
    "answer": (
        "Thought: I know.\nFinal Answer: A door.",
        [thought("I know."), TextDelta("A door."), END],
    ),
    "call": (
        'Thought: I look.\nAction: look\nAction Input: {"at": "door"}\n',
        [thought("I look."), look(), END],
    ),
    "made_up": (
        'Action: look\nAction Input: {"at": "door"}\nObservation: A cat.\nFinal Answer: A cat.',
        [look(), END],
    ),
    "fenced": ('Action: look\nAction Input:\n```json\n{"at": "door"}\n```', [look(), END]),
    "no_json": ("Action: look\nAction Input: the door", [look(arguments="the door"), END]),
    "no_input": ("Action: look", [look(arguments=""), END]),
    "words_behind": (
        'Action: look\nAction Input: {"at": "door"} as you said',
        [look(), TextDelta("as you said"), END],
    ),
    "no_label": (
        "Thought: It is a door.",
        [thought("It is a door."), TextDelta("It is a door."), END],
    ),
    "answer_without_thought": (
        "I now know the final answer\nFinal Answer: 72 F",
        [thought("I now know the final answer"), TextDelta("72 F"), END],
    ),
    "call_without_thought": (
        'I look.\nAction: look\nAction Input: {"at": "door"}',
        [thought("I look."), look(), END],
    ),
    "answer_after_thinking": (
        "<think>Hm.</think>\nSo it is.\nFinal Answer: A door.",
        [ThinkingDelta("Hm.", "think"), thought("So it is."), TextDelta("A door."), END],
    ),
    "in_a_line": ("My Action: none.", [TextDelta("My Action: none."), END]),
    "thinking": (
        "<think>Action: look\nAction Input: {}</think>\nFinal Answer: No.",
        [ThinkingDelta("Action: look\nAction Input: {}", "think"), TextDelta("No."), END],
    ),
    "cut": (
        'Action: look\nAction Input: {"at": "do',
        [look(arguments='{"at": "do'), ReplyEnd("length")],
    ),
}
QWEN = {
    "plain": ("Just words.", [TextDelta("Just words."), END]),
    "call": (
        'I look.\n✿FUNCTION✿: look\n✿ARGS✿: {"at": "door"}',
        [TextDelta("I look."), look(), END],
    ),
    "two": (
        '✿FUNCTION✿: look\n✿ARGS✿: {"at": "door"}\n✿FUNCTION✿: look\n✿ARGS✿: {"at": "wall"}',
        [look(), look(1, '{"at": "wall"}'), END],
    ),
    "made_up": (
        '✿FUNCTION✿: look\n✿ARGS✿: {"at": "door"}\n✿RESULT✿: x\n✿RETURN✿: y',
        [look(), END],
    ),
    "return": ("✿RETURN✿: A door: wide.", [TextDelta("A door: wide."), END]),
    "in_a_string": (
        '✿FUNCTION✿: look\n✿ARGS✿: {"at": "✿ARGS✿"}',
        [look(arguments='{"at": "✿ARGS✿"}'), END],
    ),
    "flower": ("A ✿ blooms.", [TextDelta("A ✿ blooms."), END]),
}
CASES = [
    pytest.param(labels, text, pieces, id=f"{name}-{case}")
    for name, labels, cases in (("react", REACT_LABELS, REACT), ("qwen", QWEN_LABELS, QWEN))
    for case, (text, pieces) in cases.items()
]


@pytest.mark.contract("P4")
@pytest.mark.parametrize(("labels", "text", "pieces"), CASES)
def test_what_a_reply_means_depends_on_no_split(
    labels: LabelFormat, text: str, pieces: list[ReplyPiece]
) -> None:
    """P4: labels are never shown, thinking is never parsed, a made-up result is dropped."""
    assert scan(labels, text) == pieces
    assert scan(labels, *text) == pieces
    for at in range(len(text)):
        assert scan(labels, text[:at], text[at:]) == pieces


@pytest.mark.parametrize(
    "text", [": A door.", ":A door.", "A door.", " : A door.", "✿RETURN✿: A door."]
)
def test_a_reply_to_results_may_continue_their_label(text: str) -> None:
    """P4: the colon belongs to the label that ends the results, wherever the text is cut."""
    for at in range(len(text)):
        scanning = LabelScan(QWEN_LABELS, follows_results=True)
        deltas = [TextDelta(text[:at]), TextDelta(text[at:]), END]
        pieces = [piece for delta in deltas for piece in scanning.scan_piece(delta)]
        assert "".join(piece.text for piece in pieces if isinstance(piece, TextDelta)) == "A door."
    assert scan(QWEN_LABELS, ": A door.") == [TextDelta(": A door."), END]


LABELS = ["Thought:", "Action:", "Action Input:", "Observation:", "Final Answer:"]
MARKERS = ["✿FUNCTION✿", "✿ARGS✿", "✿RESULT✿", "✿RETURN✿", "<think>", "</think>"]
SNIPPETS = st.sampled_from([*LABELS, *MARKERS, ":", "{", "}", '"', "look", "✿", "\n", " "])


@given(
    st.lists(SNIPPETS, max_size=12).map("".join),
    st.lists(st.integers(0, 60), max_size=4),
    st.sampled_from([REACT_LABELS, QWEN_LABELS]),
)
def test_no_split_changes_anything(text: str, cuts: list[int], labels: LabelFormat) -> None:
    """P4: also of a reply that makes no sense."""
    edges = [0, *sorted(cuts), len(text) + 60]
    deltas = [text[start:end] for start, end in itertools.pairwise(edges)]
    assert scan(labels, *deltas) == scan(labels, text)


def test_a_name_that_was_cut_off_calls_nothing() -> None:
    """R2."""
    assert scan(REACT_LABELS, "Action: loo", stop="length") == [
        TextDelta("loo"),
        ReplyEnd("length"),
    ]


@pytest.mark.parametrize("dialect", [QwenCalls, ReactCalls])
def test_the_history_grows(dialect: type[QwenCalls]) -> None:
    """P5."""
    asked, answer = CONVERSATION[-1], AssistantMessage((TextPart("A door."),), HERE)
    call = ToolCall("c1_0", "look", '{"at": "door"}')
    results = ToolResults((CallOutcome(call, ToolResult.from_text("value", "A door.")),))
    messages = [asked, AssistantMessage((call,), HERE), results, answer, asked]
    assert_grows(encoded_histories(dialect(ChatQuirks(), "s"), messages, "messages", b'"}'))


def test_the_prompt_of_qwen_is_the_one_that_it_was_trained_on() -> None:
    """P4: with the form for one call or for many."""
    chat = QwenCalls(ChatQuirks(), "server")
    asked = make_prompt([UserMessage((TextPart("Hi"),))], system="Be brief.", tools=TOOLS[:1])
    system = request_body(chat, asked)["messages"][0]["content"]
    assert system.startswith(
        "Be brief.\n\n# Tools\n\n## You have access to the following tools:\n\n### look\n\n"
        'look: Look at a place. Parameters: {"type": "object", "properties": {"at": {}}} '
        "Format the arguments as a JSON object.\n\n## Insert the following command in your reply "
        "when you need to call N tools in parallel:\n\n✿FUNCTION✿: The name of tool 1, should be "
        "one of [look]\n✿ARGS✿: The input of tool 1\n"
    )
    alone = request_body(chat, replace(asked, parallel_tool_calls=False))["messages"][0]["content"]
    assert "## When you need to call a tool, please insert" in alone


def test_stop_words_are_added_to_the_callers() -> None:
    body = request_body(
        ReactCalls(ChatQuirks(), "s"), make_prompt(), options=ModelOptions(stop=("X",))
    )
    assert body["stop"] == ["X", "Observation:"]
    assert "tools" not in body
    bare = request_body(ReactCalls(ChatQuirks(), "s"), make_prompt(tools=()))
    assert "stop" not in bare


def test_a_history_of_react_is_written_as_it_was_read() -> None:
    """S11: thoughts go back to their own model only."""
    said = AssistantMessage(
        (ThinkingPart("I know.", THOUGHT_SIGNATURE), TextPart("A door.")), "a:m"
    )
    asked = make_prompt([*CONVERSATION[:1], said], model="a:m")
    chat = ReactCalls(ChatQuirks(), "server")
    assert request_body(chat, asked)["messages"][-1]["content"] == (
        "Thought: I know.\nFinal Answer: A door."
    )
    other = replace(asked, model="b:m")
    assert request_body(chat, other)["messages"][-1]["content"] == "Final Answer: A door."


@tool(effect="read")
def weigh(part: str) -> str:
    """Weigh a part."""
    return "2 t"


REPLIES = {
    "react": (
        'Thought: I weigh it.\nAction: weigh\nAction Input: {"part": "jib"}\nObservation: 9 t',
        "Thought: I know.\nFinal Answer: Two tonnes.",
        "Observation: 2 t",
    ),
    "qwen": (
        '✿FUNCTION✿: weigh\n✿ARGS✿: {"part": "jib"}\n✿RESULT✿: 9 t',
        "✿RETURN✿: Two tonnes.",
        "✿RESULT✿: 2 t\n✿RETURN✿",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["react", "qwen"])
async def test_a_whole_run_in_text(protocol: str) -> None:
    """P4: the same loop, gate and journal; the result goes back as text."""
    first, last, result_text = REPLIES[protocol]
    async with FaultServer(text_answer(first, chars=3), text_answer(last, chars=2)) as server:
        options = ModelOptions(tool_protocol=protocol)  # pyright: ignore[reportArgumentType]
        agent = Agent("vllm:m", base_url=server.url, tools=[weigh], options=options)
        result = await agent.run("What does it weigh?")
        assert server.requests[1].json["messages"][-1] == {"role": "user", "content": result_text}
    assert (result.text, result.steps) == ("Two tonnes.", 2)
