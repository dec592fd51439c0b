"""FencedLocks on virtual time with a broker that has fenced locks: epochs, leases, refusals, three answers."""

from collections.abc import Callable
from typing import Any, NamedTuple

from lockstep.client import ConsumerConfig, MessageQueue
from lockstep.client.consumer.offsets.store import RemoteBrokerOffsetStore
from lockstep.client.consumer.ownership.fenced_locks import FencedLocks
from lockstep.client.consumer.ownership.membership import Membership
from lockstep.client.consumer.ownership.period_end import EndCause
from lockstep.client.consumer.ownership.process_queue import ProcessQueue
from lockstep.client.consumer.ownership.user_calls import UserCalls
from lockstep.client.instance.client import MQClientInstance
from lockstep.order.traces.trace import TraceWriter
from lockstep.protocol.bodies.codec import decode_body, encode_body
from lockstep.protocol.bodies.locks import LockBatchBody, LockGrant, LockOkBody, LockRefusal
from lockstep.protocol.codes import RequestCode, ResponseCode
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.epochs import make_epoch
from lockstep.protocol.headers.messaging import (
    ResetOwnOffsetRequestHeader,
    ResetOwnOffsetResponseHeader,
    UpdateConsumerOffsetRequestHeader,
)
from lockstep.protocol.namespace import NamesOfTenant
from lockstep.remoting.connections.endpoint import Endpoint
from tests.client.stage import TOPIC, FakeBroker, Stage

__all__ = ["GROUP", "LEASE_MS", "RIVAL", "Fenced", "FencedTable", "fenced_on", "requests"]

GROUP, RIVAL = "tower", "10.0.0.9@rival"
LEASE_MS = 60_000
_R = RequestCode


class Held(NamedTuple):
    client_id: str
    epoch: int
    end_ms: int


class FencedTable:
    """What a broker with fenced locks answers, for one group. `held` may be changed by a test."""

    def __init__(self, broker: FakeBroker, *, lease_ms: int = LEASE_MS) -> None:
        self.broker = broker
        self.lease_ms = lease_ms
        self.held: dict[MessageQueue, Held] = {}
        self.offsets: dict[MessageQueue, int] = {}
        self.counter = 0
        broker.on[_R.LOCK_BATCH_MQ] = self.lock
        broker.on[_R.UNLOCK_BATCH_MQ] = self.unlock
        broker.on[_R.UPDATE_CONSUMER_OFFSET] = self.commit
        broker.on[_R.RESET_OWN_OFFSET] = self.reset

    def take(self, queue: MessageQueue, client_id: str = RIVAL) -> int:
        """Give a queue to a client under a new epoch."""
        self.counter += 1
        epoch = make_epoch(1_700_000_000_000, self.counter)
        self.held[queue] = Held(client_id, epoch, self.broker.runtime.now_ms() + self.lease_ms)
        return epoch

    def answer(self, queue: MessageQueue, client_id: str, epoch: int) -> ResponseCode:
        held = self.held.get(queue)
        if held is None:
            return ResponseCode.NOT_HELD
        if held.client_id != client_id:
            return ResponseCode.FENCED
        return ResponseCode.SUCCESS if held.epoch == epoch else ResponseCode.STALE

    def lock(self, command: RemotingCommand) -> RemotingCommand:
        body = decode_body(LockBatchBody, command.body, command.serialize_type)
        assert body.epochs is not None
        now_ms, won, refused = self.broker.runtime.now_ms(), dict[MessageQueue, LockGrant](), list[LockRefusal]()
        for queue, epoch in zip(body.mq_set, body.epochs, strict=True):
            held = self.held.get(queue)
            free = held is None or held.end_ms <= now_ms
            if not epoch and free:
                epoch = self.take(queue, body.client_id)
            answer = self.answer(queue, body.client_id, epoch)
            if answer is ResponseCode.SUCCESS:
                self.held[queue] = Held(body.client_id, epoch, now_ms + self.lease_ms)
                won[queue] = LockGrant(epoch, self.lease_ms)
            else:
                owner = held.client_id if held is not None else ""
                refused.append(LockRefusal(queue, answer.name if epoch else "HELD", owner))
        ok = LockOkBody(tuple(won), tuple(won.values()), tuple(refused))
        return command.reply(ResponseCode.SUCCESS, body=encode_body(ok, command.serialize_type))

    def unlock(self, command: RemotingCommand) -> RemotingCommand:
        body = decode_body(LockBatchBody, command.body, command.serialize_type)
        for queue, epoch in zip(body.mq_set, body.epochs or (), strict=True):
            if self.answer(queue, body.client_id, epoch) is ResponseCode.SUCCESS:
                del self.held[queue]
        return command.reply(ResponseCode.SUCCESS)

    def commit(self, command: RemotingCommand) -> RemotingCommand:
        header = command.decode_header(UpdateConsumerOffsetRequestHeader)
        queue = MessageQueue(header.topic, self.broker.name, header.queue_id)
        answer = self.answer(queue, header.lock_client_id or "", header.lock_epoch or 0)
        if answer is ResponseCode.SUCCESS:
            self.offsets[queue] = header.commit_offset
        return command.reply(answer, remark="so says the table")

    def reset(self, command: RemotingCommand) -> RemotingCommand:
        header = command.decode_header(ResetOwnOffsetRequestHeader)
        queue = MessageQueue(header.topic, self.broker.name, header.queue_id)
        answer = self.answer(queue, header.lock_client_id, header.lock_epoch)
        if answer is not ResponseCode.SUCCESS:
            return command.reply(answer, remark="so says the table")
        self.offsets[queue] = header.offset
        epoch = self.take(queue, header.lock_client_id)
        return command.reply(ResponseCode.SUCCESS, ResetOwnOffsetResponseHeader(epoch, self.lease_ms))


