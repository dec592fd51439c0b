"""What clients of gRPC see, beside RocketMQ 5.5.0's proxy: the cases that both were asked, on virtual time."""

import asyncio
import json
from pathlib import Path

import pytest

from lockstep.broker.core.broker import Broker
from lockstep.protocol.bodies.attributes import MESSAGE_TYPE
from lockstep.protocol.bodies.broker import TopicConfig
from lockstep.protocol.bodies.subscription_group import GroupRetryPolicy, SubscriptionGroupConfig
from lockstep.remoting.host.runtime import Runtime
from lockstep.simulation import World
from tests.broker.cluster import Served
from tests.broker.fronts.grpc.grpc_client import GrpcClient
from tests.broker.fronts.grpc.story import on_a_broker
from tests.differential.grpc.cases import CASES
from tests.differential.grpc.differences import unexplained
from tests.differential.grpc.played import Played
from tests.differential.grpc.player import Seen, names_of, play
from tests.differential.grpc.steps import Case
from tests.rows import each_row

RECORDED = Path(__file__).parents[3] / "vectors" / "grpc-5.5.0.ndjson"
RECORDED_LATE_S = 1.0  # how late a busy machine is
SETTINGS = {
    "dead_letter_at_once": True,
    "property_filter": True,
    "transaction_timeout_ms": 1000,
    "transaction_check_interval_ms": 2000,
}


class Site:
    """The broker of a story."""

    def __init__(self, runtime: Runtime, broker: Broker, address: str) -> None:
        self.runtime: Runtime = runtime
        self.address = address
        self._broker = broker

    def prepare(self, case: Case) -> None:
        topic, group = names_of(case, 0)
        if case.queues:
            self._put_topic(topic, case.queues, case.message_type)
        if case.in_order is None:
            return
        policy = case.retry_policy
        config = SubscriptionGroupConfig(
            group,
            retry_max_times=case.retries,
            consume_message_orderly=case.in_order,
            retry_policy=None if policy is None else GroupRetryPolicy.from_wire(policy),
        )
        self._broker.catalog.groups.put(config, self.runtime.now_ms())

    def _put_topic(self, topic: str, queues: int, message_type: str) -> None:
        attributes = ((MESSAGE_TYPE, message_type),) if message_type else ()
        self._broker.catalog.topics.put(
            TopicConfig(topic, queues, queues, attributes=attributes), self.runtime.now_ms()
        )

    async def committed(self, topic: str, group: str) -> int | None:
        return self._broker.catalog.offsets.stored(group, topic, 0)

    async def resize(self, topic: str, queues: int, message_type: str) -> None:
        self._put_topic(topic, queues, message_type)


@pytest.mark.timeout(120)
def test_all_is_seen_alike() -> None:
    """The same facts in the same order, and times at most as far apart as when both were asked."""
    recorded = {row["case"]: row for row in map(json.loads, RECORDED.read_text(encoding="utf-8").splitlines())}
    assert set(recorded) == {case.id for case in CASES}
    seen: dict[str, Seen] = {}

    async def story(world: World, served: Served, client: GrpcClient) -> None:
        assert served.server.broker is not None
        site = Site(world.host("c1"), served.server.broker, served.server.grpc_address)
        for case in CASES:
            site.prepare(case)
        found = await asyncio.gather(*(play(case, site, 0) for case in CASES))
        seen.update({case.id: one for case, one in zip(CASES, found, strict=True)})

    on_a_broker(story, **SETTINGS)
    with each_row() as row:
        for case in CASES:
            with row(case.id):
                was = recorded[case.id]
                played = Played(
                    case, Seen(was["facts"], was["times_s"]), seen[case.id], was["late_s"] + RECORDED_LATE_S
                )
                assert unexplained(played) == []
                assert played.apart() == []
