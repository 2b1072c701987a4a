"""What a message of A2A says: a prompt, or the answer to what a task asks."""

import mimetypes
from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Iterator
from typing import Any, cast

import msgspec
from msgspec import UNSET

from windlass.core.messages import ContentPart, FilePart, ImagePart, TextPart
from windlass.core.question import Question
from windlass.core.verdicts import PersonAnswer
from windlass.server.a2a.wire import A2aMessage, A2aPart
from windlass.server.answers import question_id, read_answer, read_answer_text
from windlass.server.errors import ApiError

HOW_TO_ANSWER = (
    'Send a data part {"approved": true} or {"approved": false, "reason": "…"}, with the "id" of '
    "the question if there are several; or a text part that says yes or no."
)


def read_prompt(message: A2aMessage) -> tuple[ContentPart, ...]:
    """Return a message as a prompt. Raises ApiError if nothing in it can be one."""
    parts = tuple(_read_part(part) for part in message.parts if not _is_blank(part))
    if not parts:
        raise ApiError(
            422, "invalid_request", "The message is empty.", "Send at least one part with content."
        )
    return parts


def _is_blank(part: A2aPart) -> bool:
    return isinstance(part.text, str) and not part.text.strip()


def _read_part(part: A2aPart) -> ContentPart:
    if isinstance(part.text, str):
        return TextPart(part.text)
    if part.data is not UNSET:
        return TextPart(msgspec.json.encode(part.data).decode())
    if isinstance(part.raw, str):
        try:
            data = b64decode(part.raw, validate=True)
        except (Base64Error, ValueError):
            raise ApiError(
                422, "invalid_request", "The bytes of a part are not Base64.", "Encode them again."
            ) from None
        return _make_file(part, data, None)
    if isinstance(part.url, str):
        return _make_file(part, None, part.url)
    raise ApiError(
        422,
        "content_not_supported",
        "A part of the message has no text, data, bytes or URL.",
        "Leave it out, or give it one of them.",
    )


def _make_file(part: A2aPart, data: bytes | None, url: str | None) -> ContentPart:
    name = part.filename or (url or "").partition("?")[0]
    media_type = part.media_type or mimetypes.guess_type(name)[0] or "application/octet-stream"
    if media_type.startswith("image/"):
        return ImagePart(media_type, data, url)
    return FilePart(media_type, part.filename or "file", data, url)


def read_answers(
    message: A2aMessage, questions: tuple[Question, ...]
) -> Iterator[tuple[str, PersonAnswer]]:
    """Yield what a message answers: the id of a question, and the answer.

    Raises ApiError 422 if it is not clear, so that nothing runs by a misunderstanding.
    """
    for part in message.parts:
        if part.data is not UNSET:
            for given in _as_list(part.data):
                yield _read_answer_object(given, questions)
        elif isinstance(part.text, str) and part.text.strip():
            answer = read_answer_text(part.text)
            if answer is None:
                raise _unclear(f"{part.text.strip()[:60]!r} is neither a clear yes nor a clear no.")
            yield _only_question(questions), answer


def read_decision(message: A2aMessage) -> PersonAnswer:
    """Return a plain yes or no. Raises ApiError 422 if the message is neither."""
    for part in message.parts:
        if part.data is not UNSET:
            return read_answer(part.data)
        answer = read_answer_text(part.text) if isinstance(part.text, str) else None
        if answer is not None:
            return answer
    raise _unclear("The run is paused, and the message is neither a clear yes nor a clear no.")


def looks_like_answer(message: A2aMessage) -> bool:
    """Whether a message can only be meant as an answer, even if nothing is asked any more."""
    given = [part for part in message.parts if not _is_blank(part)]
    return bool(given) and all(_is_answer_part(part) for part in given)


def _is_answer_part(part: A2aPart) -> bool:
    if isinstance(part.text, str):
        return read_answer_text(part.text) is not None
    data: object = part.data
    return isinstance(data, dict) and ("approved" in data or "answers" in data)


def _as_list(data: object) -> list[object]:
    """Return the answers of a data part: one, or several under `answers`."""
    if isinstance(data, dict):
        answers: object = cast("dict[str, object]", data).get("answers")
        if isinstance(answers, list):
            return cast("list[object]", answers)
    return [data]


def _read_answer_object(given: object, questions: tuple[Question, ...]) -> tuple[str, PersonAnswer]:
    if not isinstance(given, dict):
        return _only_question(questions), read_answer(given)
    fields = dict(cast("dict[str, Any]", given))
    asked = fields.pop("id", None)
    if asked is None:
        asked = _only_question(questions)
    return str(asked), read_answer(fields)


def _only_question(questions: tuple[Question, ...]) -> str:
    if len(questions) != 1:
        raise _unclear(f"{len(questions)} questions wait, and the answer does not say which it is.")
    return question_id(questions[0])


def _unclear(message: str) -> ApiError:
    return ApiError(422, "invalid_answer", message, HOW_TO_ANSWER)
