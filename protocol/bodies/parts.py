"""Counts the objects and lists of a body without decoding it: each takes far more memory than its bytes."""

from typing import Final

from lockstep.protocol.codes import SerializeType

__all__ = ["parts_of"]

_MSGPACK: Final = int(SerializeType.MSGPACK)
_NO_PART_OF_MSGPACK: Final = bytes(byte for byte in range(256) if not (0x80 <= byte <= 0x9F or 0xDC <= byte <= 0xDF))


def parts_of(body: bytes, serialize_type: int) -> int:
    """Return the number of objects and lists in a body, or more: bytes in numbers and texts may look like one.

    In msgpack these are up to two bytes of a character that is not ASCII.

    Args:
        serialize_type: The header encoding, which says how the body is written.
    """
    if serialize_type == _MSGPACK:
        return len(body.translate(None, _NO_PART_OF_MSGPACK))
    return body.count(b"{") + body.count(b"[")
