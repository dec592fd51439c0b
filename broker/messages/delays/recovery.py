"""Which delayed messages were delivered before a crash, found in the log (wire.md 10.2).

delayOffset.json is written periodically. Messages that were delivered after that, before the broker was killed, are
found in the log by their delivered copies, and are not delivered again.
"""

from collections.abc import Iterator
from typing import Final

from lockstep.broker.messages.delays.service import DelayService
from lockstep.broker.messages.delays.timers import Timers
from lockstep.protocol.messages import properties as names
from lockstep.protocol.messages.message import MessageExt, decode_messages
from lockstep.protocol.names import SCHEDULE_TOPIC, TIMER_TOPIC
from lockstep.store.file.store import FileStore
from lockstep.store.format.log_records import LogScan

__all__ = ["count_delivered", "count_timed"]

_DELAY: Final = f"{names.DELAY}{names.NAME_END}".encode()
_TIMER: Final = f"{names.TIMER_OUT_MS}{names.NAME_END}".encode()


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
    found = _delivered(store, max(oldest, log_offset), _DELAY, SCHEDULE_TOPIC) if oldest is not None else ()
    return delays.count_delivered(found)


def count_timed(store: FileStore, timers: Timers, log_offset: int) -> int:
    """As `count_delivered`, for messages for a time: a delivered one names the place of the one that waited."""
    in_doubt = timers.in_doubt(store.last_timestamp)
    if not in_doubt:
        return 0
    found = _delivered(store, max(min(in_doubt), log_offset), _TIMER, TIMER_TOPIC)
    places = {message.prepared_transaction_offset for message in found} & in_doubt.keys()
    timers.count_delivered({in_doubt[place] for place in places})
    return len(places)


def _delivered(store: FileStore, start: int, name: bytes, waiting_topic: str) -> Iterator[MessageExt]:
    """Messages with this property, under their own topic, in the log from `start` on."""
    log = store.log
    position, end = max(start, log.min_offset), log.max_offset
    while position < end:
        scan = LogScan(log.segments, position, end)
        for record in scan:
            if record.topic != waiting_topic and name in record.properties:
                data = log.message_at(record.offset)
                if data is not None:
                    yield decode_messages(data, unzip=False)[0]
        position = end if scan.position >= end else log.after_damage(scan.position, end)
