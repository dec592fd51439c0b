"""Why a folder cannot be a store."""

__all__ = ["StoreUnusable"]


class StoreUnusable(Exception):
    """One line for people: which file, what is wrong with it, and what to do."""
