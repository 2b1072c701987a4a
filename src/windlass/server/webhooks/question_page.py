"""The page behind a link: one question with its full arguments, and two buttons.

Invariant: opening the page changes nothing. What is shown is text, never markup; the page has no
script, and its style is fixed by its hash.
"""

import base64
import hashlib
import html
import time
from urllib.parse import parse_qs

import msgspec
from msgspec.structs import replace

from windlass.core.errors import ConfigError, NothingToDo, QuestionDecided
from windlass.core.question import Question
from windlass.core.verdicts import Allow, Deny, PersonAnswer
from windlass.server.errors import ApiError
from windlass.server.messages import HttpReply, HttpRequest, Reply, error_headers
from windlass.server.routing import Routes
from windlass.server.service import Service
from windlass.server.webhooks.links import AnswerLink, bad_link, check_link, read_link
from windlass.server.webhooks.store import Webhook, WebhookStore, caller_of

REASON_CHARS_MAX = 2_000
STYLE = (
    ":root{color-scheme:light dark}"
    "body{font:16px/1.5 system-ui,sans-serif;max-width:40rem;margin:0 auto;padding:1rem}"
    "pre{white-space:pre-wrap;overflow-wrap:anywhere;padding:.75rem;border:1px solid #8886;"
    "border-radius:.5rem}"
    "button{font:inherit;padding:.75rem 1.5rem;margin:0 .5rem .5rem 0;border-radius:.5rem}"
    "input{font:inherit;width:100%;box-sizing:border-box;padding:.5rem;margin:.5rem 0 1rem}"
)
_STYLE_HASH = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
PAGE_HEADERS = {
    "Content-Security-Policy": (
        f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; form-action 'self'; "
        "frame-ancestors 'none'; base-uri 'none'"
    )
}


def error_page(error: ApiError) -> HttpReply:
    """Return an error as a page for people."""
    page = _page(error.status, "This link does not work", f"{error.message} {error.hint}")
    return replace(page, headers={**page.headers, **error_headers(error)})


ROUTES = Routes()


@ROUTES.add(
    "GET",
    "/ask/{code}",
    role=None,
    takes_secret=True,
    error_shape=error_page,
    content_types=("text/html",),
)
async def show_question(service: Service, request: HttpRequest) -> Reply:
    """Show the question of a link, as a page. It changes nothing."""
    hook, link = await _read(service, request.params["code"])
    question = await _find_question(service, hook, link)
    return _html_reply(200, _question_html(question))


@ROUTES.add(
    "POST",
    "/ask/{code}",
    name="answerLinkedQuestion",
    role=None,
    takes_secret=True,
    error_shape=error_page,
    content_types=("text/html",),
)
async def answer_question(service: Service, request: HttpRequest) -> Reply:
    """Answer the question of a link, once."""
    # A wrong link is refused before its body is read.
    await _read(service, request.params["code"])
    body = await request.read_body()
    # The webhook may have been deleted while the body arrived.
    hook, link = await _read(service, request.params["code"])
    session = await service.find_session(caller_of(hook), link.session)
    answer = _read_answer(body)
    try:
        await service.answer(session, link.call_id, answer, digest=link.digest)
    except QuestionDecided as decided:
        text = decided.decision.describe()
        return _page(409, "Answered already", f"{text[:1].upper()}{text[1:]}.")
    except (NothingToDo, ConfigError):
        return _page(410, "Answered already", "This question no longer waits for an answer.")
    said = "allowed" if isinstance(answer, Allow) else "denied"
    return _page(200, "Thank you", f"The call is {said}. The run goes on.")


async def _read(service: Service, code: str) -> tuple[Webhook, AnswerLink]:
    link = read_link(code)
    try:
        hook = await WebhookStore(service.journal, time.time).get(link.hook)
    except NothingToDo:
        raise bad_link() from None
    check_link(hook, code, time.time())
    return hook, link


async def _find_question(service: Service, hook: Webhook, link: AnswerLink) -> Question:
    """Return the question that a link leads to. Raises ApiError 410 if it no longer waits."""
    session = await service.find_session(caller_of(hook), link.session)
    root = await service.find_root(session)
    for question in root.view.questions:
        place = (question.session, question.call_id, question.digest)
        if place == (session.name, link.call_id, link.digest):
            return question
    raise ApiError(
        410,
        "question_answered",
        "This question no longer waits for an answer.",
        "Nothing is left to do.",
    )


def _read_answer(body: bytes) -> PersonAnswer:
    form = parse_qs(body.decode("utf-8", "replace"), max_num_fields=10)
    match form.get("answer", [""])[0]:
        case "allow":
            return Allow()
        case "deny":
            reason = form.get("reason", [""])[0][:REASON_CHARS_MAX]
            return Deny(reason or "a person said no")
        case _:
            raise ApiError(422, "answer_missing", "No answer was given.", "Choose allow or deny.")


def _question_html(question: Question) -> str:
    arguments = msgspec.json.format(msgspec.json.encode(question.arguments)).decode()
    who = " → ".join(question.chain) or "An agent"
    body = (
        f"<h1>{_text(who)} asks</h1><p>{_text(question.question)}</p>"
        f"<p>Session <strong>{_text(question.session)}</strong>, tool "
        f"<strong>{_text(question.tool)}</strong>. If you allow it, exactly this will run:</p>"
        f"<pre>{_text(arguments)}</pre>"
        '<form method="post"><label>A reason, if you deny it'
        '<input name="reason" maxlength="2000" autocomplete="off"></label>'
        '<button name="answer" value="allow">Allow</button>'
        '<button name="answer" value="deny">Deny</button></form>'
    )
    return _document("A question", body)


def _page(status: int, title: str, text: str) -> HttpReply:
    document = _document(title, f"<h1>{_text(title)}</h1><p>{_text(text)}</p>")
    return _html_reply(status, document)


def _html_reply(status: int, document: str) -> HttpReply:
    return HttpReply(status, document.encode(), PAGE_HEADERS, "text/html; charset=utf-8")


def _document(title: str, body: str) -> str:
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta name="robots" content="noindex"><title>{_text(title)}</title>'
        f"<style>{STYLE}</style></head><body><main>{body}</main></body></html>"
    )


def _text(value: str) -> str:
    return html.escape(value, quote=True)
