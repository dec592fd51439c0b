"""Faults drawn from a seed: a swarm, in which each seed has a random part of the kinds, and so meets long sequences."""

import random
from collections.abc import Mapping, Sequence
from typing import Final

from lockstep.simulation.lab.faults.fault import Lasts, Of, Role
from lockstep.simulation.lab.faults.table import FAULTS
from lockstep.simulation.lab.hosts import BROKER, PRODUCER
from lockstep.simulation.lab.setup import FaultEvent, Setup

__all__ = ["draw_fault", "draw_faults"]

_ON: Final = 0.5  # of the kinds, in a seed
_LEASE_MS: Final = 60_000
_FIRST_MS: Final = 5000  # members have joined
_SHARES: Final = (
    (0.02, 0.3),
    (0.3, 1.0),
    (1.0, 1.4),
)  # of a lease, that a fault lasts


def draw_faults(rng: random.Random, setup: Setup, names: Sequence[str], count: int) -> tuple[FaultEvent, ...]:
    """Draw faults for the hosts of a setup, in order of time.

    Args:
        names: the kinds that there may be.
        count: how many faults.
    """
    on = [name for name in names if rng.random() < _ON] or [rng.choice(names)] if names else []
    if not on:
        return ()
    lease_ms = int(setup.broker.get("lock_max_live_time_ms", _LEASE_MS))
    last_ms = max(setup.life_ms - _FIRST_MS, _FIRST_MS + 1)
    moments = sorted(rng.randrange(_FIRST_MS, last_ms) for _ in range(count))
    hosts = {
        Role.MEMBER: setup.members,
        Role.BROKER: (BROKER,),
        Role.PRODUCER: (PRODUCER,),
        Role.NAME_SERVER: tuple(f"names{number}" for number in range(1, setup.name_servers + 1)) or (BROKER,),
    }
    return tuple(draw_fault(rng, rng.choice(on), at_ms, lease_ms, hosts) for at_ms in moments)


def draw_fault(
    rng: random.Random, name: str, at_ms: int, lease_ms: int, hosts: Mapping[Role, Sequence[str]]
) -> FaultEvent:
    """Draw the hosts, the duration and the amount of a fault."""
    fault = FAULTS[name]
    target, other = fault.target or rng.choice(hosts[rng.choice(fault.drawn)]), ""
    if fault.of is Of.LINK:
        target, other = (target, BROKER) if rng.random() < 0.5 else (BROKER, target)
    low, high = rng.choice(_SHARES)
    lasts_ms = int(lease_ms * rng.uniform(low, high))
    duration_ms = {Lasts.NEVER: 0, Lasts.PERHAPS: rng.choice((0, lasts_ms))}.get(fault.lasts, lasts_ms)
    amount = fault.amount.draw(rng) if fault.amount is not None else 0
    return FaultEvent(at_ms, name, target, duration_ms, other, amount)
