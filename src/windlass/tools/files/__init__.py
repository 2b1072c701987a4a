"""Tools for the files of a workspace. Files outside it cannot be reached."""
