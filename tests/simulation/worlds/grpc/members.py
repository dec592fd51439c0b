"""Members of a FIFO group that speak gRPC, as the official SDKs do: a simple consumer and a push consumer."""

import asyncio
import random
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from lockstep.client import MessageQueue, StaleDeliveryError
from lockstep.client.lifecycle import ServiceState
from lockstep.protocol.grpc import messages as pb
from lockstep.protocol.receipts import Receipt
from lockstep.simulation.lab.hosts import BROKER, GROUP, TOPIC
from lockstep.simulation.runtime import SimRuntime
from lockstep.simulation.worlds.fifo.effects import KeyOfQueue
from lockstep.simulation.worlds.fifo.members import Members
from tests.broker.fronts.grpc.grpc_client import Calling, topic_of
from tests.simulation.worlds.grpc.channel import CallError, Channel
from tests.simulation.worlds.grpc.plan import REQUEST_MS, GrpcPlan

__all__ = ["GrpcDelivery", "PushMember", "SimpleMember"]

_HEARTBEAT_MS: Final = 10_000
_AGAIN_MS: Final = 1000  # SDKs make a failed receive, and an acknowledgement, again after so long
_LONG_MS: Final = 70_000  # longer than the first invisible time of what is renewed
_PERCENT: Final = 100
_MS: Final = 1_000_000


class _Message(NamedTuple):
    msg_id: str
    sharding_key: str | None
    queue_id: int
    queue_offset: int
    body: bytes
    topic: str = TOPIC
    broker_name: str = BROKER


@dataclass(eq=False)
class GrpcDelivery:
    """What `Members` need of a delivery."""

    message: _Message
    handle: str
    attempt: int

    @property
    def receipt(self) -> Receipt:
        return Receipt.parse(self.handle)

    @property
    def place(self) -> KeyOfQueue:
        queue = MessageQueue(TOPIC, BROKER, self.message.queue_id)
        return KeyOfQueue(queue, self.message.sharding_key)


def _delivery(message: pb.Message) -> GrpcDelivery:
    system = message.system_properties
    place = (system.queue_id, system.queue_offset)
    made = _Message(system.message_id, system.message_group or None, *place, message.body)
    return GrpcDelivery(made, system.receipt_handle, system.delivery_attempt)


