"""Calling the listener: in order, by key, concurrently."""
