"""The table of faults: a row has all about a fault, its name, how it is played, its amounts, its words.

The action of a row stands below it. Options of `run`, plans, worlds, swarms and explanations read this table alone.
"""

import random
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from lockstep.client import ClientError
from lockstep.protocol.bodies.broker import TopicRouteData
from lockstep.remoting.errors import RemotingError
from lockstep.simulation.errors import HostCrashedError
from lockstep.simulation.lab.changes import Change
from lockstep.simulation.lab.faults.amounts import (
    bytes_per_s,
    microseconds,
    milliseconds,
    ppm,
    signed_milliseconds,
)
from lockstep.simulation.lab.faults.fault import Action, Fault, Halts, Lasts, Of, Role
from lockstep.simulation.lab.hosts import BROKER, Hosts
from lockstep.simulation.lab.setup import FaultEvent

__all__ = ["FAULTS", "act", "fault_named", "holding", "in_table", "latency", "play"]

_JITTER_STEPS: Final = 20
_ROUTES_EVERY_MS: Final = 500
_READ_PART: Final = 10  # a read of a slow disk takes this part of a sync

_DELAYS: Final = microseconds(20_000, 2_000_000)
_STARTS_AGAIN: Final = "with a duration it starts again after it"
_BOTH: Final = (Role.MEMBER, Role.BROKER)

FAULTS: Final[dict[str, Fault]] = {}
"""By name, in the order of this file. Every fault ends by itself; `Cluster.heal` does the rest."""


def _row(fault: Fault) -> Callable[[Action], Action]:
    """Add a row of the table, of which the decorated function is the action."""

    def add(action: Action) -> Action:
        FAULTS[fault.name] = fault._replace(action=action)
        return action

    return add


# Processes ---------------------------------------------------------------------------------------------------


@_row(
    Fault(
        "kill", "The process is killed.", "c1@30s", did="{a}'s process was killed{again}",
        lasts=Lasts.PERHAPS, then=_STARTS_AGAIN, ends_process=True,
    )
)  # fmt: skip
async def _kill(hosts: Hosts, event: FaultEvent) -> None:
    await _down(hosts, event, hosts.crash)


@_row(
    Fault(
        "power-off", "The machine loses its power: its peers get no answer, its disk loses what was not synced.",
        "c1@30s+20s", did="{a}'s machine lost its power{again}", lasts=Lasts.PERHAPS, ends_process=True,
    )
)  # fmt: skip
async def _power_off(hosts: Hosts, event: FaultEvent) -> None:
    await _down(hosts, event, hosts.power_cut)


@_row(
    Fault(
        "leave", "The process ends cleanly.", "c1@30s", did="{a} was shut down{again}",
        lasts=Lasts.PERHAPS, then=_STARTS_AGAIN, ends_process=True,
    )
)  # fmt: skip
async def _leave(hosts: Hosts, event: FaultEvent) -> None:
    await _down(hosts, event, hosts.stop)


@_row(
    Fault(
        "restart-broker", "The broker ends cleanly and starts again.", "broker@30s+5s", did="{a} was shut down{again}",
        lasts=Lasts.ALWAYS, target=BROKER, ends_process=True,
    )
)  # fmt: skip
async def _restart_broker(hosts: Hosts, event: FaultEvent) -> None:
    await _leave(hosts, event)


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


@_row(
    Fault(
        "stall", "The process stops, as by SIGSTOP, and goes on after it.", "c1@30s+70s",
        did="{a} was stopped{for_} (SIGSTOP)", ended="{a} went on", lasts=Lasts.ALWAYS, halts=Halts.HOST,
    )
)  # fmt: skip
async def _stall(hosts: Hosts, event: FaultEvent) -> None:
    hosts.world.stall(event.target, event.duration_ms)
    await hosts.world.sleep_ms(event.duration_ms)


# Machines ----------------------------------------------------------------------------------------------------


