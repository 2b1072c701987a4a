"""The pure heart: frozen data and functions that never wait, read a clock or touch the world."""
