"""Message ids: the broker's, from its address and the log offset, and the producer's UNIQ_KEY (wire.md 4.6)."""

import struct
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

__all__ = [
    "OffsetMessageId",
    "UniqueKeyMaker",
    "decode_offset_message_id",
    "encode_offset_message_id",
    "pack_host",
]

_COUNTER_MASK: Final = 0xFFFF


class OffsetMessageId(NamedTuple):
    host: bytes  # 4 or 16 address bytes
    port: int
    commit_log_offset: int


def pack_host(host: str) -> bytes:
    """The 4 bytes of an IPv4 address or the 16 bytes of an IPv6 address. Raises ValueError for other text.

    An IPv4-mapped IPv6 address, which a dual-stack socket shows for an IPv4 peer, gives 4 bytes.
    """
    if ":" in host:
        from ipaddress import IPv6Address  # imported here: rarely needed, and it slows the start

        address = IPv6Address(host.partition("%")[0])
        return (address.ipv4_mapped or address).packed
    parts = host.split(".")
    if len(parts) != 4:
        raise ValueError(f"{host!r} is not an IPv4 address")
    return bytes(int(part) for part in parts)


def encode_offset_message_id(host: bytes, port: int, commit_log_offset: int) -> str:
    """Make an offset message id: 32 upper-case hex characters for IPv4, 56 for IPv6."""
    return f"{host.hex().upper()}{port & 0xFFFFFFFF:08X}{commit_log_offset & 0xFFFFFFFFFFFFFFFF:016X}"


def decode_offset_message_id(message_id: str) -> OffsetMessageId:
    """Decode an offset message id. Raises ValueError for other text."""
    raw = bytes.fromhex(message_id)
    if len(raw) not in (16, 28):
        raise ValueError(f"an offset message id has 32 or 56 hex characters, not {len(message_id)}")
    port, offset = struct.unpack(">iq", raw[-12:])
    return OffsetMessageId(raw[:-12], port, offset)


class UniqueKeyMaker:
    """Makes the UNIQ_KEYs of one producer: ip, pid, process tag, milliseconds since the month began, counter.

    The layout is exactly Java's, because tools read the time from the key.
    """

    __slots__ = ("_counter", "_month_end_ms", "_month_start_ms", "_now_ms", "_prefix", "_stem")

    def __init__(self, host: bytes, pid: int, process_tag: int) -> None:
        self._prefix = (host + struct.pack(">HI", pid & 0xFFFF, process_tag & 0xFFFFFFFF)).hex().upper()
        self._counter = 0
        self._month_start_ms = 0
        self._month_end_ms = 0
        self._now_ms: int | None = None
        self._stem = ""  # of the keys of this millisecond: all but the counter

    def next(self, now_ms: int) -> str:
        if now_ms != self._now_ms:
            self._now_ms, self._stem = now_ms, self._stem_of(now_ms)
        self._counter = counter = (self._counter + 1) & _COUNTER_MASK
        return f"{self._stem}{counter:04X}"

    def _stem_of(self, now_ms: int) -> str:
        if not self._month_start_ms <= now_ms < self._month_end_ms:
            self._month_start_ms, self._month_end_ms = _month_around(now_ms)
        return f"{self._prefix}{now_ms - self._month_start_ms & 0xFFFFFFFF:08X}"


def _month_around(now_ms: int) -> tuple[int, int]:
    """The start of this and of the next month in epoch ms (UTC: a replay must not depend on the time zone)."""
    start = datetime.fromtimestamp(now_ms // 1000, UTC).replace(day=1, hour=0, minute=0, second=0)
    end = (start + timedelta(days=32)).replace(day=1)
    return int(start.timestamp()) * 1000, int(end.timestamp()) * 1000
