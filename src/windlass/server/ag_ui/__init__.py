"""AG-UI 1.0: runs for user interfaces, with interrupts for questions."""
