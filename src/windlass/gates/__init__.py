"""Gates: who says what may happen: rules, presets, Cedar, the flow guard, several gates as one.

The law: in doubt, the stricter. What cannot be read with certainty is never allowed by a rule that
speaks of it, and is denied by a rule that might.
"""
