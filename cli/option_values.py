"""Values of options that have a form of their own. A wrong one is told before any server is asked."""

from typing import Any, NamedTuple

import typer

from lockstep.cli.output import UsageError

__all__ = ["QueueName", "parse_queue", "queue_option"]

_DIGITS_MAX = 9


class QueueName(NamedTuple):
    """A queue as it is written: BROKER:N, or N where one broker has such a queue.

    Args:
        broker: Empty: not named.
    """

    broker: str
    number: int

    def __str__(self) -> str:
        return f"{self.broker}:{self.number}" if self.broker else str(self.number)


def parse_queue(text: str) -> QueueName:
    """Raises UsageError."""
    broker, _, number = text.rpartition(":")
    if not (number.isascii() and number.isdigit() and len(number) <= _DIGITS_MAX):
        raise UsageError(f"--queue {text!r}: write BROKER:N, as in broker-a:0")
    return QueueName(broker, int(number))


def queue_option(help_text: str) -> Any:
    """An option that takes a QueueName."""
    return typer.Option("--queue", "-q", metavar="BROKER:N", parser=parse_queue, help=help_text)
