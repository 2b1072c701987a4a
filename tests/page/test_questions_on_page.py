"""Questions on the page: exactly what will happen, and an answer that counts for nothing else."""

import re
from typing import Any
from urllib.error import HTTPError

import pytest
from playwright.sync_api import expect

from page_browser import OpenPage, ServedPage
from page_service import HOSTILE

pytestmark = pytest.mark.slow


@pytest.mark.contract("W4")
def test_a_question_shows_exactly_what_will_happen_and_releases_the_run(
    own_service: ServedPage, open_page: OpenPage
) -> None:
    session = own_service.run("report the totals")
    own_service.wait_for(session, "waiting")
    page = open_page(own_service, "#/questions", width=360, height=740)
    card = page.locator(".question")
    expect(card).to_contain_text("builder")
    expect(card).to_contain_text("sends data to accounts@example.com")
    expect(card).to_contain_text("changes something")
    expect(card).to_contain_text("billing: default ask")
    for words in (
        "accounts@example.com",
        "Totals of September",
        "the totals of September are right",
    ):
        expect(card.locator(".question-arguments")).to_contain_text(words)
    expect(page.locator(".nav .badge")).to_have_text("1")
    expect(page).to_have_title("(1) Windlass")
    card.get_by_role("button", name="Allow once").click()
    expect(page.locator(".empty")).to_contain_text("Nothing waits for you")
    expect(page).to_have_title("Windlass")
    own_service.wait_for(session, "completed")


@pytest.mark.contract("W4")
def test_the_answer_is_bound_to_what_was_shown(
    own_service: ServedPage, open_page: OpenPage
) -> None:
    session = own_service.run("fix the totals")
    own_service.wait_for(session, "waiting")
    page = open_page(own_service, "#/questions")
    expect(page.locator(".question .command")).to_have_text(
        "$ pytest -q tests/test_totals.py tests/test_rates.py"
    )
    with page.expect_request("**/answers") as sent:
        page.get_by_role("button", name="Allow once").click()
    body: Any = sent.value.post_data_json
    expect(page.locator(".question-tool")).to_have_text("edit")
    records = own_service.ask(f"/runs/{session}/records")["records"]
    [answered] = [one["record"] for one in records if one["record"]["type"] == "CallAnswered"]
    assert body["digest"]
    assert (body["call_id"], body["digest"]) == (answered["call_id"], answered["digest"])
    # The same answer for other arguments counts for nothing.
    stale = {**body, "call_id": "c3_0"}
    with pytest.raises(HTTPError, match=r"409|422"):
        own_service.ask(f"/runs/{session}/answers", stale)


@pytest.mark.contract("W4")
def test_a_question_that_is_answered_elsewhere_disappears(
    own_service: ServedPage, open_page: OpenPage
) -> None:
    session = own_service.run("report the totals")
    own_service.wait_for(session, "waiting")
    page = open_page(own_service, "#/questions")
    expect(page.locator(".question")).to_have_count(1)
    answer = {"call_id": "c2_0", "answer": {"verdict": "deny", "reason": "Not today."}}
    own_service.ask(f"/runs/{session}/answers", answer)
    expect(page.locator(".empty")).to_contain_text("Nothing waits for you")
    own_service.wait_for(session, "completed")


@pytest.mark.contract("W4")
def test_a_pattern_is_proposed_and_shows_what_else_it_covers(
    own_service: ServedPage, open_page: OpenPage
) -> None:
    session = own_service.run("fix the totals")
    own_service.wait_for(session, "waiting")
    page = open_page(own_service, "#/questions")
    page.get_by_role("button", name="Allow a pattern").click()
    box = page.get_by_label("Allow calls like this")
    expect(box).to_have_value("bash(pytest -q *)")
    expect(page.locator(".answer-form")).to_contain_text("not asked about again")
    box.fill("bash(rm *)")
    expect(page.locator(".answer-form .bad")).to_contain_text("does not cover")
    expect(page.get_by_role("button", name="Allow from now on")).to_be_disabled()
    box.fill("bash(pytest *)")
    page.get_by_role("button", name="Allow from now on").click()
    # The next question is about another tool.
    expect(page.locator(".question-tool")).to_have_text("edit")
    expect(page.locator(".question .diff-removed").first).to_contain_text("def total(lines):")
    expect(page.locator(".question .diff-added").last).to_contain_text("quantize(CENT)")


@pytest.mark.contract("W4")
def test_arguments_are_changed_and_a_denial_has_words(
    own_service: ServedPage, open_page: OpenPage
) -> None:
    session = own_service.run("fix the totals")
    own_service.wait_for(session, "waiting")
    page = open_page(own_service, "#/questions")
    page.get_by_role("button", name="Change arguments").click()
    box = page.get_by_label("The arguments that are to run instead")
    box.fill('{"command": "pytest')
    expect(page.locator(".answer-form")).to_contain_text("not a JSON object")
    box.fill('{"command": "pytest -q tests/test_totals.py"}')
    expect(page.locator(".answer-form .diff-added")).to_contain_text("tests/test_totals.py")
    page.get_by_role("button", name="Allow with these arguments").click()
    expect(page.locator(".question-tool")).to_have_text("edit")
    page.get_by_role("button", name="Deny").click()
    page.get_by_label("Reason for the model").fill("Leave the file alone.")
    page.locator(".answer-form").get_by_role("button", name="Deny").click()
    own_service.wait_for(session, "completed")
    page.goto(f"{own_service.address}/#/run/{session}")
    expect(page.locator(".call-decision").first).to_contain_text("allowed with other arguments")
    expect(page.locator(".call-decision").last).to_contain_text("Leave the file alone.")


