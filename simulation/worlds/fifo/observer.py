"""What a world of a FIFO group sees at the port of its broker: deliveries, and answers to them, against the rules.

It trusts none of the broker's tables: what is delivered, acknowledged and held is what the answers said that left. Its
time is that of the broker's clock.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from lockstep.client import MessageExt, MessageQueue
from lockstep.protocol.codes import RequestCode, ResponseCode
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.headers.pop import (
    AckRequestHeader,
    ChangeInvisibleRequestHeader,
    PopRequestHeader,
    PopResponseHeader,
)
from lockstep.protocol.receipts import Receipt, parse_spans
from lockstep.remoting.connections.endpoint import Endpoint, RequestHandler
from lockstep.simulation.lab.findings import Findings, Wrong, place_of
from lockstep.simulation.lab.hosts import BROKER, TOPIC

__all__ = ["Deliveries", "Given"]

_SOON_MS: Final = 5_000  # RocketMQ writes its record of a pop so late
# A delivery may be named by a later time than that of the call: two of one millisecond have two names.
_NAMES_MS: Final = 50


_Named = tuple[int, int, int]  # a delivery of a message: queue id, offset, pop_ms


@dataclass
class Given:
    """The newest delivery of a message.

    Args:
        end_ms: Until when nobody else may have the message, or one of its key.
        is_renewed: The broker itself makes its time longer.
    """

    pop_ms: int
    host: str
    attempt_id: str | None
    end_ms: int
    batch: set[int]
    is_given_back: bool = False
    is_renewed: bool = False

    def is_before(self, repeat: "Given") -> bool:
        """Whether a client repeated the call: it has not got this, and what `repeat` has not is nobody's."""
        same = (self.host, self.attempt_id) == (repeat.host, repeat.attempt_id)
        return same and self.attempt_id is not None and self.pop_ms != repeat.pop_ms

    def __str__(self) -> str:
        return f"the delivery {self.pop_ms} to {self.host}"


@dataclass
class _Message:
    offset: int
    key: str | None
    msg_id: str
    given: Given | None = None
    acked_ms: int = 0  # the name of the delivery that is acknowledged
    in_doubt: bool = False  # the broker crashed after that: the message may come again


@dataclass
class _Queue:
    messages: list[_Message] = field(default_factory=list)  # by offset
    of_key: dict[str | None, list[_Message]] = field(default_factory=lambda: defaultdict(list))


