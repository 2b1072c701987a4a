"""What a journal tells afterwards: a replay of its decisions, an explanation in words."""
