"""SendRequests: a message becomes a request, which leaves by itself or with others."""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from lockstep.client.config import ProducerConfig
from lockstep.client.errors import NoRouteError, SendError, SendForbiddenError, SendOutcome
from lockstep.client.hook_calls import SendHooks
from lockstep.client.hooks import CommunicationMode, SendMessageContext
from lockstep.client.instance.client import MQClientInstance
from lockstep.client.producer.answers import read_send_reply
from lockstep.client.producer.batches import Batch
from lockstep.client.producer.outgoing import OneSend, Outgoing
from lockstep.client.producer.request_reply import ReplyMessage
from lockstep.client.producer.sequencer import SendSequence, SequenceNumber
from lockstep.client.producer.together import SendsTogether
from lockstep.client.producer.wrong_types import wrong_type
from lockstep.protocol.codes import (
    BATCHED_PROPERTIES_BYTES_MAX,
    PROPERTIES_BYTES_MAX,
    RequestCode,
    ResponseCode,
    SysFlag,
)
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.errors import LocalProtocolError
from lockstep.protocol.headers.messaging import FindSentRequestHeader, SendMessageRequestHeaderV2
from lockstep.protocol.headers.together import SendTogetherRequestHeader
from lockstep.protocol.messages import properties as names
from lockstep.protocol.messages.batch import BatchRecord, encode_batch
from lockstep.protocol.messages.compression import compress
from lockstep.protocol.messages.ids import UniqueKeyMaker
from lockstep.protocol.messages.properties import check_user_properties, encode_properties
from lockstep.protocol.messages.to_send import Message
from lockstep.protocol.model import MessageQueue
from lockstep.protocol.names import check_send_topic, is_retry_topic
from lockstep.protocol.namespace import NamesOfTenant
from lockstep.protocol.tuples import new_tuple
from lockstep.remoting.connections.endpoint import Endpoint
from lockstep.remoting.errors import RemotingError
from lockstep.remoting.host.runtime import Runtime, WorkerPool
from lockstep.remoting.logs import StdlibLog

__all__ = ["SendRequests", "common_sharding_key", "open_sender"]

_SEND = int(RequestCode.SEND_MESSAGE_V2)
_SEND_BATCH = int(RequestCode.SEND_BATCH_MESSAGE)
_SEND_REPLY = int(RequestCode.SEND_REPLY_MESSAGE_V2)
_FLUSH_DISK_TIMEOUT = int(ResponseCode.FLUSH_DISK_TIMEOUT)
_SYNC = CommunicationMode.SYNC
_CHECKED_TOPICS_MAX = 1000
_BYTES = (bytes, bytearray)
# A character has four bytes at most.
_SURELY_FITS = PROPERTIES_BYTES_MAX // 4
_NO_LOCK: Final = (None, None, None, None)  # epoch, client id, topic and queue id

# Bodies up to this size are compressed on the event loop, which takes half a millisecond at most. A body of 4 MiB, the
# largest allowed, would delay every other send and heartbeat by 80 to 170 ms: larger bodies go to a thread.
_COMPRESS_AT_ONCE_MAX = 16 * 1024
_NEVER = 1 << 62
_PREPARED = int(SysFlag.TRANSACTION_PREPARED)


