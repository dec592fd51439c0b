"""The broker's log: structlog on stderr, imported when the broker listens. Earlier events are logged then."""

import io
from collections.abc import Callable, MutableMapping
from typing import Any, TextIO, cast

from lockstep.remoting.host.report_stream import ReportStream
from lockstep.remoting.limit_log import PeerEvents
from lockstep.remoting.logs import EventLog, printable

__all__ = ["StartLog"]

# Characters of one field: peers choose the length of names.
_SHOWN_MAX = 500


class StartLog:
    """An EventLog that buffers events until `open`, and passes them on afterwards."""

    def __init__(self) -> None:
        self._waiting: list[tuple[str, str, dict[str, Any]]] = []
        self._target: EventLog | None = None
        self._stream: TextIO | ReportStream | None = None
        self._sampled = PeerEvents()
        self._clock_ns: Callable[[], int] = lambda: 0

    def open(
        self,
        log_format: str,
        log_level: str,
        stream: TextIO | ReportStream,
        clock_ns: Callable[[], int],
        **fields: str,
    ) -> None:
        """Import structlog, log the buffered events, and log at once from now on, each event with these fields too.

        Args:
            clock_ns: Never steps back. Events that peers cause at will are sampled by it (docs/log-events.md).
        """
        self._stream = stream
        self._clock_ns = clock_ns
        self._target = _structlog(log_format, log_level, stream, fields)
        for level, event, fields in self._waiting:
            getattr(self._target, level)(event, **fields)
        self._waiting.clear()

    def debug(self, event: str, **fields: Any) -> None:
        self._log("debug", event, fields)

    def info(self, event: str, **fields: Any) -> None:
        self._log("info", event, fields)

    def warning(self, event: str, **fields: Any) -> None:
        self._log("warning", event, fields)

    def error(self, event: str, **fields: Any) -> None:
        self._log("error", event, fields)

    def _log(self, level: str, event: str, fields: dict[str, Any]) -> None:
        if self._target is None:
            self._waiting.append((level, event, fields))
            return
        times = self._sampled.times(event, self._clock_ns() // 1_000_000)
        if not times:
            return
        if times > 1:
            fields["times"] = times
        log = self._target
        if isinstance(self._stream, ReportStream) and (lines := self._stream.take_dropped()):
            log.warning("log_lines_dropped", lines=lines)
        getattr(log, level)(event, **fields)


def _shorten(_logger: Any, _level: str, fields: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    for name, value in fields.items():
        if isinstance(value, (str, list)) and len(text := str(value)) > _SHOWN_MAX:
            fields[name] = text[:_SHOWN_MAX] + "..."
    return fields


def _escape(_logger: Any, _level: str, fields: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    for name, value in fields.items():
        if isinstance(value, str):
            fields[name] = printable(value)
    return fields


def _traceback(stream: TextIO, exc_info: Any) -> None:
    """Write a traceback as Python does, with control characters escaped."""
    from structlog.dev import plain_traceback

    text = io.StringIO()
    plain_traceback(text, exc_info)
    stream.write("\n".join(map(printable, text.getvalue().split("\n"))))


def _structlog(log_format: str, log_level: str, stream: TextIO | ReportStream, fields: dict[str, str]) -> EventLog:
    import structlog

    renderer: Any
    if log_format == "json":
        renderer = structlog.processors.JSONRenderer()
        tail = [structlog.processors.format_exc_info, renderer]
    else:
        renderer = structlog.dev.ConsoleRenderer(colors=stream.isatty(), exception_formatter=_traceback)
        tail = [_escape, renderer]
    log: EventLog = structlog.wrap_logger(
        structlog.WriteLogger(cast("TextIO", stream)),
        processors=[
            _shorten,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *tail,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(log_level),
        cache_logger_on_first_use=True,
    ).bind(**fields)
    return log
