"""A scene of POP on one broker: who asks what, and when an answer comes.

Each client has a connection of its own; `later` lets one wait while others go on.
"""

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any, Final, NamedTuple, TypeVar

from lockstep.protocol.codes import RequestCode as R
from lockstep.protocol.messages.message import decode_messages
from lockstep.protocol.receipts import Receipt, parse_spans
from tests.differential.case import Case
from tests.differential.cases.world import BROKER_NAME, object_body, send, topic_fields
from tests.differential.side import Received, Side

__all__ = ["Client", "Given", "Moment", "Scene"]

T = TypeVar("T")
_PATIENCE_S: Final = 20.0
_POLL_S: Final = 0.01


class Moment(NamedTuple):
    """What was seen, and how many seconds after the scene's clock was set; None where the time says nothing."""

    what: str
    value: Any
    at_s: float | None


class Given(NamedTuple):
    """The answer to a pop; by body, the receipts, and how often each message was delivered before."""

    code: int
    bodies: list[str]
    receipts: dict[str, Receipt]
    counts: dict[str, int]


class Client:
    """One consumer with a connection of its own."""

    def __init__(self, side: Side, topic: str, group: str, *, in_order: bool) -> None:
        self._side = side
        self._topic, self._group, self._in_order = topic, group, in_order

    def ask(self, code: int, fields: dict[str, Any], body: bytes = b"") -> Received:
        reply = self._side.ask(Case(code, "scene", "step", fields, body=body, version=513)).reply
        assert reply is not None, f"no answer to {code}"
        return reply

    def pop(
        self, count: int = 32, *, invisible_s: float = 3, poll_s: float = 0, queue: int = -1, attempt: str | None = None
    ) -> Given:
        fields = {
            "consumerGroup": self._group,
            "topic": self._topic,
            "queueId": str(queue),
            "maxMsgNums": str(count),
            "invisibleTime": str(round(invisible_s * 1000)),
            "pollTime": str(round(poll_s * 1000)),
            # Later than now where it does not wait: else refused when it was under way for half a second.
            "bornTime": str(self._side.now_ms() + (0 if poll_s else 10_000)),
            "initMode": "0",
            "expType": "TAG",
            "exp": "*",
            "order": str(self._in_order).lower(),
        }
        reply = self.ask(R.POP_MESSAGE, fields | ({"attemptId": attempt} if attempt else {}))
        return _given(reply)

    def ack(self, receipt: Receipt) -> int:
        return self.ask(R.ACK_MESSAGE, self._delivery(receipt)).code

    def change(self, receipt: Receipt, invisible_s: float) -> Receipt:
        """The receipt of the changed delivery."""
        more = {"invisibleTime": str(round(invisible_s * 1000))}
        reply = self.ask(R.CHANGE_MESSAGE_INVISIBLETIME, self._delivery(receipt) | more)
        assert reply.code == 0, reply
        fields = reply.fields or {}
        return receipt._replace(pop_ms=int(fields["popTime"]), invisible_ms=int(fields["invisibleTime"]))

    def committed(self, queue: int = 0) -> int | None:
        """The group's offset; None when it has none."""
        fields = {"consumerGroup": self._group, "topic": self._topic, "queueId": str(queue)}
        reply = self.ask(R.QUERY_CONSUMER_OFFSET, fields)
        return int((reply.fields or {})["offset"]) if reply.code == 0 else None

    def idle(self, for_s: float) -> None:
        self._side.pump(lambda: False, for_s)

    def _delivery(self, receipt: Receipt) -> dict[str, Any]:
        return {
            "consumerGroup": self._group,
            "topic": self._topic,
            "queueId": str(receipt.queue_id),
            "extraInfo": receipt.encode(),
            "offset": str(receipt.queue_offset),
        }


def _given(reply: Received) -> Given:
    fields = reply.fields or {}
    messages = decode_messages(reply.body) if reply.code == 0 else []
    texts = [fields.get(name, "") for name in ("startOffsetInfo", "msgOffsetInfo", "orderCountInfo")]
    spans = parse_spans(*texts)
    starts = {(span.topic_kind, span.queue_id): span for span in spans}
    receipts, counts = {}, {}
    for message in messages:
        body = message.body.decode()
        in_itself = message.properties.get("POP_CK")  # of the retry topic
        if in_itself:
            receipts[body] = Receipt.parse(in_itself)
            counts[body] = message.reconsume_times
            continue
        span = starts[0, message.queue_id]
        times = (int(fields["popTime"]), int(fields["invisibleTime"]), int(fields["reviveQid"]))
        place = (message.queue_id, message.queue_offset)
        receipts[body] = Receipt(span.start_offset, *times, 0, BROKER_NAME, *place)
        counts[body] = span.times_before.get(message.queue_offset, 0)
    return Given(reply.code, [message.body.decode() for message in messages], receipts, counts)


class Scene:
    """A topic and a group of their own on one broker, and the clock of what is seen there."""

    def __init__(self, address: tuple[str, int], name: str, queues: int, *, in_order: bool) -> None:
        self._address = address
        self._topic, self._group, self._in_order = f"Scene-{name}", f"Watchers-{name}", in_order
        self._stack = ExitStack()
        self._pool = self._stack.enter_context(ThreadPoolExecutor(8))
        self._began_s = 0.0
        self._producer = self.client()
        self.moments: list[Moment] = []
        group = {"groupName": self._group, "consumeEnable": True, "consumeFromMinEnable": True, "retryQueueNums": 1}
        group |= {"consumeMessageOrderly": in_order, "retryMaxTimes": 16, "consumeBroadcastEnable": True}
        self._producer.ask(R.UPDATE_AND_CREATE_TOPIC, topic_fields(self._topic, queues, queues))
        self._producer.ask(R.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, object_body(group))

    def close(self) -> None:
        self._stack.close()

    def client(self) -> Client:
        side = Side(self._address, self._address)
        self._stack.callback(side.close)
        return Client(side, self._topic, self._group, in_order=self._in_order)

    def send(self, *bodies: str, queue: int = 0, **properties: str) -> None:
        for body in bodies:
            reply = self._producer.ask(R.SEND_MESSAGE, send(self._topic, queue, **properties), body.encode())
            assert reply.code == 0, reply
            if not properties:
                self._wait_until_readable(queue, int((reply.fields or {})["queueOffset"]))

    def _wait_until_readable(self, queue: int, offset: int) -> None:
        fields = {"topic": self._topic, "queueId": str(queue)}
        self._wait(lambda: int((self._producer.ask(R.GET_MAX_OFFSET, fields).fields or {})["offset"]) > offset)

    def _wait(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + _PATIENCE_S
        while not condition():
            assert time.monotonic() < deadline
            self._producer.idle(_POLL_S)

    def start_clock(self) -> None:
        self._began_s = time.monotonic()

    def see(self, what: str, value: Any, *, timed: bool = False) -> None:
        """Write down what came; `timed`: and when."""
        self.moments.append(Moment(what, value, time.monotonic() - self._began_s if timed else None))

    def until(self, at_s: float) -> None:
        """Wait until the clock shows so many seconds."""
        self._producer.idle(max(0.0, self._began_s + at_s - time.monotonic()))

    def later(self, call: Callable[[], T]) -> Future[T]:
        """Begin a pop that waits; returns when the broker holds it."""
        started = self._pool.submit(call)
        fields = {"topic": self._topic, "consumerGroup": self._group, "queueId": "-1"}
        self._wait(lambda: (self._producer.ask(R.POLLING_INFO, fields).fields or {})["pollingNum"] != "0")
        return started
