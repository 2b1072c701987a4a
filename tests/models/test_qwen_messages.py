"""Runs as message lists of Qwen-Agent; the lists themselves are compared in `tests/parity`."""

from windlass.agent.agent import Agent
from windlass.core.messages import FilePart, ImagePart, TextPart
from windlass.models.qwen.qwen_messages import to_qwen_messages
from windlass.testing import RecordingTools, ScriptedModel, call, say
from windlass.testing.script_words import think

PNG = ImagePart("image/png", b"\x89PNG")
PDF = FilePart("application/pdf", "a.pdf", url="https://example.org/a.pdf")


async def test_each_part_is_a_message() -> None:
    """L9."""
    replies = [
        [think("Hm."), say("See."), call("read", id="r1")],
        [think("Well", "think"), say("Done."), think("Over.")],
    ]
    tools = RecordingTools({"read": [TextPart("a"), PDF]})
    result = await Agent(ScriptedModel(replies), tools=tools).run([PNG, TextPart("Go")])
    messages = to_qwen_messages(result, name="me", prompt=True)
    assert messages == [
        {"role": "user", "content": [{"image": "data:image/png;base64,iVBORw=="}, {"text": "Go"}]},
        {"role": "assistant", "name": "me", "content": "", "reasoning_content": "Hm."},
        {"role": "assistant", "name": "me", "content": "See."},
        {
            "role": "assistant",
            "name": "me",
            "content": "",
            "function_call": {"name": "read", "arguments": "{}"},
            "extra": {"function_id": "r1"},
        },
        {
            "role": "function",
            "name": "read",
            "content": [{"text": "a"}, {"file": "https://example.org/a.pdf"}],
            "extra": {"function_id": "r1"},
        },
        {"role": "assistant", "name": "me", "content": "<think>Well</think>Done."},
        {"role": "assistant", "name": "me", "content": "", "reasoning_content": "Over."},
    ]


async def test_only_what_the_run_added_is_listed() -> None:
    agent = Agent(ScriptedModel([[say("One.")], [say("Two.")]]))
    await agent.run("1", session="s")
    result = await agent.run("2", session="s")
    assert to_qwen_messages(result) == [{"role": "assistant", "content": "Two."}]
