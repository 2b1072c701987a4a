"""One Chromium for a toolset: in a thread with an event loop of its own, a profile per session.

Invariant: the browser ends with the last session that uses it, and with this process. Its driver
and the browser itself end when their pipes to this process are closed, also by SIGKILL. A process
that survives this has a marker, by which the next process finds and ends it. The browser gets none
of the keys and tokens in our environment.
"""

import asyncio
import importlib.util
import os
import shutil
import threading
from collections.abc import Coroutine, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any, TypeVar, final

from windlass.core.errors import ConfigError
from windlass.core.text_clip import printable_line
from windlass.environ import read_process_environment, xdg_folder
from windlass.tools.breaker import ToolUnavailable
from windlass.tools.browser.guarded_proxy import GuardedProxy
from windlass.tools.browser.open_pages import browser_error
from windlass.tools.browser.page_secrets import PageSecret
from windlass.tools.browser.session import BrowserLimits, BrowserSession
from windlass.tools.helper_programs import absolute_entries
from windlass.tools.run_context import RunContext
from windlass.tools.shell.reaper import MARKER, ProcessReaper, kill_marked
from windlass.tools.web.addresses import AllowedHosts
from windlass.tools.web.guarded_http import HostResolver

if TYPE_CHECKING:
    from playwright.async_api import Browser, Playwright

ValueT = TypeVar("ValueT")

LAUNCH_S_MAX = 60.0
QUIT_S_MAX = 10.0
NEW_NOTE = (
    "[a new browser: no page is open in it but this one, and nothing is left of earlier ones]"
)
KEPT_NOTE = "[a new browser: earlier pages are closed, but their cookies are kept]"
PROFILES_MAX = 32
"""Sessions whose cookies are kept between two runs."""
PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
KEPT_VARIABLES = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR")
FLAGS = (
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-gpu",
    "--disable-quic",
    "--disable-sync",
    "--no-first-run",
    # Names are resolved by the proxy alone, which is at this address.
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
    # What belongs to no profile, such as a request of the browser itself, goes nowhere.
    "--proxy-server=http://127.0.0.1:9",
    "--proxy-bypass-list=<-loopback>",
    # Otherwise the browser reports each form to a service of its maker.
    "--autofill-server-url=about:blank",
    # Calls between browsers would send packets past the proxy.
    "--force-webrtc-ip-handling-policy=disable_non_proxied_udp",
    "--webrtc-ip-handling-policy=disable_non_proxied_udp",
)
_SANDBOX_WORDS = ("no usable sandbox", "without --no-sandbox", "setuid sandbox", "clone_newuser")


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ChromiumOptions:
    """How the browser is started, and what its pages may reach."""

    program: str
    sandbox: bool
    allowed: AllowedHosts
    resolve: HostResolver
    limits: BrowserLimits = field(default_factory=BrowserLimits)
    secrets: Mapping[str, PageSecret] = field(default_factory=dict[str, PageSecret], repr=False)


@final
@dataclass(eq=False, slots=True)
class HeldSession:
    """The pages of a run, and the call that used them last."""

    session: BrowserSession
    run: int
    note: str
    """The note for the model in the next result; empty once it was shown."""
    context: RunContext


def find_chromium(given: str | PathLike[str] | None = None) -> str:
    """Return the path of the system's Chromium, or of the one that is given.

    Raises ConfigError, which says what to install, if it or the package that drives it is missing.
    """
    if importlib.util.find_spec("playwright") is None:
        raise ConfigError(
            "the browser tools need the package playwright: pip install 'windlass[browser]'"
        )
    if given is not None:
        if not os.access(given, os.X_OK):
            raise ConfigError(f"chromium={fspath(given)!r} is not a program")
        return fspath(given)
    folders = absolute_entries()
    for name in PROGRAMS:
        for folder in folders:
            if found := shutil.which(name, path=folder):
                return found
    raise ConfigError(
        "the browser tools need Chromium or Chrome, and none was found on PATH: install it (such "
        "as `apt install chromium`), or pass its path as chromium="
    )


