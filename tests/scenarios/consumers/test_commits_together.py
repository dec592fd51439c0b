"""Offsets of one moment leave in one frame to a Lockstep broker (docs/wire.md 17.2)."""

from collections import Counter
from collections.abc import Callable

import pytest

from lockstep.protocol.codes import RequestCode
from lockstep.protocol.command import RemotingCommand
from lockstep.remoting.connections.endpoint import Endpoint, RequestHandler
from lockstep.simulation import World, simulate
from lockstep.simulation.lab.cluster import Cluster
from lockstep.simulation.lab.hosts import GROUP, TOPIC
from lockstep.simulation.lab.setup import LOCKING, LockMode, Setup

TOGETHER, ALONE = RequestCode.COMMIT_TOGETHER, RequestCode.UPDATE_CONSUMER_OFFSET


class Counted:
    """Counts the requests of a broker by code."""

    def __init__(self) -> None:
        self.codes = Counter[int]()

    def delay(self, factory: Callable[[], Endpoint]) -> Callable[[], Endpoint]:
        return factory

    def intercept(self, on_request: RequestHandler) -> RequestHandler:
        def counted(endpoint: Endpoint, command: RemotingCommand) -> RemotingCommand | None:
            self.codes[command.code] += 1
            return on_request(endpoint, command)

        return counted


@pytest.mark.parametrize("lock_mode", LOCKING)
@pytest.mark.parametrize("together", [True, False])
def test_offsets_of_all_queues_are_stored(lock_mode: LockMode, together: bool) -> None:
    """In frames, or one by one where the setting says so; the broker has the same offsets, and order is kept."""

    async def scenario(world: World) -> Counter[int]:
        counted = Counted()
        cluster = Cluster(world, Setup(lock_mode=lock_mode), tap=lambda _: counted)
        broker = (await cluster.broker(queues=4)).broker
        assert broker is not None
        await cluster.producer()
        settings = {"commit_together": together, "persist_consumer_offset_interval_ms": 1000}

        async def listen(messages: object, context: object) -> None:
            return None

        await cluster.consumer("c1", listener=listen, **settings)
        await cluster.at("5s")
        await cluster.send(40)
        await cluster.at("20s")
        assert sum(broker.catalog.offsets.stored(GROUP, TOPIC, queue_id) or 0 for queue_id in range(4)) == 40
        await cluster.shut_down()
        assert not cluster.judge().violations
        return counted.codes

    codes = simulate(scenario).value
    assert bool(codes[TOGETHER]) is together
    if not together:
        assert codes[ALONE] >= 4
