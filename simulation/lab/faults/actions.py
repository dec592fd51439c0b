"""How each fault is played against a cluster, and how it ends."""

import random
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from lockstep.protocol.bodies.broker import TopicRouteData
from lockstep.simulation.lab.changes import Change
from lockstep.simulation.lab.hosts import Hosts
from lockstep.simulation.lab.setup import FaultEvent

__all__ = [
    "Action", "cut", "cut_one_side", "drift", "hang_disk", "hold", "holding", "jitter", "kill", "late", "latency",
    "leave", "nat", "nat_with_resets", "partition", "power_off", "set_clock", "sleep", "slow", "slow_cpu", "slow_disk",
    "slow_link", "stale_routes", "stall",
]  # fmt: skip

Action = Callable[[Hosts, FaultEvent], Awaitable[None]]
_JITTER_STEPS: Final = 20
_ROUTES_EVERY_MS: Final = 500
_READ_PART: Final = 10  # a read of a slow disk takes this part of a sync

# Processes ---------------------------------------------------------------------------------------------------


async def kill(hosts: Hosts, event: FaultEvent) -> None:
    await _down(hosts, event, hosts.crash)


async def power_off(hosts: Hosts, event: FaultEvent) -> None:
    await _down(hosts, event, hosts.power_cut)


async def leave(hosts: Hosts, event: FaultEvent) -> None:
    await _down(hosts, event, hosts.stop)


async def _down(hosts: Hosts, event: FaultEvent, stop: Callable[[str], Awaitable[None] | None]) -> None:
    """A process that is down stays so until the last fault that keeps it down is over; one without an end never is."""
    name = event.target
    keeping = hosts.kept_down.setdefault(name, [])
    keeping.append(event)
    if hosts.is_up(name) and (stopping := stop(name)) is not None:
        await stopping
    if event.duration_ms:
        await hosts.world.sleep_ms(event.duration_ms)
        keeping.remove(event)
        if not keeping and hosts.kept_down.get(name) is keeping:
            await hosts.start_again(name)


async def stall(hosts: Hosts, event: FaultEvent) -> None:
    hosts.world.stall(event.target, event.duration_ms)
    await hosts.world.sleep_ms(event.duration_ms)


# Machines ----------------------------------------------------------------------------------------------------


async def _last(hosts: Hosts, event: FaultEvent, *changes: Change) -> None:
    hosts.changes.begin(*changes)
    await hosts.world.sleep_ms(event.duration_ms)
    hosts.changes.end(*changes)


async def sleep(hosts: Hosts, event: FaultEvent) -> None:
    hosts.world.suspend_for(event.target, event.duration_ms)
    await hosts.world.sleep_ms(event.duration_ms)


async def set_clock(hosts: Hosts, event: FaultEvent) -> None:
    hosts.crash(event.target)
    hosts.world.set_clock(event.target, event.amount)
    await hosts.start_again(event.target)


async def drift(hosts: Hosts, event: FaultEvent) -> None:
    change = partial(hosts.world.set_drift, event.target)
    await _last(hosts, event, Change(("clock", event.target), partial(change, event.amount), partial(change, 0)))


async def slow_cpu(hosts: Hosts, event: FaultEvent) -> None:
    change = partial(hosts.world.slow_cpu, event.target)
    await _last(hosts, event, Change(("cpu", event.target), partial(change, event.amount), partial(change, 0)))


