"""Values of options that have a form of their own. A wrong one is told before any server is asked."""

import re
from typing import Any, Final, NamedTuple

import typer

from lockstep.cli.output import UsageError
from lockstep.remoting.texts import duration_us

__all__ = ["QueueName", "duration_option", "parse_queue", "queue_option"]

_DIGITS_MAX: Final = 9
_BARE: Final = re.compile(r"\d{1,15}(\.\d{1,6})?")
_UNITS: Final = {"s": "seconds", "ms": "milliseconds"}
_LONGEST_MS: Final = 10 * 365 * 86_400_000  # timers of event loops take it


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


def duration_option(
    name: str, help_text: str, *, bare: str, least: str = "0s", most: str = "", shown: str | bool = True
) -> Any:
    """An option that takes a duration, as whole milliseconds.

    Args:
        name: As it is written, "--interval".
        bare: The unit of a number without one: "s" or "ms".
        least, most: Bounds, as durations.
        shown: The default as the help shows it.
    """
    least_ms, most_ms = duration_us(least) // 1000, duration_us(most) // 1000 if most else _LONGEST_MS

    def parse(value: str | int) -> int:
        if isinstance(value, int):  # the default, or that of a context
            return value
        try:
            ms = round(duration_us(value + bare if _BARE.fullmatch(value) else value) / 1000)
        except ValueError:
            allowed = f"a duration such as 500ms, 2s or 1m30s, or a number of {_UNITS[bare]}"
            raise UsageError(f"{name} {value!r}: give {allowed}") from None
        if not least_ms <= ms <= most_ms:
            raise UsageError(f"{name} {value!r}: give {least} {f'to {most}' if most else 'or more'}")
        return ms

    return typer.Option(name, metavar="DURATION", parser=parse, help=help_text, show_default=shown)
