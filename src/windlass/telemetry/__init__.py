"""OpenTelemetry for agents: runs as spans and metrics.

OpenTelemetry itself is loaded when a `Telemetry` is made, and not by importing this package.
"""

from windlass.telemetry.telemetry import Telemetry

__all__ = ["Telemetry"]