async def slow_disk(hosts: Hosts, event: FaultEvent) -> None:
    change = partial(hosts.world.slow_disk, event.target)
    slower = partial(change, sync_ms=event.amount, read_ms=event.amount // _READ_PART)
    await _last(hosts, event, Change(("disk", event.target), slower, partial(change, sync_ms=0)))


async def hang_disk(hosts: Hosts, event: FaultEvent) -> None:
    world, name = hosts.world, event.target
    await _last(
        hosts, event, Change(("hanging disk", name), partial(world.hang_disk, name), partial(world.release_disk, name))
    )


# Links -------------------------------------------------------------------------------------------------------


async def cut(hosts: Hosts, event: FaultEvent) -> None:
    hosts.world.cut(event.target, event.other)


async def cut_one_side(hosts: Hosts, event: FaultEvent) -> None:
    if hosts.world.cut_one_side(event.target, event.other):
        hosts.findings.saw("one-sided ends")
        hosts.deaf_links.add((event.other, event.target))


async def partition(hosts: Hosts, event: FaultEvent) -> None:
    world, both = hosts.world, (event.target, event.other)
    thing = ("partition", frozenset(both))
    await _last(hosts, event, Change(thing, partial(world.partition, *both), partial(world.repair, *both)))


async def hold(hosts: Hosts, event: FaultEvent) -> None:
    await _last(hosts, event, holding(hosts, event.target, event.other))


def holding(hosts: Hosts, source: str, target: str) -> Change:
    """No byte passes from one host to the other."""
    world = hosts.world
    return Change(("hold", source, target), partial(world.hold, source, target), partial(world.release, source, target))


async def slow(hosts: Hosts, event: FaultEvent) -> None:
    delays_us = (event.amount, event.amount)
    there = latency(hosts, event.target, event.other, lambda: delays_us)
    await _last(hosts, event, there, latency(hosts, event.other, event.target, lambda: delays_us))


async def late(hosts: Hosts, event: FaultEvent) -> None:
    await _last(hosts, event, latency(hosts, event.target, event.other, lambda: (event.amount, event.amount)))


def latency(hosts: Hosts, source: str, target: str, delays_us: Callable[[], tuple[int, int]]) -> Change:
    """Bytes from one host to the other are later. `delays_us`: the lowest and the highest delay now."""
    change = partial(hosts.world.set_latency, source, target)
    return Change(("latency", source, target), lambda: change(*delays_us()), change)


async def jitter(hosts: Hosts, event: FaultEvent) -> None:
    """Each way has another delay after each twentieth of the duration."""
    rng, world = random.Random(f"{hosts.world.seed}/{event}"), hosts.world

    def draw_us() -> tuple[int, int]:
        one_us, other_us = rng.randrange(event.amount + 1), rng.randrange(event.amount + 1)
        return min(one_us, other_us), max(one_us, other_us)

    links = (event.target, event.other), (event.other, event.target)
    changes = [latency(hosts, *link, draw_us) for link in links]
    end_ms, step_ms = world.elapsed_ms + event.duration_ms, event.duration_ms // _JITTER_STEPS + 1
    hosts.changes.begin(*changes)
    await world.sleep_ms(step_ms)
    while (left_ms := end_ms - world.elapsed_ms) > 0 and not world.healed:
        hosts.changes.again(*changes)
        await world.sleep_ms(min(left_ms, step_ms))
    hosts.changes.end(*changes)


async def slow_link(hosts: Hosts, event: FaultEvent) -> None:
    change = partial(hosts.world.set_bandwidth, event.target, event.other)
    thing = ("bandwidth", event.target, event.other)
    await _last(hosts, event, Change(thing, partial(change, event.amount), change))


async def nat(hosts: Hosts, event: FaultEvent) -> None:
    await _forget(hosts, event, answers=False)


async def nat_with_resets(hosts: Hosts, event: FaultEvent) -> None:
    await _forget(hosts, event, answers=True)


async def _forget(hosts: Hosts, event: FaultEvent, *, answers: bool) -> None:
    both = (event.target, event.other)
    hosts.deaf_links |= {both, both[::-1]}
    change = partial(hosts.world.forget_idle, *both)
    forgetting = partial(change, event.amount, answers=answers)
    await _last(hosts, event, Change(("nat", frozenset(both)), forgetting, partial(change, None)))


# Name servers ------------------------------------------------------------------------------------------------


async def stale_routes(hosts: Hosts, event: FaultEvent) -> None:
    """The routes are copied again and again, and the newest copy of the right age is the answer."""
    server, world = hosts.name_server_at(event.target), hosts.world
    now, copies = partial(type(server).route, server), deque[tuple[int, dict[str, TopicRouteData | None]]]()

    def route(topic: str) -> TopicRouteData | None:
        while len(copies) > 1 and copies[1][0] <= world.elapsed_ms - event.amount:
            copies.popleft()
        return copies[0][1].get(topic)

    usual = partial(vars(server).pop, "route", None)  # once all is healed each of two faults ends it
    change = Change(("routes", server), partial(setattr, server, "route", route), usual)
    hosts.changes.begin(change)
    end_ms = world.elapsed_ms + event.duration_ms
    while (left_ms := end_ms - world.elapsed_ms) > 0 and not world.healed:
        copies.append((world.elapsed_ms, {topic: now(topic) for topic in server.topics()}))
        await world.sleep_ms(min(left_ms, _ROUTES_EVERY_MS))
    hosts.changes.end(change)
