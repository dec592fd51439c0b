"""Rebalance: decides which queues this member owns, takes new ones and gives others up (wire.md 12.3)."""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final, Protocol

from lockstep.client.callables import log_or_raise
from lockstep.client.consumer.ownership.allocation.average import AllocateMessageQueueStrategy, strategy_name
from lockstep.client.consumer.ownership.allocation.sticky import AllocateSticky
from lockstep.client.consumer.ownership.explained import Did, Explanations
from lockstep.client.consumer.ownership.group_lists import GroupLists
from lockstep.client.consumer.ownership.hold import Hold
from lockstep.client.consumer.ownership.lock_port import Grant, Locks, Refused
from lockstep.client.consumer.ownership.membership import Membership
from lockstep.client.consumer.ownership.process_queue import ProcessQueue
from lockstep.client.errors import ConsumerError, NoRouteError
from lockstep.protocol.bodies.broker import QueueData, TopicRouteData
from lockstep.protocol.epochs import epoch_text
from lockstep.protocol.model import MessageQueue
from lockstep.protocol.names import is_retry_topic
from lockstep.remoting.errors import RemotingError

__all__ = ["QueueOwner", "Rebalance"]

_LISTENER_WAIT_MS = 1000
_NOT_SUBSCRIBED = "the topic is not subscribed any more"
_MOVED = "allocated to another consumer"
_UNKNOWN = Refused("not granted")
_KEPT_MAX: Final = 256  # topics of all consumers of the process: a round looks at each in turn, and fewer keep none


@lru_cache(_KEPT_MAX)
def _readable(datas: tuple[QueueData, ...], topic: str) -> tuple[tuple[MessageQueue, ...], frozenset[MessageQueue]]:
    """The readable queues of a route, sorted, and as a set."""
    queues = tuple(TopicRouteData(datas, ()).readable_queues(topic))
    return queues, frozenset(queues)


class QueueOwner(Protocol):
    """The consumer that a rebalance gives queues to and takes queues from."""

    def topics(self) -> Iterable[str]:
        """Return the subscribed topics."""

    def new_process_queue(self, queue: MessageQueue, period: int, now_ms: int, hold: Hold) -> ProcessQueue:
        """Make the process queue of a new ownership period; the arguments are those of ProcessQueue."""

    def queue_acquired(self, process_queue: ProcessQueue) -> None:
        """Start to pull."""

    def queue_dropped(self, process_queue: ProcessQueue, why: str) -> None:
        """Set the last offset, if it is not set yet: it is stored after this call."""

    async def queues_changed(self, topic: str) -> None:
        """Tell the brokers that this round gave or took queues of the topic."""


