"""What is wrong with rules, or with a request."""

__all__ = ["AccessDenied", "RuleError"]


class RuleError(ValueError):
    """A rule cannot be read. The text has no secret key."""


class AccessDenied(Exception):
    """A request may not be served; the text is RocketMQ's."""
