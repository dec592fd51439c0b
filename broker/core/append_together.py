"""Append together: many sends of one producer, each checked and stored as by itself, with one append."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from lockstep.broker.core.append import IPV4_HOSTS, check_body, encoded
from lockstep.broker.core.broker import Broker
from lockstep.broker.core.plain import IPV4_BYTES, by_kernel, next_of_plain, plain_settings
from lockstep.broker.core.refused import Reason, Refused
from lockstep.broker.core.send_target import send_target
from lockstep.broker.messages.send_sequences import Sequence as SendSequence
from lockstep.broker.peer import Peer
from lockstep.protocol.codes import SysFlag
from lockstep.protocol.filter import tags_code_of
from lockstep.protocol.kernels import ENTRY
from lockstep.protocol.kernels_together import NumberedQueue, frame_properties, take_frame
from lockstep.protocol.messages import properties as names
from lockstep.protocol.messages.properties import decode_properties, encode_properties
from lockstep.protocol.messages.together import NO_NUMBERS, PROPERTIES_MAX, FrameQueue
from lockstep.protocol.names import is_retry_topic
from lockstep.store import AppendResult, Record, StoreFull

__all__ = ["SentTogether", "append_plain", "append_together"]

_TRANSACTION: Final = int(SysFlag.TRANSACTION_MASK)
_ALONE: Final = (names.DELAY, names.START_DELIVER_TIME, *names.TIMERS, names.TRAN_MSG)
_PAIR_END: Final = names.PAIR_END.encode()
# A pair has four bytes at least.
_MANY_BYTES: Final = 4 * PROPERTIES_MAX


class SentTogether(NamedTuple):
    """
    Args:
        creation: The topic that is the model of a missing one, and its queues at most.
        heads: Of each message, as `SendHead`.
        texts: Body and properties of each message, one behind the other from `texts_begin` on.
    """

    sender_id: str
    creation: tuple[str, int]
    queues: Sequence[FrameQueue]
    heads: Sequence[tuple[int, ...]]
    texts: bytes
    texts_begin: int


class _Target(NamedTuple):
    """As `Target`."""

    topic: str
    queue_id: int
    default_topic: str
    default_topic_queue_nums: int
    reconsume_times: int | None = None


class _QueueState:
    """The queue of some messages of a frame. It is checked when its first message comes."""

    __slots__ = ("_refusal", "entry", "generation", "is_good", "key", "queue_id", "topic")

    def __init__(self, queue: FrameQueue, sender_id: str) -> None:
        self.topic, self.queue_id, self.generation = queue
        self.key = (sender_id, self.topic, self.queue_id)
        self.entry: SendSequence | None = None
        self.is_good = False  # it was checked
        self._refusal: Refused | None = None

    def check(self, frame: "_Frame") -> None:
        """The checks of a single send that are the same for each message of a queue. Raises Refused."""
        if self._refusal is not None:
            raise Refused(self._refusal.reason, str(self._refusal))
        try:
            self._check(frame)
        except Refused as why:
            self._refusal = why
            raise
        self.is_good = True

    def _check(self, frame: "_Frame") -> None:
        if is_retry_topic(self.topic) or self.queue_id < 0:
            what = f"a message of topic {self.topic!r} and queue {self.queue_id}"
            raise Refused(Reason.ILLEGAL_MESSAGE, f"{what} cannot go with others")
        target = _Target(self.topic, self.queue_id, *frame.sent.creation)
        send_target(frame.broker, target, frame.now_ms)


# In the place of a result until the messages are stored.
_UNDECIDED: Final = AppendResult(-1, -1)


class _Frame:
    """What becomes of the messages."""

    def __init__(self, broker: Broker, peer: Peer, sent: SentTogether, now_ms: int) -> None:
        self.broker = broker
        self.peer = peer
        self.sent = sent
        self.now_ms = now_ms
        self.queues = [_QueueState(queue, sent.sender_id) for queue in sent.queues]
        self._results: list[AppendResult | Refused | StoreFull] = []
        self._records: list[Record] = []
        self._accepted: list[tuple[int, _QueueState, int]] = []  # of each record: its row, queue and number

    def append(self) -> "list[AppendResult | Refused | StoreFull]":
        self._accept_all()
        if self._records:
            try:
                stored = self.broker.messages.put_all(self._records)
            except StoreFull:
                self._store_one_by_one()
            else:
                for (row, _, _), result in zip(self._accepted, stored, strict=True):
                    self._results[row] = result
        return self._results

    def _accept_all(self) -> None:
        """Check each message. Those that may be stored become records, and take their numbers."""
        texts, position, queues, now_ms = self.sent.texts, self.sent.texts_begin, self.queues, self.now_ms
        records, accepted, results = self._records, self._accepted, self._results
        config = self.broker.config
        born_host, born_port = self.broker.members.born_host(self.peer)
        cluster, body_bytes_max = config.cluster, config.max_message_bytes
        cluster_pair = f"{names.CLUSTER}{names.NAME_END}{cluster}"
        cluster_end = f"{names.PAIR_END}{cluster_pair}".encode("utf-8", "replace")
        for row, (index, sequence, born_ms, flag, sys_flag, body_bytes, properties_bytes) in enumerate(self.sent.heads):
            queue, body_end = queues[index], position + body_bytes
            end = body_end + properties_bytes
            content, text = texts[position:body_end], texts[body_end:end]
            position, entry = end, queue.entry
            try:
                if queue.generation != NO_NUMBERS and (
                    entry is None or entry.next_sequence != sequence or entry.generation != queue.generation
                ):
                    entry = self._check_turn(queue, sequence)
                if not queue.is_good:
                    queue.check(self)
                if body_bytes > body_bytes_max:
                    check_body(self.broker, content)
                if sys_flag & _TRANSACTION:
                    raise _cannot_go_with_others("transactional")
                text, code = _stored_properties(text, cluster_pair, cluster_end, cluster)
            except Refused as why:
                results.append(why)
                continue
            record = Record(
                queue.topic,
                queue.queue_id,
                flag,
                sys_flag & IPV4_HOSTS,
                born_ms,
                born_host,
                born_port,
                now_ms,
                0,
                0,
                content,
                text,
                code,
            )
            records.append(record)
            accepted.append((row, queue, sequence))
            results.append(_UNDECIDED)
            if entry is not None:
                entry.next_sequence += 1

    def _check_turn(self, queue: _QueueState, sequence: int) -> SendSequence:
        """As a single send's number. Raises Refused."""
        sequences = self.broker.messages.send_sequences
        why = sequences.refusal(queue.key, queue.generation, sequence, self.peer, self.now_ms)
        if why is not None:
            raise Refused(Reason.OUT_OF_SEQUENCE, why)
        queue.entry = sequences.of(queue.key)
        return queue.entry

    def _store_one_by_one(self) -> None:
        """The store takes not all of them, but perhaps some. None overtakes an earlier one of its sequence."""
        failed = set[tuple[str, str, int]]()
        for record, (row, queue, sequence) in zip(self._records, self._accepted, strict=True):
            if queue.generation != NO_NUMBERS and queue.key in failed:
                why = f"number {sequence} would overtake an earlier one, which was not stored"
                self._results[row] = Refused(Reason.OUT_OF_SEQUENCE, why)
                continue
            try:
                self._results[row] = self.broker.messages.put(record)
            except StoreFull as full:
                self._results[row] = full
                if queue.generation != NO_NUMBERS:
                    failed.add(queue.key)
                    self.broker.messages.send_sequences.failed(queue.key, queue.generation)


