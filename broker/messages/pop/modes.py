"""How groups read topics when the broker shares the queues out: by pulls, or by pops (docs/wire.md 18.1)."""

from collections.abc import Callable

from lockstep.protocol.bodies.pop import PULL, RequestMode, RequestModesBody

__all__ = ["RequestModes"]


class RequestModes:
    """(topic, group) -> mode, of those that an administrator set.

    Args:
        rows_max: So many are kept.
    """

    def __init__(self, rows_max: int) -> None:
        self._rows_max = rows_max
        self._modes: dict[tuple[str, str], RequestMode] = {}

    def __bool__(self) -> bool:
        return bool(self._modes)

    def find(self, topic: str, consumer_group: str) -> RequestMode:
        """A group pulls unless it was told otherwise."""
        return self._modes.get((topic, consumer_group)) or RequestMode(topic, consumer_group, PULL)

    def put(self, mode: RequestMode) -> bool:
        """Returns False when there is no room."""
        key = (mode.topic, mode.consumer_group)
        if key not in self._modes and len(self._modes) >= self._rows_max:
            return False
        self._modes[key] = mode
        return True

    def forget(self, is_gone: Callable[[str, str], bool]) -> None:
        """Forget the modes of a deleted topic or group."""
        for key in [key for key in self._modes if is_gone(*key)]:
            del self._modes[key]

    def body(self) -> RequestModesBody:
        """For an answer, and for the file."""
        table: dict[str, dict[str, RequestMode]] = {}
        for (topic, consumer_group), mode in self._modes.items():
            table.setdefault(topic, {})[consumer_group] = mode
        return RequestModesBody(table)

    def restore(self, body: RequestModesBody) -> None:
        """Load the modes of an earlier run."""
        for groups in body.modes.values():
            for mode in groups.values():
                self.put(mode)
