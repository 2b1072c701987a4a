"""The pages of one session: its own profile, and what can be done with the page in front.

Invariant: each action is bounded in time, and ends with what the page shows then. All that a page
tries besides (pop-ups, downloads, dialogs, hosts that are not allowed) is stopped or bounded, and
reported to the model.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

from windlass.core.errors import ModelRetry
from windlass.core.messages import ContentPart, ImagePart, TextPart
from windlass.core.text_clip import printable_line
from windlass.tools.browser.guarded_proxy import GuardedProxy
from windlass.tools.browser.open_pages import (
    NOTE_CHARS_MAX,
    OpenPages,
    browser_error,
    timeout_error,
)
from windlass.tools.browser.page_secrets import PageSecret, find_secret, hide_secrets
from windlass.tools.browser.references import PageTree, read_tree

if TYPE_CHECKING:
    from playwright.async_api import (
        Browser,
        BrowserContext,
        Locator,
        Page,
    )

CLOSE_S_MAX = 5.0
ALIVE_S_MAX = 10.0
SHOW_ATTEMPTS = 3
ELEMENT_S_MAX = 5.0
"""How long an element may take to become visible and enabled."""
NEW_PAGE_S = 0.3
"""How long after a click to watch for another page that opens."""
SLACK_S = 2.0
"""How much later than the browser's own time-out an action is given up."""
PROFILE_OPTIONS: Mapping[str, Any] = {
    "accept_downloads": False,
    "service_workers": "block",  # They would outlive their page.
    "viewport": {"width": 1280, "height": 800},
}
NO_PAGE = "No page is open. Open one with browser_open."
LOST_PAGE = f"{NO_PAGE} A page of an earlier call was lost with its browser."
_BLANK = "about:blank"
_ERROR_STATUS = 400
_TEXT_WITHOUT_BODY = "document.body ? null : document.documentElement?.textContent ?? ''"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class BrowserLimits:
    """What a browser may use."""

    action_s: float = 30.0
    """Seconds for one action: to open an address, to click, to read."""
    settle_s: float = 3.0
    """Seconds that a page gets to become quiet after an action, before it is read."""
    text_chars_max: int = 500_000
    """Of the text of a page. The model is shown less at a time, and can read the rest."""
    pages_max: int = 5
    """Pages that a session may have open at a time, pop-ups included."""
    wait_s: float = 600.0
    """Seconds that the browser of a run stays open while the run waits for an answer, with no
    process at work on it."""


