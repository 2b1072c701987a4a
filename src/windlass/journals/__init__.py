"""Where sessions are kept: in memory, or in a file. `ports.Journal` says what each must do."""
