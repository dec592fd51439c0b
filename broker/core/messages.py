"""Messages: the store of a broker, and what stands around it."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

from lockstep.broker.catalog.catalog import Catalog
from lockstep.broker.config import BrokerConfig
from lockstep.broker.delay_levels import parse_delay_levels
from lockstep.broker.messages.delays.service import DelayedPlace, DelayService
from lockstep.broker.messages.delays.timers import TimerPlace, Timers
from lockstep.broker.messages.dropped_messages import DroppedMessages
from lockstep.broker.messages.filters import ConsumerFilterManager
from lockstep.broker.messages.held_pulls import PullHold
from lockstep.broker.messages.pop.pops import Pops
from lockstep.broker.messages.refused_pulls import RefusedPulls
from lockstep.broker.messages.send_sequences import SendSequences
from lockstep.broker.messages.transactions.half_messages import HalfMessages
from lockstep.broker.ownership.port import Ownership
from lockstep.broker.sliced_work import SlicedWork
from lockstep.protocol.kernels import ENTRY, PlainSends
from lockstep.protocol.messages import properties as names
from lockstep.protocol.messages.ids import encode_offset_message_id
from lockstep.protocol.messages.message import decode_messages
from lockstep.protocol.names import TIMER_TOPIC
from lockstep.remoting.limit_log import LimitLog
from lockstep.remoting.logs import EventLog
from lockstep.store import AppendResult, MessageStore, Record, StoreFull

__all__ = ["Messages"]

_DELIVERED_AT_ONCE_MAX: Final = 500  # a few milliseconds of work
_STORE_FULL_WAIT_MS: Final = 1000
# At the end of an offset message id; the rest is the same for every message.
COMMIT_LOG_OFFSET_DIGITS: Final = 16


class Messages:
    """Messages are stored here, and whoever waits for them hears of them.

    Attributes:
        hold: Pulls that wait for messages.
        refused_pulls: Pulls of clients that do not own their queue.
        halves: Messages of transactions that are not decided.
        dropped: Messages that the store dropped before they were consumed.
        before_store: Each is called before messages are stored, and may raise StoreFull: then none of them is stored.
        when_stored: Each is called with topic, queue id, queue offset and properties of each message that is stored.
        on_stored: Called with topic, queue id, queue offset and tag hash when a message can be read.
        pops: Deliveries that are under way, of groups that pop.
        knows_timers: A message may ask for a time.
        plain_sends: How many sends were handled from their bytes, taken; and how many reads that began with a send,
            and frames of sends, went the usual way, refused: one is not plain, not whole yet, or may not be stored now.
        message_id_prefix: An offset message id without its last 16 hex digits, the commit log offset.
    """

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        catalog: Catalog,
        ownership: Ownership,
        work: SlicedWork,
        limits: LimitLog,
        log: EventLog,
        started_ms: int,
    ) -> None:
        """
        Args:
            started_ms: Epoch ms.
        """
        self._log = log
        self.store = store
        self.hold = PullHold(config.held_pulls_per_connection_max, config.held_pulls_max)
        refused = PullHold(config.held_pulls_per_connection_max, config.held_pulls_max)
        self.refused_pulls = RefusedPulls(ownership, self.hold, refused, store)
        self.before_store: list[Callable[[], object]] = []
        self.when_stored: list[Callable[[str, int, int, Mapping[str, str]], object]] = []
        self.on_stored = self.hold.on_arrival
        self.filters = ConsumerFilterManager(
            log, config.filter_characters_max, partial(limits.met, "filter_characters_max")
        )
        self.send_sequences = SendSequences(config.send_sequences_max)
        # What was stored before a topic was created is not for it.
        catalog.topics.log_end = lambda: store.max_commit_log_offset
        self.delays = DelayService(store, parse_delay_levels(config.delay_levels))
        self.timers = Timers(store, config.timer_delay_max_sec * 1000, config.timer_messages_max)
        self.knows_timers = config.rocketmq != "4"
        for waiting in (self.delays, self.timers):
            waiting.on_skipped = self._on_delayed_skipped
            waiting.is_gone, waiting.on_gone = catalog.topics.is_gone, self._on_delayed_gone
        why = "retention" if config.data_dir else "memory limit"
        self.dropped = DroppedMessages(catalog.offsets, self.delays, self.timers, work, log, why)
        self.halves = HalfMessages(started_ms + config.transaction_check_interval_ms)
        self.pops = Pops(config, store, self.put_all, log)
        self._waiting_pops, self._looked_at = self.pops.held.waiting, self.pops.fifo.looked
        self.message_id_prefix = ""
        self.plain_sends = {"taken": 0, "refused": 0}
        self.set_port(config.port)

    def set_port(self, port: int) -> None:
        """Set the port that clients connect to, before the first message is stored; with port 0 the system chose it."""
        self.store.store_port = port
        start_of_log = encode_offset_message_id(self.store.store_host, port, 0)
        self.message_id_prefix = start_of_log[:-COMMIT_LOG_OFFSET_DIGITS]

    def put(self, record: Record) -> AppendResult:
        """Store one message and notify held pulls. Raises StoreFull."""
        for callback in self.before_store:
            callback()
        stored = self.store.append(record)
        if self.when_stored:
            self._tell_stored([record], [stored])
        self.on_stored(record.topic, record.queue_id, stored.queue_offset, record.tags_code)
        if record.topic in self._waiting_pops or record.topic in self._looked_at:
            self.pops.on_stored(record.topic, record.queue_id)
        return stored

    def put_all(self, records: Sequence[Record]) -> list[AppendResult]:
        """Store all of these messages or none. Raises StoreFull."""
        for callback in self.before_store:
            callback()
        stored = self.store.append_all(records)
        if self.when_stored:
            self._tell_stored(records, stored)
        on_stored = self.on_stored
        for record, result in zip(records, stored, strict=True):
            on_stored(record.topic, record.queue_id, result.queue_offset, record.tags_code)
            if record.topic in self._waiting_pops or record.topic in self._looked_at:
                self.pops.on_stored(record.topic, record.queue_id)
        return stored

    def _tell_stored(self, records: Sequence[Record], stored: Sequence[AppendResult]) -> None:
        for record, (_, queue_offset) in zip(records, stored, strict=True):
            properties = names.decode_properties(record.properties.decode("utf-8", "replace"))
            for callback in self.when_stored:
                callback(record.topic, record.queue_id, queue_offset, properties)

    def put_encoded(self, sends: PlainSends, now_ms: int) -> bool:
        """Store messages that are encoded and notify held pulls. Returns False if none was stored."""
        if self.before_store or not self.store.append_encoded(sends.log, sends.queues, now_ms):
            return False
        for message in decode_messages(sends.log, unzip=False) if self.when_stored else ():
            for callback in self.when_stored:
                callback(message.topic, message.queue_id, message.queue_offset, message.properties)
        for topic, queue_id, first_offset, entries in sends.queues:
            self.pops.on_stored(topic, queue_id)
            if self.hold.waits_for(topic, queue_id):
                for queue_offset, (_, _, code) in enumerate(ENTRY.iter_unpack(entries), first_offset):
                    self.on_stored(topic, queue_id, queue_offset, code)
        return True

    def place_later(self, properties: dict[str, str], topic: str, queue_id: int, now_ms: int) -> DelayedPlace | None:
        """Where a message is stored now that asks for a delay or a time; None for all others. Then call `waits`.

        Raises:
            ValueError: DELAY is no number.
            TimerRefused: The time cannot be.
        """
        place = self.delays.place(properties, topic, queue_id, now_ms)
        if names.TIMED.isdisjoint(properties) or not self.knows_timers:
            return place
        if place is None:
            return self.timers.place(properties, topic, queue_id, now_ms)
        # A level wins, as in RocketMQ 5, and the message keeps no time.
        for name in names.TIMERS:
            properties.pop(name, None)
        return place

    def waits(self, place: DelayedPlace, queue_offset: int) -> None:
        """A message that waits was stored. Not before: its timer must find it."""
        if place.topic == TIMER_TOPIC:
            self.timers.wait(TimerPlace(place.deliver_at_ms, queue_offset))
        else:
            self.delays.waits(place.deliver_at_ms)

    def deliver_delayed(self, now_ms: int) -> None:
        """Move due messages to their topics, a bounded number. `delays.next_due_ms` is the time of the next call."""
        self._deliver(self.delays, now_ms)

    def deliver_timed(self, now_ms: int) -> None:
        """As `deliver_delayed`, for messages for a time."""
        self._deliver(self.timers, now_ms)

    def _deliver(self, waiting: DelayService | Timers, now_ms: int) -> None:
        try:
            for record in waiting.due(now_ms, _DELIVERED_AT_ONCE_MAX):
                self.put(record)
        except StoreFull as why:
            self._log.error("delayed_delivery_failed", reason=str(why))
            waiting.next_due_ms = now_ms + _STORE_FULL_WAIT_MS

    def _on_delayed_skipped(self, delay_level: int, offset: int) -> None:
        self._log.error("delayed_message_skipped", delay_level=delay_level, offset=offset)

    def _on_delayed_gone(self, topic: str, delay_level: int, offset: int) -> None:
        self._log.info("delayed_message_of_deleted_topic", topic=topic, delay_level=delay_level, offset=offset)
