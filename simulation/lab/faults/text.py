"""Faults as people write them: "kill c1@30s", "stall c1@30s+70s"."""

from collections.abc import Collection

from lockstep.remoting.texts import known_names
from lockstep.simulation.lab.durations import duration_ms, duration_text
from lockstep.simulation.lab.faults.fault import Fault, Lasts, Of
from lockstep.simulation.lab.faults.table import FAULTS
from lockstep.simulation.lab.setup import FaultEvent

__all__ = ["FaultError", "check_hosts", "fault_text", "read_fault", "unknown_fault", "why_no_amount", "why_wrong"]


class FaultError(ValueError):
    """The text says what is wrong and what is allowed."""


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
