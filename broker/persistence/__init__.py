"""Persistence of a broker: its store, its config files, and replies that wait for the disk."""
