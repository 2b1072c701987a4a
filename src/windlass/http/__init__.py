"""The HTTP client: requests of models, tools and embeddings."""
