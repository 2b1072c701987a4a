"""A shell that leaves nothing behind, in a sandbox where there is one."""
