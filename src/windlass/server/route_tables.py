"""All route tables of the service. A protocol adds its own here."""

from windlass.server.a2a import routes as a2a
from windlass.server.ag_ui import routes as ag_ui
from windlass.server.api import (
    agents,
    callers,
    controls,
    health,
    runs,
    session_records,
    uploads,
)
from windlass.server.mcp import routes as mcp
from windlass.server.openai import routes as openai
from windlass.server.page import routes as page
from windlass.server.quotas import quota_routes
from windlass.server.routing import Route
from windlass.server.schedules import schedule_routes
from windlass.server.webhooks import question_page, webhook_routes


def all_routes() -> tuple[Route, ...]:
    """Return the routes of the service and of all protocols."""
    return (
        *runs.ROUTES,
        *controls.ROUTES,
        *session_records.ROUTES,
        *agents.ROUTES,
        *uploads.UPLOADS,
        *callers.ROUTES,
        *callers.TOKENS,
        *health.ROUTES,
        *a2a.ROUTES,
        *ag_ui.ROUTES,
        *mcp.ROUTES,
        *openai.ROUTES,
        *page.ROUTES,
        *schedule_routes.SCHEDULES,
        *quota_routes.QUOTAS,
        *webhook_routes.WEBHOOKS,
        *question_page.ROUTES,
    )
