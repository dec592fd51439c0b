"""Which delayed messages were delivered before a crash, found in the log (wire.md 10.2).

delayOffset.json is written periodically. Messages that were delivered after that, before the broker was killed, are
found in the log by their delivered copies, and are not delivered again.
"""

from collections.abc import Iterator
from typing import Final

from lockstep.broker.messages.delays.service import DelayService
from lockstep.protocol.messages import properties as names
from lockstep.protocol.messages.message import MessageExt, decode_messages
from lockstep.protocol.names import SCHEDULE_TOPIC
from lockstep.store.file.store import FileStore
from lockstep.store.format.log_records import LogScan

__all__ = ["count_delivered"]

_DELAY: Final = f"{names.DELAY}{names.NAME_END}".encode()


def count_delivered(store: FileStore, delays: DelayService, log_offset: int | None) -> int:
    """Advance the offsets of `delays` past all delivered messages. Returns by how many.

    Args:
        log_offset: The end of the log when these offsets were written; None in a file of Apache's broker. Then no
            search is made: of two equal messages one may have been delivered earlier.

    Raises:
        OSError: The log cannot be read.
    """
    if log_offset is None:
        return 0
    oldest = delays.first_in_doubt(store.last_timestamp)
    return 0 if oldest is None else delays.count_delivered(_delivered(store, max(oldest, log_offset)))


def _delivered(store: FileStore, start: int) -> Iterator[MessageExt]:
    """Messages with a delay, under their own topic, in the log from `start` on."""
    log = store.log
    position, end = max(start, log.min_offset), log.max_offset
    while position < end:
        scan = LogScan(log.segments, position, end)
        for record in scan:
            if record.topic != SCHEDULE_TOPIC and _DELAY in record.properties:
                data = log.message_at(record.offset)
                if data is not None:
                    yield decode_messages(data, unzip=False)[0]
        position = end if scan.position >= end else log.after_damage(scan.position, end)
