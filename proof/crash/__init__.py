"""The proof of durability: real processes on real files, killed at random moments and counted."""
