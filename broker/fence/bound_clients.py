"""Which clients speak over a connection. A request of an unmodified client does not name its sender."""

from typing import Final

from lockstep.broker.connection import Connection

__all__ = ["BoundClients"]

_PAIRS_MAX: Final = 4096  # of one connection; above it the pair that was named longest ago is forgotten
_ALL_MAX: Final = 100_000  # of all connections: from then on a new pair is kept in place of an older one, but for ...
_FEW: Final = 16  # ... so many of each connection


class BoundClients:
    """Connection -> the pairs of consumer group and client id in its heartbeats, lock and unlock requests.

    A connection has several pairs when its client has several groups, or when a proxy carries several clients.
    """

    def __init__(self) -> None:
        self._pairs: dict[Connection, dict[tuple[str, str], None]] = {}
        self._count = 0  # of all pairs

    def bind(self, connection: Connection, consumer_group: str, client_id: str) -> bool:
        """Add a pair. Returns whether it is new to the connection."""
        pairs = self._pairs.setdefault(connection, {})
        pair = (consumer_group, client_id)
        is_new = pair not in pairs
        if not is_new:
            del pairs[pair]  # to the end of the line
        elif len(pairs) >= (_PAIRS_MAX if self._count < _ALL_MAX else _FEW):
            del pairs[next(iter(pairs))]
        else:
            self._count += 1
        pairs[pair] = None
        return is_new

    def has(self, connection: Connection, consumer_group: str, client_id: str) -> bool:
        return (consumer_group, client_id) in self._pairs.get(connection, ())

    def on_closed(self, connection: Connection) -> None:
        self._count -= len(self._pairs.pop(connection, ()))
