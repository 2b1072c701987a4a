"""Trace context of requests (W3C): a `traceparent` in, the same trace out.

The law: a header that cannot be used is ignored, as the standard says; it fails no request.
"""

import re

_TRACE_PARENT = re.compile(
    "(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}"
)


def read_trace_parent(header: str) -> str:
    """Return the header if it names a trace; empty otherwise."""
    header = header.strip().lower()
    return header if _TRACE_PARENT.fullmatch(header) else ""


def make_trace_parent(parent: str, span: str) -> str:
    """Return the trace of a request with the id of the request as its last span."""
    _, trace, _, flags = parent.split("-")
    return f"00-{trace}-{span}-{flags}"
