"""What the code costs its readers and its users, measured: `make budgets` prints it.

The budgets themselves are in `tests/test_budgets.py`. `code_measures` parses the source;
`run_measures` follows runs, in a process of its own.
"""
