"""The page with a real browser: runs that stream, reloads, control, forks, lost connections."""

import re

import pytest
from playwright.sync_api import Page, expect

from page_browser import OpenPage, ServedPage

pytestmark = pytest.mark.slow


def open_run(open_page: OpenPage, served: ServedPage, session: str, **options: object) -> Page:
    return open_page(served, f"#/run/{session.replace('/', '%2F')}", **options)


@pytest.mark.contract("W1")
def test_a_run_is_started_on_the_page_and_shown_as_it_streams(
    shared_service: ServedPage, open_page: OpenPage
) -> None:
    page = open_page(shared_service)
    page.get_by_label("What is to be done?").fill("write 400 words")
    page.get_by_label("Agent").select_option("reader")
    page.get_by_role("button", name="Start").click()
    expect(page.locator(".entry.live .prose")).to_contain_text("word10 ")
    expect(page.locator(".status-line")).to_contain_text("large")
    expect(page.locator(".entry.reply .prose").last).to_contain_text("the end.")
    expect(page.locator(".entry.end")).to_contain_text("Run 1 completed")
    page.goto(f"{shared_service.address}/#/")
    expect(page.locator(".session").first).to_contain_text("write 400 words")


@pytest.mark.contract("W2")
def test_a_reload_in_mid_stream_loses_nothing(
    shared_service: ServedPage, open_page: OpenPage
) -> None:
    session = shared_service.run("write 700 words", "reader")
    page = open_run(open_page, shared_service, session)
    expect(page.locator(".entry.live .prose")).to_contain_text("word20 ")
    page.reload()
    # What had come before the reload is there at once, before the reply is complete.
    expect(page.locator(".entry.live .prose")).to_contain_text("word0 word1 word2 ")
    expect(page.locator(".entry.end")).to_be_visible(timeout=30_000)
    text = page.locator(".entry.reply:not(.live) .prose").inner_text()
    assert text.split() == [*(f"word{number}" for number in range(700)), "the", "end."]
    expect(page.locator(".entry.live")).to_be_hidden()


@pytest.mark.contract("W2")
def test_what_two_tabs_show_is_the_same(shared_service: ServedPage, open_page: OpenPage) -> None:
    session = shared_service.run("fix the totals")
    one = open_run(open_page, shared_service, session)
    two = open_run(open_page, shared_service, session, context=one.context)
    one.get_by_role("button", name="Allow once").click()
    # The second question stands where the first was, in both tabs.
    for page in (one, two):
        expect(
            page.locator(".call", has_text="edit").get_by_role("button", name="Allow once")
        ).to_be_visible()
    two.get_by_role("button", name="Allow once").click()
    for page in (one, two):
        expect(page.locator(".entry.end")).to_contain_text("completed")
    shown = [page.locator(".entries").inner_text() for page in (one, two)]
    assert shown[0] == shown[1]


@pytest.mark.contract("W1")
def test_a_run_is_steered_paused_resumed_and_cancelled(
    shared_service: ServedPage, open_page: OpenPage
) -> None:
    session = shared_service.run("slow 10", "reader")
    page = open_run(open_page, shared_service, session)
    expect(page.locator(".status-line")).to_contain_text("Runs bash")
    page.get_by_label("Say something to the run").fill("slow 600")
    page.get_by_role("button", name="Tell it").click()
    expect(page.locator(".entry.steering")).to_contain_text("slow 600")
    expect(page.locator(".entry.steering:not(.pending)")).to_contain_text("slow 600")
    expect(page.locator(".status-line")).to_contain_text("Runs bash")
    page.get_by_role("button", name="Pause").click()
    expect(page.get_by_role("button", name="Resume")).to_be_visible()
    page.get_by_role("button", name="Resume").click()
    expect(page.get_by_role("button", name="Pause")).to_be_visible()
    page.get_by_role("button", name="Cancel").click()
    page.get_by_role("button", name="Cancel the run").click()
    expect(page.locator(".entry.end")).to_contain_text("Run 1 cancelled")
    expect(page.locator(".run-facts")).to_contain_text("cancelled")


@pytest.mark.contract("W1")
def test_calls_show_what_they_did(shared_service: ServedPage, open_page: OpenPage) -> None:
    session = shared_service.run("fix the totals")
    page = open_run(open_page, shared_service, session)
    for _ in range(2):
        page.get_by_role("button", name="Allow once").click()
        page.wait_for_timeout(600)
    expect(page.locator(".entry.end")).to_contain_text("completed")
    # What went well is one line for each call, until a person opens it.
    expect(page.locator(".call-result").first).to_be_hidden()
    page.get_by_role("button", name="Unfold calls").click()
    terminal = page.locator(".call-result .terminal")
    expect(terminal).to_contain_text("1 failed, 41 passed")
    # A terminal shows what was written last on a line, and no escapes.
    expect(terminal).to_contain_text("progress 100%")
    assert "10%\n" not in terminal.inner_text()
    assert "\x1b" not in terminal.inner_text()
    assert "[31m" not in terminal.inner_text()
    expect(page.locator(".diff-removed").first).to_contain_text("def total(lines):")
    expect(page.locator(".diff-added").first).to_contain_text("def total(lines: list[Line])")
    expect(page.locator(".thinking summary").first).to_contain_text("Thinking, 13 words")
    expect(page.locator(".prose table td").first).to_have_text("A-1001")
    expect(page.locator(".prose pre .c-keyword").first).to_have_text("def")
    expect(page.locator(".call-decision").first).to_contain_text("owner allowed after")


