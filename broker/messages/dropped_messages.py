"""Messages that the store dropped before they were consumed: counted and logged, in steps.

One drop may concern every queue of the broker, and each of 200,000 groups may have an offset of a queue.
"""

from collections import OrderedDict
from typing import Final

from lockstep.broker.catalog.offsets import ConsumerOffsetManager
from lockstep.broker.messages.delays.service import DelayService
from lockstep.broker.messages.delays.timers import TIMER_QUEUE, Timers
from lockstep.broker.sliced_work import SlicedWork, Steps
from lockstep.protocol.names import SCHEDULE_TOPIC, TIMER_TOPIC
from lockstep.remoting.logs import EventLog

__all__ = ["DroppedMessages"]

_LOOKED_AT_A_STEP: Final = 512  # groups
# An event of the log takes as long as a look at so many groups.
_LINE_COST: Final = 32
# Of one drop; above that, one event has the number of the others.
_LINES_MAX: Final = 100


class DroppedMessages:
    """`ahead_count`: messages that a group with committed offsets never got."""

    def __init__(
        self,
        offsets: ConsumerOffsetManager,
        delays: DelayService,
        timers: Timers,
        work: SlicedWork,
        log: EventLog,
        why: str,
    ) -> None:
        """`why` names the limit that drops messages."""
        self._offsets = offsets
        self._delays = delays
        self._timers = timers
        self._work = work
        self._log = log
        self._why = why
        # Queue -> offsets [first, end) that are not told yet. A dict finds its first entry slowly when many are gone.
        self._ranges: OrderedDict[tuple[str, int], tuple[int, int]] = OrderedDict()
        self.ahead_count = 0

    def on_trim(self, topic: str, queue_id: int, min_before: int, min_now: int) -> None:
        """The store dropped the oldest messages of a queue: those from offset `min_before` to `min_now`."""
        if topic == SCHEDULE_TOPIC:
            level = queue_id + 1
            self._on_delayed(level, min_now - max(self._delays.offsets.get(level, 0), min_before))
        elif (topic, queue_id) == (TIMER_TOPIC, TIMER_QUEUE):
            self._on_delayed(0, self._timers.drop_before(min_now))
        ranges, key = self._ranges, (topic, queue_id)
        is_first, known = not ranges, ranges.get(key)
        ranges[key] = (min_before if known is None else known[0], min_now)
        if is_first and not self._work.count_of(self):
            self._work.start(self, self._log_ranges())

    def _log_ranges(self) -> Steps:
        # The store tells of the queues of one drop in one go: wait until all are known.
        yield None
        looked_at = lines = groups = more_count = 0
        while self._ranges:
            (topic, queue_id), (first, end) = self._ranges.popitem(last=False)
            for group in self._offsets.groups_of(topic):
                committed = self._offsets.query(group, topic, queue_id)
                looked_at += 1
                if 0 <= committed < end:
                    count = end - max(committed, first)
                    self.ahead_count += count
                    if lines < _LINES_MAX:
                        lines += 1
                        looked_at += _LINE_COST
                        self._log_one(group, (topic, queue_id), count, committed, end)
                    else:
                        groups += 1
                        more_count += count
                if looked_at >= _LOOKED_AT_A_STEP:
                    looked_at = 0
                    # Also a queue of a topic without groups.
                    yield None
            looked_at += 1
            if looked_at >= _LOOKED_AT_A_STEP:
                looked_at = 0
                yield None
        if groups:
            self._log.warning(
                "more_unconsumed_messages_dropped",
                why=self._why,
                groups_and_queues=groups,
                count=more_count,
                dropped_ahead_total=self.ahead_count,
            )

    def _log_one(self, group: str, queue: tuple[str, int], count: int, committed: int, min_offset: int) -> None:
        self._log.warning(
            "unconsumed_messages_dropped",
            why=self._why,
            group=group,
            topic=queue[0],
            queue_id=queue[1],
            count=count,
            committed_offset=committed,
            min_offset=min_offset,
            dropped_ahead_total=self.ahead_count,
        )

    def _on_delayed(self, level: int, lost_count: int) -> None:
        """`level` 0: of messages for a time."""
        if lost_count > 0:
            self.ahead_count += lost_count
            self._log.warning("delayed_messages_dropped", why=self._why, delay_level=level, count=lost_count)
