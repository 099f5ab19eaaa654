"""Where text goes."""
