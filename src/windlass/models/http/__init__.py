"""Models behind HTTP: the request, its event stream, and its errors."""
