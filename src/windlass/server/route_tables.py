"""All route tables of the service. A protocol adds its own here."""

from windlass.server.a2a import routes as a2a
from windlass.server.ag_ui import routes as ag_ui
from windlass.server.api import access, agents, controls, health, records, runs, uploads
from windlass.server.mcp import routes as mcp
from windlass.server.openai import routes as openai
from windlass.server.page import routes as page
from windlass.server.quotas import routes as quotas
from windlass.server.routing import Route
from windlass.server.schedules import routes as schedules
from windlass.server.webhooks import question_page
from windlass.server.webhooks import routes as webhooks


def all_routes() -> tuple[Route, ...]:
    """Return the routes of the service and of all protocols."""
    return (
        *runs.ROUTES,
        *controls.ROUTES,
        *records.ROUTES,
        *agents.ROUTES,
        *uploads.ROUTES,
        *access.ROUTES,
        *health.ROUTES,
        *a2a.ROUTES,
        *ag_ui.ROUTES,
        *mcp.ROUTES,
        *openai.ROUTES,
        *page.ROUTES,
        *schedules.ROUTES,
        *quotas.ROUTES,
        *webhooks.ROUTES,
        *question_page.ROUTES,
    )
