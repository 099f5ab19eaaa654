"""A functional simulator of the array, and a twin of pyxrt on top of it."""
