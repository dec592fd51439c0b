"""SEND_TOGETHER (30006): many sends in one frame, each checked, stored and answered as by itself (docs/wire.md 17)."""

from collections.abc import Sequence
from typing import Final

from lockstep.broker.connection import Connection
from lockstep.broker.core.broker import Broker
from lockstep.broker.fronts.remoting.refusal import Refusal
from lockstep.broker.fronts.remoting.send import IPV4_HOSTS, check_body, encoded, tags_code_of
from lockstep.broker.fronts.remoting.send_target import send_target
from lockstep.broker.messages.send_sequences import Sequence as SendSequence
from lockstep.protocol.codes import PROPERTIES_BYTES_MAX, ResponseCode, SysFlag
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.errors import BatchTooLong
from lockstep.protocol.headers.messaging import SendMessageRequestHeaderV2
from lockstep.protocol.headers.together import SendTogetherRequestHeader, SendTogetherResponseHeader
from lockstep.protocol.messages import properties as names
from lockstep.protocol.messages.properties import decode_properties, encode_properties
from lockstep.protocol.messages.together import (
    NO_NUMBERS,
    PROPERTIES_MAX,
    FrameQueue,
    decode_rows,
    decode_sends,
    encode_rows,
)
from lockstep.protocol.names import is_retry_topic
from lockstep.store import AppendResult, Record, StoreFull

__all__ = ["as_unsafe", "send_together"]

_SUCCESS: Final = int(ResponseCode.SUCCESS)
_TRANSACTION: Final = int(SysFlag.TRANSACTION_MASK)
_ALONE: Final = (names.DELAY, names.START_DELIVER_TIME, names.TRAN_MSG)

# The end that our producers write; the broker takes it off, as RocketMQ does.
_WAIT_PAIR: Final = f"{names.WAIT}{names.NAME_END}true".encode()
_PAIR_END: Final = names.PAIR_END.encode()
_WAIT_END: Final = _PAIR_END + _WAIT_PAIR
# A pair has four bytes at least.
_MANY_BYTES: Final = 4 * PROPERTIES_MAX
_TAGS: Final = names.TAGS.encode() + names.NAME_END.encode()

Place = tuple[int, int, int]  # response code, queue offset, commit log offset
_NOWHERE: Final = (_SUCCESS, -1, -1)


class _QueueState:
    """The queue of some messages of a frame. It is checked when its first message comes."""

    __slots__ = ("_refusal", "entry", "generation", "is_good", "key", "queue_id", "topic")

    def __init__(self, queue: FrameQueue, sender_id: str) -> None:
        self.topic, self.queue_id, self.generation = queue
        self.key = (sender_id, self.topic, self.queue_id)
        self.entry: SendSequence | None = None
        self.is_good = False  # it was checked
        self._refusal: Refusal | None = None

    def check(self, frame: "_Frame") -> None:
        """The checks of a single send that are the same for each message of a queue. Raises Refusal."""
        if self._refusal is not None:
            raise Refusal(self._refusal.code, str(self._refusal))
        try:
            self._check(frame)
        except Refusal as why:
            self._refusal = why
            raise
        self.is_good = True

    def _check(self, frame: "_Frame") -> None:
        if is_retry_topic(self.topic) or self.queue_id < 0:
            what = f"a message of topic {self.topic!r} and queue {self.queue_id}"
            raise Refusal(ResponseCode.MESSAGE_ILLEGAL, f"{what} cannot go with others")
        header = SendMessageRequestHeaderV2(
            frame.header.producer_group,
            self.topic,
            frame.header.default_topic,
            frame.header.default_topic_queue_nums,
            self.queue_id,
            0,
            frame.now_ms,
            0,
        )
        send_target(frame.broker, frame.command, header, frame.now_ms)


