"""What the service takes at most, so that no client can use it up."""

from typing import Literal

import msgspec

from windlass.core.limits import check_numbers

WorkspaceMode = Literal["per-caller", "shared"]
"""Where the runs of callers work: each caller in a folder of its own, or all in the agent's."""


class ServiceLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds of the service. All of them can be raised."""

    body_bytes: int = 16 * 2**20
    """Of a request, with its images and files."""
    bodies_bytes: int = 256 * 2**20
    """Of all requests and replies of one caller that are held at a time: received, worked on, or
    not yet read by the client."""
    upload_bytes: int = 32 * 2**20
    """Of an upload."""
    uploads_bytes: int = 512 * 2**20
    """Of all uploads of one caller that have not expired."""
    uploads_per_owner: int = 1_000
    """Uploads of one caller that have not expired."""
    prompt_uploads_bytes: int = 64 * 2**20
    """Of all uploads that one prompt names; one that is named twice counts twice."""
    schedules_per_owner: int = 200
    """Schedules of one caller."""
    webhooks_per_owner: int = 50
    """Webhooks of one caller."""
    upload_kept_s: float = 86_400.0
    """How long an upload can be named in prompts."""
    connections: int = 4_096
    """Open at a time; more are answered with 503."""
    streams_per_caller: int = 64
    """Event streams that one caller may have open at a time."""
    requests_per_s: float = 50.0
    """Of one caller, on average."""
    requests_at_once: int = 200
    """Of one caller, in a burst."""
    failed_logins_per_min: float = 30.0
    """From one address: wrong tokens, login codes and links. Right ones always pass."""
    open_body_bytes: int = 20 * 2**10
    """Of a request to a route that needs no token: a login code, or an answer with its reason."""
    open_requests_per_s: float = 50.0
    """From one address to routes that need no token, on average. Probes are not counted."""
    open_requests_at_once: int = 200
    """From one address to routes that need no token, in a burst."""
    receive_s: float = 30.0
    """For the head and for the body of a request."""
    stalled_write_s: float = 60.0
    """A client that takes nothing for this long is cut off. It can connect again."""
    keep_alive_s: float = 15.0
    """Between two comments on a stream that is silent."""
    drain_s: float = 10.0
    """For the calls that run when the service is stopped."""
    sweep_s: float = 0.5
    """Between two looks for runs without a driver."""
    schedule_s: float = 1.0
    """Between two looks at the schedules: a run starts at most this late."""
    runs_driven: int = 500
    """Runs of others that the service drives at a time."""
    workspace_wait_s: float = 60.0
    """How long a run waits for a process that has the folder it works in, before it is paused."""

    def __post_init__(self) -> None:
        check_numbers(self, *self.__struct_fields__)