class Deliveries:
    """An Interceptor.

    Args:
        stored: The messages of a queue id in the broker's store, from an offset on.
        grace_ms: Until others get what a host held whose connection ended, with a fenced broker.

    Attributes:
        on_given: Called with the host of each pop that is answered with messages, when the answer is about to leave.
        acking: Queue id and offset of what is acknowledged now.
        dead: Ids of messages that are dead letters of the group: the broker ends their deliveries itself.
    """

    def __init__(
        self, findings: Findings, stored: Callable[[int, int], list[MessageExt]], *, fenced: bool, grace_ms: int
    ) -> None:
        self._findings = findings
        self._stored = stored
        self._fenced = fenced
        self._grace_ms = grace_ms
        self._queues = defaultdict[int, _Queue](_Queue)
        self._waiting: dict[tuple[Endpoint, int], Callable[[RemotingCommand], None]] = {}
        self.acking: tuple[int, int] | None = None
        self._has_restarted = False
        self._given_ms: int | None = None  # virtual, of the last delivery
        self.on_given: Callable[[str], object] = lambda _host: None
        self.dead = set[str]()

    @property
    def now_ms(self) -> int:
        return self._findings.world.clock_ms(BROKER)

    def broker_ended(self, at_ms: int) -> None:
        """At a virtual time, for whatever reason."""
        if self._given_ms is not None and 0 <= at_ms - self._given_ms <= _SOON_MS:
            self._findings.saw("restarts soon after a pop")

    def broker_started(self, *, crashed: bool) -> None:
        """The broker has started again."""
        self._waiting.clear()
        self._has_restarted = True
        for queue_id, queue in self._queues.items():
            self._cut(queue_id, queue)
            for message in queue.messages:
                message.in_doubt |= crashed and bool(message.acked_ms)

    def _cut(self, queue_id: int, queue: _Queue) -> None:
        """Messages that were not synced may be gone, and their offsets given to others."""
        kept = [one.msg_id for one in self._stored(queue_id, 0)]
        same = next(
            (
                place
                for place, (one, other) in enumerate(zip(queue.messages, kept, strict=False))
                if one.msg_id != other
            ),
            min(len(kept), len(queue.messages)),
        )
        for message in queue.messages[same:]:
            queue.of_key[message.key].remove(message)
        del queue.messages[same:]

    # Interceptor ---------------------------------------------------------------------------------------------

    def delay(self, factory: Callable[[], Endpoint]) -> Callable[[], Endpoint]:
        """Watch the answers that leave later than their request was read, and the ends of connections."""

        def make() -> Endpoint:
            endpoint = factory()

            def noted(reply: RemotingCommand) -> None:
                answered = self._waiting.pop((endpoint, reply.opaque), None)
                if answered is not None and endpoint.is_open:
                    answered(reply)

            endpoint.when_replied.append(noted)
            endpoint.when_lost.insert(0, lambda: self._gone(endpoint))
            return endpoint

        return make

    def intercept(self, on_request: RequestHandler) -> RequestHandler:
        def noted(endpoint: Endpoint, command: RemotingCommand) -> RemotingCommand | None:
            answered = self._asked(endpoint, command)
            if answered is not None:
                # First of all: an answer that waits for the disk may leave before the call returns.
                self._waiting[endpoint, command.opaque] = answered
            try:
                reply = on_request(endpoint, command)
            finally:
                self.acking = None
            if reply is not None and (answered := self._waiting.pop((endpoint, command.opaque), None)) is not None:
                answered(reply)
            return reply

        return noted

    def _asked(self, endpoint: Endpoint, command: RemotingCommand) -> Callable[[RemotingCommand], None] | None:
        """What is to be done with the answer to a request. None: nothing."""
        if command.code == RequestCode.POP_MESSAGE:
            return partial(self._popped, endpoint, command.decode_header(PopRequestHeader))
        if command.code == RequestCode.ACK_MESSAGE:
            ack = command.decode_header(AckRequestHeader)
            self.acking = (ack.queue_id, ack.offset)
            return partial(self._acked, (ack.queue_id, ack.offset, Receipt.parse(ack.extra_info).pop_ms))
        if command.code == RequestCode.CHANGE_MESSAGE_INVISIBLETIME:
            change = command.decode_header(ChangeInvisibleRequestHeader)
            named = (change.queue_id, change.offset, Receipt.parse(change.extra_info).pop_ms)
            self.may_end(*named, self.now_ms + change.invisible_time)
            return partial(self._changed, named, change.invisible_time, self.now_ms)
        if command.code == RequestCode.UNREGISTER_CLIENT:
            self._gone(endpoint)
        return None

    # What happened, by whichever protocol ---------------------------------------------------------------------

    def may_end(self, queue_id: int, offset: int, pop_ms: int, end_ms: int) -> None:
        """A delivery ends then, or earlier: others may get the message before the answer to its change has left."""
        message = self._read(queue_id).messages[offset]
        if message.given is not None and message.given.pop_ms == pop_ms:
            message.given = replace(message.given, end_ms=min(message.given.end_ms, end_ms))

    def gone(self, host: str, end_ms: int) -> None:
        """What the host holds, others may get then: its connection ended, or the member left its group."""
        self.shorten(lambda given: end_ms if given.host == host else given.end_ms)

    def shorten(self, end_ms_of: Callable[[Given], int]) -> None:
        """Deliveries end then, or earlier."""
        for message in (one for queue in self._queues.values() for one in queue.messages):
            if message.given is not None:
                message.given.end_ms = min(message.given.end_ms, end_ms_of(message.given))

    def renewed_queues(self) -> list[int]:
        """Queue ids with a message that is not acknowledged, and that the broker renews for whom it gave it to last."""
        return [
            queue_id
            for queue_id, queue in self._queues.items()
            if any(one.given is not None and one.given.is_renewed and not one.acked_ms for one in queue.messages)
        ]

    def _gone(self, endpoint: Endpoint) -> None:
        if self._fenced:
            self.gone(_host_of(endpoint), self.now_ms + self._grace_ms)

    # Deliveries ----------------------------------------------------------------------------------------------

    def _popped(self, endpoint: Endpoint, asked: PopRequestHeader, reply: RemotingCommand) -> None:
        if reply.code != ResponseCode.SUCCESS:
            return
        header = reply.decode_header(PopResponseHeader)
        texts = (header.start_offset_info, header.msg_offset_info, header.order_count_info)
        end_ms = header.pop_time + header.invisible_time
        for span in parse_spans(*(text or "" for text in texts)):
            given = Given(header.pop_time, _host_of(endpoint), asked.attempt_id, end_ms, set(span.offsets))
            self.given(span.queue_id, span.offsets, given)
        self.has_given(_host_of(endpoint))

    def given(self, queue_id: int, offsets: Sequence[int], given: Given) -> None:
        """Messages of one queue leave for a member."""
        queue = self._read(queue_id)
        for offset in offsets:
            self._check_given(queue_id, queue, queue.messages[offset], given)
        self.shorten(lambda one: given.pop_ms if one.is_before(given) else one.end_ms)
        for offset in offsets:
            queue.messages[offset].given = given
            queue.messages[offset].acked_ms, queue.messages[offset].in_doubt = 0, False
            self._end_followers(queue, queue.messages[offset], given)

    def has_given(self, host: str) -> None:
        """All messages of one answer were `given`."""
        self._given_ms = self._findings.world.elapsed_ms
        self.on_given(host)

    def _end_followers(self, queue: _Queue, message: _Message, given: Given) -> None:
        """A client repeats a call, and gets less than the answer that it has not got: the rest is nobody's."""
        for other in queue.of_key[message.key]:
            if other.offset > message.offset and other.given is not None and other.given is not given:
                other.given = replace(other.given, end_ms=min(other.given.end_ms, given.pop_ms))

    def _read(self, queue_id: int) -> _Queue:
        queue = self._queues[queue_id]
        for one in self._stored(queue_id, len(queue.messages)):
            message = _Message(one.queue_offset, one.sharding_key, one.msg_id)
            queue.messages.append(message)
            queue.of_key[message.key].append(message)
        return queue

    def _check_given(self, queue_id: int, queue: _Queue, message: _Message, given: Given) -> None:
        self._count(queue, message, given)
        told = f"offset {message.offset} of key {message.key} in {given}"
        if message.acked_ms and not message.in_doubt:
            self._add(Wrong.ACKED_AGAIN, queue_id, f"{told}; {message.acked_ms} was acknowledged")
        for other in queue.of_key[message.key]:
            held = other.given
            is_earlier = other.offset < message.offset and not other.acked_ms and other.offset not in given.batch
            if is_earlier and other.msg_id not in self.dead:
                self._add(Wrong.PASSED_OVER, queue_id, f"{told}; offset {other.offset} is not acknowledged")
            if other.offset > message.offset and other.acked_ms and not other.in_doubt and not message.acked_ms:
                self._add(Wrong.GIVEN_BEHIND, queue_id, f"{told}; offset {other.offset} is acknowledged")
            if (
                held is not None
                and not other.acked_ms
                and other.msg_id not in self.dead
                and (held.host, held.attempt_id) != (given.host, given.attempt_id)
                and given.pop_ms < held.end_ms - _NAMES_MS
            ):
                text = f"{told}; offset {other.offset} is in {held} until {held.end_ms}"
                self._add(Wrong.TWO_HOLDERS, queue_id, text)

    def _count(self, queue: _Queue, message: _Message, given: Given) -> None:
        before = message.given
        if before is None or message.acked_ms:
            return
        if (before.host, before.attempt_id) == (given.host, given.attempt_id):
            self._findings.saw("re-entries")
            return
        if not before.is_given_back:
            self._findings.saw("expired deliveries")
        if any(queue.messages[offset].acked_ms for offset in before.batch):
            self._findings.saw("partial acks")

    # Answers to them -----------------------------------------------------------------------------------------

    def _acked(self, named: _Named, reply: RemotingCommand) -> None:
        self.acked(*named, is_taken=reply.code == ResponseCode.SUCCESS)

    def acked(self, queue_id: int, offset: int, pop_ms: int, *, is_taken: bool) -> None:
        """The broker takes the acknowledgement of a delivery, or refuses it."""
        queue = self._read(queue_id)
        message = queue.messages[offset]
        newest = message.given
        told = f"offset {offset} of key {message.key}: the acknowledgement of {pop_ms}"
        later = _follower(queue, message, pop_ms)
        is_newest = newest is not None and newest.pop_ms == pop_ms and not message.acked_ms and not later
        if not is_newest and message.acked_ms != pop_ms:
            self._findings.saw("stale acks")
        if is_taken:
            if is_newest:
                message.acked_ms = pop_ms
            elif message.acked_ms != pop_ms and not (message.acked_ms and self._has_restarted):
                self._add(Wrong.STALE_ACK, queue_id, f"{told} was taken after {later or newest}")
        elif is_newest and newest is not None and self._is_in_time(queue, message, newest):
            self._add(Wrong.REFUSED_IN_TIME, queue_id, f"{told} was refused; it has until {newest.end_ms}")

    def _is_in_time(self, queue: _Queue, message: _Message, given: Given) -> bool:
        # If an earlier message of the key comes again after a crash, this one must come again behind it.
        lost = any(one.in_doubt for one in queue.of_key[message.key] if one.offset < message.offset)
        return self.now_ms < given.end_ms - _NAMES_MS and not lost

    def _changed(self, named: _Named, invisible_ms: int, changed_ms: int, reply: RemotingCommand) -> None:
        if reply.code == ResponseCode.SUCCESS:
            self.changed(*named, invisible_ms, changed_ms)

    def changed(self, queue_id: int, offset: int, pop_ms: int, invisible_ms: int, changed_ms: int) -> None:
        """The broker took a change of a delivery's invisible time."""
        queue = self._read(queue_id)
        message = queue.messages[offset]
        if message.given is None or message.acked_ms:
            return
        later = _follower(queue, message, pop_ms)
        if message.given.pop_ms != pop_ms or later:
            told = f"offset {offset} of key {message.key}: the renewal of {pop_ms}"
            self._add(Wrong.STALE_ACK, queue_id, f"{told} was taken after {later or message.given}")
            return
        self._findings.saw("renewals" if invisible_ms else "given back")
        message.given = replace(message.given, end_ms=changed_ms + invisible_ms, is_given_back=not invisible_ms)

    def committed(self, queue_id: int, offset: int) -> None:
        """The broker stores an offset of the group."""
        for message in self._read(queue_id).messages[:offset]:
            is_acked = message.acked_ms or (queue_id, message.offset) == self.acking
            if not is_acked and message.msg_id not in self.dead:
                text = f"offset {offset} is stored, and {message.offset} of key {message.key} is not acknowledged"
                self._add(Wrong.COMMIT_UNACKED, queue_id, text)
                return

    def _add(self, wrong: Wrong, queue_id: int, text: str) -> None:
        queue = MessageQueue(TOPIC, BROKER, queue_id)
        self._findings.add(wrong, f"{queue}: {text}", queue=place_of(queue))


def _follower(queue: _Queue, message: _Message, pop_ms: int) -> str:
    """A later delivery of an earlier message of the key: what follows that message comes again, too. Empty: none."""
    earlier = [one.given for one in queue.of_key[message.key] if one.offset < message.offset and not one.acked_ms]
    return next((str(given) for given in earlier if given is not None and given.pop_ms > pop_ms), "")


def _host_of(endpoint: Endpoint) -> str:
    return endpoint.address.rpartition(":")[0]
