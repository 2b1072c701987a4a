"""The endpoints that clients of OpenAI speak: models, chat completions and responses."""
