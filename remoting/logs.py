"""The shape of a log: an event name and fields. structlog's loggers have it; the client library's default is quiet.

Quiet means: nothing is printed until the application configures logging, with one exception. What code of the user's
raised is an error of the application, which nobody else reports: it is printed, with its traceback (`EXCEPTIONS`).
"""

import logging
from typing import Any, Final, Protocol

__all__ = ["EXCEPTIONS", "EventLog", "StdlibLog", "log_exception", "printable"]

EXCEPTIONS: Final = "lockstep.exceptions"
"""The logger of events with a traceback. It has no handler: Python prints them on stderr where none is configured."""

_TRACEBACK_EVERY_S: Final = 0.5


def printable(text: str) -> str:
    """Text in which no character steers a terminal, forges a line or turns the direction of writing.

    Peers choose the names that logs and tables show. Other characters than these stay as they are.
    """
    if text.isprintable():
        return text
    return "".join([letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in text])


class EventLog(Protocol):
    """`log.info("lock granted", group=..., queue=...)`: events are a few plain words, facts go into fields.

    A field `exc_info` is an exception, shown with its traceback.
    """

    def debug(self, event: str, **fields: Any) -> Any: ...
    def info(self, event: str, **fields: Any) -> Any: ...
    def warning(self, event: str, **fields: Any) -> Any: ...
    def error(self, event: str, **fields: Any) -> Any: ...


def log_exception(log: EventLog, event: str, error: BaseException, **fields: Any) -> None:
    """Report an exception of the user's code, or one that this library did not expect: an ERROR with its type, its text
    and its traceback.

    Args:
        log: Where to; a StdlibLog writes it to the logger `EXCEPTIONS`.
        event: What failed, and what is done about it.
        error: The exception. Its text is the field `error`.
        fields: What it was about.
    """
    log.error(event, **fields, error=f"{type(error).__name__}: {error}", exc_info=error)


class StdlibLog:
    """Events on a logger of the standard library, which says nothing until the application configures it."""

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(name)
        self._logger.addHandler(logging.NullHandler())

    def debug(self, event: str, **fields: Any) -> None:
        self._write(logging.DEBUG, event, fields)

    def info(self, event: str, **fields: Any) -> None:
        self._write(logging.INFO, event, fields)

    def warning(self, event: str, **fields: Any) -> None:
        self._write(logging.WARNING, event, fields)

    def error(self, event: str, **fields: Any) -> None:
        self._write(logging.ERROR, event, fields)

    def _write(self, level: int, event: str, fields: dict[str, Any]) -> None:
        error = fields.pop("exc_info", None)
        logger = self._logger if error is None else _exceptions
        if logger.isEnabledFor(level):
            facts = " ".join([f"{name}={printable(str(value))}" for name, value in fields.items()])
            logger.log(level, "%s %s", event, facts, exc_info=error)


class _TracebackPace(logging.Filter):
    """Every exception is logged; its traceback at most twice a second for one place that raises.

    An orderly queue fails once a second and shows each. A concurrent listener whose database is away fails thousands
    of times a second: formatting all those tracebacks would take the time that the consumer needs.
    """

    def __init__(self) -> None:
        super().__init__()
        self._shown: dict[tuple[object, ...], float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Take the traceback off a record whose place was shown less than half a second ago."""
        if record.exc_info and record.exc_info[1] is not None:
            place = _place(record.exc_info[1])
            if 0 <= record.created - self._shown.get(place, 0.0) < _TRACEBACK_EVERY_S:
                record.exc_info = None
            else:
                self._shown = {place: at for place, at in self._shown.items() if record.created - at < 60}
                self._shown[place] = record.created
        return True


def _place(error: BaseException) -> tuple[object, ...]:
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    if traceback is None:
        return (type(error),)
    return type(error), traceback.tb_frame.f_code, traceback.tb_lineno


_exceptions = logging.getLogger(EXCEPTIONS)
_exceptions.addFilter(_TracebackPace())