async def _last(hosts: Hosts, event: FaultEvent, *changes: Change) -> None:
    hosts.changes.begin(*changes)
    await hosts.world.sleep_ms(event.duration_ms)
    hosts.changes.end(*changes)


@_row(
    Fault(
        "sleep", "The machine sleeps: timers stand still, clocks go on.", "c1@30s+70s",
        did="{a}'s machine slept{for_}", ended="{a} went on", lasts=Lasts.ALWAYS, halts=Halts.HOST,
    )
)  # fmt: skip
async def _sleep(hosts: Hosts, event: FaultEvent) -> None:
    hosts.world.suspend_for(event.target, event.duration_ms)
    await hosts.world.sleep_ms(event.duration_ms)


@_row(
    Fault(
        "clock", "The wall clock is set, and the process starts again.", "c1@30s=-5m",
        did="{a}'s clock was set, and its process started again",
        amount=signed_milliseconds(-600_000, 600_000), ends_process=True,
    )
)  # fmt: skip
async def _set_clock(hosts: Hosts, event: FaultEvent) -> None:
    hosts.crash(event.target)
    hosts.world.set_clock(event.target, event.amount)
    await hosts.start_again(event.target)


@_row(
    Fault(
        "drift", "All clocks and timers of the machine run faster by so much, or slower.", "c1@30s+60s=-2%",
        did="the clocks of {a} ran at a wrong speed{for_}",
        lasts=Lasts.ALWAYS, drawn=_BOTH, amount=ppm(-20_000, 20_000),
    )
)  # fmt: skip
async def _drift(hosts: Hosts, event: FaultEvent) -> None:
    change = partial(hosts.world.set_drift, event.target)
    await _last(hosts, event, Change(("clock", event.target), partial(change, event.amount), partial(change, 0)))


@_row(
    Fault(
        "slow-cpu", "Each callback takes so long, and later ones wait for it.", "c1@30s+60s=5ms",
        did="each callback of {a} took long{for_}",
        lasts=Lasts.ALWAYS, drawn=_BOTH, amount=microseconds(200, 20_000),
    )
)  # fmt: skip
async def _slow_cpu(hosts: Hosts, event: FaultEvent) -> None:
    change = partial(hosts.world.slow_cpu, event.target)
    await _last(hosts, event, Change(("cpu", event.target), partial(change, event.amount), partial(change, 0)))


