"""The plan of a world of producers: many sends in flight to the queues of two brokers, which are late, busy or full.

Frames and their answers are lost, late and repeated; a broker refuses requests unread, as RocketMQ's flow control does;
its store takes one message and refuses the next one; some callers go away, and some messages are too large.
"""

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Final, NamedTuple

from lockstep.simulation.lab.experiment import FaultEvent, LockMode, fewer
from lockstep.simulation.lab.hosts import BROKER
from lockstep.simulation.lab.setup import Store
from lockstep.simulation.options import SimulationOptions

__all__ = ["BROKERS", "BUSY", "CLOSE", "FULL", "PRODUCERS", "Burst", "ProducersPlan", "draw_plan"]

BROKERS: Final = (BROKER, "broker2")
PRODUCERS: Final = ("p1", "p2")
BUSY: Final = "busy"  # a broker refuses some of the sends unread
FULL: Final = "full"  # its store refuses some of the messages
CLOSE: Final = "close"  # something between two hosts closes their connections; what is under way still arrives

_LIFE_MS: Final = 20_000
_SETTLE_MS: Final = 120_000
_LINKS: Final = ("late", "late", "cut", "cut-one-side", "hold", "jitter", "nat", "slow-link", CLOSE, CLOSE)
_ENDS: Final = ("kill", "power-off")  # of a broker whose files are synced


class Burst(NamedTuple):
    at_ms: int
    producer: str
    messages: int


@dataclass(frozen=True, kw_only=True)
class ProducersPlan:
    """A world of producers before it begins.

    Args:
        settings: of each producer.
        bursts: messages that are sent at one moment.
        cancelled, large, batches: in percent of the sends: the caller goes away, no broker takes it, several in one.
        follows: a caller whose send failed sends another message at once.
    """

    seed: int
    lock_mode: LockMode
    life_ms: int
    queues: int
    store: Store
    sync_ms: int
    settings: tuple[Mapping[str, Any], ...]
    bursts: tuple[Burst, ...]
    cancelled: int
    large: int
    batches: int
    follows: bool
    latency_us_max: int
    shuffle_us: int
    events: tuple[FaultEvent, ...]

    def settings_of(self, producer: str) -> Mapping[str, Any]:
        return self.settings[PRODUCERS.index(producer)]

    @property
    def limit_ms(self) -> int:
        return self.life_ms + 900_000

    @property
    def settle_ms(self) -> int:
        """How long sends, and then a consumer, may take once all is healed."""
        return _SETTLE_MS

    @property
    def options(self) -> SimulationOptions:
        return SimulationOptions(latency_us_max=self.latency_us_max, drain_ms=500, shuffle_us=self.shuffle_us)

    def described(self) -> dict[str, object]:
        hidden = ("bursts", "events")
        return {field.name: getattr(self, field.name) for field in fields(self) if field.name not in hidden}

    def smaller(self) -> Iterator["ProducersPlan"]:
        """Fewer events and messages, and plainer settings."""
        for events in fewer(self.events):
            yield replace(self, events=events)
        for bursts in fewer(self.bursts):
            yield replace(self, bursts=bursts)
        if self.follows:
            yield replace(self, follows=False)
        for name in ("cancelled", "large", "batches", "shuffle_us", "sync_ms"):
            plainer: dict[str, Any] = {name: 0}
            if getattr(self, name):
                yield replace(self, **plainer)


def draw_plan(seed: int, mode: LockMode) -> ProducersPlan:
    rng = random.Random(f"worlds/producers/{seed}")
    store = rng.choice((Store.MEMORY, Store.MEMORY, Store.SYNC))
    return ProducersPlan(
        seed=seed,
        lock_mode=mode,
        life_ms=_LIFE_MS,
        queues=rng.choice((1, 1, 2)),
        store=store,
        sync_ms=rng.choice((0, 3, 25)),
        settings=tuple(_draw_settings(rng) for _ in PRODUCERS),
        bursts=_draw_bursts(rng),
        cancelled=rng.choice((0, 0, 8)),
        large=rng.choice((0, 0, 4)),
        batches=rng.choice((0, 0, 8)),
        follows=rng.random() < 0.4,
        latency_us_max=rng.choice((2_000, 2_000, 30_000)),
        shuffle_us=rng.choice((0, 0, 1000)),
        events=_draw_events(rng, store) if rng.random() < 0.85 else (),
    )


def _draw_settings(rng: random.Random) -> Mapping[str, Any]:
    return {
        "send_together_max": rng.choice((1, 2, 4, 256)),
        "linger_ms": rng.choice((0, 0, 5)),
        "retry_keyed": rng.random() < 0.7,
        "retry_times": rng.choice((2, 5)),
        "send_timeout_ms": rng.choice((300, 1000, 3000)),
    }


def _draw_bursts(rng: random.Random) -> tuple[Burst, ...]:
    """Often close together: what is called while earlier sends are under way is what may overtake."""
    bursts, at_ms = list[Burst](), 1000
    while at_ms < _LIFE_MS and len(bursts) < 60:
        bursts.append(Burst(at_ms, rng.choice(PRODUCERS), rng.choice((1, 1, 2, 6, 20))))
        at_ms += rng.choice((rng.randrange(1, 10), rng.randrange(10, 300), rng.randrange(200, 1500)))
    return tuple(bursts)


def _draw_events(rng: random.Random, store: Store) -> tuple[FaultEvent, ...]:
    kinds = [*(kind for kind in _LINKS if rng.random() < 0.5), BUSY, FULL, *(_ENDS if store is Store.SYNC else ())]
    if store is Store.SYNC:
        kinds.append("hang-disk")
    events, at_ms = list[FaultEvent](), 1000
    while at_ms < _LIFE_MS and len(events) < 14:
        kind, broker, producer = rng.choice(kinds), rng.choice(BROKERS), rng.choice(PRODUCERS)
        lasts_ms = int(1000 * rng.choice((rng.uniform(0.02, 0.3), rng.uniform(0.2, 1.0), rng.uniform(1.0, 4.0))))
        if kind == CLOSE:  # the next connection is faster than what is under way on this one
            amount = rng.randrange(200_000, 1_500_000)
            events.append(FaultEvent(at_ms, "late", producer, rng.randrange(100, 500), broker, amount))
            events.append(FaultEvent(at_ms + rng.randrange(20, 500), CLOSE, producer, 0, broker))
        elif kind in _LINKS:
            one, two = (broker, producer) if rng.random() < 0.5 else (producer, broker)
            amount = {"nat": rng.randrange(200, 2000), "slow-link": rng.randrange(1000, 20_000)}.get(
                kind, rng.randrange(20_000, 1_200_000)
            )
            events.append(FaultEvent(at_ms, kind, one, 0 if kind.startswith("cut") else lasts_ms, two, amount))
        else:
            amount = rng.choice((10, 40, 100)) if kind in (BUSY, FULL) else 0
            events.append(FaultEvent(at_ms, kind, broker, lasts_ms, "", amount))
        at_ms += rng.choice((rng.randrange(20, 400), rng.randrange(300, 3000)))
    return tuple(sorted(events, key=lambda event: event.at_ms))
