"""How each fault is played against a cluster, and how it ends."""

import random
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from lockstep.protocol.bodies.broker import TopicRouteData
from lockstep.simulation.lab.hosts import Hosts
from lockstep.simulation.lab.setup import FaultEvent

__all__ = [
    "Action", "cut", "cut_one_side", "drift", "hang_disk", "hold", "jitter", "kill", "late", "leave", "nat",
    "nat_with_resets", "partition", "power_off", "set_clock", "sleep", "slow", "slow_cpu", "slow_disk", "slow_link",
    "stale_routes", "stall",
]  # fmt: skip

Action = Callable[[Hosts, FaultEvent], Awaitable[None]]
_JITTER_STEPS: Final = 20
_ROUTES_EVERY_MS: Final = 500
_READ_PART: Final = 10  # a read of a slow disk takes this part of a sync

# Processes ---------------------------------------------------------------------------------------------------


async def kill(hosts: Hosts, event: FaultEvent) -> None:
    hosts.crash(event.target)
    await _again(hosts, event)


async def power_off(hosts: Hosts, event: FaultEvent) -> None:
    hosts.power_cut(event.target)
    await _again(hosts, event)


async def _again(hosts: Hosts, event: FaultEvent) -> None:
    if event.duration_ms:
        await hosts.world.sleep_ms(event.duration_ms)
        await hosts.start_again(event.target)


async def leave(hosts: Hosts, event: FaultEvent) -> None:
    await hosts.stop(event.target)
    await _again(hosts, event)


async def stall(hosts: Hosts, event: FaultEvent) -> None:
    hosts.world.stall(event.target, event.duration_ms)
    await hosts.world.sleep_ms(event.duration_ms)


# Machines ----------------------------------------------------------------------------------------------------


async def sleep(hosts: Hosts, event: FaultEvent) -> None:
    hosts.world.suspend_for(event.target, event.duration_ms)
    await hosts.world.sleep_ms(event.duration_ms)


async def set_clock(hosts: Hosts, event: FaultEvent) -> None:
    hosts.crash(event.target)
    hosts.world.set_clock(event.target, event.amount)
    await hosts.start_again(event.target)


async def drift(hosts: Hosts, event: FaultEvent) -> None:
    hosts.world.set_drift(event.target, event.amount)
    await hosts.world.sleep_ms(event.duration_ms)
    hosts.world.set_drift(event.target, 0)


async def slow_cpu(hosts: Hosts, event: FaultEvent) -> None:
    hosts.world.slow_cpu(event.target, event.amount)
    await hosts.world.sleep_ms(event.duration_ms)
    hosts.world.slow_cpu(event.target, 0)


async def slow_disk(hosts: Hosts, event: FaultEvent) -> None:
    hosts.world.slow_disk(event.target, sync_ms=event.amount, read_ms=event.amount // _READ_PART)
    await hosts.world.sleep_ms(event.duration_ms)
    hosts.world.slow_disk(event.target, sync_ms=0)


async def hang_disk(hosts: Hosts, event: FaultEvent) -> None:
    hosts.world.hang_disk(event.target)
    await hosts.world.sleep_ms(event.duration_ms)
    hosts.world.release_disk(event.target)


# Links -------------------------------------------------------------------------------------------------------


async def cut(hosts: Hosts, event: FaultEvent) -> None:
    hosts.world.cut(event.target, event.other)


async def cut_one_side(hosts: Hosts, event: FaultEvent) -> None:
    if hosts.world.cut_one_side(event.target, event.other):
        hosts.findings.saw("one-sided ends")
        hosts.deaf_links.add((event.other, event.target))


async def partition(hosts: Hosts, event: FaultEvent) -> None:
    hosts.world.partition(event.target, event.other)
    await hosts.world.sleep_ms(event.duration_ms)
    hosts.world.repair(event.target, event.other)


async def hold(hosts: Hosts, event: FaultEvent) -> None:
    hosts.world.hold(event.target, event.other)
    await hosts.world.sleep_ms(event.duration_ms)
    hosts.world.release(event.target, event.other)


async def slow(hosts: Hosts, event: FaultEvent) -> None:
    await _late(hosts, event, (event.target, event.other), (event.other, event.target))


async def late(hosts: Hosts, event: FaultEvent) -> None:
    await _late(hosts, event, (event.target, event.other))


async def _late(hosts: Hosts, event: FaultEvent, *links: tuple[str, str]) -> None:
    for link in links:
        hosts.world.set_latency(*link, event.amount, event.amount)
    await hosts.world.sleep_ms(event.duration_ms)
    for link in links:
        hosts.world.set_latency(*link)


async def jitter(hosts: Hosts, event: FaultEvent) -> None:
    """Each way has another delay after each twentieth of the duration."""
    rng = random.Random(f"{hosts.world.seed}/{event}")
    links = (event.target, event.other), (event.other, event.target)
    end_ms = hosts.world.elapsed_ms + event.duration_ms
    while (left_ms := end_ms - hosts.world.elapsed_ms) > 0 and not hosts.world.healed:
        for link in links:
            low_us, high_us = sorted((rng.randrange(event.amount + 1), rng.randrange(event.amount + 1)))
            hosts.world.set_latency(*link, low_us, high_us)
        await hosts.world.sleep_ms(min(left_ms, event.duration_ms // _JITTER_STEPS + 1))
    for link in links:
        hosts.world.set_latency(*link)


async def slow_link(hosts: Hosts, event: FaultEvent) -> None:
    hosts.world.set_bandwidth(event.target, event.other, event.amount)
    await hosts.world.sleep_ms(event.duration_ms)
    hosts.world.set_bandwidth(event.target, event.other)


async def nat(hosts: Hosts, event: FaultEvent) -> None:
    await _forget(hosts, event, answers=False)


async def nat_with_resets(hosts: Hosts, event: FaultEvent) -> None:
    await _forget(hosts, event, answers=True)


async def _forget(hosts: Hosts, event: FaultEvent, *, answers: bool) -> None:
    hosts.deaf_links |= {(event.target, event.other), (event.other, event.target)}
    hosts.world.forget_idle(event.target, event.other, event.amount, answers=answers)
    await hosts.world.sleep_ms(event.duration_ms)
    hosts.world.forget_idle(event.target, event.other, None)


# Name servers ------------------------------------------------------------------------------------------------


async def stale_routes(hosts: Hosts, event: FaultEvent) -> None:
    """The routes are copied again and again, and the newest copy of the right age is the answer.

    Of two such faults at once the later one answers.
    """
    server, world = hosts.name_server_at(event.target), hosts.world
    now, copies = partial(type(server).route, server), deque[tuple[int, dict[str, TopicRouteData | None]]]()

    def route(topic: str) -> TopicRouteData | None:
        while len(copies) > 1 and copies[1][0] <= world.elapsed_ms - event.amount:
            copies.popleft()
        return copies[0][1].get(topic)

    server.route = route  # type: ignore[method-assign]
    end_ms = world.elapsed_ms + event.duration_ms
    while (left_ms := end_ms - world.elapsed_ms) > 0 and not world.healed:
        copies.append((world.elapsed_ms, {topic: now(topic) for topic in server.topics()}))
        await world.sleep_ms(min(left_ms, _ROUTES_EVERY_MS))
    if vars(server).get("route") is route:
        del server.route