@_row(
    Fault(
        "slow-disk",
        "Each sync takes longer by so much, and each read by a tenth of it; a read on the event loop stops the "
        "whole process so long.",
        "broker@30s+60s=200ms", did="{a}'s disk was slow{for_}",
        lasts=Lasts.ALWAYS, drawn=(Role.BROKER,), amount=milliseconds(5, 2000),
    )
)  # fmt: skip
async def _slow_disk(hosts: Hosts, event: FaultEvent) -> None:
    change = partial(hosts.world.slow_disk, event.target)
    slower = partial(change, sync_ms=event.amount, read_ms=event.amount // _READ_PART)
    await _last(hosts, event, Change(("disk", event.target), slower, partial(change, sync_ms=0)))


@_row(
    Fault(
        "hang-disk", "No sync ends before the fault does; what is read comes from the page cache.", "broker@30s+20s",
        did="no sync of {a}'s disk ended{for_}", lasts=Lasts.ALWAYS, drawn=(Role.BROKER,),
    )
)  # fmt: skip
async def _hang_disk(hosts: Hosts, event: FaultEvent) -> None:
    world, name = hosts.world, event.target
    await _last(
        hosts, event, Change(("hanging disk", name), partial(world.hang_disk, name), partial(world.release_disk, name))
    )


# Links -------------------------------------------------------------------------------------------------------


@_row(
    Fault(
        "cut", "All connections of two hosts are reset.", "c1-broker@30s",
        did="the connections between {a} and {b} were cut", of=Of.LINK,
    )
)  # fmt: skip
async def _cut(hosts: Hosts, event: FaultEvent) -> None:
    hosts.world.cut(event.target, event.other)


@_row(
    Fault(
        "close", "Something between two hosts closes their connections; what is under way still arrives.",
        "c1-broker@30s", of=Of.LINK,
        did="something between {a} and {b} closed their connections; what was under way still arrived",
    )
)  # fmt: skip
async def _close(hosts: Hosts, event: FaultEvent) -> None:
    for connection in hosts.world.connections(event.target, event.other):
        connection.close()


@_row(
    Fault(
        "cut-one-side", "The first host loses its connections; the second one does not hear of it.", "c1-broker@30s",
        did="the connections between {a} and {b} ended at {a}; {b} did not hear of it", of=Of.LINK,
    )
)  # fmt: skip
async def _cut_one_side(hosts: Hosts, event: FaultEvent) -> None:
    if hosts.world.cut_one_side(event.target, event.other):
        hosts.findings.saw("one-sided ends")
        hosts.deaf_links.add((event.other, event.target))


@_row(
    Fault(
        "partition", "No byte passes between two hosts.", "c1-broker@30s+20s",
        did="no bytes passed between {a} and {b}{for_}", ended="bytes passed between {a} and {b} again",
        of=Of.LINK, lasts=Lasts.ALWAYS, halts=Halts.BOTH_WAYS,
    )
)  # fmt: skip
async def _partition(hosts: Hosts, event: FaultEvent) -> None:
    world, both = hosts.world, (event.target, event.other)
    thing = ("partition", frozenset(both))
    await _last(hosts, event, Change(thing, partial(world.partition, *both), partial(world.repair, *both)))


@_row(
    Fault(
        "hold", "No byte passes from the first host to the second one.", "broker-c1@30s+20s",
        did="nothing that {a} sent reached {b}{for_}", ended="what {a} had sent went on to {b}",
        of=Of.LINK, lasts=Lasts.ALWAYS, halts=Halts.THERE,
    )
)  # fmt: skip
async def _hold(hosts: Hosts, event: FaultEvent) -> None:
    await _last(hosts, event, holding(hosts, event.target, event.other))


def holding(hosts: Hosts, source: str, target: str) -> Change:
    """No byte passes from one host to the other."""
    world = hosts.world
    return Change(("hold", source, target), partial(world.hold, source, target), partial(world.release, source, target))


@_row(
    Fault(
        "slow", "Every byte between two hosts is later by so much.", "c1-broker@30s+60s=250ms",
        did="all bytes between {a} and {b} were late{for_}", of=Of.LINK, lasts=Lasts.ALWAYS, amount=_DELAYS,
    )
)  # fmt: skip
async def _slow(hosts: Hosts, event: FaultEvent) -> None:
    delays_us = (event.amount, event.amount)
    there = latency(hosts, event.target, event.other, lambda: delays_us)
    await _last(hosts, event, there, latency(hosts, event.other, event.target, lambda: delays_us))


@_row(
    Fault(
        "late", "Every byte from the first host to the second one is later by so much.", "broker-c1@30s+60s=250ms",
        did="all bytes from {a} to {b} were late{for_}", of=Of.LINK, lasts=Lasts.ALWAYS, amount=_DELAYS,
    )
)  # fmt: skip
async def _late(hosts: Hosts, event: FaultEvent) -> None:
    await _last(hosts, event, latency(hosts, event.target, event.other, lambda: (event.amount, event.amount)))


def latency(hosts: Hosts, source: str, target: str, delays_us: Callable[[], tuple[int, int]]) -> Change:
    """Bytes from one host to the other are later. `delays_us`: the lowest and the highest delay now."""
    change = partial(hosts.world.set_latency, source, target)
    return Change(("latency", source, target), lambda: change(*delays_us()), change)


@_row(
    Fault(
        "jitter", "The delay between two hosts changes twenty times, each way for itself, up to so much.",
        "c1-broker@30s+60s=800ms", did="the delay between {a} and {b} changed again and again{for_}",
        of=Of.LINK, lasts=Lasts.ALWAYS, amount=_DELAYS,
    )
)  # fmt: skip
async def _jitter(hosts: Hosts, event: FaultEvent) -> None:
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


@_row(
    Fault(
        "slow-link", "The first host sends the second one only so many bytes a second; they queue.",
        "broker-c1@30s+60s=2kB/s", did="{a} could send few bytes a second to {b}{for_}",
        of=Of.LINK, lasts=Lasts.ALWAYS, amount=bytes_per_s(300, 50_000),
    )
)  # fmt: skip
async def _slow_link(hosts: Hosts, event: FaultEvent) -> None:
    change = partial(hosts.world.set_bandwidth, event.target, event.other)
    thing = ("bandwidth", event.target, event.other)
    await _last(hosts, event, Change(thing, partial(change, event.amount), change))


@_row(
    Fault(
        "nat",
        "Connections of two hosts that were idle for so long are forgotten: what is sent is lost, and neither side "
        "hears of it.",
        "c1-broker@30s+60s=5s",
        did="idle connections between {a} and {b} were forgotten{for_}; neither side heard of it",
        of=Of.LINK, lasts=Lasts.ALWAYS, amount=milliseconds(1000, 20_000),
    )
)  # fmt: skip
async def _nat(hosts: Hosts, event: FaultEvent) -> None:
    await _forget(hosts, event, answers=False)


@_row(
    Fault(
        "nat-reset", "As nat, but the next sender gets a reset; the other side does not hear of it.",
        "c1-broker@30s+60s=5s",
        did="idle connections between {a} and {b} were forgotten{for_}; the next sender got a reset",
        of=Of.LINK, lasts=Lasts.ALWAYS, amount=milliseconds(1000, 20_000),
    )
)  # fmt: skip
async def _nat_with_resets(hosts: Hosts, event: FaultEvent) -> None:
    await _forget(hosts, event, answers=True)


async def _forget(hosts: Hosts, event: FaultEvent, *, answers: bool) -> None:
    both = (event.target, event.other)
    hosts.deaf_links |= {both, both[::-1]}
    change = partial(hosts.world.forget_idle, *both)
    forgetting = partial(change, event.amount, answers=answers)
    await _last(hosts, event, Change(("nat", frozenset(both)), forgetting, partial(change, None)))


# Name servers ------------------------------------------------------------------------------------------------


@_row(
    Fault(
        "stale-routes", "The name server answers the routes that it had so long ago.", "broker@30s+60s=20s",
        did="{a} answered old routes{for_}",
        of=Of.NAME_SERVER, lasts=Lasts.ALWAYS, drawn=(Role.NAME_SERVER,), amount=milliseconds(1000, 60_000),
    )
)  # fmt: skip
async def _stale_routes(hosts: Hosts, event: FaultEvent) -> None:
    """The routes are copied again and again, and the newest copy of the right age is the answer."""
    server, world = hosts.name_server_at(event.target), hosts.world
    door, copies = hosts.door(event.target), deque[tuple[int, dict[str, TopicRouteData | None]]]()

    def route(topic: str) -> TopicRouteData | None:
        while len(copies) > 1 and copies[1][0] <= world.elapsed_ms - event.amount:
            copies.popleft()
        return copies[0][1].get(topic)

    change = Change(("routes", door), partial(door.answer_by, route), partial(door.answer_by, None))
    hosts.changes.begin(change)
    end_ms = world.elapsed_ms + event.duration_ms
    while (left_ms := end_ms - world.elapsed_ms) > 0 and not world.healed:
        copies.append((world.elapsed_ms, {topic: server.route(topic) for topic in server.topics()}))
        await world.sleep_ms(min(left_ms, _ROUTES_EVERY_MS))
    hosts.changes.end(change)


# Faults of worlds --------------------------------------------------------------------------------------------

_OWN: Final = {
    fault.name: fault
    for fault in (
        Fault("join", did="{a} joined the group"),
        Fault(
            "broker table lost", did="{a}'s process was killed, its file of locks was lost{again}", ends_process=True
        ),
        Fault(
            "slow answers",
            did="the answers of {b} reached {a} late, and then not at all{for_}",
            ended="the answers of {b} reached {a} again",
            halts=Halts.BACK,
        ),
        Fault("reset", did="an administrator moved the group's offsets back"),
        Fault("busy", did="{a} refused some requests unread, because it was busy{for_}"),
        Fault("full", did="the store of {a} refused some messages{for_}"),
        Fault("lost answer", did="the answer of a pop with messages for {a} was lost{for_}"),
    )
}
_ITS: Final = "*"  # the member of the event
# Plans of worlds name some hosts in the name of a fault. That name -> the name in the table, and its two hosts.
_IN_WORLDS: Final[dict[str, tuple[str, str, str]]] = {
    "crash": ("kill", _ITS, ""),
    "restart": ("kill", _ITS, ""),  # and the same member again at once
    "power off": ("power-off", _ITS, ""),
    "cut": ("cut", _ITS, BROKER),
    "cut at the member": ("cut-one-side", _ITS, BROKER),
    "cut at the broker": ("cut-one-side", BROKER, _ITS),
    "partition": ("partition", _ITS, BROKER),
    "hold to the broker": ("hold", _ITS, BROKER),
    "hold to the member": ("hold", BROKER, _ITS),
    "slow answers": ("slow answers", _ITS, BROKER),
    "broker stall": ("stall", BROKER, ""),
    "broker stop": ("restart-broker", BROKER, ""),
    "broker kill": ("kill", BROKER, ""),
    "broker power cut": ("power-off", BROKER, ""),
    "broker clock": ("clock", BROKER, ""),
    "broker table lost": ("broker table lost", BROKER, ""),
}


def fault_named(name: str) -> Fault | None:
    """The row of a fault of the table or of a world; None: there is none with this name."""
    name, *_ = _IN_WORLDS.get(name, (name,))
    return FAULTS.get(name) or _OWN.get(name)


def in_table(event: FaultEvent) -> FaultEvent:
    """A fault of any plan with the name and the hosts that the table has for it."""
    if event.other or event.fault not in _IN_WORLDS:
        return event
    name, *hosts = _IN_WORLDS[event.fault]
    target, other = (event.target if host == _ITS else host for host in hosts)
    return event._replace(fault=name, target=target, other=other)


# Play --------------------------------------------------------------------------------------------------------


async def act(hosts: Hosts, event: FaultEvent) -> None:
    """Do what the row of a fault says, to the end of the fault."""
    action = FAULTS[event.fault].action
    assert action is not None
    await action(hosts, event)


async def play(hosts: Hosts, event: FaultEvent) -> bool:
    """Play a fault to its end. Returns False if its hosts are not in a state for it.

    A member that cannot start again stays down. The band of a process that was ended ends when it has started again.
    """
    fault = FAULTS[event.fault]
    is_down = fault.keeps_down and event.target in hosts.kept_down
    if not is_down and not all(hosts.is_up(name) for name in (event.target, event.other) if name):
        return False
    hosts.findings.saw(event.fault)
    band = hosts.findings.begin(event.fault, event.target, event.other)
    band.amount = fault.amount.text(event.amount) if fault.amount is not None else ""
    band.was_down = fault.keeps_down and not hosts.is_up(event.target)
    try:
        await act(hosts, event)
    except HostCrashedError:
        pass  # another fault ended the host meanwhile
    except (ClientError, RemotingError):
        hosts.findings.saw("starts failed")
        hosts.crash(event.target)  # what was half started
    if hosts.world.elapsed_ms > band.at_ms and (not fault.keeps_down or hosts.is_up(event.target)):
        band.end_ms = hosts.world.elapsed_ms
    return True