class SendRequests:
    """Makes the requests of one producer."""

    def __init__(
        self,
        group: str,
        config: ProducerConfig,
        client_id: str,
        unique_keys: UniqueKeyMaker,
        runtime: Runtime,
        *,
        tenant: NamesOfTenant | None = None,
        hooks: SendHooks | None = None,
    ) -> None:
        self._group = group
        self._config = config
        self._sequence_id = f"{group}@{client_id}"
        self._unique_keys = unique_keys
        self._runtime = runtime
        self._tenant = tenant or NamesOfTenant(None)
        self._has_tenant = bool(self._tenant)
        self.hooks = hooks or SendHooks(group, StdlibLog("lockstep.client"), self._tenant)
        instance_id = f"{names.INSTANCE_ID}\x01{self._tenant.namespace}\x02" if self._tenant else ""
        self._always = f"{instance_id}UNIQ_KEY\x01"
        self._half = f"{names.TRAN_MSG}\x01true\x02{names.PGROUP}\x01{group}\x02"
        self._body_bytes_max = config.body_bytes_max
        self._compress_over = config.compress_msg_body_over_howmuch or _NEVER
        self._compress_type = config.compress_type
        self._compress_level = config.compress_level
        self._compressing: WorkerPool | None = None
        self._closed = False
        self._checked_topics: set[str] = set()
        self._together: SendsTogether | None = None
        if config.send_together_max > 1:
            header = SendTogetherRequestHeader(
                group,
                config.create_topic_key,
                config.default_topic_queue_nums,
                0,
                None,
                config.unit_mode,
                self._sequence_id,
            )
            self._together = SendsTogether(runtime, config, self.command, header)

    def outgoing(
        self, message: Message, sharding_key: str | None, *, half: bool = False, alone: bool = True
    ) -> Outgoing:
        """Check a message and give it its id.

        Args:
            sharding_key: None: that of the message.
            half: the message waits on the broker for the end of its transaction (wire.md 11).
            alone: the message is not part of a batch.

        Raises:
            LocalProtocolError: the message must not be sent (wire.md 12.11).
        """
        try:
            topic, body = message.topic, message.body
            if sharding_key is None:
                sharding_key = message.sharding_key
            if not isinstance(body, _BYTES):
                raise LocalProtocolError(f"a body must be bytes, not {type(body).__name__}; encode text first")
            code = _SEND
            if type(message) is ReplyMessage:
                code = _SEND_REPLY  # the reply topic of the cluster is in no namespace
            elif self._has_tenant:
                topic = self._tenant.wrap(topic)
            if topic not in self._checked_topics or not 0 < len(body) <= self._body_bytes_max:
                self._check(topic, len(body))
            now_ms = self._runtime.now_ms()
            msg_id = self._unique_keys.next(now_ms)
            own = _own_properties(message, sharding_key)
            flag = message.flag
            if not isinstance(flag, int):
                raise TypeError(flag)
            text = f"{own}{self._half if half else ''}{self._always}{msg_id}\x02WAIT\x01true"
            if len(text) > _SURELY_FITS:
                _check_properties(text, alone)
            sys_flag, large = _PREPARED if half else 0, False
            if len(body) >= self._compress_over and alone:
                if len(body) <= _COMPRESS_AT_ONCE_MAX:
                    body, sys_flag = self._compress(body, sys_flag)
                else:
                    large = True
            special = half or code != _SEND or topic[0] == "%" or (own != "" and message.is_delayed)
            if not special and message.properties and not names.TIMED.isdisjoint(message.properties):
                special = True
            fields = (code, topic, body, flag, text, msg_id, sharding_key, now_ms, 0, None, sys_flag, large,
                      message, _SYNC, special)  # fmt: skip
            return new_tuple(Outgoing, fields)
        except (TypeError, AttributeError) as error:
            raise wrong_type(message, sharding_key) or error from None

    async def compressed(self, outgoing: Outgoing) -> Outgoing:
        """Compress the body on the producer's one compression thread. Raises SendError after the shutdown."""
        if self._closed:
            raise SendError("the producer is shut down", SendOutcome.NOT_SENT, msg_id=outgoing.msg_id)
        if self._compressing is None:
            self._compressing = self._runtime.new_worker_pool(f"{self._group} compression", 1)
        body, sys_flag = await self._compressing.submit(lambda: self._compress(outgoing.body, outgoing.sys_flag))
        return outgoing._replace(body=body, sys_flag=sys_flag, uncompressed=False)

    def _compress(self, body: bytes, sys_flag: int) -> tuple[bytes, int]:
        """Compress, unless the body gets no smaller. The flag gets the type of compression too (wire.md 4.5)."""
        smaller = compress(body, self._compress_type, self._compress_level)
        return (smaller, sys_flag | self._compress_type.sys_flag) if len(smaller) < len(body) else (body, sys_flag)

    def close(self) -> None:
        self._closed = True
        if self._compressing is not None:
            self._compressing.close()

    def outgoing_batch(self, messages: Sequence[Message], sharding_key: str | None) -> Outgoing:
        """Check the messages of a batch and make one request of them, which is not compressed (wire.md 4.4).

        Raises:
            LocalProtocolError: the batch is empty or has several topics, or a message must not be sent.
        """
        _check_batch(messages)
        if not messages:
            raise LocalProtocolError("a batch holds at least one message")
        topic = messages[0].topic
        if is_retry_topic(topic):
            raise LocalProtocolError(f"messages of retry topic {topic!r} cannot be sent as a batch")
        records, ids = [], []
        for message in messages:
            if message.topic != topic:
                raise LocalProtocolError(f"a batch has one topic, not both {topic!r} and {message.topic!r}")
            if type(message) is ReplyMessage:
                raise LocalProtocolError("a reply cannot be part of a batch; send it by itself")
            single = self.outgoing(message, sharding_key, alone=False)
            if message.is_delayed:
                raise LocalProtocolError("a message of a batch cannot be delayed; send it by itself")
            records.append(BatchRecord(single.flag, single.body, single.properties))
            ids.append(single.msg_id)
        blob = encode_batch(records)
        topic = single.topic
        self._check(topic, len(blob))
        now_ms = self._runtime.now_ms()
        return Outgoing(_SEND_BATCH, topic, blob, 0, "", ",".join(ids), sharding_key, now_ms, source=messages)

    def _check(self, topic: str, body_bytes: int) -> None:
        if topic not in self._checked_topics:
            check_send_topic(topic)
            if len(self._checked_topics) < _CHECKED_TOPICS_MAX:
                self._checked_topics.add(topic)
        if not 0 < body_bytes <= self._config.body_bytes_max:
            raise LocalProtocolError(f"a body must have 1 to {self._config.body_bytes_max} bytes, not {body_bytes}")

    def command(self, queue: MessageQueue, outgoing: Outgoing, number: SequenceNumber | None = None) -> RemotingCommand:
        """`number`: for a broker that checks the order of sends."""
        generation, sequence, sequence_id = (
            (None, None, None) if number is None else (number[0], number[1], self._sequence_id)
        )
        header = new_tuple(
            SendMessageRequestHeaderV2,
            (
                self._group,
                outgoing.topic,
                self._config.create_topic_key,
                self._config.default_topic_queue_nums,
                queue.queue_id,
                outgoing.sys_flag,
                outgoing.born_timestamp_ms,
                outgoing.flag,
                outgoing.properties,
                outgoing.reconsume_times,
                self._config.unit_mode,
                outgoing.max_reconsume_times,
                outgoing.code == _SEND_BATCH,
                queue.broker_name,
                generation,
                sequence,
                sequence_id,
                *_NO_LOCK,
            ),
        )
        return RemotingCommand(outgoing.code, header, outgoing.body)

    def before_hooks(self, outgoing: Outgoing, queue: MessageQueue, address: str) -> SendMessageContext | None:
        """Raises SendForbiddenError."""
        if not self.hooks.active:
            return None
        source = outgoing.source
        messages = (source,) if isinstance(source, Message) else source
        half = bool(outgoing.sys_flag & _PREPARED)
        return self.hooks.before(messages, queue, address, outgoing.mode, half=half)

    def transmit(self, endpoint: Endpoint, send: OneSend) -> None:
        """Send the request, by itself or with others. Hooks are called around it.

        Raises:
            ConnectionLost: it did not leave.
            SendForbiddenError: a hook forbids it.
        """
        together = self._together
        if self.hooks.active:
            self._transmit_with_hooks(endpoint, send)
        elif together is not None and endpoint.together:
            together.send(endpoint, send)  # as `_leave`, for the common case
        else:
            self._leave(endpoint, send)

    def _transmit_with_hooks(self, endpoint: Endpoint, send: OneSend) -> None:
        queue, outgoing, _, _, future = send
        context = self.before_hooks(outgoing, queue, endpoint.address)
        assert context is not None
        try:
            self._leave(endpoint, send)
        except BaseException as error:
            self.hooks.after(context, None, error)
            raise
        self.hooks.after_answer(context, future, lambda reply: read_send_reply(reply, queue, outgoing))

    def _leave(self, endpoint: Endpoint, send: OneSend) -> None:
        if self._together is not None and (endpoint.together or (self._config.auto_batch and not endpoint.agreed)):
            self._together.send(endpoint, send)
        else:
            queue, outgoing, timeout_ms, number, future = send
            endpoint.request_for(future, self.command(queue, outgoing, number), timeout_ms)

    def transmit_batch(self, endpoint: Endpoint, batch: Batch, ended: Callable[[], object]) -> None:
        """Send the request of a batch; the futures of its sends get their ends. Hooks are called around each message.

        A message that a hook forbids is left out, and its future gets the SendForbiddenError.

        Args:
            ended: called when all futures have their ends.
        """
        if self.hooks.active:
            for queue, outgoing, _, _, future in list(batch):
                try:
                    context = self.before_hooks(outgoing, queue, endpoint.address)
                except SendForbiddenError as error:
                    batch.leave_out(future)
                    future.set_exception(error)
                else:
                    assert context is not None
                    self.hooks.after_answer(context, future, partial(read_send_reply, queue=queue, outgoing=outgoing))
        if batch:
            batch.leave(endpoint, self.command, ended)
        else:
            ended()

    def transmit_one_way(self, endpoint: Endpoint, queue: MessageQueue, outgoing: Outgoing) -> None:
        """Send without an answer, behind what waits to leave. Raises SendForbiddenError."""
        context = self.before_hooks(outgoing, queue, endpoint.address)
        if self._together is not None:
            self._together.flush(queue.broker_name)
        endpoint.send_one_way(self.command(queue, outgoing))
        if context is not None:
            self.hooks.after(context, None)

    async def find_sent(
        self, endpoint: Endpoint, sequence: SendSequence, ticket: int, outgoing: Outgoing, timeout_ms: int
    ) -> RemotingCommand:
        """The broker's answer about an earlier attempt of a send (docs/wire.md 17.3). Raises RemotingError."""
        queue, ids = sequence.queue, outgoing.msg_ids
        header = FindSentRequestHeader(
            outgoing.topic,
            queue.queue_id,
            sequence.search_from(ticket),
            ids[0],
            len(ids),
            sequence.generation,
            sequence.sequence,
            self._sequence_id,
        )
        if self._together is not None:
            # First flush what waits: the numbers before this one must arrive before it.
            self._together.flush(queue.broker_name)
        return await endpoint.request(RemotingCommand(RequestCode.FIND_SENT, header), timeout_ms)


