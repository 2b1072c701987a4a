"""The harness stands on this: one line that must not type-check, and one that must."""

# expect: is not assignable to "int"
wrong: int = "three"

right: int = 3
