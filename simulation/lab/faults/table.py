"""The table of faults: a row has all about a fault, its name, how it is played, its amounts, its words.

The action of a row stands below it. Options of `run`, plans, worlds, swarms and explanations read this table alone.
"""

import random
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from lockstep.client import ClientError, Producer
from lockstep.protocol.bodies.broker import TopicRouteData
from lockstep.remoting.errors import RemotingError
from lockstep.simulation.errors import HostCrashedError
from lockstep.simulation.lab.changes import Change
from lockstep.simulation.lab.faults.amounts import (
    bytes_per_s,
    key_number,
    microseconds,
    milliseconds,
    ppm,
    signed_milliseconds,
)
from lockstep.simulation.lab.faults.fault import Action, Fault, Halts, Lasts, Of, Role, down_hosts
from lockstep.simulation.lab.faults.of_worlds import IN_WORLDS, ITS, OF_WORLDS
from lockstep.simulation.lab.findings import Idle
from lockstep.simulation.lab.hosts import BROKER, PRODUCER, Hosts
from lockstep.simulation.lab.setup import FaultEvent

__all__ = ["FAULTS", "act", "fault_named", "holding", "in_table", "latency", "play", "why_idle"]

_JITTER_STEPS: Final = 20
_ROUTES_EVERY_MS: Final = 500
_READ_PART: Final = 10  # a read of a slow disk takes this part of a sync

_DELAYS: Final = microseconds(20_000, 2_000_000)
_STARTS_AGAIN: Final = "with a duration it starts again after it"
_BOTH: Final = (Role.MEMBER, Role.BROKER)

FAULTS: Final[dict[str, Fault]] = {}
"""By name, in the order of this file. A fault ends by itself, or by another one; `Cluster.heal` does the rest."""


def _row(fault: Fault) -> Callable[[Action], Action]:
    """Add a row of the table, of which the decorated function is the action."""

    def add(action: Action) -> Action:
        FAULTS[fault.name] = fault._replace(action=action)
        return action

    return add


def _runs_and_has_none(hosts: Hosts, event: FaultEvent) -> str:
    """Of a fault without an amount: one more that lasts as long, or shorter, changes nothing."""
    endless = any(one[1:] == (event.fault, event.target, 0, event.other, 0) for one in hosts.lasting.now)
    where = f"{event.target}-{event.other}" if event.other else event.target
    return down_hosts(hosts, event) or (f"{event.fault} {where} lasts already" if endless else "")


def _without_listener(hosts: Hosts, event: FaultEvent) -> str:
    """A consumer that calls no listener, or another client."""
    no_listener = "" if hosts.listeners.knows(event.target) else f"{event.target} has no listener"
    return down_hosts(hosts, event) or no_listener


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
        await hosts.lasting.until_over(event)
        keeping.remove(event)
        if not keeping and hosts.kept_down.get(name) is keeping:
            await hosts.start_again(name)


@_row(
    Fault(
        "stall", "The process stops, as by SIGSTOP, and goes on after it.", "c1@30s+70s",
        did="{a} was stopped{for_} (SIGSTOP)", ended="{a} went on", lasts=Lasts.UNTIL_ENDED, halts=Halts.HOST,
        idle=_runs_and_has_none,
    )
)  # fmt: skip
async def _stall(hosts: Hosts, event: FaultEvent) -> None:
    hosts.world.stall(event.target, event.duration_ms or None)
    await hosts.lasting.until_over(event, of_process=True)


@_row(
    Fault(
        "start", "A process that is down starts.", "c1@50s", did="{a} was started", drawn=_BOTH, by_hand=True,
        idle=lambda hosts, event: "" if hosts.may_start(event.target) else f"{event.target} is not down",
    )
)  # fmt: skip
async def _start(hosts: Hosts, event: FaultEvent) -> None:
    """Faults that keep the process down are over."""
    kept = tuple(hosts.kept_down.get(event.target, ()))
    await hosts.start_again(event.target)
    hosts.lasting.end(lambda other: other in kept)
    moments = {(other.at_ms, other.fault, other.target) for other in kept}
    for band in hosts.findings.bands:
        if band.end_ms is None and (band.at_ms, band.fault, band.target) in moments:
            band.end_ms = hosts.world.elapsed_ms


@_row(
    Fault(
        "go-on", "What lasts on a host ends: it is no longer stopped, asleep or slow.", "c1@50s",
        did="what lasted on {a} ended", drawn=_BOTH, by_hand=True,
        idle=lambda hosts, event: "" if _lasts_on(hosts, event.target) else f"nothing lasts on {event.target}",
    )
)  # fmt: skip
async def _go_on(hosts: Hosts, event: FaultEvent) -> None:
    name = event.target
    hosts.lasting.end(lambda other: other.target == name and not other.other and not FAULTS[other.fault].ends_process)
    if hosts.is_up(name):
        hosts.world.wake(name)
        hosts.world.resume(name)


