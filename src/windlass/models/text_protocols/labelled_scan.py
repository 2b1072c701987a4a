"""Reads replies that consist of labelled sections, as ReAct and the older format of Qwen have them.

    Thought: I look.                        ✿FUNCTION✿: look
    Action: look                            ✿ARGS✿: {"at": "door"}
    Action Input: {"at": "door"}

Invariant: the result depends on the text and never on how it was cut into deltas. The beginning of
a label is held back until it is decided whether it is one. A result that the model made up by
itself is dropped, with all that follows it. A label inside a JSON string is content.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from windlass.core.events import (
    CallDelta,
    ReplyEnd,
    ReplyPiece,
    StopReason,
    TextDelta,
    ThinkingDelta,
)
from windlass.models.text_protocols.call_text import (
    BracketCounter,
    ends_in_string,
    strip_code_fence,
)
from windlass.models.text_protocols.scanning import KEEP_ALIVE
from windlass.models.text_protocols.text_scan import INLINE_SIGNATURE, THINK_END, THINK_START

THOUGHT_SIGNATURE = "thought"
"""The signature of thinking that stood in its own section, and goes back there."""

Section = Literal["unlabelled", "text", "think", "thought", "name", "arguments", "result"]
"""`unlabelled`: words before the first label, which are a thought if a label follows them."""


@dataclass(frozen=True, slots=True)
class LabelFormat:
    """The labels of one format, and the kind of section that each begins."""

    labels: Mapping[str, Section]
    at_line_start: bool
    """A label counts only at the beginning of a line."""
    begins_with: Literal["text", "thought"] = "text"
    """What the words before the first label are. Without any label they are the answer."""
    results_end_in_label: bool = False
    """Results end in the label of an answer, so that a reply may begin with its colon."""


class LabelScan:
    """Finds the sections of one reply."""

    done = False

    def __init__(self, label_format: LabelFormat, *, follows_results: bool = False) -> None:
        self._format = label_format
        self._labels: dict[str, Section] = {**label_format.labels, THINK_START: "think"}
        longest_first = sorted(self._labels, key=len, reverse=True)
        self._search = re.compile("|".join(map(re.escape, longest_first)))
        self._begin: Section = "unlabelled" if label_format.begins_with == "thought" else "text"
        self._section: Section = self._begin
        self._held = ""
        """What has come and is not decided yet: white space, or the beginning of a label."""
        self._last = "\n"
        """The last character before what is held."""
        self._body: list[str] = []
        """The name or the arguments so far, or a thought."""
        self._name = ""
        self._started = False
        """The section has words already."""
        self._awaits_colon = follows_results and label_format.results_end_in_label
        """A colon is a part of the label that came last."""
        self._calls = 0
        self._has_text = False
        self._thought = ""

    def scan_piece(self, piece: ReplyPiece) -> list[ReplyPiece]:
        match piece:
            case TextDelta(text):
                out: list[ReplyPiece] = []
                self._scan_text(self._held + text, out)
                return out or [KEEP_ALIVE]
            case ReplyEnd(stop):
                return self._finish_reply(stop)
            case _:
                return [piece]

    def _scan_text(self, text: str, out: list[ReplyPiece]) -> None:
        while (found := self._find_label(text)) is not None:
            self._add_content(text[: found.start()].rstrip(), out)
            self._close_section(out)
            label = found[0]
            section = self._begin if label == THINK_END else self._labels[label]
            self._section = section
            self._started = False
            self._body = []
            self._awaits_colon = label in self._format.labels and not label.endswith(":")
            text = text[found.end() :]
            # Behind `</think>` a line begins; behind any other label it has begun.
            self._last = "\n" if label == THINK_END else label[-1]
        at = self._undecided_start(text)
        self._add_content(text[:at], out)
        self._last = text[at - 1] if at else self._last
        self._held = text[at:]

    def _find_label(self, text: str) -> re.Match[str] | None:
        if self._section == "result":
            return None
        if self._section == "think":
            return re.search(re.escape(THINK_END), text)
        for found in self._search.finditer(text):
            if self._is_label(text, found):
                return found
        return None

    def _is_label(self, text: str, found: re.Match[str]) -> bool:
        line = (self._last + text[: found.start()]).rstrip(" \t")
        starts_line = not line or line.endswith("\n")
        if self._format.at_line_start and found[0] != THINK_START and not starts_line:
            return False
        in_arguments = self._section == "arguments"
        return not (in_arguments and ends_in_string("".join(self._body) + text[: found.start()]))

    def _undecided_start(self, text: str) -> int:
        """Return where white space or a partial label begins at the end of a text."""
        labels = (THINK_END,) if self._section == "think" else tuple(self._labels)
        longest = max(map(len, labels))
        for at in range(max(0, len(text) - longest), len(text)):
            if any(label.startswith(text[at:]) for label in labels):
                return len(text[:at].rstrip())
        return len(text.rstrip())

    def _add_content(self, text: str, out: list[ReplyPiece]) -> None:
        if not self._started:
            if self._section != "think":
                text = self._skip_colon(text.lstrip())
            if not text:
                return
            self._started = True
        if not text:
            return
        match self._section:
            case "text":
                self._has_text = True
                out.append(TextDelta(text))
            case "think":
                out.append(ThinkingDelta(text))
            case "thought":
                self._body.append(text)
                out.append(ThinkingDelta(text))
            case "name" | "arguments" | "unlabelled":
                self._body.append(text)
            case "result":
                pass

    def _skip_colon(self, text: str) -> str:
        if not self._awaits_colon or not text:
            return text
        self._awaits_colon = False
        return text.removeprefix(":").lstrip()

    def _close_section(self, out: list[ReplyPiece]) -> None:
        body = "".join(self._body)
        match self._section:
            case "think":
                out.append(ThinkingDelta("", INLINE_SIGNATURE))
            case "thought":
                self._thought = body
                out.append(ThinkingDelta("", THOUGHT_SIGNATURE))
            case "unlabelled":
                if body:
                    self._thought = body
                    out.append(ThinkingDelta(body, THOUGHT_SIGNATURE))
            case "name":
                self._name = body.strip()
            case "arguments":
                self._emit_call(body, out)
            case "text" | "result":
                pass

    def _emit_call(self, body: str, out: list[ReplyPiece]) -> None:
        arguments, rest = _split_arguments(body)
        number = self._calls
        self._calls += 1
        out.append(CallDelta(number, str(number + 1), self._name, arguments))
        if rest:
            self._has_text = True
            out.append(TextDelta(rest))

    def _finish_reply(self, stop: StopReason) -> list[ReplyPiece]:
        out: list[ReplyPiece] = []
        held = self._held
        # White space at the end of a reply is layout; the beginning of a label was none after all.
        self._add_content(held if held.strip() else "", out)
        match self._section:
            case "name" if stop == "length":
                out.append(TextDelta("".join(self._body)))  # Half a name calls nothing.
            case "unlabelled" if self._body:
                self._has_text = True
                out.append(TextDelta("".join(self._body)))
            case "name":
                self._close_section(out)
                self._emit_call("", out)
            case "arguments":
                if not _is_closed("".join(self._body)):
                    stop = "length"
                self._close_section(out)
            case _:
                self._close_section(out)
        if not self._has_text and not self._calls and self._thought:
            # The model forgot to say which part of it is the answer.
            out.append(TextDelta(self._thought))
        return [*out, ReplyEnd(stop)]


def _split_arguments(body: str) -> tuple[str, str]:
    """Return the arguments, and the words that the model wrote behind them."""
    text = strip_code_fence(body.strip())
    if not text.startswith("{"):
        return text, ""
    end = BracketCounter().find_close(text)
    return (text, "") if end is None else (text[:end], text[end:].strip())


def _is_closed(body: str) -> bool:
    text = strip_code_fence(body.strip())
    return not text.startswith("{") or BracketCounter().find_close(text) is not None
