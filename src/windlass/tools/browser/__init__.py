"""A browser as tools: pages of the web are opened, read, clicked and filled in."""
