"""Checkpoint readers and the arena they are read into."""
