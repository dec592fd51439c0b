"""What operators do to a group in order, and what it costs: each act begins when all members have joined."""

import asyncio
from collections.abc import Sequence
from typing import Any, Final

from lockstep.client import ConsumeOrderlyStatus, MessageExt
from lockstep.simulation.lab.setup import Setup
from lockstep.simulation.lab.user.story import experiment
from lockstep.simulation.lab.user.story_cluster import StoryCluster

__all__ = [
    "broker_upgrade", "deploy", "queues_added", "replay", "scale_in", "scale_out", "slow_key", "zone_lost",
]  # fmt: skip

_JOINED_MS: Final = 60_000  # three rebalances
_AFTER_MS: Final = 90_000  # a lock of a dead owner lives for 60 s, and others ask for it every 20 s
_END_MS: Final = 1000  # of a process, and its start
_SMALL: Final[dict[str, Any]] = {"consumers": 6, "queues": 12, "rate": 20, "keys": 48, "work": "20ms", "life": "3m"}


async def _joined(cluster: StoryCluster, app: Any = None, *, members: Sequence[str] | None = None) -> None:
    """Start the cluster; what it costs counts from here on."""
    await cluster.start(app, members=members)
    await cluster.at(_JOINED_MS)
    cluster.measured_from_ms = _JOINED_MS


async def _in_turn(cluster: StoryCluster, names: Sequence[str], *, on_new_hosts: bool = False) -> None:
    """End processes, some at once, and start them again, then the next ones.

    On new hosts consumers have other addresses, by which client ids sort.
    """
    own = cluster.setup.parameters
    count, fault = max(own["at_once"], 1), "kill" if own["killed"] else "leave"
    back = "" if on_new_hosts else f"+{own['ready']}ms"
    for first in range(0, len(names), count):
        some = names[first : first + count]
        for task in [cluster.fault(f"{fault} {name}{back}") for name in some]:
            await task
        if on_new_hosts:
            await cluster.run_for(own["ready"])
            number = len(names) + first + 1
            await asyncio.gather(*[cluster.start_member(f"c{number + place}") for place in range(len(some))])
        await cluster.run_for(own["pause"])


def _turns_ms(setup: Setup, count: int) -> int:
    own = setup.parameters
    turns = -(-count // max(own["at_once"], 1))
    return int(_JOINED_MS + turns * (own["ready"] + own["pause"] + _END_MS) + _AFTER_MS)


@experiment(
    **_SMALL, at_once=1, ready="5s", pause="0s", killed=False, new_addresses=False,
    takes=lambda plan: _turns_ms(plan, plan.consumers),
)  # fmt: skip
async def deploy(cluster: StoryCluster) -> None:
    """The members are deployed anew, some at once, while messages come."""
    await _joined(cluster)
    await _in_turn(cluster, cluster.setup.members, on_new_hosts=cluster.setup.parameters["new_addresses"])


@experiment(
    name="broker-upgrade", **{**_SMALL, "queues": 4}, brokers=3, store="async",
    at_once=1, ready="10s", pause="20s", killed=False, takes=lambda plan: _turns_ms(plan, plan.brokers),
)  # fmt: skip
async def broker_upgrade(cluster: StoryCluster) -> None:
    """The brokers end and start again, one after the other, each with its queues."""
    await _joined(cluster)
    await _in_turn(cluster, cluster.brokers)


def _within_ms(setup: Setup) -> int:
    return int(_JOINED_MS + setup.parameters["within"] + _AFTER_MS)


@experiment(name="scale-out", **_SMALL, by=2, within="1s", takes=_within_ms)
async def scale_out(cluster: StoryCluster) -> None:
    """The last ones of the consumers join while the others work."""
    setup, own = cluster.setup, cluster.setup.parameters
    count = max(setup.consumers - own["by"], 1)
    first, later = setup.members[:count], setup.members[count:]
    await _joined(cluster, members=first)
    joins = []
    for name in later:
        joins.append(cluster.world.start(cluster.start_member(name), name=f"join {name}"))
        await cluster.run_for(own["within"] // len(later))
    await asyncio.gather(*joins)


@experiment(name="scale-in", **_SMALL, by=2, within="1s", killed=False, takes=_within_ms)
async def scale_in(cluster: StoryCluster) -> None:
    """The last ones of the consumers leave for good."""
    setup, own = cluster.setup, cluster.setup.parameters
    leaving = setup.members[max(setup.consumers - own["by"], 1) :]
    await _joined(cluster)
    for name in leaving:
        cluster.fault(f"{'kill' if own['killed'] else 'leave'} {name}")
        await cluster.run_for(own["within"] // len(leaving))


@experiment(
    name="zone-lost", **{**_SMALL, "queues": 4}, brokers=3, store="async", zones=3, outage="60s",
    takes=lambda plan: _JOINED_MS + plan.parameters["outage"] + _AFTER_MS,
)  # fmt: skip
async def zone_lost(cluster: StoryCluster) -> None:
    """All machines of a zone lose their power at once: members and, of several, brokers."""
    own = cluster.setup.parameters
    await _joined(cluster)
    zones, lasts = max(own["zones"], 2), f"+{own['outage']}ms" if own["outage"] else ""
    for some in (cluster.setup.members, cluster.brokers):
        for name in some[zones - 1 :: zones]:
            cluster.fault(f"power-off {name}{lasts}")


@experiment(
    name="slow-key", **_SMALL, failing_key=3, fails="30s",
    takes=lambda plan: _JOINED_MS + plan.parameters["fails"] + _AFTER_MS,
)  # fmt: skip
async def slow_key(cluster: StoryCluster) -> None:
    """The calls of one key fail for a time; the queue of the key waits for it."""
    own, work_ms = cluster.setup.parameters, cluster.setup.work_ms
    key, until_ms = f"key{own['failing_key']}", _JOINED_MS + own["fails"]

    async def listen(messages: list[MessageExt], _: Any) -> ConsumeOrderlyStatus | None:
        await asyncio.sleep(work_ms / 1000)
        fails = _JOINED_MS <= cluster.world.elapsed_ms < until_ms
        if fails and any(message.sharding_key == key for message in messages):
            return ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT
        return None

    await _joined(cluster, listen)


@experiment(**_SMALL, reset_by="30s", takes=lambda plan: _JOINED_MS + plan.parameters["reset_by"] + _AFTER_MS)
async def replay(cluster: StoryCluster) -> None:
    """An administrator sets the group back by a time, and its members handle those messages again."""
    own = cluster.setup.parameters
    await _joined(cluster)
    await cluster.run_for(own["reset_by"])
    await cluster.reset_to(cluster.world.now_ms - own["reset_by"])


@experiment(name="queues-added", **_SMALL, by=4, takes=lambda _: _JOINED_MS + _AFTER_MS)
async def queues_added(cluster: StoryCluster) -> None:
    """The topic gets more queues at each broker: many keys go to another queue from then on."""
    own = cluster.setup.parameters
    await _joined(cluster)
    await cluster.add_queues(own["by"])
