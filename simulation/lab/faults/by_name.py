"""Faults by name, as they are written ("kill c1@30s", "stall c1@30s+70s") and as they are played."""

from collections.abc import Collection
from enum import Enum
from typing import Final, NamedTuple

from lockstep.client import ClientError
from lockstep.remoting.errors import RemotingError
from lockstep.remoting.texts import known_names
from lockstep.simulation.errors import HostCrashedError
from lockstep.simulation.lab.durations import duration_ms, duration_text
from lockstep.simulation.lab.faults import actions as do
from lockstep.simulation.lab.faults.amounts import (
    Amount,
    bytes_per_s,
    microseconds,
    milliseconds,
    ppm,
    signed_milliseconds,
)
from lockstep.simulation.lab.hosts import BROKER, Hosts
from lockstep.simulation.lab.setup import FaultEvent

__all__ = [
    "FAULTS",
    "Fault",
    "FaultError",
    "Lasts",
    "Of",
    "Role",
    "check_hosts",
    "fault_text",
    "play",
    "read_fault",
    "unknown_fault",
    "why_no_amount",
    "why_wrong",
]


class FaultError(ValueError):
    """The text says what is wrong and what is allowed."""


class Of(Enum):
    """What a fault happens to."""

    HOST = "a host"
    LINK = "a link of two hosts, as c1-broker"
    NAME_SERVER = "a host with a name server"


class Lasts(Enum):
    """Whether a fault needs `+DURATION`."""

    NEVER = "it has no duration"
    PERHAPS = "it may have a duration"
    ALWAYS = "it needs a duration"


class Role(Enum):
    """A kind of hosts for a swarm."""

    MEMBER = "member"
    BROKER = "broker"
    NAME_SERVER = "name server"


class Fault(NamedTuple):
    """A row of the table.

    Args:
        target: where none is written; empty: it must be written.
        drawn: the hosts for which a swarm draws it; those of a link are always a member and the broker.
        amount: what `=AMOUNT` is; None: there is none.
        then: what a duration adds, for those that need none.
    """

    name: str
    summary: str
    example: str
    action: do.Action
    of: Of = Of.HOST
    lasts: Lasts = Lasts.NEVER
    target: str = ""
    drawn: tuple[Role, ...] = (Role.MEMBER,)
    amount: Amount | None = None
    then: str = ""

    @property
    def help(self) -> str:
        """The summary, and what a duration adds."""
        return f"{self.summary.removesuffix('.')}; {self.then}." if self.then else self.summary


_DELAYS: Final = microseconds(20_000, 2_000_000)
_STARTS_AGAIN: Final = "with a duration it starts again after it"
_BOTH: Final = (Role.MEMBER, Role.BROKER)

