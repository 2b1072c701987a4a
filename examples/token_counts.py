"""How many tokens has a prompt? The provider says so, or it is an estimate, and says that it is."""

import asyncio

from windlass.models import count_tokens, estimate_text_tokens, resolve_model
from windlass.testing import FaultServer
from windlass.testing.wire import refuse_with

PROMPT = "What does the jib weigh?"


async def main() -> None:
    # A stand-in for Anthropic's endpoint, which counts and costs nothing.
    async with FaultServer(refuse_with(200, {"input_tokens": 13})) as server:
        claude = resolve_model("anthropic:claude-sonnet-5", base_url=server.url, key="example")
        counted = await count_tokens(claude, PROMPT)
    print("Anthropic:", counted.tokens, counted.source)
    groq = resolve_model("groq:openai/gpt-oss-20b", key="example")
    guessed = await count_tokens(groq, PROMPT)
    print("Groq:", guessed.tokens, guessed.source)
    for text in (PROMPT, "Wie schwer ist der Ausleger?", '{"part": "jib", "tonnes": 2}'):
        print(estimate_text_tokens(text), "tokens or so:", text)


asyncio.run(main())
