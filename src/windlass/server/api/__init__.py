"""The service's own routes, in tables by subject."""