class _Member:
    """What both have: a channel, telemetry, heartbeats, and the calls of a consumer."""

    client_type = pb.SIMPLE_CONSUMER

    def __init__(self, members: Members, runtime: SimRuntime, address: str) -> None:
        assert isinstance(members.plan, GrpcPlan)
        self.members, self.plan, self.runtime = members, members.plan, runtime
        self.findings = members.findings
        identity = runtime.new_identity()
        # As SDKs name themselves: host, process, number, time.
        name = f"{runtime.host}@{identity.pid}@0@{runtime.monotonic_ns()}"
        self.channel = Channel(runtime, address, name, self.plan.window)
        self.rng = random.Random(f"{self.plan.seed}/{name}")
        self.state = ServiceState.CREATE_JUST
        self.settings: pb.Settings | None = None
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        self.state = ServiceState.RUNNING
        self.spawn(self._telemetry(), "telemetry")
        self.spawn(self._heartbeats(), "heartbeats")

    def spawn(self, coroutine: Coroutine[Any, Any, None], name: str) -> None:
        self._tasks = [task for task in self._tasks if not task.done()]
        self._tasks.append(self.runtime.create_task(coroutine, name=name))

    async def shutdown(self) -> None:
        """As SDKs end: no more calls, a goodbye, and the end of all streams."""
        self.state = ServiceState.SHUTDOWN_ALREADY
        for task in self._tasks:
            task.cancel()
        for task in self._tasks:
            with suppress(asyncio.CancelledError):
                await task
        with suppress(CallError):
            goodbye = pb.NotifyClientTerminationRequest(group=topic_of(GROUP))
            await self.channel.call("NotifyClientTermination", goodbye, REQUEST_MS)
        self.channel.close()

    # Telemetry and heartbeats ------------------------------------------------------------------------------------

    async def _telemetry(self) -> None:
        wanted = pb.Settings(client_type=self.client_type)
        wanted.request_timeout.nanos = REQUEST_MS * _MS % 1_000_000_000
        wanted.request_timeout.seconds = REQUEST_MS // 1000
        wanted.subscription.group.name = GROUP
        wanted.subscription.subscriptions.add().topic.name = TOPIC
        while True:
            with suppress(CallError):
                client = await self.channel.connected()
                call = client.begin("Telemetry", pb.TelemetryCommand, None)
                call.send(pb.TelemetryCommand(settings=wanted))
                while await call.progress():
                    if call.messages:
                        self.settings = call.messages[-1].settings
            await asyncio.sleep(_AGAIN_MS / 1000)

    async def _heartbeats(self) -> None:
        """And a look whether the other side is there: a connection may have ended there alone."""
        while True:
            await asyncio.sleep(_HEARTBEAT_MS / 1000)
            client = self.channel.client
            reads = client.reads if client is not None else 0
            request = pb.HeartbeatRequest(group=topic_of(GROUP), client_type=self.client_type)
            try:
                await self.channel.call("Heartbeat", request, REQUEST_MS)
            except CallError:
                if client is not None and client is self.channel.client and client.reads == reads:
                    self.findings.saw("connections given up")
                    self.channel.abort()
            if self._draws(self.plan.goaways):
                self.findings.saw("goaways")
                self.channel.go_away()

    def _draws(self, percent: int) -> bool:
        return not self.members.calm and self.rng.randrange(_PERCENT) < percent

    # Calls -------------------------------------------------------------------------------------------------------

    async def ask(self, request: pb.ReceiveMessageRequest) -> list[GrpcDelivery]:
        """Receive. Raises CallError; what came before it is lost."""
        request.group.name, request.message_queue.topic.name = GROUP, TOPIC
        request.long_polling_timeout.seconds = self.plan.wait_ms // 1000
        timeout_ms = self.plan.wait_ms + REQUEST_MS
        call = await self.channel.begin("ReceiveMessage", request, timeout_ms)
        if self._draws(self.plan.resets):
            self.spawn(self._reset_inside(call), "reset")
        await self.channel.end_of(call, timeout_ms)
        code = call.messages[0].status.code
        if code not in (pb.OK, pb.MESSAGE_NOT_FOUND):
            raise CallError(f"{code}: {call.messages[0].status.message}")
        return [_delivery(one.message) for one in call.messages if one.HasField("message")]

    async def _reset_inside(self, call: Calling) -> None:
        """Reset the stream between two messages of the answer, if there is such a moment."""
        while await call.progress():
            if any(one.HasField("message") for one in call.messages):
                self.findings.saw("resets inside a batch")
                self.channel.cancel(call)

    async def ack(self, delivery: GrpcDelivery) -> None:
        request = pb.AckMessageRequest(group=topic_of(GROUP), topic=topic_of(TOPIC))
        request.entries.add(message_id=delivery.message.msg_id, receipt_handle=delivery.handle)
        _check((await self.channel.call("AckMessage", request, REQUEST_MS)).status)

    async def change_invisible(self, delivery: GrpcDelivery, invisible_ms: int) -> None:
        request = pb.ChangeInvisibleDurationRequest(group=topic_of(GROUP), topic=topic_of(TOPIC))
        request.receipt_handle, request.message_id = delivery.handle, delivery.message.msg_id
        request.invisible_duration.seconds, rest_ms = divmod(invisible_ms, 1000)
        request.invisible_duration.nanos = rest_ms * _MS
        answer = await self.channel.call("ChangeInvisibleDuration", request, REQUEST_MS)
        _check(answer.status)
        delivery.handle = answer.receipt_handle


def _check(status: pb.Status) -> None:
    if status.code == pb.INVALID_RECEIPT_HANDLE:
        raise StaleDeliveryError(status.message)
    if status.code != pb.OK:
        raise CallError(f"{status.code}: {status.message}")


class SimpleMember(_Member):
    """A simple consumer, which `Members` drive as they drive ours: no attempt ids, no renewal."""

    async def start(self) -> None:
        await super().start()
        for number in range(self.plan.loops):
            loop: Any = self.members.receive(self, f"{self.runtime.host}/{number}")  # type: ignore[arg-type]
            self.spawn(loop, f"receive {number}")

    async def receive(self, count_max: int, invisible_ms: int) -> list[GrpcDelivery]:
        request = pb.ReceiveMessageRequest(batch_size=count_max)
        request.invisible_duration.seconds = invisible_ms // 1000
        return await self.ask(request)

    @contextmanager
    def handling(self, _delivery: GrpcDelivery) -> Iterator[None]:
        yield


