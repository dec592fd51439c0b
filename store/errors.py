"""The error of a folder that cannot be opened as a store."""

__all__ = ["StoreUnusable"]


class StoreUnusable(Exception):
    """The text is one line for users: the file, what is wrong with it, and what to do."""
