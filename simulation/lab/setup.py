"""What a cluster of the lab is made of, and a fault of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, NamedTuple

from lockstep.simulation.lab.durations import duration_text

__all__ = ["FaultEvent", "LockMode", "Setup", "Store"]


class LockMode(StrEnum):
    """How brokers and ordered consumers lock queues: as RocketMQ does, or with epochs."""

    FAITHFUL = "faithful"
    FENCED = "fenced"


class Store(StrEnum):
    """Where a broker keeps messages, and whether a send is answered before they are synced."""

    MEMORY = "memory"
    ASYNC = "async"
    SYNC = "sync"


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
        duration_ms: 0: the fault is over at once.
        other: the second host of a link.
        amount: us, ppm, bytes/s or percent, by the fault.
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
        consumer, broker: settings by the names of ConsumerConfig and BrokerConfig.
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
    consumer: Mapping[str, Any] = field(default_factory=dict)
    broker: Mapping[str, Any] = field(default_factory=dict)

    @property
    def fenced(self) -> bool:
        return self.lock_mode is LockMode.FENCED

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
            **({} if self.retry_sends else {"sends that fail": "not made again"}),
            **({"consumer settings": _listed(self.consumer)} if self.consumer else {}),
            **({"broker settings": _listed(self.broker)} if self.broker else {}),
        }


def _listed(settings: Mapping[str, Any]) -> str:
    """ "pull_batch_size=8 fenced=NO" """
    return " ".join(f"{name}={getattr(value, 'name', value)}" for name, value in settings.items())
