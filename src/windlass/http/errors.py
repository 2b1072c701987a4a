"""What can go wrong with a request, by what a person would have to look at."""

from typing import Literal

from typing_extensions import override

HttpProblem = Literal[
    "url",  # the address is not one
    "request",  # a header cannot be sent
    "host",  # there is no such host
    "refused",  # the host takes no connections
    "certificate",  # its certificate is not trusted
    "tls",  # it speaks no TLS, or another version
    "proxy",  # the proxy cannot be reached
    "proxy_refused",  # the proxy does not connect
    "lost",  # the connection ended, or broke the protocol, before the head of a response
    "broken",  # the same in the middle of a response
]


class HttpError(Exception):
    """A request that failed. Its text names no header, no body and no password."""

    def __init__(self, problem: HttpProblem, text: str, status: int = 0) -> None:
        super().__init__(problem, text, status)
        self.problem: HttpProblem = problem
        self.text = text
        self.status = status
        """What a proxy that refused answered with."""

    @override
    def __str__(self) -> str:
        return self.text