class _Frame:
    """One request: its queues, and what becomes of its messages."""

    def __init__(self, broker: Broker, connection: Connection, command: RemotingCommand, now_ms: int) -> None:
        self.broker = broker
        self.connection = connection
        self.command = command
        self.now_ms = now_ms
        self.header = command.decode_header(SendTogetherRequestHeader)
        try:
            queues, self.heads, self._texts = decode_sends(command.body, self.header.message_count)
        except BatchTooLong as error:
            raise Refusal(ResponseCode.MESSAGE_ILLEGAL, str(error)) from None
        self.queues = [_QueueState(queue, self.header.sender_id or "") for queue in queues]
        self.rows: list[Place] = [_NOWHERE] * len(self.heads)
        self._remarks: dict[int, str] = {}
        self._records: list[Record] = []
        self._accepted: list[tuple[int, _QueueState, int]] = []  # of each record: its row, queue and number

    def answer(self) -> RemotingCommand:
        self._accept_all()
        if self._records:
            try:
                self._stored(self.broker.messages.put_all(self._records))
            except StoreFull:
                self._store_one_by_one()
        remarks = [self._remarks[row] for row in sorted(self._remarks)]
        header = SendTogetherResponseHeader(self.broker.messages.message_id_prefix)
        return self.command.reply(_SUCCESS, header, encode_rows(self.rows, remarks))

    def _accept_all(self) -> None:
        """Check each message. Those that may be stored become records, and take their numbers."""
        body, position, queues, now_ms = self.command.body, self._texts, self.queues, self.now_ms
        records, accepted, config = self._records, self._accepted, self.broker.config
        born_host, born_port = self.broker.members.born_host(self.connection)
        cluster, body_bytes_max = config.cluster, config.max_message_bytes
        cluster_pair = f"{names.CLUSTER}{names.NAME_END}{cluster}".encode("utf-8", "replace")
        for row, (index, sequence, born_ms, flag, sys_flag, body_bytes, properties_bytes) in enumerate(self.heads):
            queue, body_end = queues[index], position + body_bytes
            end = body_end + properties_bytes
            content, text = body[position:body_end], body[body_end:end]
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
                text, code = _stored_properties(text, cluster_pair, cluster)
            except Refusal as why:
                self._refuse(row, queue, why.code, str(why))
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
            if entry is not None:
                entry.next_sequence += 1

    def _check_turn(self, queue: _QueueState, sequence: int) -> SendSequence:
        """As a single send's number. Raises Refusal."""
        sequences = self.broker.messages.send_sequences
        why = sequences.refusal(queue.key, queue.generation, sequence, self.connection, self.now_ms)
        if why is not None:
            raise Refusal(ResponseCode.SEND_OUT_OF_SEQUENCE, why)
        queue.entry = sequences.of(queue.key)
        return queue.entry

    def _stored(self, results: Sequence[AppendResult]) -> None:
        rows = self.rows
        for (row, _, _), (commit_log_offset, queue_offset) in zip(self._accepted, results, strict=True):
            rows[row] = (_SUCCESS, queue_offset, commit_log_offset)

    def _store_one_by_one(self) -> None:
        """The store takes not all of them, but perhaps some. None overtakes an earlier one of its sequence."""
        failed = set[tuple[str, str, int]]()
        for record, (row, queue, sequence) in zip(self._records, self._accepted, strict=True):
            if queue.generation != NO_NUMBERS and queue.key in failed:
                why = f"number {sequence} would overtake an earlier one, which was not stored"
                self._refuse(row, queue, ResponseCode.SEND_OUT_OF_SEQUENCE, why)
                continue
            try:
                commit_log_offset, queue_offset = self.broker.messages.put(record)
            except StoreFull as why:
                self._refuse(row, queue, ResponseCode.SERVICE_NOT_AVAILABLE, str(why))
                if queue.generation != NO_NUMBERS:
                    failed.add(queue.key)
                    self.broker.messages.send_sequences.failed(queue.key, queue.generation)
            else:
                self.rows[row] = (_SUCCESS, queue_offset, commit_log_offset)

    def _refuse(self, row: int, queue: _QueueState, code: ResponseCode, reason: str) -> None:
        peer = self.connection.address
        self.broker.log.info("send_refused", topic=queue.topic, code=code.name, reason=reason, peer=peer)
        self.rows[row] = (int(code), -1, -1)
        self._remarks[row] = reason


def send_together(broker: Broker, connection: Connection, command: RemotingCommand, now_ms: int) -> RemotingCommand:
    """Each message is stored or refused by itself; the answer has a row for each. All are stored with one append."""
    return _Frame(broker, connection, command, now_ms).answer()


def as_unsafe(broker: Broker, command: RemotingCommand, reply: RemotingCommand, reason: str) -> None:
    """The messages of a frame may not be on the disk: change the reply so, and end their send sequences."""
    header = command.decode_header(SendTogetherRequestHeader)
    queues, _, _ = decode_sends(command.body, header.message_count)
    for topic, queue_id, generation in queues:
        if generation != NO_NUMBERS:
            broker.messages.send_sequences.failed((header.sender_id or "", topic, queue_id), generation)
    rows, remarks = decode_rows(reply.body, header.message_count)
    left = iter(remarks)
    unsafe = int(ResponseCode.FLUSH_DISK_TIMEOUT)
    told = [(row, next(left)) if row.code else (row._replace(code=unsafe), reason) for row in rows]
    reply.body = encode_rows([row for row, _ in told], [remark for _, remark in told])


def _cannot_go_with_others(kind: str) -> Refusal:
    return Refusal(ResponseCode.MESSAGE_ILLEGAL, f"a {kind} message cannot go with others; it is sent by itself")


def _stored_properties(text: bytes, cluster_pair: bytes, cluster: str) -> tuple[bytes, int]:
    """The properties as they are stored, without WAIT and with CLUSTER, and the hash of the tag. Raises Refusal."""
    if len(text) > _MANY_BYTES and text.count(_PAIR_END) > PROPERTIES_MAX:
        raise Refusal(
            ResponseCode.MESSAGE_ILLEGAL, f"a message with more than {PROPERTIES_MAX} properties is sent by itself"
        )
    own = text.removesuffix(_WAIT_END)
    tags = None
    plain = b"CLUSTER" not in own and b"WAIT" not in own and b"DEL" not in own and b"TRAN_MSG" not in own
    if plain and own.isascii():
        stored = own + b"\x02" + cluster_pair if own else cluster_pair
        if _TAGS in own:
            tags = decode_properties(own.decode("ascii")).get(names.TAGS)
    else:
        properties = decode_properties(text.decode("utf-8", "replace"))
        for name in _ALONE:
            if name in properties:
                raise _cannot_go_with_others("transactional" if name == names.TRAN_MSG else "delayed")
        properties.pop(names.WAIT, None)
        properties[names.CLUSTER] = cluster
        stored, tags = encoded(encode_properties(properties)), properties.get(names.TAGS)
    if len(stored) > PROPERTIES_BYTES_MAX:
        encoded(stored.decode())  # refuses it
    return stored, tags_code_of(tags) if tags else 0
