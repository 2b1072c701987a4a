"""Tools that a manifest declares: a command or an HTTP request, without a line of Python."""