@final
class ChromiumHost:
    """Starts Chromium when a session needs it, and ends it with the last one."""

    def __init__(self, options: ChromiumOptions) -> None:
        self.limits = options.limits
        self.secret_names = tuple(options.secrets)
        self._options = options
        self._reaper = ProcessReaper(xdg_folder("STATE", ".local/state") / "processes" / "browser")
        self._marker = ""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._loop_lock = threading.Lock()
        self._launching = asyncio.Lock()
        self._playwright: Playwright | None = None
        self._browser: Browser | None = None
        self._held: dict[str, HeldSession] = {}
        self._profiles: dict[str, Any] = {}

    def submit(self, work: Coroutine[Any, Any, ValueT]) -> "Future[ValueT]":
        """Start work in the browser's loop, from any thread. All methods below run there."""
        with self._loop_lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(
                    target=_run_loop, args=(self._loop,), name="windlass-browser", daemon=True
                )
                self._thread.start()
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    async def find_session(self, context: RunContext) -> "HeldSession":
        """Return the session of a run. Opens one on first use, or if the browser crashed."""
        name = context.session_id
        async with self._launching:
            held = self._held.get(name)
            if held is None or held.run != context.run or not await held.session.is_alive():
                await self._close_held(name)
                state = self._profiles.pop(name, None)
                session = await self._start_session(state)
                note = NEW_NOTE if state is None else KEPT_NOTE
                held = self._held[name] = HeldSession(session, context.run, note, context)
            held.context = context
            return held

    async def _start_session(self, state: Any) -> BrowserSession:  # noqa: ANN401 - the browser's own
        browser = await self._running_browser()
        try:
            return await self._open_profile(browser, state)
        except browser_error():
            # Its driver is dead, which the browser object cannot tell.
            await self._quit()
        return await self._open_profile(await self._running_browser(), state)

    async def _open_profile(self, browser: "Browser", state: Any) -> BrowserSession:  # noqa: ANN401 - as above
        options = self._options
        proxy = GuardedProxy(options.allowed, options.resolve)
        return await BrowserSession.start(browser, proxy, self.limits, options.secrets, state)

    async def close_session(self, held: "HeldSession", *, after_s: float = 0.0) -> None:
        """Close a session, unless it is used again within `after_s` seconds."""
        context = held.context
        await asyncio.sleep(after_s)
        async with self._launching:
            for name in [name for name, one in self._held.items() if one is held]:
                if held.context is context:
                    await self._close_held(name)
            if not self._held:
                await self._quit()

    async def _close_held(self, name: str) -> None:
        """Close the pages of a session, and keep its cookies in memory."""
        held = self._held.pop(name, None)
        state = None if held is None else await held.session.close()
        if state is not None:
            self._profiles[name] = state
            for oldest in list(self._profiles)[:-PROFILES_MAX]:
                del self._profiles[oldest]

    def is_open(self, held: "HeldSession") -> bool:
        """Whether a session can still be used: its browser may have crashed."""
        has_browser = self._browser is not None and self._browser.is_connected()
        return has_browser and held in list(self._held.values())  # Asked from other threads.

    def close(self) -> None:
        """End Chromium, and wait for that unless this is the browser's own thread."""
        loop = self._loop
        if loop is None or self._thread is None:
            return
        if threading.current_thread() is self._thread:
            # The garbage collector found the tools unused, and it may run in any thread.
            closing = loop.create_task(self._close_all())
            closing.add_done_callback(lambda _: loop.stop())
            return
        with suppress(Exception):
            self.submit(self._close_all()).result(QUIT_S_MAX * 2)
        loop.call_soon_threadsafe(loop.stop)
        self._thread.join(QUIT_S_MAX)
        self._loop = None

    def recover(self) -> list[str]:
        """End what a dead process left running, and return a line about each process."""
        return [f"{one.program[:200]} (of a browser)" for one in self._reaper.reap_leftovers()]

    async def _close_all(self) -> None:
        async with self._launching:
            await self._quit()
            await asyncio.to_thread(self._reaper.close)

    async def _running_browser(self) -> "Browser":
        if self._browser is not None and self._browser.is_connected():
            return self._browser
        await self._quit()  # What is left of one that crashed.
        from playwright.async_api import Error, async_playwright  # noqa: PLC0415 - an extra

        self._marker = await asyncio.to_thread(self._reaper.register_command, "a browser")
        try:
            async with asyncio.timeout(LAUNCH_S_MAX):
                self._playwright = await async_playwright().start()
                self._browser = await self._playwright.chromium.launch(
                    executable_path=self._options.program,
                    chromium_sandbox=self._options.sandbox,
                    args=FLAGS,
                    env=self._environment(),
                    timeout=LAUNCH_S_MAX * 1000,
                )
        except BaseException as error:
            await self._quit()
            if isinstance(error, Error | TimeoutError | OSError):
                raise ToolUnavailable(_explain_launch(str(error))) from None
            raise
        return self._browser

    def _environment(self) -> dict[str, str | float | bool]:
        ours = read_process_environment()
        kept = {name: ours[name] for name in KEPT_VARIABLES if name in ours}
        return {**kept, MARKER: self._marker}

    async def _quit(self) -> None:
        """End Chromium and its driver, whatever state they are in."""
        for name in list(self._held):
            await self._close_held(name)
        browser, self._browser = self._browser, None
        playwright, self._playwright = self._playwright, None
        # One after the other: the driver must end also if its browser cannot be closed any more.
        for end in (browser and browser.close, playwright and playwright.stop):
            if end is not None:
                with suppress(Exception):
                    async with asyncio.timeout(QUIT_S_MAX):
                        await end()
        if self._marker:
            await asyncio.to_thread(kill_marked, self._marker)
            await asyncio.to_thread(self._reaper.forget_command, self._marker)
            self._marker = ""


def _run_loop(loop: asyncio.AbstractEventLoop) -> None:
    """In the thread: run the loop until it is stopped, and end what is left in it."""
    asyncio.set_event_loop(loop)
    loop.run_forever()
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
    loop.close()


def _explain_launch(message: str) -> str:
    if any(words in message.casefold() for words in _SANDBOX_WORDS):
        return (
            "Chromium cannot be started: its own sandbox does not work here, as for root and in "
            "some containers. Run Windlass as another user, or pass sandbox=False to "
            "browser_tools() if only trusted pages are opened."
        )
    # The log begins with the long command line of the browser. Why it ended comes after that.
    said = [line.partition("[err]")[2].strip() for line in message.splitlines() if "[err]" in line]
    fatal = [line for line in said if "FATAL" in line]
    reason = " ".join(fatal or said or [message])
    return f"Chromium cannot be started: {printable_line(reason[:400])}"
