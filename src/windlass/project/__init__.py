"""A project on disk: its settings, its files, and the agents and journals made from them."""