async def open_sender(instance: MQClientInstance, queue: MessageQueue, outgoing: Outgoing, timeout_ms: int) -> Endpoint:
    """Return a connection to the queue's broker that takes requests now. Raises SendError when there is none."""
    try:
        endpoint = await instance.sender(queue.broker_name)
        if endpoint.write_paused:
            async with asyncio.timeout(timeout_ms / 1000):
                await endpoint.writable()
    except (NoRouteError, RemotingError) as error:
        raise SendError(str(error), SendOutcome.NOT_SENT, msg_id=outgoing.msg_id) from None
    except TimeoutError:
        reason = f"{endpoint.address} accepted no more data for {timeout_ms} ms"
        raise SendError(reason, SendOutcome.NOT_SENT, msg_id=outgoing.msg_id) from None
    return endpoint


def _check_properties(text: str, alone: bool) -> None:
    """Raise LocalProtocolError if the properties are too long for a single message, or for one of a batch."""
    most, where = (PROPERTIES_BYTES_MAX, "") if alone else (BATCHED_PROPERTIES_BYTES_MAX, " in a batch")
    if len(text.encode("utf-8", "replace")) > most:
        raise LocalProtocolError(f"the properties have over {most} bytes, the most RocketMQ stores{where}")


def _own_properties(message: Message, sharding_key: str | None) -> str:
    """Return the encoded properties of the message, ready to be continued. Raises LocalProtocolError."""
    plain = type(message) is Message  # another kind has more properties
    delayed = message.delay_level or message.delay_ms or message.deliver_at_ms
    if plain and not (message.properties or message.tags or message.keys or delayed):
        if sharding_key is None:
            return ""
        if sharding_key and names.NAME_END not in sharding_key and names.PAIR_END not in sharding_key:
            return f"{names.SHARDING_KEY}{names.NAME_END}{sharding_key}{names.PAIR_END}"
    if message.properties:
        check_user_properties(message.properties)
    delays = message.delay_level, message.delay_ms, message.deliver_at_ms
    if min(delays) < 0:
        raise LocalProtocolError(f"delay_level, delay_ms and deliver_at_ms must be 0 or above, not {min(delays)}")
    if delays.count(0) < len(delays) - 1:
        raise LocalProtocolError("a message has one of delay_level, delay_ms and deliver_at_ms")
    own = message.wire_properties()
    if sharding_key is not None:
        if sharding_key == "":
            raise LocalProtocolError("a sharding key must not be empty; leave it out, or name what must stay in order")
        own[names.SHARDING_KEY] = sharding_key
    if not own:
        return ""
    text = encode_properties(own)
    if text.count(names.NAME_END) != len(own) or text.count(names.PAIR_END) != len(own) - 1:
        raise LocalProtocolError(
            "tags, keys and sharding keys must not contain 0x01 or 0x02, which separate properties"
        )
    return text + names.PAIR_END


def _check_batch(messages: Any) -> None:
    if not isinstance(messages, Sequence) or isinstance(messages, str | bytes):
        raise LocalProtocolError(f"a batch is a list of messages, not {type(messages).__name__}")
    for message in messages:
        right = isinstance(message, Message) and isinstance(message.topic, str)
        if not right and (error := wrong_type(message, None)):
            raise error


def common_sharding_key(messages: Sequence[Message]) -> str | None:
    """Return the sharding key of a batch. Raises LocalProtocolError when its messages have several."""
    _check_batch(messages)
    keys = list(dict.fromkeys(message.sharding_key for message in messages))
    if len(keys) > 1:
        raise LocalProtocolError(
            f"a batch goes to one queue: name the queue, or use one sharding key, not {keys[0]!r} and {keys[1]!r}"
        )
    return keys[0] if keys else None
