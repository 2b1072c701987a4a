"""Models: one file per wire dialect; a vendor is data."""
