"""Broken JSON arguments in; valid arguments, or a refusal that says what is wrong, out."""
