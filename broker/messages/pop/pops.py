"""All that POP keeps."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from lockstep.broker.config import BrokerConfig
from lockstep.broker.messages.pop.checkpoints import Checkpoint, Checkpoints
from lockstep.broker.messages.pop.fenced import FencedQueue
from lockstep.broker.messages.pop.held import HeldCalls
from lockstep.broker.messages.pop.modes import RequestModes
from lockstep.broker.messages.pop.port import Answered, FifoQueue
from lockstep.broker.messages.pop.queues import FifoQueues
from lockstep.broker.messages.pop.revive_log import ReviveLog
from lockstep.broker.messages.pop.rocketmq import RocketMqQueue
from lockstep.protocol.bodies.order_info import OrderInfo
from lockstep.remoting.logs import EventLog
from lockstep.store import AppendResult, MessageStore, Record, StoreFull

__all__ = ["Pops"]


class Pops:
    """Deliveries under way, and calls that wait for one.

    Attributes:
        fifo: Of groups in order.
        checkpoints: Of groups without order.
        revive_log: Keeps these.
        modes: Which groups pop, when the broker shares the queues out.
        held: Calls that wait.
        fenced: Deliveries in order are of the fenced way.
        journals: Whether a delivery in order is in the log before its answer leaves: the fenced way, with files.
        in_use: A client has popped, or waited for messages, since the start or before.
        revived: (topic, group) -> messages that were stored again because nobody acknowledged them in time.
        answers: Group -> how many of its acknowledgements, and changes of invisible times, ended in each way.
        stale_ms: Group -> epoch ms of its last answer that was refused.

    Args:
        put_all: Stores messages. Raises StoreFull.
    """

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        put_all: Callable[[Sequence[Record]], Sequence[AppendResult]],
        log: EventLog,
    ) -> None:
        self._log = log
        self._window_max = config.pop_window_max if config.lock_mode == "fenced" else None
        self.fenced = self._window_max is not None
        self.journals = self.fenced and bool(config.data_dir)
        self.in_use = False
        self.fifo = FifoQueues(self._new_queue)
        self.checkpoints = Checkpoints()
        self.revive_log = ReviveLog(config.cluster, config.broker_name, store, put_all)
        self.modes = RequestModes(config.offset_entries_max)
        self.held = HeldCalls(
            config.held_pulls_per_connection_max, config.held_pulls_max, self.fifo.next_visible_ms, log
        )
        self.revived = Counter[tuple[str, str]]()
        self.answers: dict[str, Counter[Answered]] = {}
        self.stale_ms: dict[str, int] = {}

    def answered(self, consumer_group: str, how: Answered, now_ms: int, count: int = 1) -> None:
        """Count answers to deliveries.

        Args:
            consumer_group: Of the catalog; others are counted as "".
        """
        self.answers.setdefault(consumer_group, Counter())[how] += count
        if how is Answered.STALE:
            self.stale_ms[consumer_group] = now_ms

    def on_stored(self, topic: str, queue_id: int) -> None:
        """A message can be read: calls that wait are tried, and pops look at its queue."""
        self.held.on_stored(topic)
        self.fifo.on_stored(topic, queue_id)

    def reset(self, topic: str, consumer_group: str, queue_id: int, now_ms: int) -> None:
        """Somebody else set the group's offset: all deliveries of the queue are over."""
        self.fifo.reset(topic, consumer_group, queue_id)
        self._end(self.checkpoints.reset(topic, consumer_group, queue_id), now_ms)
        self.held.on_free(topic, consumer_group)

    def _end(self, checkpoints: Sequence[Checkpoint], now_ms: int) -> None:
        """Nothing of these deliveries is stored again, also not after a restart."""
        try:
            self.revive_log.end_all([(one, one.left) for one in checkpoints], now_ms)
        except StoreFull as why:
            self._log.error("pop_checkpoint_failed", reason=str(why))

    def are_popped(self, topic: str, consumer_group: str) -> bool:
        """Whether the group pops the topic's messages."""
        return bool(self.fifo.of(topic, consumer_group)) or self.checkpoints.has(topic, consumer_group)

    def _new_queue(self) -> FifoQueue:
        return RocketMqQueue() if self._window_max is None else FencedQueue(self._window_max)

    def restore(self, table: Mapping[tuple[str, str], Mapping[int, OrderInfo]], now_ms: int) -> None:
        """Load the deliveries of an earlier run, of either mode."""
        self.in_use = bool(table)
        self.fifo.restore(table, self._restored, now_ms)

    def _restored(self, info: OrderInfo) -> FifoQueue:
        if self._window_max is None:
            return RocketMqQueue.restored(info)
        return FencedQueue.restored(info, self._window_max)

    @property
    def next_due_ms(self) -> int | None:
        """Epoch ms when something has to be done: `run_pops`. None: never."""
        # Asked after each read of a broker, which mostly serves no pops.
        if not self.in_use:
            return None
        times = (self.held.next_due_ms, self.checkpoints.next_due_ms)
        return min((time for time in times if time is not None), default=None)

    def client_gone(self, client: str, visible_ms: int, consumer_group: str | None = None) -> None:
        """A client left a group, or, None, its connection ended: what it holds in order becomes visible."""
        for topic, group in self.fifo.client_gone(client, visible_ms, consumer_group):
            self.held.wake_at(topic, group, visible_ms)

    def forget(self, is_gone: Callable[[str, str], bool], now_ms: int) -> None:
        """Forget what is of a topic and group that are deleted."""
        self.fifo.forget(is_gone)
        self.modes.forget(is_gone)
        for queue in self.checkpoints.queues_of(is_gone):
            self._end(self.checkpoints.reset(*queue), now_ms)
        for key in [key for key in self.revived if is_gone(*key)]:
            del self.revived[key]
        # Of a group in all its topics: gone with the group alone.
        for group in [group for group in self.answers if is_gone("", group)]:
            del self.answers[group]
            self.stale_ms.pop(group, None)
