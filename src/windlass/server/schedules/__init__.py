"""Schedules: runs that start by themselves at certain times."""
