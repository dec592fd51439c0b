"""How far delayed messages were delivered, by what stands in the log (wire.md 10.2).

delayOffset.json is written from time to time. What was delivered after that, and before the broker was killed, is in
the log: it counts as delivered, and is not delivered again.
"""

from collections.abc import Iterator
from typing import Final

from lockstep.broker.delays.service import DelayService
from lockstep.protocol import properties as names
from lockstep.protocol.message import MessageExt, decode_messages
from lockstep.protocol.names import SCHEDULE_TOPIC
from lockstep.store.file.store import FileStore
from lockstep.store.format.log_records import LogScan

__all__ = ["count_delivered"]

_DELAY: Final = f"{names.DELAY}{names.NAME_END}".encode()


def count_delivered(store: FileStore, delays: DelayService, log_offset: int | None) -> int:
    """Move the offsets of `delays` behind all that was delivered. Returns how many more messages count as delivered.

    Args:
        log_offset: Where the log ended when these offsets were taken; None when Apache's broker wrote them, which does
            not say it. Then nothing is looked for: of two messages that are equal one may have been delivered before.

    Raises:
        OSError: The log cannot be read.
    """
    if log_offset is None:
        return 0
    oldest = delays.first_in_doubt(store.last_timestamp)
    return 0 if oldest is None else delays.count_delivered(_delivered(store, max(oldest, log_offset)))


def _delivered(store: FileStore, start: int) -> Iterator[MessageExt]:
    """Messages with a delay that stand in the log, from `start` on, under their own topic."""
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
