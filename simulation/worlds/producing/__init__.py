"""Worlds of producers: their plan, the world that plays it, and what became of each send."""