FAULTS: Final[dict[str, Fault]] = {
    fault.name: fault
    for fault in (
        Fault("kill", "The process is killed.", "c1@30s", do.kill, lasts=Lasts.PERHAPS, then=_STARTS_AGAIN),
        Fault("power-off", "The machine loses its power: its peers get no answer, its disk loses what was not synced.", "c1@30s+20s", do.power_off, lasts=Lasts.PERHAPS),
        Fault("leave", "The process ends cleanly.", "c1@30s", do.leave, lasts=Lasts.PERHAPS, then=_STARTS_AGAIN),
        Fault("restart-broker", "The broker ends cleanly and starts again.", "broker@30s+5s", do.leave, lasts=Lasts.ALWAYS, target=BROKER),
        Fault("stall", "The process stops, as by SIGSTOP, and goes on after it.", "c1@30s+70s", do.stall, lasts=Lasts.ALWAYS),
        Fault("sleep", "The machine sleeps: timers stand still, clocks go on.", "c1@30s+70s", do.sleep, lasts=Lasts.ALWAYS),
        Fault("clock", "The wall clock is set, and the process starts again.", "c1@30s=-5m", do.set_clock, amount=signed_milliseconds(-600_000, 600_000)),
        Fault("drift", "All clocks and timers of the machine run faster by so much, or slower.", "c1@30s+60s=-2%", do.drift, lasts=Lasts.ALWAYS, drawn=_BOTH, amount=ppm(-20_000, 20_000)),
        Fault("slow-cpu", "Each callback takes so long, and later ones wait for it.", "c1@30s+60s=5ms", do.slow_cpu, lasts=Lasts.ALWAYS, drawn=_BOTH, amount=microseconds(200, 20_000)),
        Fault("slow-disk", "Each sync takes longer by so much, and each read by a tenth of it; a read on the event loop keeps the process.", "broker@30s+60s=200ms", do.slow_disk, lasts=Lasts.ALWAYS, drawn=(Role.BROKER,), amount=milliseconds(5, 2000)),
        Fault("hang-disk", "No sync ends before the fault does; what is read comes from the page cache.", "broker@30s+20s", do.hang_disk, lasts=Lasts.ALWAYS, drawn=(Role.BROKER,)),
        Fault("cut", "All connections of two hosts are reset.", "c1-broker@30s", do.cut, of=Of.LINK),
        Fault("cut-one-side", "The first host loses its connections; the second one does not hear of it.", "c1-broker@30s", do.cut_one_side, of=Of.LINK),
        Fault("partition", "No byte passes between two hosts.", "c1-broker@30s+20s", do.partition, of=Of.LINK, lasts=Lasts.ALWAYS),
        Fault("hold", "No byte passes from the first host to the second one.", "broker-c1@30s+20s", do.hold, of=Of.LINK, lasts=Lasts.ALWAYS),
        Fault("slow", "Every byte between two hosts is later by so much.", "c1-broker@30s+60s=250ms", do.slow, of=Of.LINK, lasts=Lasts.ALWAYS, amount=_DELAYS),
        Fault("late", "Every byte from the first host to the second one is later by so much.", "broker-c1@30s+60s=250ms", do.late, of=Of.LINK, lasts=Lasts.ALWAYS, amount=_DELAYS),
        Fault("jitter", "The delay between two hosts changes twenty times, each way for itself, up to so much.", "c1-broker@30s+60s=800ms", do.jitter, of=Of.LINK, lasts=Lasts.ALWAYS, amount=_DELAYS),
        Fault("slow-link", "The first host sends the second one only so many bytes a second; they queue.", "broker-c1@30s+60s=2kB/s", do.slow_link, of=Of.LINK, lasts=Lasts.ALWAYS, amount=bytes_per_s(300, 50_000)),
        Fault("nat", "Connections of two hosts that were idle for so long are forgotten: what is sent is lost, and neither side hears of it.", "c1-broker@30s+60s=5s", do.nat, of=Of.LINK, lasts=Lasts.ALWAYS, amount=milliseconds(1000, 20_000)),
        Fault("nat-reset", "As nat, but the next sender gets a reset; the other side does not hear of it.", "c1-broker@30s+60s=5s", do.nat_with_resets, of=Of.LINK, lasts=Lasts.ALWAYS, amount=milliseconds(1000, 20_000)),
        Fault("stale-routes", "The name server answers the routes that it had so long ago.", "broker@30s+60s=20s", do.stale_routes, of=Of.NAME_SERVER, lasts=Lasts.ALWAYS, drawn=(Role.NAME_SERVER,), amount=milliseconds(1000, 60_000)),
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
        raise FaultError(unknown_fault(name))
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
            fault.amount.read(amount) if has_amount and fault.amount is not None else 0,
        )
    except ValueError as error:
        raise FaultError(f"{name} {rest}: {error} (an example: {name} {fault.example})") from None
    if why := _why_not(fault, event, bool(has_amount), bool(has_duration)):
        raise FaultError(f"{name} {rest}: {why} (an example: {name} {fault.example})")
    return event


def why_wrong(event: FaultEvent) -> str:
    """What of an event does not fit its fault, of the table; empty if all does."""
    return _why_not(FAULTS[event.fault], event, bool(event.amount), bool(event.duration_ms)) or why_no_amount(event)


def why_no_amount(event: FaultEvent) -> str:
    """What is wrong with the amount of an event, if its fault has amounts; empty if nothing is."""
    kind = FAULTS[event.fault].amount
    if kind is None or not event.amount:
        return ""
    try:
        kind.read(kind.text(event.amount))
    except ValueError as error:
        return str(error)
    return ""


def _why_not(fault: Fault, event: FaultEvent, has_amount: bool, has_duration: bool) -> str:
    if event.target in ("", event.other) or (fault.of is Of.LINK) != bool(event.other):
        return f"it is a fault of {fault.of.value}"
    if has_duration != bool(event.duration_ms):
        return "a duration is more than 0"
    if (fault.lasts is Lasts.NEVER and has_duration) or (fault.lasts is Lasts.ALWAYS and not has_duration):
        return str(fault.lasts.value)
    if (fault.amount is not None) != has_amount:
        return "it has no =AMOUNT" if has_amount else "it needs =AMOUNT"
    return ""


def unknown_fault(name: str) -> str:
    """The text about a wrong name."""
    return f"no fault is named {name!r}; {known_names(name, FAULTS, '`lockstep-sim list`')}"


def fault_text(event: FaultEvent) -> str:
    """As `read_fault` reads it."""
    amount = f"={text}" if (text := _amount_text(event)) else ""
    hosts = f"{event.target}-{event.other}" if event.other else event.target
    lasts = f"+{duration_text(event.duration_ms)}" if event.duration_ms else ""
    return f"{event.fault} {hosts}@{duration_text(event.at_ms)}{lasts}{amount}"


def check_hosts(event: FaultEvent, hosts: Collection[str]) -> None:
    """Raises FaultError for a host that does not exist."""
    for name in (event.target, event.other):
        if name and name not in hosts:
            raise FaultError(f"{fault_text(event)}: no host is named {name!r}; {known_names(name, hosts)}")


def _amount_text(event: FaultEvent) -> str:
    reads = FAULTS[event.fault].amount
    return reads.text(event.amount) if reads is not None else ""


# Play --------------------------------------------------------------------------------------------------------


_END_PROCESS: Final = (do.kill, do.power_off, do.leave)


async def play(hosts: Hosts, event: FaultEvent) -> bool:
    """Play a fault to its end. Returns False if its hosts are not in a state for it.

    A member that cannot start again stays down. The band of a process that was ended ends when it has started again.
    """
    ends_process = FAULTS[event.fault].action in _END_PROCESS
    is_down = ends_process and event.target in hosts.kept_down
    if not is_down and not all(hosts.is_up(name) for name in (event.target, event.other) if name):
        return False
    hosts.findings.saw(event.fault)
    band = hosts.findings.begin(event.fault, event.target, event.other)
    band.amount = _amount_text(event)
    band.was_down = ends_process and not hosts.is_up(event.target)
    try:
        await FAULTS[event.fault].action(hosts, event)
    except HostCrashedError:
        pass  # another fault ended the host meanwhile
    except (ClientError, RemotingError):
        hosts.findings.saw("starts failed")
        hosts.crash(event.target)  # what was half started
    if hosts.world.elapsed_ms > band.at_ms and (not ends_process or hosts.is_up(event.target)):
        band.end_ms = hosts.world.elapsed_ms
    return True
