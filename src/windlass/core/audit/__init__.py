"""What a journal shows afterwards: a replay of its decisions, an explanation in words."""
