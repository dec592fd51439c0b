"""What the values of a plan may be. A seed draws no others, but a file may be edited by hand."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import fields
from typing import Any, Final

from lockstep.broker.config import BrokerConfig
from lockstep.client.config import ConsumerConfig, ProducerConfig
from lockstep.remoting.texts import known_names
from lockstep.simulation.lab.faults.table import FAULTS, fault_named
from lockstep.simulation.lab.faults.text import why_no_amount, why_wrong
from lockstep.simulation.lab.parameters import why_no_parameter
from lockstep.simulation.lab.setup import FaultEvent, Setup
from lockstep.simulation.worlds.fifo.plan import FifoPlan
from lockstep.simulation.worlds.plan import MEMBERS, WorldPlan
from lockstep.simulation.worlds.plan import Fault as RandomFault
from lockstep.simulation.worlds.producing.producers import BROKERS, PRODUCERS, ProducersPlan

__all__ = ["WrongPlanError", "check_plan"]

_MOST: Final = 2**31 - 1
_YEAR_MS: Final = 366 * 86_400_000
_HOSTS_MAX: Final = 1000
_QUEUES_MAX: Final = 10_000
_RATE_MAX: Final = 1_000_000
_PERCENT: Final = (0, 100)
_LIMITS: Final[Mapping[str, tuple[int, int]]] = {
    "life_ms": (1, _YEAR_MS),
    "consumers": (0, _HOSTS_MAX),
    "brokers": (1, _HOSTS_MAX),
    "name_servers": (0, _HOSTS_MAX),
    "first_members": (0, len(MEMBERS)),
    "queues": (1, _QUEUES_MAX),
    "keys": (1, _MOST),
    "rate": (0, _RATE_MAX),
    "lease_ms": (3000, _YEAR_MS),  # of times of a lock the shortest is a part of it
    "lock_ms": (3000, _YEAR_MS),
    "lock_timeout_ms": (1, _YEAR_MS),
    "cached": (1, _MOST),
    "threads": (1, _HOSTS_MAX),
    "members": (1, len(MEMBERS)),
    "loops": (1, _HOSTS_MAX),
    "count_max": (1, 32),
    **dict.fromkeys(("invisible_ms", "wait_ms"), (1, _YEAR_MS)),
    "grace_ms": (0, _YEAR_MS),
    "batch_size": (1, 1024),
    "work_ms": (0, _YEAR_MS),
    "long_ms": (0, _YEAR_MS),
    "sync_ms": (0, _YEAR_MS),
    "latency_us_max": (0, 125_000),  # a cluster's end waits for what is under way
    "shuffle_us": (0, 1_000_000),
    **dict.fromkeys(
        ("long_works", "failing", "cancelled", "large", "batches", "slow", "renewing", "forgetting"), _PERCENT
    ),
}
_LENGTHS: Final = {
    **dict.fromkeys(("plain", "greedy", "unmodified"), len(MEMBERS)),
    "settings": len(PRODUCERS),
}


class WrongPlanError(ValueError):
    """The text names the field and its value, and says what is allowed."""


def check_plan(plan: Any) -> None:
    """Raises WrongPlanError for a value that no plan can have."""
    for name, value in vars(plan).items():
        where = f"plan.{name}"
        if name in _LIMITS and isinstance(value, int | float):
            _check_number(where, value, *_limits(plan, name))
        if name in _LENGTHS and len(value) != _LENGTHS[name]:
            raise WrongPlanError(f"{where} has {len(value)} values, not {_LENGTHS[name]}")
    if isinstance(plan, Setup):
        _check_parameters(plan.parameters)
        _check_settings("plan.consumer", plan.consumer, ConsumerConfig)
        _check_settings("plan.broker", plan.broker, BrokerConfig)
    if isinstance(plan, WorldPlan):
        _check_names("plan.brokers", plan.brokers)
    if isinstance(plan, ProducersPlan):
        for number, settings in enumerate(plan.settings):
            _check_settings(f"plan.settings[{number}]", settings, ProducerConfig)
        for number, burst in enumerate(plan.bursts):
            _check_name(f"plan.bursts[{number}].producer", burst.producer, PRODUCERS)
    for name in ("sends", "bursts"):
        for number, (at_ms, *_, count) in enumerate(getattr(plan, name, ())):
            _check_number(f"plan.{name}[{number}], its time in ms,", at_ms, 0, _YEAR_MS)
            _check_number(f"plan.{name}[{number}], its number of messages,", count, 1, _MOST)
    hosts = _hosts(plan)
    for number, event in enumerate(plan.events):
        _check_event(f"plan.events[{number}]", event, plan, hosts)


def _limits(plan: Any, name: str) -> tuple[int, int]:
    """Members of an exhibit do not pop, but use locks, if their invisible time is 0."""
    return (0, _YEAR_MS) if name == "invisible_ms" and isinstance(plan, Setup) else _LIMITS[name]


def _hosts(plan: Any) -> Collection[str]:
    """The hosts that a fault may name; empty: they are not known."""
    if isinstance(plan, Setup):
        return plan.hosts
    if isinstance(plan, WorldPlan):
        return (*plan.brokers, "producer", *MEMBERS)
    if isinstance(plan, FifoPlan):
        return (BROKERS[0], *plan.hosts)
    if isinstance(plan, ProducersPlan):
        return (*BROKERS, *PRODUCERS)
    return ()


def _check_event(where: str, event: FaultEvent, plan: Any, hosts: Collection[str]) -> None:
    if fault_named(event.fault) is None or (isinstance(plan, Setup) and event.fault not in FAULTS):
        raise WrongPlanError(f"{where}: there is no fault {event.fault!r}; `lockstep-sim list` has those of stories")
    where = f"{where}, the fault {event.fault}"
    _check_number(f"{where}: at_ms", event.at_ms, 0, _YEAR_MS)
    _check_number(f"{where}: duration_ms", event.duration_ms, 0, _YEAR_MS)
    if not event.target and event.fault != RandomFault.RESET:  # of the group
        raise WrongPlanError(f"{where}: target is empty; it is a host, one of {', '.join(hosts)}")
    for host in (event.target, event.other):
        if host and hosts and host not in hosts:
            raise WrongPlanError(f"{where}: no host is named {host!r}; {known_names(host, hosts)}")
    if event.target and event.target == event.other:
        raise WrongPlanError(f"{where}: target and other are both {event.target!r}; a link has two hosts")
    if isinstance(plan, Setup) and event.at_ms > plan.life_ms:
        raise WrongPlanError(f"{where}: at_ms is {event.at_ms}, after the end of the run: life_ms is {plan.life_ms}")
    if event.fault in FAULTS and (why := why_wrong(event) if isinstance(plan, Setup) else why_no_amount(event)):
        raise WrongPlanError(f"{where}: {why} (an example: {FAULTS[event.fault].example})")


def _check_parameters(parameters: Mapping[str, Any]) -> None:
    for name, value in parameters.items():
        if why := why_no_parameter(name, value):
            raise WrongPlanError(f"plan.parameters: {why}")


def _check_number(where: str, value: float, least: int, most: int) -> None:
    if not least <= value <= most:  # NaN is neither
        raise WrongPlanError(f"{where} is {value}, not {least} to {most}")


def _check_name(where: str, name: str, known: Collection[str]) -> None:
    if name not in known:
        raise WrongPlanError(f"{where} is {name!r}; {known_names(name, known)}")


def _check_names(where: str, names: Iterable[str]) -> None:
    """Of brokers: broker, broker2, ..., each once, the first one first."""
    names = tuple(names)
    expected = (BROKERS[0], *(f"{BROKERS[0]}{number}" for number in range(2, len(names) + 1)))
    if names != expected:
        raise WrongPlanError(
            f"{where} is {', '.join(map(repr, names)) or 'empty'}, not {', '.join(map(repr, expected))}"
        )


def _check_settings(where: str, settings: Mapping[str, Any], kind: Any) -> None:
    """The names: a value is checked where the host is made."""
    known = [field.name for field in fields(kind)]
    for name in settings:
        if name not in known:
            raise WrongPlanError(
                f"{where}: no setting is named {name!r}; {known_names(name, known, 'docs/settings.md')}"
            )