def _lasts_on(hosts: Hosts, name: str) -> bool:
    host = hosts.world.host(name).host if hosts.is_up(name) else None
    of_host = (one for one in hosts.lasting.now if one.target == name and not one.other)
    lasts = any(not FAULTS[one.fault].ends_process for one in of_host)
    return lasts or (host is not None and (host.paused or host.asleep))


# Machines ----------------------------------------------------------------------------------------------------


async def _last(hosts: Hosts, event: FaultEvent, *changes: Change) -> None:
    hosts.changes.begin(*changes)
    await hosts.lasting.until_over(event)
    hosts.changes.end(*changes)


@_row(
    Fault(
        "sleep", "The machine sleeps: timers stand still, clocks go on.", "c1@30s+70s",
        did="{a}'s machine slept{for_}", ended="{a} went on", lasts=Lasts.UNTIL_ENDED, halts=Halts.HOST,
        idle=_runs_and_has_none,
    )
)  # fmt: skip
async def _sleep(hosts: Hosts, event: FaultEvent) -> None:
    hosts.world.suspend_for(event.target, event.duration_ms or None)
    await hosts.lasting.until_over(event, of_process=True)


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
        lasts=Lasts.UNTIL_ENDED, drawn=_BOTH, amount=microseconds(200, 20_000),
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
        lasts=Lasts.UNTIL_ENDED, drawn=(Role.BROKER,), amount=milliseconds(5, 2000),
    )
)  # fmt: skip
async def _slow_disk(hosts: Hosts, event: FaultEvent) -> None:
    change = partial(hosts.world.slow_disk, event.target)
    slower = partial(change, sync_ms=event.amount, read_ms=event.amount // _READ_PART)
    await _last(hosts, event, Change(("disk", event.target), slower, partial(change, sync_ms=0)))


@_row(
    Fault(
        "hang-disk", "No sync ends before the fault does; what is read comes from the page cache.", "broker@30s+20s",
        did="no sync of {a}'s disk ended{for_}", lasts=Lasts.UNTIL_ENDED, drawn=(Role.BROKER,),
        idle=_runs_and_has_none,
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
        of=Of.LINK, lasts=Lasts.UNTIL_ENDED, halts=Halts.BOTH_WAYS, idle=_runs_and_has_none,
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
        of=Of.LINK, lasts=Lasts.UNTIL_ENDED, halts=Halts.THERE, idle=_runs_and_has_none,
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
        did="all bytes between {a} and {b} were late{for_}", of=Of.LINK, lasts=Lasts.UNTIL_ENDED, amount=_DELAYS,
    )
)  # fmt: skip
async def _slow(hosts: Hosts, event: FaultEvent) -> None:
    delays_us = (event.amount, event.amount)
    there = latency(hosts, event.target, event.other, lambda: delays_us)
    await _last(hosts, event, there, latency(hosts, event.other, event.target, lambda: delays_us))


@_row(
    Fault(
        "late", "Every byte from the first host to the second one is later by so much.", "broker-c1@30s+60s=250ms",
        did="all bytes from {a} to {b} were late{for_}", of=Of.LINK, lasts=Lasts.UNTIL_ENDED, amount=_DELAYS,
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
    with hosts.lasting.during(event) as span:
        await span.sleep_ms(step_ms)
        while (left_ms := end_ms - world.elapsed_ms) > 0 and not world.healed and not span.ended:
            hosts.changes.again(*changes)
            await span.sleep_ms(min(left_ms, step_ms))
    hosts.changes.end(*changes)


@_row(
    Fault(
        "slow-link", "The first host sends the second one only so many bytes a second; they queue.",
        "broker-c1@30s+60s=2kB/s", did="{a} could send few bytes a second to {b}{for_}",
        of=Of.LINK, lasts=Lasts.UNTIL_ENDED, amount=bytes_per_s(300, 50_000),
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


@_row(
    Fault(
        "mend", "What lasts between two hosts ends: their bytes pass again, and in time.", "c1-broker@60s",
        did="what lasted between {a} and {b} ended", of=Of.LINK, by_hand=True,
        idle=lambda hosts, event: "" if _lasts_between(hosts, event) else (
            f"nothing lasts between {event.target} and {event.other}"
        ),
    )
)  # fmt: skip
async def _mend(hosts: Hosts, event: FaultEvent) -> None:
    both = {event.target, event.other}
    hosts.lasting.end(lambda other: {other.target, other.other} == both)


def _lasts_between(hosts: Hosts, event: FaultEvent) -> bool:
    return any({one.target, one.other} == {event.target, event.other} for one in hosts.lasting.now)


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
    with hosts.lasting.during(event) as span:
        while (left_ms := end_ms - world.elapsed_ms) > 0 and not world.healed and not span.ended:
            copies.append((world.elapsed_ms, {topic: server.route(topic) for topic in server.topics()}))
            await span.sleep_ms(min(left_ms, _ROUTES_EVERY_MS))
    hosts.changes.end(change)


# Messages and listeners --------------------------------------------------------------------------------------


@_row(
    Fault(
        "send", "One message more, with the next number of the run and with this key.", "producer@30s=key3",
        did="{a} sent one message more", target=PRODUCER, drawn=(Role.PRODUCER,), amount=key_number(16), by_hand=True,
        idle=lambda hosts, event: down_hosts(hosts, event) or _sends_nothing(hosts, event.target),
    )
)  # fmt: skip
async def _send(hosts: Hosts, event: FaultEvent) -> None:
    assert hosts.send_more is not None
    hosts.send_more(event.target, event.amount - 1)


def _sends_nothing(hosts: Hosts, name: str) -> str:
    may = hosts.send_more is not None and isinstance(hosts.client(name), Producer)
    return "" if may else f"{name} has no messages to send"


@_row(
    Fault(
        "slow-listener", "Each call of the listener takes longer by so much.", "c1@30s+20s=2s",
        did="each call of {a}'s listener took longer{for_}",
        lasts=Lasts.UNTIL_ENDED, amount=milliseconds(10, 5000), by_hand=True, idle=_without_listener,
    )
)  # fmt: skip
async def _slow_listener(hosts: Hosts, event: FaultEvent) -> None:
    change = partial(hosts.listeners.slow, event.target)
    await _last(
        hosts, event, Change(("slow listener", event.target), partial(change, event.amount), partial(change, 0))
    )


@_row(
    Fault(
        "fail-listener", "Each call fails: the listener asks for another attempt, and does nothing.", "c1@30s+20s",
        did="each call of {a}'s listener failed{for_}", ended="{a}'s listener succeeded again",
        lasts=Lasts.UNTIL_ENDED, by_hand=True,
        idle=lambda hosts, event: _without_listener(hosts, event) or _runs_and_has_none(hosts, event),
    )
)  # fmt: skip
async def _fail_listener(hosts: Hosts, event: FaultEvent) -> None:
    change = partial(hosts.listeners.fail, event.target)
    await _last(
        hosts,
        event,
        Change(("failing listener", event.target), partial(change, fails=True), partial(change, fails=False)),
    )


# Faults of worlds --------------------------------------------------------------------------------------------


def fault_named(name: str) -> Fault | None:
    """The row of a fault of the table or of a world; None: there is none with this name."""
    name, *_ = IN_WORLDS.get(name, (name,))
    return FAULTS.get(name) or OF_WORLDS.get(name)


def in_table(event: FaultEvent) -> FaultEvent:
    """A fault of any plan with the name and the hosts that the table has for it."""
    if event.other or event.fault not in IN_WORLDS:
        return event
    name, *hosts = IN_WORLDS[event.fault]
    target, other = (event.target if host == ITS else host for host in hosts)
    return event._replace(fault=name, target=target, other=other)


# Play --------------------------------------------------------------------------------------------------------


async def act(hosts: Hosts, event: FaultEvent) -> None:
    """Do what the row of a fault says, to the end of the fault."""
    action = FAULTS[event.fault].action
    assert action is not None
    await action(hosts, event)


def why_idle(hosts: Hosts, event: FaultEvent) -> str:
    """Why a fault would have no effect now; empty: it has one."""
    fault = FAULTS[event.fault]
    is_down = fault.keeps_down and event.target in hosts.kept_down
    return "" if is_down else fault.idle(hosts, event)


async def play(hosts: Hosts, event: FaultEvent) -> bool:
    """Play a fault to its end. Returns False if its hosts are not in a state for it.

    A member that cannot start again stays down. The band of a process that was ended ends when it has started again.
    """
    fault = FAULTS[event.fault]
    if why := why_idle(hosts, event):
        hosts.findings.idle.append(Idle(hosts.world.elapsed_ms, event, why))
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
    lasts = not (fault.by_hand and fault.lasts is Lasts.NEVER)  # a start takes a moment
    if lasts and hosts.world.elapsed_ms > band.at_ms and (not fault.keeps_down or hosts.is_up(event.target)):
        band.end_ms = hosts.world.elapsed_ms
    return True
