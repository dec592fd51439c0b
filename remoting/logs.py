"""The shape of a log: an event name and fields. structlog's loggers have it; the client library's default is silent."""

import logging
from typing import Any, Protocol

__all__ = ["EventLog", "StdlibLog"]


class EventLog(Protocol):
    """`log.info("lock granted", group=..., queue=...)`: events are a few plain words, facts go into fields."""

    def debug(self, event: str, **fields: Any) -> Any: ...
    def info(self, event: str, **fields: Any) -> Any: ...
    def warning(self, event: str, **fields: Any) -> Any: ...
    def error(self, event: str, **fields: Any) -> Any: ...


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
        if self._logger.isEnabledFor(level):
            self._logger.log(level, "%s %s", event, " ".join(f"{name}={value!s}" for name, value in fields.items()))
