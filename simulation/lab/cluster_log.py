"""What the brokers and clients of a simulated cluster log, in one list."""

from dataclasses import dataclass
from typing import Any

from lockstep.simulation.world import World

__all__ = ["HostLog", "LogLine"]


@dataclass(frozen=True)
class LogLine:
    at_ms: int  # virtual, since the start
    host: str
    level: str
    event: str
    fields: dict[str, Any]


class HostLog:
    """The EventLog of one host, into the cluster's list."""

    def __init__(self, lines: list[LogLine], world: World, host: str) -> None:
        self._lines, self._world, self._host = lines, world, host

    def _add(self, level: str, event: str, fields: dict[str, Any]) -> None:
        self._lines.append(LogLine(self._world.elapsed_ms, self._host, level, event, fields))

    def debug(self, event: str, **fields: Any) -> None:
        self._add("debug", event, fields)

    def info(self, event: str, **fields: Any) -> None:
        self._add("info", event, fields)

    def warning(self, event: str, **fields: Any) -> None:
        self._add("warning", event, fields)

    def error(self, event: str, **fields: Any) -> None:
        self._add("error", event, fields)
