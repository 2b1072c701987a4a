"""OpenTelemetry for agents. Nothing of it is loaded unless this is, and a Telemetry is made."""

from windlass.telemetry.telemetry import Telemetry

__all__ = ["Telemetry"]
