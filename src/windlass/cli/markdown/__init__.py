"""Markdown as it streams: paragraphs word by word, code line by line, tables as a whole."""
