"""Sessions in Postgres."""
