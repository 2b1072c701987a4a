"""How does an agent answer from pages, with a source for each sentence?"""

import argparse
import threading
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from windlass import Agent, AssistantMessage
from windlass.testing import ScriptedModel, call
from windlass.tools import fetch_tool

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--model", help="such as openai:gpt-5; without one, a script answers")


class SmallWeb(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"The windlass raised water in Assyria, long before the crane.")

    def log_message(self, *_: object) -> None: ...


@dataclass
class Finding:
    sentence: str
    source: str


web = ThreadingHTTPServer(("127.0.0.1", 0), SmallWeb)
threading.Thread(target=web.serve_forever, daemon=True).start()
address = f"127.0.0.1:{web.server_port}"
url = f"http://{address}/history"
script = [call("fetch", {"url": url}), f'{{"sentence": "It is older.", "source": "{url}"}}']
model = parser.parse_args().model or ScriptedModel(script)
agent = Agent(model, output_type=Finding, tools=[fetch_tool(allow=[address])])
result = agent.run_sync(f"Is the windlass older than the crane? Begin at {url}")
pages = [
    each.arguments
    for said in result.messages
    if isinstance(said, AssistantMessage)
    for each in said.calls
]
finding = result.output
print(finding.sentence, "Its source was read:", any(finding.source in page for page in pages))
