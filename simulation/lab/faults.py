"""Faults by name, as they are written ("kill c1@30s", "stall c1@30s+70s") and as they are played."""

from collections.abc import Awaitable, Callable
from enum import Enum
from typing import Final, NamedTuple

from lockstep.client import ClientError
from lockstep.remoting.errors import RemotingError
from lockstep.simulation.errors import HostCrashedError
from lockstep.simulation.lab.durations import duration_ms, duration_text, duration_us
from lockstep.simulation.lab.hosts import BROKER, Hosts
from lockstep.simulation.lab.setup import FaultEvent

__all__ = ["FAULTS", "Fault", "FaultError", "Lasts", "Of", "fault_text", "play", "read_fault"]


class FaultError(ValueError):
    """The text says what is wrong and what is allowed."""


class Of(Enum):
    """What a fault happens to."""

    HOST = "a host"
    LINK = "a link of two hosts, as c1-broker"


class Lasts(Enum):
    """Whether a fault needs `+DURATION`."""

    NEVER = "it has no duration"
    PERHAPS = "it may have a duration"
    ALWAYS = "it needs a duration"


class Fault(NamedTuple):
    """A row of the table.

    Args:
        target: where none is written; empty: it must be written.
        amount: reads `=AMOUNT`; None: there is none.
    """

    name: str
    summary: str
    example: str
    action: Callable[[Hosts, FaultEvent], Awaitable[None]]
    of: Of = Of.HOST
    lasts: Lasts = Lasts.NEVER
    target: str = ""
    amount: Callable[[str], int] | None = None


# Processes ---------------------------------------------------------------------------------------------------


async def _kill(hosts: Hosts, event: FaultEvent) -> None:
    hosts.crash(event.target)
    await _again(hosts, event)


async def _power_off(hosts: Hosts, event: FaultEvent) -> None:
    hosts.power_cut(event.target)
    await _again(hosts, event)


async def _again(hosts: Hosts, event: FaultEvent) -> None:
    if event.duration_ms:
        await hosts.world.sleep_ms(event.duration_ms)
        await hosts.start_again(event.target)


async def _leave(hosts: Hosts, event: FaultEvent) -> None:
    await hosts.stop(event.target)
    await _again(hosts, event)


async def _stall(hosts: Hosts, event: FaultEvent) -> None:
    hosts.world.stall(event.target, event.duration_ms)
    await hosts.world.sleep_ms(event.duration_ms)


async def _sleep(hosts: Hosts, event: FaultEvent) -> None:
    hosts.world.suspend_for(event.target, event.duration_ms)
    await hosts.world.sleep_ms(event.duration_ms)


async def _set_clock(hosts: Hosts, event: FaultEvent) -> None:
    hosts.crash(event.target)
    hosts.world.set_clock(event.target, event.amount)
    await hosts.start_again(event.target)


# Links -------------------------------------------------------------------------------------------------------


async def _cut(hosts: Hosts, event: FaultEvent) -> None:
    hosts.world.cut(event.target, event.other)


async def _cut_one_side(hosts: Hosts, event: FaultEvent) -> None:
    hosts.world.cut_one_side(event.target, event.other)
    hosts.deaf_links.add((event.target, event.other))


async def _partition(hosts: Hosts, event: FaultEvent) -> None:
    hosts.world.partition(event.target, event.other)
    await hosts.world.sleep_ms(event.duration_ms)
    hosts.world.repair(event.target, event.other)


async def _hold(hosts: Hosts, event: FaultEvent) -> None:
    hosts.world.hold(event.target, event.other)
    await hosts.world.sleep_ms(event.duration_ms)
    hosts.world.release(event.target, event.other)


async def _slow(hosts: Hosts, event: FaultEvent) -> None:
    for one, other in ((event.target, event.other), (event.other, event.target)):
        hosts.world.set_latency(one, other, event.amount, event.amount)
    await hosts.world.sleep_ms(event.duration_ms)
    for one, other in ((event.target, event.other), (event.other, event.target)):
        hosts.world.set_latency(one, other)


def _signed_ms(text: str) -> int:
    return -duration_ms(text[1:]) if text.startswith("-") else duration_ms(text.removeprefix("+"))