def append_together(
    broker: Broker, peer: Peer, sent: SentTogether, now_ms: int
) -> "list[AppendResult | Refused | StoreFull]":
    """Store or refuse each message by itself. None overtakes an earlier one of its sequence.

    Returns:
        Of each message where it is, or why it is not stored.
    """
    return _Frame(broker, peer, sent, now_ms).append()


def append_plain(
    broker: Broker,
    peer: Peer,
    sender_id: str,
    queues: Sequence[FrameQueue],
    body: bytes,
    heads_begin: int,
    count: int,
    now_ms: int,
) -> bytes | None:
    """Store all messages of a frame from their bytes.

    Args:
        heads_begin: Where in `body` the heads of `count` messages begin.

    Returns:
        The rows of the answer. None: some message is not plain, and nothing is stored.
    """
    settings, born = plain_settings(broker), broker.members.born_host(peer)
    if settings is None or len(born[0]) != IPV4_BYTES or len({queue[:2] for queue in queues}) < len(queues):
        return None
    sequences, numbered = broker.messages.send_sequences, list[NumberedQueue]()
    entries: list[SendSequence | None] = []
    for topic, queue_id, generation in queues:
        entry = None if generation == NO_NUMBERS else sequences.find((sender_id, topic, queue_id), generation)
        next_offset = next_of_plain(broker, topic, queue_id)
        if next_offset is None or (entry is None and generation != NO_NUMBERS):
            return None
        numbered.append(
            NumberedQueue(topic, queue_id, NO_NUMBERS if entry is None else entry.next_sequence, next_offset)
        )
        entries.append(entry)
    start = broker.messages.store.max_commit_log_offset
    sends = by_kernel(broker, peer, take_frame, body, heads_begin, count, settings, numbered, now_ms, born, start)
    if sends is None or not broker.messages.put_encoded(sends, now_ms):
        broker.messages.plain_sends["refused"] += 1
        return None
    broker.messages.plain_sends["taken"] += count
    for entry, (_, _, _, stored) in zip(entries, sends.queues, strict=True):
        if entry is not None:
            entry.took(len(stored) // ENTRY.size, peer, now_ms)
    return sends.answers


def _cannot_go_with_others(kind: str) -> Refused:
    return Refused(Reason.ILLEGAL_MESSAGE, f"a {kind} message cannot go with others; it is sent by itself")


def _stored_properties(text: bytes, cluster_pair: str, cluster_end: bytes, cluster: str) -> tuple[bytes, int]:
    """The properties as they are stored, without WAIT and with CLUSTER, and the hash of the tag. Raises Refused."""
    found = frame_properties(text, cluster_pair, cluster_end)
    if found is not None:
        return found
    if len(text) > _MANY_BYTES and text.count(_PAIR_END) > PROPERTIES_MAX:
        raise Refused(Reason.ILLEGAL_MESSAGE, f"a message with more than {PROPERTIES_MAX} properties is sent by itself")
    properties = decode_properties(text.decode("utf-8", "replace"))
    for name in _ALONE:
        if name in properties:
            raise _cannot_go_with_others("transactional" if name == names.TRAN_MSG else "delayed")
    properties.pop(names.WAIT, None)
    properties[names.CLUSTER] = cluster
    return encoded(encode_properties(properties)), tags_code_of(properties.get(names.TAGS))
