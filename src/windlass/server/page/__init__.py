"""The page that the service brings along: its files, its stream, and what only it asks for.

`static/` holds the page itself: hand-written modules that a browser loads as they are. The routes
here serve them, and give a page what it shows without its own fold.
"""
