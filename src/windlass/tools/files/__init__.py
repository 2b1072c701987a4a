"""Tools for the files of a workspace. Files outside of it cannot be reached."""
