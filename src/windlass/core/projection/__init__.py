"""Events in, what people and protocols show out: `project.py` says how, `view.py` says what."""
