"""What an agent knows beyond its session: a store of notes, instructions files, skills."""