@final
class BrowserSession:
    """The profile and the pages of one session."""

    def __init__(
        self,
        profile: "BrowserContext",
        proxy: GuardedProxy,
        limits: BrowserLimits,
        secrets: Mapping[str, PageSecret],
    ) -> None:
        self._profile = profile
        self._secrets = secrets
        self._proxy = proxy
        self._limits = limits
        self._pages = OpenPages(limits.pages_max)
        self._tree = PageTree()
        self._lock = asyncio.Lock()
        profile.set_default_timeout(limits.action_s * 1000)
        profile.on("page", self._pages.on_page)
        profile.on("dialog", self._pages.on_dialog)

    @classmethod
    async def start(
        cls,
        browser: "Browser",
        proxy: GuardedProxy,
        limits: BrowserLimits,
        secrets: Mapping[str, PageSecret],
        state: Any,  # noqa: ANN401 - what the browser gave
    ) -> "BrowserSession":
        """Open a new profile, whose pages reach the network by `proxy` alone."""
        server = await proxy.start()
        try:
            profile = await browser.new_context(
                # Loopback uses the proxy as well, which is not the default.
                proxy={"server": server, "bypass": "<-loopback>", **proxy.credentials},
                storage_state=state,
                **PROFILE_OPTIONS,
            )
        except BaseException:
            await proxy.close()
            raise
        return cls(profile, proxy, limits, secrets)

    async def close(self) -> Any:  # noqa: ANN401 - as above
        """Close all pages. Returns cookies and storage for the next profile of the session."""
        state = None
        try:
            async with asyncio.timeout(CLOSE_S_MAX):
                with suppress(browser_error()):
                    state = await self._profile.storage_state()
                with suppress(browser_error()):
                    await self._profile.close()
        except TimeoutError:
            pass  # Its browser hangs, and will be killed.
        await self._proxy.close()
        return state

    async def is_alive(self) -> bool:
        """Whether the browser still answers: it, or what drives it, may have been killed."""
        try:
            async with asyncio.timeout(ALIVE_S_MAX):
                await self._profile.cookies(_BLANK)
        except (TimeoutError, browser_error()):
            return False
        return True

    async def open_address(self, url: str) -> str:
        """Open an address in the page in front, and return what it shows."""
        async with self._acting():
            await self._proxy.check(url)
            try:
                await self._navigate(url.strip())
            except browser_error() as error:
                raise self._explain_failure(error) from None
            return await self._show()

    async def _navigate(self, url: str) -> None:
        """Open an address in the page in front; in a new one if that page holds on to itself."""
        for _ in range(2):
            page = self._pages.front or await self._profile.new_page()
            try:
                response = await page.goto(url, wait_until="commit")
            except browser_error() as error:
                if "interrupted by another navigation" not in str(error):
                    raise
                await page.close()
                continue
            if response is not None and response.status >= _ERROR_STATUS:
                self._pages.add_note(f"the server answered with status {response.status}")
            return
        raise ModelRetry("The address could not be opened: the page led elsewhere at once.")

    async def read_page(self) -> str:
        """Return what the page in front shows now."""
        async with self._acting():
            return await self._show()

    async def click_element(self, reference: str, element: str) -> str:
        """Click an element of the page in front, and return what is shown then."""

        async def click(locator: "Locator") -> None:
            await locator.click(timeout=self._element_ms)

        return await self._act_on(reference, element, click)

    async def fill_field(self, reference: str, element: str, text: str, *, submit: bool) -> str:
        """Put a text into a field, or choose it in a list, and return what is shown then."""

        async def fill(locator: "Locator") -> None:
            ms = self._element_ms
            if named := find_secret(text, self._secrets):
                await self._fill_secret(locator, *named)
            elif await locator.evaluate("element => element.tagName") == "SELECT":
                await locator.select_option(label=text, timeout=ms)
            else:
                await locator.fill(text, timeout=ms)
            if submit:
                await locator.press("Enter", timeout=ms)

        return await self._act_on(reference, element, fill)

    async def _fill_secret(self, locator: "Locator", name: str, secret: PageSecret) -> None:
        # The element itself, which is gone when its page is: the check holds for what is filled.
        handle = await locator.element_handle(timeout=self._element_ms)
        frame = await handle.owner_frame()
        if frame is None or not secret.belongs_to(frame.url):
            raise ModelRetry(f"{name} can only be typed into pages of {secret.origin}.")
        if await handle.evaluate("element => element.type") != "password":
            raise ModelRetry(f"{name} can only be typed into a password field.")
        await handle.fill(secret.value, timeout=self._element_ms)

    async def take_screenshot(self) -> list[ContentPart]:
        """Return a picture of the visible part of the page in front."""
        async with self._acting():
            page = self._front_page
            data = await page.screenshot(type="jpeg", quality=75, animations="disabled")
            text = hide_secrets(await self._describe(page), self._secrets)
            return [TextPart(text), ImagePart("image/jpeg", data)]

    async def go_back(self) -> str:
        """Show the page before; a page that another one opened is closed."""
        async with self._acting():
            page = self._front_page
            url = page.url
            with suppress(timeout_error()):
                await page.go_back(wait_until="commit")
            if page.url in (url, _BLANK):
                if self._pages.count == 1:
                    await page.go_forward(wait_until="commit")
                    raise ModelRetry("There is no page before this one.")
                await page.close()
            return await self._show()

    async def _act_on(
        self, reference: str, element: str, act: "Callable[[Locator], Awaitable[None]]"
    ) -> str:
        async with self._acting():
            page = self._front_page
            self._pages.begin_act()
            try:
                locator = page.locator(f"aria-ref={self._tree.find_element(reference, element)}")
                if not await locator.count():
                    raise ModelRetry(f"{reference} has left the page. Use browser_read.")
                await self._try_action(page, act(locator))
                await asyncio.sleep(min(NEW_PAGE_S, self._limits.settle_s))
                await self._settle(page)
            finally:
                self._pages.end_act()
            return await self._show()

    async def _try_action(self, page: "Page", action: Awaitable[None]) -> None:
        try:
            await action
        except timeout_error():
            if not await self._responds(page):
                raise
            raise ModelRetry(
                f"The element could not be used within {self._element_ms / 1000:g} s: it is "
                "hidden, disabled, covered by another element, or not of this kind."
            ) from None

    @property
    def _element_ms(self) -> float:
        return min(self._limits.action_s, ELEMENT_S_MAX) * 1000

    @property
    def _front_page(self) -> "Page":
        page = self._pages.front
        if page is None:
            raise ModelRetry(NO_PAGE if self._pages.document else LOST_PAGE)
        return page

    @asynccontextmanager
    async def _acting(self) -> AsyncGenerator[None]:
        """One action at a time, in a bounded time. The model gets the errors of the browser."""
        async with self._lock:
            limit_s = self._limits.action_s * 2 + self._limits.settle_s * 2 + SLACK_S
            try:
                async with asyncio.timeout(limit_s):
                    yield
            except (TimeoutError, timeout_error()):
                await self._close_hanging_page()
                raise ModelRetry(
                    f"The page did not respond within {self._limits.action_s:g} s."
                ) from None
            except browser_error() as error:
                raise self._explain_failure(error) from None

    async def _close_hanging_page(self) -> None:
        """Close the page in front if it answers nothing any more, so that the next one can."""
        page = self._pages.front
        if page is None or await self._responds(page):
            return
        self._pages.add_note("a page that did not respond any more was closed")
        with suppress(TimeoutError, browser_error()):
            async with asyncio.timeout(CLOSE_S_MAX):
                await page.close()

    async def _responds(self, page: "Page") -> bool:
        try:
            async with asyncio.timeout(SLACK_S):
                await page.evaluate("0")
        except (TimeoutError, browser_error()):
            return False
        return True

    def _explain_failure(self, error: Exception) -> ModelRetry:
        refusals = self._proxy.take_refusals()
        if refusals:
            return ModelRetry(f"Not allowed: {' '.join(refusals)}")
        # The first line says what happened; the rest is the browser's own log.
        line = printable_line(str(error).partition("\n")[0])[:NOTE_CHARS_MAX]
        notes = " ".join(f"[{note}]" for note in self._take_notes())
        return ModelRetry(
            hide_secrets(f"The browser could not do this: {line} {notes}", self._secrets)
        )

    async def _settle(self, page: "Page") -> None:
        """Wait until a page is quiet, but not for long: some never are."""
        ms = self._limits.settle_s * 1000
        with suppress(TimeoutError, browser_error()):
            try:
                await page.wait_for_load_state("domcontentloaded", timeout=ms)
            except timeout_error():
                self._pages.add_note("the page had not finished loading, and was stopped")
                async with asyncio.timeout(SLACK_S):
                    await page.evaluate("window.stop()")
                return
            await page.wait_for_load_state("networkidle", timeout=ms)

    async def _show(self) -> str:
        """Return the address, the title, what was stopped, and the text of the page in front."""
        for _ in range(SHOW_ATTEMPTS):
            page = self._front_page
            await self._settle(page)
            if not page.url.startswith(("http://", "https://")):
                # A script can only lead to addresses without content, or to an error.
                refusals = " ".join(self._proxy.take_refusals())
                raise ModelRetry(
                    f"The page redirected to an address that cannot be opened. {refusals}"
                )
            document = self._pages.document
            snapshot = await self._take_snapshot(page)
            if document == self._pages.document:
                self._tree = read_tree(snapshot, document, self._limits.text_chars_max)
                text = self._tree.text or "[the page has no text]"
                return hide_secrets(f"{await self._describe(page)}\n\n{text}", self._secrets)
        raise ModelRetry("The page changes all the time, and could not be read.")

    async def _take_snapshot(self, page: "Page") -> str:
        """Return the tree of a page. A frame that does not answer in time is left out."""
        try:
            return await page.aria_snapshot(mode="ai", timeout=self._element_ms)
        except timeout_error():
            # Not a frame but the page itself: it has no tree, such as a picture, or is large.
            text = await page.evaluate(_TEXT_WITHOUT_BODY)
            if text is not None:
                return str(text)
            return await page.aria_snapshot(mode="ai")

    async def _describe(self, page: "Page") -> str:
        # Before it is cut: half of a secret would not be recognized.
        title = printable_line(hide_secrets(await page.title(), self._secrets))[:NOTE_CHARS_MAX]
        lines = [page.url]
        if title:
            lines.append(f"Title: {title}")
        if self._pages.count > 1:
            lines.append(f"[{self._pages.count} pages are open; browser_back closes this one]")
        return "\n".join([*lines, *(f"[{note}]" for note in self._take_notes())])

    def _take_notes(self) -> list[str]:
        for refusal in self._proxy.take_refusals():
            self._pages.add_note(f"a request of the page was not sent: {refusal}")
        return self._pages.take_notes()
