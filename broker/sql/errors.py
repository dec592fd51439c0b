"""What can go wrong while a filter is evaluated; what can go wrong before is a FilterError."""

__all__ = ["NoAnswer"]


class NoAnswer(Exception):
    """A message has no answer to a filter, such as "x" to `size > 3`. It does not match then, whatever a NOT says."""
