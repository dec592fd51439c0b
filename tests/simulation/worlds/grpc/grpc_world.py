"""Worlds of FIFO groups over HTTP/2: members speak gRPC as the official SDKs do, by bytes on the lab's network."""

from collections import Counter
from dataclasses import replace
from typing import Any, Final, cast

from lockstep.protocol.bodies.attributes import MESSAGE_TYPE, MIXED
from lockstep.protocol.bodies.broker import TopicConfig
from lockstep.protocol.bodies.subscription_group import GroupRetryPolicy, SubscriptionGroupConfig
from lockstep.protocol.grpc import messages as pb
from lockstep.simulation.lab.cluster import BROKER, PRODUCER
from lockstep.simulation.lab.experiment import LOCKING, LockMode, SeedResult
from lockstep.simulation.lab.findings import Wrong
from lockstep.simulation.lab.hosts import GROUP, TOPIC
from lockstep.simulation.world import World
from lockstep.simulation.worlds.fifo.fifo_world import FIFO_WORLDS, FifoWorld
from lockstep.simulation.worlds.fifo.observer import Given
from tests.simulation.worlds.grpc.channel import CallError, Channel
from tests.simulation.worlds.grpc.members import PushMember, SimpleMember
from tests.simulation.worlds.grpc.plan import REQUEST_MS, RETRIES, GrpcPlan, draw_grpc_plan
from tests.simulation.worlds.grpc.watch import GrpcWatch, noting_dead_letters

__all__ = ["GRPC_WORLDS", "GrpcWorld"]

_PORT: Final = 8081
_AGAIN_MS: Final = 500
_RENEWED_MS: Final = 60_000  # the first invisible time of what is renewed
_DEAD: Final = f"%DLQ%{GROUP}"
_BODY_BYTES: Final = 150  # so that some windows hold no two messages
_FAILURES: Final = ("call_failed", "read_failed", "http2_failed")