@pytest.mark.contract("W4")
def test_a_question_of_a_sub_agent_names_who_works_for_whom(
    own_service: ServedPage, open_page: OpenPage
) -> None:
    session = own_service.run("delegate the test")
    own_service.wait_for(session, "waiting")
    page = open_page(own_service, "#/questions")
    expect(page.locator(".question-who")).to_have_text("researchforbuilderbash")
    expect(page.locator(".question .command")).to_contain_text("pytest -q tests/test_totals.py")
    expect(page.locator(".question-from a")).to_have_text("delegate the test")
    page.get_by_role("button", name="Allow once").click()
    expect(page.locator(".empty")).to_be_visible()
    own_service.wait_for(session, "completed")


@pytest.mark.contract("W4")
def test_a_file_that_is_written_over_is_shown_as_its_difference(
    own_service: ServedPage, open_page: OpenPage
) -> None:
    file = own_service.journal.parent / "notes.txt"
    file.write_text("first\n<b>old</b> words\nlast\n")
    session = own_service.run("replace notes.txt", "keeper")
    own_service.wait_for(session, "waiting")
    page = open_page(own_service, "#/questions", width=360, height=740)
    preview = page.locator(".question .question-preview")
    expect(preview).to_contain_text("'notes.txt' would be replaced.")
    expect(preview.locator(".diff-removed")).to_have_text("- <b>old</b> words\n")
    expect(preview.locator(".diff-added")).to_have_text("+ new \\u202e words\n")
    expect(preview.locator(".diff-kept").first).to_have_text("  first\n")
    # What the answer is bound to is shown whole, too.
    expect(page.locator(".question-arguments .diff-added")).to_have_count(3)
    page.get_by_role("button", name="Allow once").click()
    own_service.wait_for(session, "completed")
    assert file.read_text() == "first\nnew \u202e words\nlast\n"


@pytest.mark.contract("W4")
def test_a_question_that_expires_says_when_and_then_that_it_has(
    own_service: ServedPage, open_page: OpenPage
) -> None:
    session = own_service.run("replace new.txt", "keeper")
    own_service.wait_for(session, "waiting")
    for place in ("#/questions", f"#/run/{session}"):
        page = open_page(own_service, place)
        card = page.locator(".question")
        expect(card).to_contain_text("'new.txt' does not exist and would be created.")
        expect(card.locator(".time-left")).to_have_text(re.compile(r"^(1 h|\d+ min) left$"))
        allow = card.get_by_role("button", name="Allow once")
        expect(allow).to_be_enabled()
        page.evaluate("() => { const real = Date.now; Date.now = () => real() + 7_200_000; }")
        expect(card.locator(".time-left")).to_have_text("expired")
        expect(card).to_contain_text("The time to answer is over: only a denial counts now.")
        expect(allow).to_be_disabled()
        expect(card.get_by_role("button", name="Deny")).to_be_enabled()


@pytest.mark.contract("W2")
def test_a_key_that_was_meant_for_something_else_answers_nothing(
    own_service: ServedPage, open_page: OpenPage
) -> None:
    session = own_service.run("report the totals")
    own_service.wait_for(session, "waiting")
    page = open_page(own_service, "#/questions")
    expect(page.locator(".inbox > li.selected")).to_have_count(1)
    # Too early, and then only once: nothing is answered.
    page.keyboard.press("a")
    page.wait_for_timeout(1000)
    page.keyboard.press("d")
    expect(page.get_by_role("button", name="Press d again to deny")).to_be_visible()
    page.keyboard.press("a")
    expect(page.get_by_role("button", name="Press a again to allow")).to_be_visible()
    # A key that is held down is one press.
    page.keyboard.down("a")
    page.keyboard.down("a")
    page.keyboard.up("a")
    assert own_service.ask(f"/runs/{session}")["summary"]["state"] == "waiting"
    page.wait_for_timeout(400)
    page.keyboard.press("a")
    expect(page.locator(".empty")).to_be_visible()
    own_service.wait_for(session, "completed")


@pytest.mark.contract("W3")
def test_hostile_text_in_every_field_does_nothing(
    own_service: ServedPage, open_page: OpenPage
) -> None:
    """The fixture fails the test for a violation, an error, or a request to another host."""
    session = own_service.ask("/runs", {"prompt": f"hostile {HOSTILE}", "agent": "builder"})[
        "session"
    ]
    own_service.wait_for(session, "waiting")
    page = open_page(own_service)
    for place in (
        "#/",
        "#/questions",
        f"#/run/{session}",
        f"#/run/{session}/3",
        "#/agents",
        "#/costs",
    ):
        page.goto(f"{own_service.address}/{place}")
        page.wait_for_timeout(600)
        assert page.title() != "owned"
    page.goto(f"{own_service.address}/#/questions")
    # What cannot be seen is shown as its code.
    expect(page.locator(".question .unseen").first).to_have_text("\\u202e")
    page.get_by_role("button", name="Deny").click()
    page.get_by_label("Reason for the model").fill(HOSTILE)
    page.locator(".answer-form").get_by_role("button", name="Deny").click()
    own_service.wait_for(session, "completed")
    page.goto(f"{own_service.address}/#/run/{session}")
    expect(page.locator(".entry.end")).to_be_visible()
    assert page.locator("#app script, #app iframe, #app object, #app style").count() == 0
    assert page.locator("#app img").count() == 0
    links = page.locator("#app a[href]").evaluate_all("all => all.map(a => a.getAttribute('href'))")
    assert all(link.startswith(("#", "http://", "https://")) for link in links)
    outside = page.locator("#app a[href^=http]").evaluate_all("all => all.map(a => a.rel)")
    assert outside
    assert all("noopener" in rel for rel in outside)
    expect(page.locator(".entry.reply").first).to_contain_text('<script>document.title="owned"')
