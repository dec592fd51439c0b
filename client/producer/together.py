"""SendsTogether: sends that are called while others are under way leave in one frame (docs/order.md 2).

A send that is alone leaves at once as a single request. Others wait until the end of this turn of the event loop, and
while some frames are unanswered also until an answer comes, but never for long. They leave in call order. When all
frames are answered they leave in two, half in each: the broker stores one while this client works on the other.

A RocketMQ broker gets a batch for each queue instead of a frame, if the setting `auto_batch` allows it.
"""

import asyncio
import struct
from collections.abc import Callable
from typing import Final

from lockstep.client.callables import must_propagate
from lockstep.client.config import ProducerConfig
from lockstep.client.errors import SendError, SendOutcome
from lockstep.client.producer.answers import new_send_error
from lockstep.client.producer.batches import Batch
from lockstep.client.producer.outgoing import OneSend, Outgoing, SentFuture
from lockstep.client.producer.sequencer import SequenceNumber
from lockstep.client.send_result import SEND_OK, SendResult
from lockstep.protocol.codes import RequestCode, ResponseCode
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.errors import BodyError, HeaderError, LocalProtocolError
from lockstep.protocol.headers.together import SendTogetherRequestHeader, SendTogetherResponseHeader
from lockstep.protocol.messages.properties import PAIR_END
from lockstep.protocol.messages.together import NO_NUMBERS, PROPERTIES_MAX, FrameQueue, decode_rows, encode_sends
from lockstep.protocol.model import MessageQueue
from lockstep.protocol.tuples import new_tuple
from lockstep.remoting.connections.endpoint import Endpoint
from lockstep.remoting.errors import RemotingError
from lockstep.remoting.host.runtime import Runtime

__all__ = ["SendsTogether"]

_SEND_TOGETHER: Final = int(RequestCode.SEND_TOGETHER)
_SUCCESS: Final = int(ResponseCode.SUCCESS)
_HEAD_BYTES: Final = 64  # of a message, about
# A property has four characters at least.
_MANY_CHARACTERS: Final = 4 * PROPERTIES_MAX
# Unanswered frames of one broker: two halves, and what is called meanwhile.
_FRAMES_MAX: Final = 3
# The same of a RocketMQ broker; they are not halved.
_BATCHES_MAX: Final = 2
# So long calls wait for an answer that is late.
_WAIT_MAX_MS: Final = 10
# A send leaves with others whose timeout differs by this part at most; that of the first holds.
_NEAR: Final = 16


class SendsTogether:
    """The sends of one producer.

    Args:
        single: makes the request of one message.
        header: what all messages of this producer share; `message_count` is filled in.
    """

    def __init__(
        self,
        runtime: Runtime,
        config: ProducerConfig,
        single: Callable[[MessageQueue, Outgoing, SequenceNumber | None], RemotingCommand],
        header: SendTogetherRequestHeader,
    ) -> None:
        self.runtime = runtime
        self.config = config
        self.single = single
        self.header = header
        self.linger_ms = config.linger_ms
        self.count_max = config.send_together_max
        self.bytes_max = config.send_together_bytes_max
        # A broker with ACL refuses a frame as a whole, and one topic must not cost the others their messages.
        self.one_topic = config.credentials is not None
        self._links: dict[str, _Link] = {}  # by broker name: the connection in use

    def send(self, endpoint: Endpoint, send: OneSend) -> None:
        """Send now or with others.

        Raises:
            ConnectionLost, LocalProtocolError: it did not leave, and was to leave now.
        """
        broker_name = send.queue.broker_name
        link = self._links.get(broker_name)
        if link is None or link.endpoint is not endpoint:
            if link is not None:
                link.flush()
            link = self._links[broker_name] = _Link(self, endpoint)
        link.send(send)

    def flush(self, broker_name: str) -> None:
        """Let leave what waits, so that another request does not overtake it."""
        link = self._links.get(broker_name)
        if link is not None:
            link.flush()


