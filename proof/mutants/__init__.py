"""Known bugs that are planted one at a time, to show that the tests notice."""