FAULTS: Final[dict[str, Fault]] = {
    fault.name: fault
    for fault in (
        Fault("kill", "The process is killed; with a duration it starts again after it.", "c1@30s", _kill, lasts=Lasts.PERHAPS),
        Fault("power-off", "The machine loses its power: its peers get no answer, its disk loses what was not synced.", "c1@30s+20s", _power_off, lasts=Lasts.PERHAPS),
        Fault("leave", "The process ends cleanly; with a duration it starts again after it.", "c1@30s", _leave, lasts=Lasts.PERHAPS),
        Fault("restart-broker", "The broker ends cleanly and starts again.", "broker@30s+5s", _leave, lasts=Lasts.ALWAYS, target=BROKER),
        Fault("stall", "The process stops, as by SIGSTOP, and goes on after it.", "c1@30s+70s", _stall, lasts=Lasts.ALWAYS),
        Fault("sleep", "The machine sleeps: timers stand still, clocks go on.", "c1@30s+70s", _sleep, lasts=Lasts.ALWAYS),
        Fault("clock", "The wall clock is set, and the process starts again.", "c1@30s=-5m", _set_clock, amount=_signed_ms),
        Fault("cut", "All connections of two hosts are reset.", "c1-broker@30s", _cut, of=Of.LINK),
        Fault("cut-one-side", "The first host loses its connections; the second one does not hear of it.", "c1-broker@30s", _cut_one_side, of=Of.LINK),
        Fault("partition", "No byte passes between two hosts.", "c1-broker@30s+20s", _partition, of=Of.LINK, lasts=Lasts.ALWAYS),
        Fault("hold", "No byte passes from the first host to the second one.", "broker-c1@30s+20s", _hold, of=Of.LINK, lasts=Lasts.ALWAYS),
        Fault("slow", "Every byte between two hosts is later by so much.", "c1-broker@30s+60s=250ms", _slow, of=Of.LINK, lasts=Lasts.ALWAYS, amount=duration_us),
    )
}  # fmt: skip
"""By name. Every fault ends by itself; `Cluster.heal` does the rest."""


# Text --------------------------------------------------------------------------------------------------------


def read_fault(text: str, *, now_ms: int | None = None) -> FaultEvent:
    """A fault that is written "NAME TARGET@TIME[+DURATION][=AMOUNT]". Raises FaultError.

    Args:
        now_ms: the time, where none is written.
    """
    name, _, rest = text.strip().partition(" ")
    if name not in FAULTS:
        raise FaultError(f"no fault is named {name!r}; there are {', '.join(FAULTS)}")
    fault = FAULTS[name]
    head, has_amount, amount = rest.strip().partition("=")
    head, has_duration, duration = head.partition("+")
    hosts, at_sign, at = head.partition("@")
    if not at_sign and fault.target and now_ms is None:
        hosts, at = "", hosts  # only a time
    target, _, other = (hosts or fault.target).partition("-")
    try:
        event = FaultEvent(
            duration_ms(at) if at or now_ms is None else now_ms,
            name,
            target,
            duration_ms(duration) if has_duration else 0,
            other,
            fault.amount(amount) if has_amount and fault.amount is not None else 0,
        )
    except ValueError as error:
        raise FaultError(f"{name} {rest}: {error} (an example: {name} {fault.example})") from None
    if why := _why_wrong(fault, event, bool(has_amount), bool(has_duration)):
        raise FaultError(f"{name} {rest}: {why} (an example: {name} {fault.example})")
    return event


def _why_wrong(fault: Fault, event: FaultEvent, has_amount: bool, has_duration: bool) -> str:
    if not event.target or (fault.of is Of.LINK) != bool(event.other):
        return f"it is a fault of {fault.of.value}"
    if has_duration != bool(event.duration_ms):
        return "a duration is more than 0"
    if (fault.lasts is Lasts.NEVER and has_duration) or (fault.lasts is Lasts.ALWAYS and not has_duration):
        return str(fault.lasts.value)
    if (fault.amount is not None) != has_amount:
        return "it has no =AMOUNT" if has_amount else "it needs =AMOUNT"
    return ""


def fault_text(event: FaultEvent) -> str:
    """As `read_fault` reads it."""
    amount = ""
    if FAULTS[event.fault].amount is duration_us:
        amount = f"={event.amount}us" if event.amount % 1000 else f"={duration_text(event.amount // 1000)}"
    elif event.amount:
        amount = f"={'-' if event.amount < 0 else ''}{duration_text(abs(event.amount))}"
    hosts = f"{event.target}-{event.other}" if event.other else event.target
    lasts = f"+{duration_text(event.duration_ms)}" if event.duration_ms else ""
    return f"{event.fault} {hosts}@{duration_text(event.at_ms)}{lasts}{amount}"


# Play --------------------------------------------------------------------------------------------------------


async def play(hosts: Hosts, event: FaultEvent) -> bool:
    """Play a fault to its end. Returns False if its hosts are not in a state for it.

    A member that cannot start again stays down.
    """
    if not all(hosts.is_up(name) for name in (event.target, event.other) if name):
        return False
    hosts.findings.saw(event.fault)
    band = hosts.findings.begin(event.fault, event.target, event.other)
    try:
        await FAULTS[event.fault].action(hosts, event)
    except HostCrashedError:
        pass  # another fault ended the host meanwhile
    except (ClientError, RemotingError):
        hosts.findings.saw("starts failed")
        hosts.crash(event.target)  # what was half started
    if hosts.world.elapsed_ms > band.at_ms:
        band.end_ms = hosts.world.elapsed_ms
    return True
