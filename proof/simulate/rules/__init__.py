"""The rules that the simulator checks, one module for each kind of promise."""
