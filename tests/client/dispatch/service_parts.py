"""The parts of a consume service, each of which a test may replace."""

from typing import Any

from lockstep.client.config import ConsumerConfig
from lockstep.client.consumer.dispatch.base import ServiceParts
from lockstep.client.consumer.dispatch.stats import ConsumerStatsManager
from lockstep.client.consumer.listener import AnyListener, Contract, ListenerCall
from lockstep.client.consumer.ownership.membership import Membership
from lockstep.client.instance.client import MQClientInstance
from lockstep.remoting.host.runtime import WorkerPool
from tests.client.stage import Stage

__all__ = ["service_parts"]

_NOWHERE = "10.9.9.9:9876"  # a name server that nobody asks


def service_parts(
    stage: Stage,
    listener: AnyListener,
    contract: Contract[Any],
    config: ConsumerConfig,
    *,
    instance: MQClientInstance | None = None,
    pool: WorkerPool | None = None,
    stats: ConsumerStatsManager | None = None,
    locks: Any,
    **others: Any,
) -> ServiceParts:
    """`others` are the other arguments of Membership; `offsets` must be among them."""
    instance = instance or stage.instance(name_server=_NOWHERE)
    pool = pool or stage.client.new_worker_pool("p", config.consume_thread_count)
    return ServiceParts(
        member=Membership(instance=instance, group="g", config=config, **others),
        call=ListenerCall(listener, pool, stage.log, contract),
        pool=pool,
        locks=locks,
        stats=stats or ConsumerStatsManager(0),
    )
