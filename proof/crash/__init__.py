"""The proof of durability: real processes on real files are killed at random moments."""
