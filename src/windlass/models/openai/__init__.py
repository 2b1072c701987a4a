"""OpenAI's chat completions and responses APIs."""