class Rebalance:
    """Gives this member its share of the queues of the subscribed topics.

    Without a `strategy` the member takes all queues and asks no broker for the other members: broadcasting.
    """

    def __init__(
        self, member: Membership, locks: Locks, owner: QueueOwner, strategy: AllocateMessageQueueStrategy | None
    ) -> None:
        self._member = member
        self._instance = member.instance
        self._runtime = member.runtime
        self._log = member.log
        self._config = member.config
        self._table = member.table
        self._offsets = member.offsets
        self._locks = locks
        self._owner = owner
        self._strategy = strategy
        self._periods = 0
        self._missing: set[str] = set()  # topics without queues; the log says each once
        self._left: set[str] = set()  # topics that are not subscribed any more, and whose queues are being given up
        self._refused: dict[MessageQueue, Refused] = {}  # queues of this member that it has no lock of
        self._lists = GroupLists(member.instance, member.group)
        self._last: dict[str, tuple[list[str], list[MessageQueue]]] = {}  # by topic: members and share, by owners
        self.unsettled = False  # another round soon: members that see each other's queues move may see different ones
        self.balanced = True  # after the last round this member had its share, and nothing else
        self.explanations = Explanations(member, strategy)

    async def run(self) -> None:
        """Run one round over every subscribed topic."""
        # A copy: the user may subscribe while a broker is asked.
        topics = list(self._owner.topics())
        self._lists.forget()
        self.unsettled = False
        self.balanced = True
        for topic in topics:
            try:
                await self._rebalance(topic)
            except (RemotingError, NoRouteError) as error:
                self.balanced = False
                self._log.warning("rebalance_failed", topic=topic, consequence="queues unchanged", error=str(error))
            except BaseException as error:
                # For example of the user's strategy. The other topics must still be rebalanced.
                self.balanced = False
                log_or_raise(self._log, "rebalance_failed", error, topic=topic, consequence="queues unchanged")
        left = [entry for entry in self._table.items() if entry[0].topic not in topics]
        self._say_left({queue.topic for queue, _ in left})
        for queue, process_queue in left:
            # RocketMQ only forgets such a queue: up to 5 s of offsets are lost, and the lock stays for 60 s.
            await self._remove(queue, process_queue, _NOT_SUBSCRIBED)
        self._refused = {queue: one for queue, one in self._refused.items() if queue.topic in topics}
        self.explanations.keep(topics)

    def _say_left(self, topics: set[str]) -> None:
        """The other members go on to share the queues out to this one: members are of a group, not of a topic."""
        members = self._lists.member_count
        self._left &= topics
        for topic in sorted(topics - self._left):
            self._left.add(topic)
            if members > 1 and not is_retry_topic(topic):
                why = (
                    "this member left the topic, and the others still count it: all members must subscribe to the same"
                )
                self._log.warning("queues_without_owner", topic=topic, group=self._member.group, why=why)

    async def _rebalance(self, topic: str) -> None:
        route = await self._instance.routes.get(topic)
        queues, _ = _readable(() if route is None else route.queue_datas, topic)
        # A retry topic is created with the first heartbeat, and its route comes later (wire.md 10.4).
        if not queues and topic not in self._missing and not is_retry_topic(topic):
            self._missing.add(topic)
            why = "it does not exist" if route is None else "it has no readable queue"
            self._log.warning("topic_route_missing", topic=topic, group=self._member.group, why=why)
        if route is None:
            return
        if queues:
            self._missing.discard(topic)
        if self._strategy is None:
            mine: list[MessageQueue] | None = [*queues]
            self.explanations.begin(topic, queues, (), None)
        else:
            mine = await self._share(self._strategy, topic, route)
        if mine is None:
            return
        changed = await self._update(topic, mine)
        self.balanced &= {queue for queue in self._table if queue.topic == topic} == set(mine)
        self.explanations.end(topic, mine)
        if changed:
            await self._owner.queues_changed(topic)

    async def _share(
        self, strategy: AllocateMessageQueueStrategy, topic: str, route: TopicRouteData
    ) -> list[MessageQueue] | None:
        """Return the queues that the strategy gives this member; None when the members are not known.

        Raises:
            ConsumerError: the strategy returned a queue that the topic does not have.
            Others: what the strategy raises.
        """
        if isinstance(strategy, AllocateSticky):
            client_ids, owners = await self._lists.members_and_owners(topic, route)
            strategy = strategy.given(owners)
        else:
            client_ids = await self._lists.members(route)
        # A broker without an answer, or one that knows nobody yet: the queues stay as they are (wire.md 9.3).
        if not client_ids:
            return None
        if self._instance.client_id not in client_ids:
            # Java drops all queues here. But the broker only does not know this client yet, for example after its
            # restart. Dropping and taking the queues again would stop consumption without need.
            self._log.info("member_not_registered", topic=topic, consequence="queues unchanged")
            await self._instance.heartbeat_all()
            self._lists.forget()
            return None
        queues, known = _readable(route.queue_datas, topic)
        # Each member computes the shares for itself, so all must sort alike (wire.md 12.3).
        members = sorted(client_ids)
        mine = list(strategy(self._member.group, self._instance.client_id, [*queues], members))
        # A wrong strategy must not make this member lock queues that nobody will send to.
        if strange := [str(queue) for queue in mine if queue not in known]:
            name = strategy_name(strategy)
            raise ConsumerError(f"strategy {name} gave queues that topic {topic!r} does not have: {', '.join(strange)}")
        if isinstance(strategy, AllocateSticky):
            self.unsettled |= self._last.get(topic) != (members, mine)
            self._last[topic] = members, mine
        self.explanations.begin(topic, queues, members, strategy)
        return mine

    # Changes -------------------------------------------------------------------------------------------------

    async def _update(self, topic: str, mine: list[MessageQueue]) -> bool:
        changed = False
        now_ms = self._runtime.now_ms()
        for queue, process_queue in [entry for entry in self._table.items() if entry[0].topic == topic]:
            why = _MOVED if queue not in mine else ""
            if not why and process_queue.pull_expired(now_ms, self._config.pull_max_idle_ms):
                why = f"not pulled for {self._config.pull_max_idle_ms} ms"
            if not why and process_queue.life.outlived_lock:
                why = "its lock had expired"
            if not why and process_queue.life.try_unlock_times:
                why = "its listener still ran when it was given up"
            if why:
                changed |= await self._remove(queue, process_queue, why, stays=queue in mine)
        # First the queues that go, then those that come: a queue that is given up and taken again begins a new period.
        wanted = [queue for queue in dict.fromkeys(mine) if queue not in self._table]
        return await self._acquire(wanted, {queue for queue in self._refused if queue.topic == topic}) or changed

    async def _acquire(self, wanted: list[MessageQueue], before: set[MessageQueue], cause: str = "") -> bool:
        """Ask for the locks of these queues.

        Args:
            before: those that were refused the last time; a refusal that goes on is no event.
            cause: why the queues are asked for now; empty: the round says it.
        """
        # First the lock, then the queue: without a lock it is not added in this round (wire.md 12.3).
        granted = await self._locks.lock(wanted) if wanted else {}
        refusals = {queue: self._locks.refusals.get(queue, _UNKNOWN) for queue in wanted if queue not in granted}
        for queue, grant in granted.items():
            self._add(queue, grant)
            self.explanations.locked(queue, epoch_text(grant.epoch) if grant.epoch else "", cause)
        for queue, refused in refusals.items():
            self.explanations.refused(queue, refused)
            known = self._refused.get(queue)
            write = self._log.debug if known is not None and known.why == refused.why else self._log.info
            write("lock_refused", queue=str(queue), why=refused.why, owner=refused.owner)
        for queue in before:
            self._refused.pop(queue, None)
        self._refused.update(refusals)
        return bool(granted)

    async def take_released(self, released: Iterable[MessageQueue]) -> None:
        """Ask for queues that were refused and are released now, if they are still this member's share."""
        refused = [queue for queue in dict.fromkeys(released) if queue in self._refused and queue not in self._table]
        # The user may have unsubscribed since.
        topics = list(self._owner.topics())
        wanted = [queue for queue in refused if queue.topic in topics]
        changed = await self._acquire(wanted, set(refused), "its last owner released it")
        for topic in dict.fromkeys(queue.topic for queue in wanted):
            self.explanations.end(topic)
            if changed:
                await self._owner.queues_changed(topic)

    def _add(self, queue: MessageQueue, grant: Grant) -> None:
        """Begin an ownership period. The first pull reads the first offset, under this lock."""
        # An offset of an earlier period must not be stored: another member may have gone on from there (wire.md 12.3).
        self._offsets.forget(queue)
        self._periods += 1
        hold, now_ms = self._locks.new_hold(grant), self._runtime.now_ms()
        process_queue = self._owner.new_process_queue(queue, self._periods, now_ms, hold)
        self._table[queue] = process_queue
        self._log.info("queue_acquired", queue=str(queue), period=process_queue.period)
        self._member.record("acquired", process_queue)
        self._owner.queue_acquired(process_queue)

    async def _remove(self, queue: MessageQueue, process_queue: ProcessQueue, why: str, *, stays: bool = False) -> bool:
        """Drop a queue and take it out of the table.

        Args:
            stays: the queue is locked again in this round. Then it is not unlocked now: Apache may handle the unlock
                after the new lock, and this client would trust a lock that it has lost.

        Returns:
            False if the next round must try again, because the listener still runs.
        """
        # The reset removes its queue itself: the offset of handled messages must not replace the chosen offset.
        if process_queue.life.resetting or self._locks.hands_over(process_queue, why):
            self.explanations.given_up(queue, Did.DRAINING, why, moves=why == _MOVED)
            return False
        self.drop(process_queue, why)
        if not await process_queue.life.listener_idle(_LISTENER_WAIT_MS):
            process_queue.life.try_unlock_times += 1
            self.explanations.given_up(queue, Did.DRAINING, why, moves=why == _MOVED)
            self._log.warning("unlock_waits_for_listener", queue=str(queue), why=why)
            return False
        self._persist(process_queue)
        self._offsets.forget(queue)
        if self._table.get(queue) is process_queue:
            del self._table[queue]
        # What is cached of a topic that is not subscribed is not handled here any more: nothing speaks for a delay.
        if (process_queue.cache.is_empty or why == _NOT_SUBSCRIBED) and not stays:
            self._locks.unlock(queue)
            did = Did.DROPPED
        else:
            self._locks.unlock_later(queue)
            did = Did.UNLOCKED_LATER if self._locks.needed and not stays else Did.DROPPED
        self.explanations.given_up(queue, did, why, moves=why == _MOVED)
        return True

    def _persist(self, process_queue: ProcessQueue) -> None:
        """Store the offset of handled messages, unless another client may have the lock now."""
        if self._member.holds_lock(process_queue):
            self.persist([process_queue])

    def persist(self, process_queues: list[ProcessQueue]) -> None:
        """Store the offsets of queues that this client owns."""
        known = {process_queue.queue: process_queue for process_queue in process_queues}

        def note(offsets: Mapping[MessageQueue, int]) -> None:
            self._member.record_offsets("committed", [(known[queue], offset) for queue, offset in offsets.items()])

        self._offsets.persist(known, note)

    def drop(self, process_queue: ProcessQueue, why: str) -> None:
        """Stop the process queue: it takes no message and commits no offset any more. Its listener may still run."""
        if not process_queue.life.dropped:
            process_queue.life.dropped = True
            self.explanations.period_ended(process_queue.queue, why)
            self._log.info("queue_dropped", queue=str(process_queue.queue), why=why, period=process_queue.period)
            self._member.record("dropped", process_queue, why=why)
            self._owner.queue_dropped(process_queue, why)
