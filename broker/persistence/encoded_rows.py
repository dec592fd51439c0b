"""A table of a config file as text. Each row is encoded once, so that a write of the whole file is a join."""

from collections.abc import Mapping
from typing import Any

from lockstep.protocol.bodies.broker import DataVersion
from lockstep.protocol.bodies.codec import encode_part
from lockstep.protocol.codes import SerializeType

__all__ = ["EncodedRows"]


class EncodedRows:
    """The encoded rows of the topics or groups of a broker, under the name `member` in their file."""

    def __init__(self, member: str) -> None:
        self._member = member.encode()
        self._rows: dict[str, bytes] = {}
        self._left: dict[str, dict[str, Any] | None] = {}

    def encode(self, version: DataVersion, changes: Mapping[str, dict[str, Any] | None]) -> bytes:
        """The whole file. Runs on a worker thread, one call at a time.

        Args:
            changes: The members of each row that is new or changed since the last call; None for one that is gone.

        Raises:
            LocalProtocolError: A name that UTF-8 cannot encode. The next call encodes what this one did not.
        """
        left, rows = self._left, self._rows
        left.update(changes)
        for name in tuple(left):
            wire = left[name]
            if wire is None:
                rows.pop(name, None)
            else:
                rows[name] = _encode({name: wire})[1:-1]
            del left[name]
        head = b'%s,"%s":{' % (_encode({"dataVersion": version.to_wire()})[:-1], self._member)
        # One join: a further copy of a long file takes several times as long.
        pieces = list(rows.values()) or [b""]
        pieces[0] = head + pieces[0]
        pieces[-1] += b"}}"
        return b",".join(pieces)


def _encode(wire: dict[str, Any]) -> bytes:
    return encode_part(wire, SerializeType.JSON)
