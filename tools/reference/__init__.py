"""The pages of the reference, made from the code when the site is built.

The law: nothing here is written by hand that the code says already. A fact, a setting, a route, an
error or a public name that is new is on its page with the next build; one without words fails a
test (`tests/test_reference.py`).
"""
