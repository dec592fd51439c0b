"""What a cluster of the lab is made of, and a fault of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from math import inf
from typing import Any, Final, NamedTuple

from lockstep.simulation.lab.durations import duration_text
from lockstep.simulation.lab.parameters import parameter_text

__all__ = ["LOCKING", "NUMBERS", "FaultEvent", "LockMode", "Setup", "Store", "Strategy", "why_no_number"]


class LockMode(StrEnum):
    """How brokers keep ordered consumers apart: they lock queues, or members of a FIFO group pop."""

    FAITHFUL = "faithful"  # as RocketMQ does
    FENCED = "fenced"  # with epochs
    FIFO = "fifo"  # no locks: RocketMQ 5's deliveries in order, each for a time


LOCKING: Final = (LockMode.FAITHFUL, LockMode.FENCED)
"""The modes with locks, of every experiment; stories alone may be of FIFO groups, too."""


class Store(StrEnum):
    """Where a broker keeps messages, and whether a send is answered before they are synced."""

    MEMORY = "memory"
    ASYNC = "async"
    SYNC = "sync"


class Strategy(StrEnum):
    """How members with locks share the queues: by RocketMQ's names, and one of ours."""

    AVG = "AVG"
    AVG_BY_CIRCLE = "AVG_BY_CIRCLE"
    CONSISTENT_HASH = "CONSISTENT_HASH"  # a member that comes or goes moves few queues of others; shares are uneven
    STICKY = "STICKY"  # of fenced locks: as few queues move as can, and shares are even


_SMALL_FILES: Final = {
    "data_dir": "store",
    "segment_bytes": 4_000_000,
    "queue_file_bytes": 20 * 5000,
    "index_slot_count": 64,
    "index_item_count": 256,
    "max_message_bytes": 65_536,
}


class FaultEvent(NamedTuple):
    """A fault of a plan.

    Args:
        at_ms: virtual, since the start.
        fault: a name of the table of faults.
        target: a host.
        duration_ms: 0: the fault is over at once, or lasts until it is ended.
        other: the second host of a link.
        amount: us, ms, ppm, bytes/s or the number of a key and 1, by the fault.
    """

    at_ms: int
    fault: str
    target: str = ""
    duration_ms: int = 0
    other: str = ""
    amount: int = 0


@dataclass(frozen=True, kw_only=True)
class Setup:
    """Hosts, messages and settings.

    Args:
        consumers: named c1, c2, ...
        brokers: named broker, broker2, ...; each has all queues of the topic.
        name_servers: named names1, ...; 0: the first broker carries one.
        rate: messages a second, sent by the host `producer` until `life_ms`; 0: none.
        keys: sharding keys, in turn.
        retry_sends: a send that fails is made again until the message is stored, and later ones of its key wait.
        work_ms: how long a call of the lab's listener, or of a plain one, takes.
        life_ms: until when messages are sent and faults happen; then everything is healed, and must be handled.
        strategy: by which all members of the lab's listener share the queues; FIFO groups share none.
        consumer, broker: settings by the names of ConsumerConfig and BrokerConfig.
        parameters: of the story, by the names of parameters.py.
    """

    lock_mode: LockMode = LockMode.FAITHFUL
    consumers: int = 3
    queues: int = 8
    brokers: int = 1
    name_servers: int = 0
    rate: float = 10
    keys: int = 16
    retry_sends: bool = True
    work_ms: int = 20
    life_ms: int = 180_000
    store: Store = Store.MEMORY
    strategy: Strategy = Strategy.AVG
    consumer: Mapping[str, Any] = field(default_factory=dict)
    broker: Mapping[str, Any] = field(default_factory=dict)
    parameters: Mapping[str, Any] = field(default_factory=dict)

    @property
    def fenced(self) -> bool:
        return self.lock_mode is LockMode.FENCED

    @property
    def fifo(self) -> bool:
        return self.lock_mode is LockMode.FIFO

    @property
    def members(self) -> tuple[str, ...]:
        """The names of the consumers' hosts."""
        return tuple(f"c{number}" for number in range(1, self.consumers + 1))

    @property
    def hosts(self) -> tuple[str, ...]:
        """The names of all hosts."""
        brokers = ("broker", *(f"broker{number}" for number in range(2, self.brokers + 1)))
        names = tuple(f"names{number}" for number in range(1, self.name_servers + 1))
        return (*names, *brokers, "producer", *self.members)

    @property
    def broker_settings(self) -> dict[str, Any]:
        files = {} if self.store is Store.MEMORY else {**_SMALL_FILES, "flush_sync": self.store is Store.SYNC}
        return {**files, **self.broker}

    def described(self) -> dict[str, object]:
        """For people."""
        return {
            "locks": str(self.lock_mode),
            "consumers": self.consumers,
            "brokers": self.brokers,
            "name servers": self.name_servers,
            "queues": self.queues,
            "messages a second": self.rate,
            "work": duration_text(self.work_ms),
            "life": duration_text(self.life_ms),
            "store": str(self.store),
            **{name.replace("_", " "): parameter_text(name, value) for name, value in self.parameters.items()},
            **({} if self.strategy is Strategy.AVG else {"strategy": str(self.strategy)}),
            **({} if self.retry_sends else {"sends that fail": "not made again"}),
            **({"consumer settings": _listed(self.consumer)} if self.consumer else {}),
            **({"broker settings": _listed(self.broker)} if self.broker else {}),
        }


def _listed(settings: Mapping[str, Any]) -> str:
    """ "pull_batch_size=8 fenced=NO" """
    return " ".join(f"{name}={getattr(value, 'name', value)}" for name, value in settings.items())


NUMBERS: Final[Mapping[str, Any]] = {one.name: one.type for one in fields(Setup) if one.type in (int, float, bool)}
"""The numbers of a setup, and true or false: name -> type."""

_FROM_ZERO: Final = frozenset({"name_servers", "rate", "work_ms"})


def why_no_number(name: str, value: object) -> str:
    """What one of `NUMBERS` may be, if it is something else; empty: it may be this."""
    kind, least = NUMBERS[name], 0 if name in _FROM_ZERO else 1
    if kind is bool:
        return "" if isinstance(value, bool) else "true or false"
    is_number = isinstance(value, int if kind is int else int | float) and not isinstance(value, bool)
    # A run with a rate below 0 or without end would never end.
    if is_number and least <= value < inf:  # type: ignore[operator]  # a number
        return ""
    return f"a {'whole ' if kind is int else ''}number from {least} on"
