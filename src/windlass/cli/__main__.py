"""`python -m windlass.cli`: the same as `windlass`."""

from windlass.cli import main

main(prog_name="windlass")