def requests(broker: FakeBroker, code: int) -> list[dict[MessageQueue, int]]:
    """The epochs of each lock or unlock request that a broker got."""
    bodies = [decode_body(LockBatchBody, c.body, c.serialize_type) for c in broker.requests(code)]
    return [dict(zip(body.mq_set, body.epochs or [-1] * len(body.mq_set), strict=True)) for body in bodies]


class Fenced:
    """FencedLocks, PeriodEnds and FencedCommits with a table of process queues; what they do is in `done`."""

    def __init__(self, stage: Stage, config: ConsumerConfig, *, required: bool) -> None:
        self.stage = stage
        self.done: list[tuple[Any, ...]] = []
        self.instance: MQClientInstance = stage.instance(
            producer_group=GROUP,  # of a member: its connections begin with a heartbeat
            on_broker_connected=self._broker_connected,
            on_connection_ended=self._connection_ended,
        )
        trace = TraceWriter(stage.client, "trace", self.instance.client_id, GROUP)
        offsets = RemoteBrokerOffsetStore(self.instance, GROUP)
        self.member = Membership(instance=self.instance, group=GROUP, config=config, offsets=offsets, trace=trace)
        self.table = self.member.table
        calls = UserCalls(self.member, NamesOfTenant(None), self.on_thread)
        self.locks = FencedLocks(self.member, self, calls, None, self._on_lost, required=required)
        self.ends = self.locks.periods
        self._begin_end = self.ends.begin
        self.ends.begin = self._end  # type: ignore[method-assign]  # so that `done` has it

    async def _broker_connected(self, address: str, endpoint: Endpoint) -> None:
        await self.locks.lock_all_over(address, endpoint)

    def _connection_ended(self, address: str) -> None:
        self.locks.connection_ended(address)

    def _end(self, process_queue: ProcessQueue, cause: EndCause, why: str | None = None) -> None:
        self.done.append(("ends", process_queue.queue, cause))
        self._begin_end(process_queue, cause, why)

    def lock_reacquired(self, process_queue: ProcessQueue) -> None:
        self.done.append(("reacquired", process_queue.queue))

    async def on_thread(self, function: Callable[[], object]) -> object:
        return function()

    async def _on_lost(self, queue: MessageQueue, epoch: int, _why: str) -> None:
        self.done.append(("on_lost", queue, epoch))

    def cancel_calls(self, process_queue: ProcessQueue) -> None:
        self.done.append(("cancelled", process_queue.queue))

    def drop(self, process_queue: ProcessQueue, why: str) -> None:
        if not process_queue.life.dropped:
            process_queue.life.dropped = True
            self.member.record("dropped", process_queue, why=why)
            self.ends.report_lost(process_queue, why)

    def rebalance_soon(self) -> None:
        self.done.append(("rebalance",))

    def causes(self, queue: MessageQueue) -> list[EndCause]:
        return [entry[2] for entry in self.done if entry[:2] == ("ends", queue)]

    async def own(self, *queues: MessageQueue) -> list[ProcessQueue]:
        """Lock queues and begin their periods, as a rebalance does."""
        begun = []
        for queue, grant in (await self.locks.lock(queues)).items():
            hold, now_ms = self.locks.new_hold(grant), self.stage.client.now_ms()
            process_queue = ProcessQueue(queue, len(self.table) + 1, now_ms, hold)
            self.table[queue] = process_queue
            begun.append(process_queue)
        return begun

    def holds(self, process_queue: ProcessQueue) -> bool:
        return self.member.holds_lock(process_queue)


async def fenced_on(
    stage: Stage, *, agrees: bool = True, required: bool = True, lease_ms: int = LEASE_MS, **config: Any
) -> tuple[FakeBroker, FencedTable, Fenced]:
    broker = await stage.broker("broker-a", agrees=agrees)
    stage.route_to({"broker-a": 4})
    table = FencedTable(broker, lease_ms=lease_ms)
    fenced = Fenced(stage, ConsumerConfig(**config), required=required)
    await fenced.instance.routes.fetch(TOPIC)

    async def stop() -> None:
        fenced.locks.watch.stop()
        await fenced.ends.settle(0)

    stage.on_close.append(stop)
    return broker, table, fenced
