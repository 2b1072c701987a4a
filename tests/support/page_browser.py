"""A service in a process of its own and a real browser, for tests of the page."""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest
from playwright.sync_api import Page, StorageState

import page_service
from windlass.journals import SqliteJournal
from windlass.server.access import LOCAL_OWNER
from windlass.server.tokens import TokenStore

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
WAIT_MS = 15_000
WATCH_POLICY = """
window.policyViolations = [];
document.addEventListener("securitypolicyviolation", (event) => {
  window.policyViolations.push(`${event.violatedDirective}: ${event.blockedURI} ${event.sample}`);
});
"""


def find_browser() -> str:
    """Return the path of a Chromium. Skips a test where there is none, but not in CI."""
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    if found:
        return found
    if os.environ.get("CI"):
        pytest.fail("there is no chromium: make browser")
    pytest.skip("there is no chromium here: make browser")


@dataclass
class ServedPage:
    """A service in a process of its own, which a test may kill and start again."""

    journal: Path
    port: int = 0
    address: str = ""
    token: str = ""
    browser: StorageState | None = None
    """What a signed-in browser keeps, for new contexts."""
    process: "subprocess.Popen[str] | None" = None

    def start(self) -> None:
        """Start the service, at the same address as before."""
        self.process = subprocess.Popen(
            [sys.executable, page_service.__file__, str(self.journal), str(self.port)],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        self.address, token, code = line.split()
        self.port = int(self.address.rpartition(":")[2])
        # The token and the sign-in of the first start are in the journal, so they stay valid.
        self.token = self.token or token
        self.browser = self.browser or self.sign_in(code)

    def sign_in(self, code: str) -> StorageState:
        """Sign a browser in by a login code, without opening the page."""
        body = json.dumps({"code": code}).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"{self.address}/login", body, headers)
        with urllib.request.urlopen(request, timeout=20) as reply:
            cookie = reply.headers["Set-Cookie"].partition(";")[0]
            key: str = json.loads(reply.read())["page_key"]
        name, _, value = cookie.partition("=")
        kept = {"name": "windlass.page_key", "value": key}
        state = {
            "cookies": [{"name": name, "value": value, "domain": "127.0.0.1", "path": "/"}],
            "origins": [{"origin": self.address, "localStorage": [kept]}],
        }
        return cast("StorageState", state)

    def kill(self, how: signal.Signals = signal.SIGKILL) -> None:
        """End the service, by default without any warning."""
        assert self.process is not None
        self.process.send_signal(how)
        self.process.wait(20)
        if self.process.stdout is not None:
            self.process.stdout.close()

    def make_login_link(self) -> str:
        """Return a link that signs a browser in, made from the journal that the service uses."""

        async def make() -> str:
            journal = SqliteJournal(self.journal)
            try:
                return await TokenStore(journal).create_login(LOCAL_OWNER)
            finally:
                journal.close()

        # Playwright has a loop in this thread.
        with ThreadPoolExecutor(1) as pool:
            return f"{self.address}/#login={pool.submit(asyncio.run, make()).result()}"

    def sign_browsers_out(self) -> None:
        """Revoke all sign-ins of browsers."""
        for token in self.ask("/tokens")["tokens"]:
            if token["kind"] == "browser":
                self.ask(f"/tokens/{token['id']}", method="DELETE")

    def ask(self, path: str, body: object = None, method: str | None = None) -> Any:
        """Ask the service directly: a GET, or a POST if there is a body."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        request = urllib.request.Request(self.address + path, data, headers, method=method)
        with urllib.request.urlopen(request, timeout=20) as reply:
            text = reply.read()
        return json.loads(text) if text else None

    def run(self, prompt: str, agent: str = "builder") -> str:
        """Start a run and return its session."""
        return self.ask("/runs", {"prompt": prompt, "agent": agent})["session"]

    def wait_for(self, session: str, *states: str, seconds: float = 20) -> dict[str, Any]:
        """Wait until a session is in one of these states, and return it."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            found = self.ask(f"/runs/{session.replace('/', '%2F')}")
            if found["summary"]["state"] in states:
                return found
            time.sleep(0.05)
        raise AssertionError(f"{session} did not become {states}")


OpenPage = Callable[..., Page]
"""Opens a page of a service, at a place and of a size."""
