"""The shape of a log: an event code and fields. structlog's loggers have it. The client library's default is quiet.

Quiet means: nothing is printed until the application configures logging, with one exception. An error that the user's
code raised would be lost, because no other code reports it: it is printed with its traceback (`EXCEPTIONS`).
"""

import logging
from typing import Any, Final, Protocol

__all__ = ["EXCEPTIONS", "EventLog", "StdlibLog", "client_log", "log_exception", "printable", "raised_at", "text_of"]

EXCEPTIONS: Final = "lockstep.exceptions"
"""The logger of events with a traceback. It has no handler: without one Python prints to stderr."""

_TRACEBACK_EVERY_S: Final = 0.5


def printable(text: str) -> str:
    """Escape characters that control a terminal, begin a line or change the direction of writing.

    Peers choose the names that logs and tables show. All other characters stay.
    """
    if text.isprintable():
        return text
    return "".join([letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in text])


class EventLog(Protocol):
    """`log.info("lock_granted", group=..., queue=...)`: an event is a short stable code, facts are fields.

    A field `exc_info` is an exception; it is shown with its traceback.
    """

    def debug(self, event: str, **fields: Any) -> Any: ...
    def info(self, event: str, **fields: Any) -> Any: ...
    def warning(self, event: str, **fields: Any) -> Any: ...
    def error(self, event: str, **fields: Any) -> Any: ...


def log_exception(log: EventLog, event: str, error: BaseException, **fields: Any) -> None:
    """Report an exception of the user's code, or an unexpected one, as an ERROR with its type, text and traceback.

    Args:
        log: The log to write to. A StdlibLog uses the logger `EXCEPTIONS`.
        event: The code of the event.
        error: The exception. Its type and text become the field `error`.
        fields: Further fields of the event.
    """
    log.error(event, **fields, error=text_of(error), exc_info=error)


def text_of(error: BaseException) -> str:
    """The type and the text of an exception, also of the user's class whose `__str__` raises."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:
        return f"{type(error).__name__}: <its text cannot be made>"


class StdlibLog:
    """Writes events to a logger of the standard library, which prints nothing until the application configures it."""

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


class _GivenLog:
    """A log that the application gave. What it raises is said once by the library's own log, and stops nothing."""

    def __init__(self, given: EventLog) -> None:
        self._given = given
        self._failed = False

    def debug(self, event: str, **fields: Any) -> None:
        self._write("debug", event, fields)

    def info(self, event: str, **fields: Any) -> None:
        self._write("info", event, fields)

    def warning(self, event: str, **fields: Any) -> None:
        self._write("warning", event, fields)

    def error(self, event: str, **fields: Any) -> None:
        self._write("error", event, fields)

    def _write(self, level: str, event: str, fields: dict[str, Any]) -> None:
        try:
            getattr(self._given, level)(event, **fields)
        except Exception as error:
            if not self._failed:
                self._failed = True
                log = StdlibLog("lockstep.client")
                log.error("log_failed", error=text_of(error), exc_info=error)


def client_log(given: EventLog | None) -> EventLog:
    """The log of a client: the application's, guarded, or the library's quiet one."""
    return StdlibLog("lockstep.client") if given is None else _GivenLog(given)


class _TracebackPace(logging.Filter):
    """Every exception is logged, but the traceback of one raising line at most twice a second.

    An orderly queue fails once a second, and each traceback is shown. A concurrent listener whose database is down
    fails thousands of times a second; formatting all those tracebacks would take the time that the consumer needs.
    """

    def __init__(self) -> None:
        super().__init__()
        self._shown: dict[tuple[object, ...], float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Remove the traceback of a record whose raising line was shown less than half a second ago."""
        if record.exc_info and record.exc_info[1] is not None:
            place = raised_at(record.exc_info[1])
            if 0 <= record.created - self._shown.get(place, 0.0) < _TRACEBACK_EVERY_S:
                record.exc_info = None
            else:
                self._shown = {place: at for place, at in self._shown.items() if record.created - at < 60}
                self._shown[place] = record.created
        return True


def raised_at(error: BaseException) -> tuple[object, ...]:
    """The type of an exception and the line that raised it: equal for errors of one kind."""
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    if traceback is None:
        return (type(error),)
    return type(error), traceback.tb_frame.f_code, traceback.tb_lineno


_exceptions = logging.getLogger(EXCEPTIONS)
_exceptions.addFilter(_TracebackPace())
