"""What a world sees at the gRPC port of its broker: calls, and the answers that leave. It trusts no table of it."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any, Final, cast
from unittest.mock import patch

from lockstep.broker.core.broker import Broker
from lockstep.broker.core.query import message_by_offset
from lockstep.broker.core.send_back import send_back
from lockstep.broker.fronts.grpc import acks, receiving
from lockstep.broker.fronts.grpc.call import Call, OnCall
from lockstep.broker.fronts.grpc.receiving import DeadLetter
from lockstep.broker.peer import Peer
from lockstep.protocol.grpc import messages as pb
from lockstep.protocol.messages.message import decode_messages
from lockstep.protocol.receipts import Receipt
from lockstep.remoting.host.runtime import ProtocolFactory
from lockstep.simulation.worlds.fifo.observer import Deliveries, Given

__all__ = ["GrpcWatch", "noting_dead_letters"]

_LEFT_MS: Final = 1000  # what a push consumer holds that says goodbye, others get so soon
_FOR_EVER_MS: Final = 3 * 3_600_000  # until then it is renewed


class _Answer:
    """A call: `on_end` gets the messages of its answer when it ends well, `on_unsent` those that were cut."""

    def __init__(
        self,
        call: Any,
        on_end: Callable[[list[bytes]], None],
        on_unsent: Callable[[list[bytes], int], None],
    ) -> None:
        vars(self).update(call=call, on_end=on_end, on_unsent=on_unsent, messages=[])

    def __getattr__(self, name: str) -> Any:
        return getattr(vars(self)["call"], name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "on_unsent":
            vars(self)["unsent"], value = value, self._unsent
        setattr(vars(self)["call"], name, value)

    def _unsent(self, count: int, now_ms: int) -> None:
        vars(self)["on_unsent"](vars(self)["messages"][-count:], now_ms)
        vars(self)["unsent"](count, now_ms)

    def send(self, message: bytes) -> None:
        vars(self)["messages"].append(message)
        vars(self)["call"].send(message)

    def finish(self, *status: Any) -> None:
        if not status:
            vars(self)["on_end"](vars(self)["messages"])
        vars(self)["call"].finish(*status)


class GrpcWatch:
    """A CallInterceptor. `saw` gets what happens sometimes."""

    def __init__(self, deliveries: Deliveries, saw: Callable[[str], None], *, fenced: bool, grace_ms: int) -> None:
        self._deliveries = deliveries
        self._saw = saw
        self._fenced = fenced
        self._grace_ms = grace_ms
        self._numbers = count()
        self._calls: dict[str, Callable[[Any, bytes], Callable[[list[bytes]], None]]] = {
            "ReceiveMessage": self._receive,
            "AckMessage": self._ack,
            "ForwardMessageToDeadLetterQueue": self._forward,
            "ChangeInvisibleDuration": self._change,
        }

    def intercept_calls(self, on_call: OnCall) -> OnCall:
        def noted(call: Call, message: bytes, now_ms: int) -> None:
            watch = self._calls.get(call.method)
            if call.method == "NotifyClientTermination":
                self._deliveries.gone(_host_of(call), self._deliveries.now_ms + min(_LEFT_MS, self._grace_ms))
            seen: Any = call if watch is None else _Answer(call, watch(call, message), self._cut)
            try:
                on_call(seen, message, now_ms)
            finally:
                self._deliveries.acking = None

        return noted

    def delay(self, factory: ProtocolFactory) -> ProtocolFactory:
        """Hear of the ends of connections."""

        def make() -> asyncio.Protocol:
            connection: Any = factory()
            lost = connection.connection_lost

            def noted(exc: Exception | None) -> None:
                # What a faithful broker does for its clients it does two minutes after their last heartbeat.
                if self._fenced:
                    self._deliveries.gone(connection.host, self._deliveries.now_ms + self._grace_ms)
                lost(exc)

            connection.connection_lost = noted
            return cast("asyncio.Protocol", connection)

        return make

    def _receive(self, call: Any, message: bytes) -> Callable[[list[bytes]], None]:
        asked = pb.ReceiveMessageRequest.FromString(message)
        # Calls without an id are no repeats of each other.
        attempt_id = asked.attempt_id or f"call {next(self._numbers)}"
        self._is_repeated(_host_of(call), attempt_id)

        def given(messages: list[bytes]) -> None:
            parts, answer = defaultdict[int, list[Receipt]](list), map(pb.ReceiveMessageResponse.FromString, messages)
            for one in answer:
                if one.HasField("message"):
                    receipt = Receipt.parse(one.message.system_properties.receipt_handle)
                    parts[receipt.queue_id].append(receipt)
            for queue_id, receipts in parts.items():
                offsets, first = [one.queue_offset for one in receipts], receipts[0]
                end_ms = first.pop_ms + (_FOR_EVER_MS if asked.auto_renew else first.invisible_ms)
                made = Given(
                    first.pop_ms, _host_of(call), attempt_id, end_ms, set(offsets), is_renewed=asked.auto_renew
                )
                self._deliveries.given(queue_id, offsets, made)
            if parts:
                self._deliveries.has_given(_host_of(call))

        return given

    def _is_repeated(self, host: str, attempt_id: str) -> None:
        """A client has not got the answer of a call that it repeats: a fenced broker takes that as nobody's."""
        if not self._fenced:
            return
        now_ms = self._deliveries.now_ms

        def end_ms(given: Given) -> int:
            return min(given.end_ms, now_ms) if (given.host, given.attempt_id) == (host, attempt_id) else given.end_ms

        self._deliveries.shorten(end_ms)

    def _cut(self, messages: list[bytes], now_ms: int) -> None:
        """The client ended the call before these were written: they are free again."""
        for one in map(pb.ReceiveMessageResponse.FromString, messages):
            if one.HasField("message"):
                receipt = Receipt.parse(one.message.system_properties.receipt_handle)
                self._deliveries.may_end(receipt.queue_id, receipt.queue_offset, receipt.pop_ms, now_ms)
                self._saw("answers cut")

    def _ack(self, call: Any, message: bytes) -> Callable[[list[bytes]], None]:
        (entry,) = pb.AckMessageRequest.FromString(message).entries
        return self._settled(entry.receipt_handle, pb.AckMessageResponse)

    def _forward(self, call: Any, message: bytes) -> Callable[[list[bytes]], None]:
        handle = pb.ForwardMessageToDeadLetterQueueRequest.FromString(message).receipt_handle
        return self._settled(handle, pb.ForwardMessageToDeadLetterQueueResponse)

    def _settled(self, handle: str, response: type[Any]) -> Callable[[list[bytes]], None]:
        receipt = Receipt.parse(handle)
        self._deliveries.acking = (receipt.queue_id, receipt.queue_offset)

        def answered(messages: list[bytes]) -> None:
            code = response.FromString(messages[0]).status.code
            named = (receipt.queue_id, receipt.queue_offset, receipt.pop_ms)
            self._deliveries.acked(*named, is_taken=code == pb.OK)

        return answered

    def _change(self, call: Any, message: bytes) -> Callable[[list[bytes]], None]:
        asked = pb.ChangeInvisibleDurationRequest.FromString(message)
        receipt, begun_ms = Receipt.parse(asked.receipt_handle), self._deliveries.now_ms
        invisible_ms = asked.invisible_duration.seconds * 1000 + asked.invisible_duration.nanos // 1_000_000
        named = (receipt.queue_id, receipt.queue_offset, receipt.pop_ms)
        self._deliveries.may_end(*named, begun_ms + invisible_ms)

        def answered(messages: list[bytes]) -> None:
            if pb.ChangeInvisibleDurationResponse.FromString(messages[0]).status.code == pb.OK:
                self._deliveries.changed(*named, invisible_ms, begun_ms)

        return answered


def _host_of(call: Call) -> str:
    return call.peer.address.rpartition(":")[0]


@contextmanager
def noting_dead_letters(dead: set[str]) -> Iterator[None]:
    """Add their ids at once, of any broker of this process: a copy can be read only when it is on the disk."""

    def sent_back(broker: Broker, peer: Peer, failed: DeadLetter, now_ms: int) -> None:
        send_back(broker, peer, failed, now_ms)
        (message,) = decode_messages(message_by_offset(broker, failed.offset))
        dead.add(message.msg_id)

    with patch.object(receiving, "send_back", sent_back), patch.object(acks, "send_back", sent_back):
        yield