class GrpcWorld(FifoWorld):
    """See FifoWorld."""

    plan: GrpcPlan

    def __init__(self, world: World, plan: GrpcPlan) -> None:
        super().__init__(world, plan)
        self._sender: Channel | None = None
        self.cluster.call_interceptor = GrpcWatch(
            self.deliveries, self.findings.saw, fenced=plan.fenced, grace_ms=plan.grace_ms
        )

    async def run(self) -> None:
        with noting_dead_letters(self.deliveries.dead):
            await super().run()
        for line in self.cluster.log:
            if line.event in _FAILURES:
                self.findings.add(Wrong.REQUEST_FAILED, f"{line.host}: {line.event} {line.fields}")

    @property
    def address(self) -> str:
        return f"{self.world.host(BROKER).address}:{_PORT}"

    def broker_settings(self) -> dict[str, Any]:
        return {**super().broker_settings(), "grpc_port": _PORT}

    async def start_broker(self) -> None:
        self.cluster.when_broker_started.append(self._prepare)
        await super().start_broker()

    def _prepare(self, _: str) -> None:
        """Before anybody calls: as an administrator made topic and group. A restart forgets what is to be renewed."""
        catalog, now_ms = self.cluster.core().catalog, self.world.now_ms
        queues = self.plan.queues
        catalog.topics.put(TopicConfig(TOPIC, queues, queues, attributes=((MESSAGE_TYPE, MIXED),)), now_ms)
        policy = GroupRetryPolicy(is_exponential=True, initial_ms=1000, max_ms=1000, multiplier=1)
        group = SubscriptionGroupConfig(
            GROUP, retry_max_times=RETRIES, consume_message_orderly=True, retry_policy=policy
        )
        catalog.groups.put(group, now_ms)
        self.deliveries.shorten(_not_renewed)

    async def start_member(self, name: str) -> None:
        kind = self.plan.kinds[self.plan.hosts.index(name)]
        if kind == "remoting":
            await self.cluster.start_client(name, lambda runtime, log: self.member(runtime, log, trace=None))
            return
        make = PushMember if kind == "push" else SimpleMember
        await self.cluster.start_client(
            name, lambda runtime, _log: cast("Any", make(self.members, runtime, self.address))
        )

    async def send(self, number: int) -> None:
        if not self.plan.sends_by_grpc:
            await super().send(number)
            return
        key, attempt = f"key{number % self.plan.keys}", 0
        if self._sender is None:
            self._sender = Channel(self.world.host(PRODUCER), self.address, "sender")
        async with self.turns[key]:
            while not await self._is_sent(self._sender, key, number, attempt):
                self.findings.saw("sends made again")
                attempt += 1
                await self.world.sleep_ms(_AGAIN_MS)

    async def _is_sent(self, sender: Channel, key: str, number: int, attempt: int) -> bool:
        request = pb.SendMessageRequest()
        # A number is read with spaces around it.
        message = request.messages.add(body=f"{number}".encode().ljust(_BODY_BYTES))
        message.topic.name = TOPIC
        message.system_properties.message_id = f"{number}-{attempt}"
        message.system_properties.message_group = key
        try:
            answer = await sender.call("SendMessage", request, REQUEST_MS)
        except CallError:
            return False
        return bool(answer.status.code == pb.OK)

    def _dead(self) -> Counter[str]:
        """The ids of the group's dead letters."""
        core = self.cluster.core()
        if core.catalog.topics.get(_DEAD) is None:
            return Counter()
        return Counter(one.msg_id for one in self.cluster.stored(0, topic=_DEAD))

    def _allow_renewed(self) -> None:
        """RocketMQ's proxy renews for three hours what a client that lives never got, as the answer was lost."""
        renewed = {f"{TOPIC}/{BROKER}/{queue_id}" for queue_id in self.deliveries.renewed_queues()}
        stuck = [one for one in self.findings.wrong if one.kind == Wrong.STUCK and one.queue in renewed]
        for one in stuck:
            self.findings.wrong.remove(one)
            self.findings.saw("renewed for nobody")

    async def settle(self) -> None:
        if self._sender is not None:
            self._sender.close()
        await super().settle()
        if not self.plan.fenced:
            self._allow_renewed()
        dead = self._dead()
        if dead:
            self.findings.saw("dead letters")
        for queue_id in range(self.plan.queues):
            for message in self.cluster.stored(queue_id):
                if self.plan.is_poison(message.body.decode()) and message.msg_id not in dead:
                    self.findings.add(Wrong.LOST, f"{message.msg_id} fails each time, and is no dead letter")


def _not_renewed(given: Given) -> int:
    return min(given.end_ms, given.pop_ms + _RENEWED_MS) if given.is_renewed else given.end_ms


class _GrpcWorlds:
    """An Experiment."""

    name = "worlds/grpc"
    summary = "Members of a FIFO group over HTTP/2: as worlds/fifo, and streams are reset and connections said away."
    sometimes: Final = {
        mode: (
            *FIFO_WORLDS.sometimes[mode],
            *("deliveries: slow push", "dead letters", "forwards", "resets inside a batch", "goaways"),
            *("connections given up", "power-off", "cut-one-side", "restart-broker", "answers cut"),
        )
        for mode in LOCKING
    }

    def draw(self, seed: int, mode: LockMode) -> GrpcPlan:
        return draw_grpc_plan(seed, mode)

    def build(self, world: World, plan: GrpcPlan) -> GrpcWorld:
        return GrpcWorld(world, plan)

    def fails(self, outcome: SeedResult) -> bool:
        if outcome.mode is LockMode.FAITHFUL:
            # RocketMQ's proxy reads the end from the handle: when the answer to a renewal is lost, the client's is old.
            wrong = {kind: count for kind, count in outcome.wrong.items() if kind != Wrong.REFUSED_IN_TIME}
            outcome = replace(outcome, wrong=wrong)
        return FIFO_WORLDS.fails(outcome)


GRPC_WORLDS: Final = _GrpcWorlds()
