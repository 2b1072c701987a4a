"""All route tables of the service. A protocol adds its own here."""

from windlass.server.a2a import a2a_routes
from windlass.server.ag_ui import ag_ui_routes
from windlass.server.api import (
    agents,
    callers,
    controls,
    health,
    runs,
    session_records,
    uploads,
)
from windlass.server.mcp import mcp_routes
from windlass.server.openai import openai_routes
from windlass.server.page import page_routes
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
        *a2a_routes.ROUTES,
        *ag_ui_routes.ROUTES,
        *mcp_routes.ROUTES,
        *openai_routes.ROUTES,
        *page_routes.ROUTES,
        *schedule_routes.SCHEDULES,
        *quota_routes.QUOTAS,
        *webhook_routes.WEBHOOKS,
        *question_page.ROUTES,
    )
