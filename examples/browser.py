"""How does an agent use a web page, and who allows what it changes there?"""

import argparse
import asyncio

from windlass import Agent, Allow
from windlass.gates import ask
from windlass.testing import ScriptedModel, call
from windlass.tools import browser_tools

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--model", help="such as openai:gpt-5; without one, a script answers")
MODEL = parser.parse_args().model
FORM = b'<title>Harbour</title><form action="/booked"><input name="ship" aria-label="Ship"></form>'


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer one request of the browser."""
    path = (await reader.readuntil(b"\r\n\r\n")).decode().split()[1]
    if path.startswith("/booked"):
        print("the server got", path)
    body = b"<h1>Berth 7</h1>" if path.startswith("/booked") else FORM
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n" + body)
    writer.close()


async def main() -> None:
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    field = {"ref": "p2e3", "element": 'textbox "Ship"', "text": "Vesta", "submit": True}
    script = [call("browser_open", {"url": url}), call("browser_type", field), "It is booked."]
    # Leave Chromium's own sandbox on, unless you open only pages of your own.
    tools = browser_tools(allow=["127.0.0.1"], sandbox=False)
    agent = Agent(MODEL or ScriptedModel(script), tools=tools, gate=ask())
    result = await agent.run(f"Book a berth for the Vesta at {url}", session="berth")
    for each in result.questions:
        print("asked about", each.tool, each.arguments["element"])
        result = await agent.answer("berth", each.call_id, Allow(), digest=each.digest)
    print(result.text)
    server.close()


asyncio.run(main())