class PushMember(_Member):
    """A push consumer: a receive loop for each queue, and a listener that is called for one message at a time.

    A failed call of the listener is made again in this process. What fails too often is forwarded to the dead letters.
    """

    client_type = pb.PUSH_CONSUMER

    async def start(self) -> None:
        await super().start()
        self.spawn(self._assign(), "assignments")

    async def _assign(self) -> None:
        request = pb.QueryAssignmentRequest(topic=topic_of(TOPIC), group=topic_of(GROUP))
        while True:
            try:
                answer = await self.channel.call("QueryAssignment", request, REQUEST_MS)
            except CallError:
                await asyncio.sleep(_AGAIN_MS / 1000)
                continue
            for one in answer.assignments:
                self.spawn(self._receive(one.message_queue.id), f"queue {one.message_queue.id}")
            return

    async def _receive(self, queue_id: int) -> None:
        attempt_id = self._new_id()
        while True:
            request = pb.ReceiveMessageRequest(batch_size=self.plan.count_max, auto_renew=True, attempt_id=attempt_id)
            request.message_queue.id = queue_id
            try:
                deliveries = await self.ask(request)
            except CallError:
                # The next call has the same id: it gets what this one was given and did not get.
                self.findings.saw("pops failed")
                await asyncio.sleep(_AGAIN_MS / 1000)
                continue
            if deliveries:
                attempt_id = self._new_id()
                self.spawn(self._consume(deliveries), "consume")

    def _new_id(self) -> str:
        return f"{self.rng.getrandbits(128):032x}"

    async def _consume(self, deliveries: Sequence[GrpcDelivery]) -> None:
        for delivery in deliveries:
            if await self._is_handled(delivery):
                await self._until_taken(self.ack, delivery)
            else:
                self.findings.saw("forwards")
                await self._until_taken(self._forward, delivery)

    async def _is_handled(self, delivery: GrpcDelivery) -> bool:
        """Call the listener, as often as the group's settings allow."""
        policy = self.settings.backoff_policy if self.settings is not None else pb.RetryPolicy(max_attempts=1)
        tries = max(policy.max_attempts - delivery.attempt + 1, 1)
        for number in range(tries):
            if number:
                await asyncio.sleep(policy.exponential_backoff.initial.seconds)
            if await self._listen(delivery, is_first=not number):
                return True
        return False

    async def _listen(self, delivery: GrpcDelivery, *, is_first: bool) -> bool:
        place, fence, body = delivery.place, delivery.receipt.pop_ms, delivery.message.body.decode()
        self.members.effects.begin(place, fence)
        work_ms = self.plan.work_ms
        if is_first and self._draws(self.plan.slow):
            self.findings.saw("deliveries: slow push")
            work_ms = _LONG_MS
        await asyncio.sleep(work_ms / 1000)
        if self.plan.is_poison(body) or (is_first and self._draws(self.plan.failing)):
            return False
        offset = delivery.message.queue_offset
        return self.members.effects.write(place, offset, fence, f"{self.runtime.host}")

    async def _until_taken(self, call: Any, delivery: GrpcDelivery) -> None:
        while True:
            try:
                await call(delivery)
                return
            except StaleDeliveryError:
                # It is another client's: SDKs go on with the next message.
                self.findings.saw("acks refused")
                return
            except CallError:
                self.findings.saw("calls failed")
                await asyncio.sleep(_AGAIN_MS / 1000)

    async def _forward(self, delivery: GrpcDelivery) -> None:
        request = pb.ForwardMessageToDeadLetterQueueRequest(group=topic_of(GROUP), topic=topic_of(TOPIC))
        request.receipt_handle, request.message_id = delivery.handle, delivery.message.msg_id
        request.delivery_attempt, request.max_delivery_attempts = delivery.attempt, delivery.attempt
        _check((await self.channel.call("ForwardMessageToDeadLetterQueue", request, REQUEST_MS)).status)