@pytest.mark.contract("W1")
def test_trouble_is_visible_but_quiet(shared_service: ServedPage, open_page: OpenPage) -> None:
    failed = open_run(open_page, shared_service, shared_service.run("fail once", "reader"))
    expect(failed.locator(".call.is-fail")).to_contain_text("the command ended with 1")
    expect(failed.locator(".call.is-fail strong.bad")).to_have_text("failed")
    picture = open_run(open_page, shared_service, shared_service.run("picture please", "reader"))
    picture.locator(".call summary").click()
    expect(picture.locator("img.picture")).to_have_js_property("naturalWidth", 1)
    broken = open_run(open_page, shared_service, shared_service.run("broken stream", "reader"))
    expect(broken.locator(".entry.quiet").first).to_contain_text("Attempt 1 failed")
    expect(broken.locator(".entry.reply .prose")).to_have_text("This text counts.")


@pytest.mark.contract("W1")
def test_a_sub_agent_is_nested_in_its_call(shared_service: ServedPage, open_page: OpenPage) -> None:
    session = shared_service.run("report the totals")
    shared_service.wait_for(session, "waiting")
    page = open_run(open_page, shared_service, session)
    nested = page.locator(".nested")
    nested.locator("> summary").click()
    expect(nested.locator(".prose").last).to_contain_text("214 invoices")
    nested.get_by_text("Open on its own").click()
    expect(page.locator(".run-facts")).to_contain_text("works for another session")


@pytest.mark.contract("W1")
def test_a_record_says_why_and_is_forked_and_compared(
    shared_service: ServedPage, open_page: OpenPage
) -> None:
    session = shared_service.run("steps 3", "reader")
    shared_service.wait_for(session, "completed")
    page = open_run(open_page, shared_service, session)
    page.get_by_label("Why: record 3", exact=True).click()
    why = page.get_by_label("Why", exact=True)
    expect(why).to_contain_text("Record 3")
    expect(why.locator(".why-lines")).to_contain_text("read (c1_0)")
    expect(why.locator(".chip.good")).to_contain_text("chain verified")
    expect(why.locator(".raw")).to_contain_text('"type": "StepProposed"')
    assert re.fullmatch(r"[0-9a-f]{64}", why.locator(".why-hash dd").first.inner_text())
    assert page.url.endswith(f"/{session}/3")
    # The address of a record leads to it.
    page.set_viewport_size({"width": 1280, "height": 420})
    page.goto(f"{shared_service.address}/#/questions")
    page.goto(f"{shared_service.address}/#/run/{session}/3")
    expect(page.locator("#r3")).to_be_in_viewport()
    expect(page.locator(".entry.end")).not_to_be_in_viewport()
    why.get_by_role("button", name="Replay from here").click()
    expect(page.locator(".toast")).to_contain_text("The rules lead to the same")
    why.get_by_role("button", name="Fork from here").click()
    page.wait_for_url(lambda url: not url.endswith(f"/{session}/3"))
    expect(page.locator(".entry.end")).to_be_visible()
    forked = page.url.rpartition("/")[2]
    page.goto(f"{shared_service.address}/#/compare/{session}/{forked}")
    expect(page.locator(".compare-verdict")).to_contain_text("They differ from record")
    expect(page.locator(".first-difference")).to_have_count(2)


@pytest.mark.contract("W2")
def test_a_killed_service_is_reconnected_to_and_the_run_finishes(
    own_service: ServedPage, open_page: OpenPage
) -> None:
    session = own_service.run("steps 4", "reader")
    own_service.wait_for(session, "completed")
    session = own_service.run("fix the totals")
    page = open_run(open_page, own_service, session)
    expect(page.get_by_role("button", name="Allow once")).to_be_visible()
    own_service.kill()
    expect(page.locator(".connection")).to_contain_text("reconnecting")
    own_service.start()
    expect(page.locator(".connection")).to_contain_text("live")
    for _ in range(2):
        page.get_by_role("button", name="Allow once").click()
        page.wait_for_timeout(600)
    expect(page.locator(".entry.end")).to_contain_text("completed")
    seqs = page.locator(".entry[data-seq]").evaluate_all("rows => rows.map(r => +r.dataset.seq)")
    assert seqs == sorted(seqs)
    assert len(seqs) == len(set(seqs))