class _Link:
    """The sends over one connection."""

    __slots__ = (
        "_bytes",
        "_flushes_soon",
        "_frames",
        "_frames_max",
        "_halved",
        "_has_timer",
        "_in_batches",
        "_last_single",
        "_loop",
        "_since_ms",
        "_timeout_ms",
        "_together",
        "_wait_max_ms",
        "_wait_ms",
        "_waiting",
        "endpoint",
    )

    def __init__(self, together: SendsTogether, endpoint: Endpoint) -> None:
        self._together = together
        self.endpoint = endpoint
        self._loop = asyncio.get_running_loop()
        self._waiting: list[OneSend] = []
        self._bytes = 0
        self._timeout_ms = 0
        self._since_ms = 0  # when the first of `_waiting` was called
        self._wait_max_ms = together.linger_ms or _WAIT_MAX_MS
        # Of those that wait now: the rest of their timeout is for the broker.
        self._wait_ms = self._wait_max_ms
        self._flushes_soon = False  # at the end of this turn of the loop
        self._has_timer = False
        self._frames = 0  # unanswered; all batches of a moment count as one
        self._in_batches = not endpoint.together
        self._frames_max = _BATCHES_MAX if self._in_batches else _FRAMES_MAX
        self._halved = False  # those that wait are a second half
        self._last_single: SentFuture | None = None
        if together.linger_ms:
            # What lingers fails at once, so that it is sent again elsewhere.
            endpoint.when_lost.append(self.flush)

    def send(self, send: OneSend) -> None:
        together, (queue, outgoing, timeout_ms, _, _) = self._together, send
        properties = outgoing.properties
        size = len(outgoing.body) + len(properties) + _HEAD_BYTES
        special = outgoing.special or (self._in_batches and outgoing.sys_flag)
        if len(properties) > _MANY_CHARACTERS:
            special = special or properties.count(PAIR_END) > PROPERTIES_MAX
        if queue.queue_id < 0 or special or size > together.bytes_max:
            self.flush()
            self._alone(send, timeout_ms)
            return
        waiting = self._waiting
        if not waiting:
            last = self._last_single
            if not self._frames and (last is None or last.done()) and not together.linger_ms:
                self._alone(send, timeout_ms)
                return
            self._begin(timeout_ms)
        elif (
            len(waiting) >= together.count_max
            or self._bytes + size > together.bytes_max
            or (timeout_ms != self._timeout_ms and abs(timeout_ms - self._timeout_ms) * _NEAR > self._timeout_ms)
            or (together.one_topic and not self._in_batches and outgoing.topic != waiting[0].outgoing.topic)
        ):
            self.flush()
            self._begin(timeout_ms)
        self._bytes += size
        self._waiting.append(send)

    def _begin(self, timeout_ms: int) -> None:
        """The first one begins to wait."""
        self._timeout_ms = timeout_ms
        self._since_ms = self._together.runtime.now_ms()
        self._wait_ms = min(self._wait_max_ms, timeout_ms // 2)
        if self._frames < self._frames_max and not self._together.linger_ms:
            self._flush_soon()
        elif not self._has_timer or self._wait_ms < self._wait_max_ms:
            self._set_timer(self._wait_ms)

    def _set_timer(self, delay_ms: int) -> None:
        self._has_timer = True
        self._together.runtime.call_later_ms(delay_ms, self._on_timer)

    def _on_turn_end(self) -> None:
        """Send all that wait: in one frame, or one half now and the other in the next turn."""
        self._flushes_soon = False
        waiting, size = self._waiting, self._bytes
        half = 0 if self._frames or self._halved or self._in_batches else len(waiting) // 2
        if half:
            self._waiting = waiting[:half]
        self.flush()
        # Its bytes count as if they were those of both.
        if half:
            self._waiting, self._bytes, self._halved = waiting[half:], size, True
            self._flush_soon()

    def _flush_soon(self) -> None:
        if not self._flushes_soon:
            self._flushes_soon = True
            self._loop.call_soon(self._on_turn_end)

    def _on_timer(self) -> None:
        """The timer of an earlier wait may come too soon for this one: one timer serves many frames."""
        self._has_timer = False
        if self._waiting:
            left_ms = self._since_ms + self._wait_ms - self._together.runtime.now_ms()
            if left_ms > 0:
                self._set_timer(left_ms)
            else:
                self.flush()

    def answered(self) -> None:
        """A frame has ended. Those that wait for that leave."""
        self._frames -= 1
        if not self._together.linger_ms:
            self.flush()

    def flush(self) -> None:
        """Let all leave that wait."""
        waiting = self._waiting
        if not waiting:
            return
        self._waiting = []
        self._bytes = 0
        self._halved = False
        waited_ms = self._together.runtime.now_ms() - self._since_ms
        timeout_ms = max(self._timeout_ms - waited_ms, 1)
        if self._in_batches:
            waiting = self._leave_in_batches(waiting, timeout_ms)
        elif len(waiting) > 1:
            try:
                self.endpoint.request_for(_Frame(self, waiting), self._command(waiting), timeout_ms)
                self._frames += 1
                return
            except (RemotingError, LocalProtocolError) as error:
                _fail(waiting, str(error), SendOutcome.NOT_SENT)
                return
            except struct.error:
                # A number of a message fits no field. By itself that message is refused, and the others are not.
                pass
        for one in waiting:
            try:
                self._alone(one, timeout_ms)
            except BaseException as error:
                _fail([one], str(error) or type(error).__name__, SendOutcome.NOT_SENT)
                if must_propagate(error):
                    raise

    def _leave_in_batches(self, waiting: list[OneSend], timeout_ms: int) -> list[OneSend]:
        """Send batches, each of one queue. Returns the sends that are in none."""
        batches, last = list[tuple[OneSend, Batch]](), dict[MessageQueue, Batch]()
        for one in waiting:
            send = one._replace(timeout_ms=timeout_ms)
            batch = last.get(one.queue)
            if batch is None or not batch.join(send):
                batch = last[one.queue] = Batch(self._together.config, send)
                batches.append((one, batch))
        leaving = [batch for _, batch in batches if len(batch) > 1]
        unanswered = len(leaving)

        def ended() -> None:
            nonlocal unanswered
            unanswered -= 1
            if not unanswered:
                self.answered()

        self._frames += bool(leaving)
        for batch in leaving:
            batch.leave(self.endpoint, self._together.single, ended)
        return [one for one, batch in batches if len(batch) < 2]

    def _alone(self, send: OneSend, timeout_ms: int) -> None:
        queue, outgoing, _, number, future = send
        self.endpoint.request_for(future, self._together.single(queue, outgoing, number), timeout_ms)
        self._last_single = future

    def _command(self, waiting: list[OneSend]) -> RemotingCommand:
        queues, indexes = list[FrameQueue](), dict[tuple[MessageQueue, int], int]()
        heads, texts = list[tuple[int, ...]](), list[bytes]()
        for queue, outgoing, _, number, _ in waiting:
            generation, sequence = (NO_NUMBERS, 0) if number is None else (number[0], number[1])
            key = queue, generation
            index = indexes.get(key)
            if index is None:
                index = indexes[key] = len(queues)
                queues.append(FrameQueue(outgoing.topic, queue.queue_id, generation))
            _, _, body, flag, text, _, _, born_ms, _, _, sys_flag, *_ = outgoing
            properties = text.encode("utf-8", "replace")
            heads.append((index, sequence, born_ms, flag, sys_flag, len(body), len(properties)))
            texts += (body, properties)
        header = self._together.header._replace(message_count=len(waiting), broker_name=waiting[0].queue.broker_name)
        return RemotingCommand(_SEND_TOGETHER, header, encode_sends(queues, heads, texts))


class _Frame:
    """The waiter of a frame: it gives each send its own end."""

    __slots__ = ("_link", "_sends")

    def __init__(self, link: _Link, sends: list[OneSend]) -> None:
        self._link = link
        self._sends = sends

    def done(self) -> bool:
        """False: also when no caller waits any more, the frame has to end."""
        return False

    def set_exception(self, error: RemotingError) -> None:
        _fail(self._sends, str(error), SendOutcome.UNKNOWN)
        self._link.answered()

    def set_result(self, reply: RemotingCommand) -> None:
        if reply.code == _SUCCESS:
            try:
                self._give_results(reply)
            except (BodyError, HeaderError) as error:
                _fail(self._sends, f"the broker's answer: {error}", SendOutcome.UNKNOWN)
        else:  # it refused the whole frame
            for _, outgoing, _, _, future in self._sends:
                if not future.done():
                    future.set_exception(new_send_error(reply.code, reply.remark, outgoing))
        self._link.answered()

    def _give_results(self, reply: RemotingCommand) -> None:
        prefix = reply.decode_header(SendTogetherResponseHeader).id_prefix
        rows, remarks = decode_rows(reply.body, len(self._sends))
        refused = iter(remarks)
        for (queue, outgoing, _, _, future), (code, queue_offset, commit_log_offset) in zip(
            self._sends, rows, strict=True
        ):
            remark = next(refused) if code else None
            if future.done():
                continue
            if code == _SUCCESS:
                offset_msg_id = f"{prefix}{commit_log_offset:016X}"
                fields = (SEND_OK, outgoing.msg_id, queue, queue_offset, offset_msg_id, None)
                future.set_result(new_tuple(SendResult, fields))
            else:
                future.set_exception(new_send_error(code, remark, outgoing))


def _fail(sends: list[OneSend], reason: str, outcome: SendOutcome) -> None:
    for _, outgoing, _, _, future in sends:
        if not future.done():
            future.set_exception(SendError(reason, outcome, msg_id=outgoing.msg_id))
