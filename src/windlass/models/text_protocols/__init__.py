"""Tool calls for models without native ones: in the text of a reply, or by a grammar."""
