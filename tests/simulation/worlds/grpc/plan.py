"""The plan of a world of a FIFO group whose members speak gRPC, or some of them do."""

import random
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Any, Final

from lockstep.simulation.lab.experiment import LockMode
from lockstep.simulation.worlds.fifo.plan import ANSWER_MS, LOST_ANSWER, FifoPlan, draw_plan

__all__ = ["REQUEST_MS", "RETRIES", "GrpcPlan", "draw_grpc_plan"]

REQUEST_MS: Final = ANSWER_MS  # how long a call may take, besides the time that the broker may wait for messages
RETRIES: Final = 8  # of the group
_WAIT_MS_MIN: Final = 5000  # RocketMQ's proxy lets calls wait for so long at least
_INVISIBLE_MS_MIN: Final = 10_000
_PERCENT: Final = 100
_SPREAD: Final = 37
_PLAINEST: Final[dict[str, Any]] = {"resets": 0, "goaways": 0, "poison": 0, "window": None}
# After all is healed: a faithful broker waits 2 minutes for a push consumer that died, and a slow call takes one.
_MORE_SETTLE_MS: Final = 400_000


@dataclass(frozen=True, kw_only=True)
class GrpcPlan(FifoPlan):
    """See FifoPlan.

    Args:
        kinds: Of the members: "simple" and "push" speak gRPC, "remoting" is a simple consumer of ours.
        sends_by_grpc: So does the producer.
        window: See `Channel`. A small one brings an answer in many parts.
        resets: In percent of the receives: the client resets the stream when the first message has come.
        goaways: In percent of the heartbeats: the client ends its connection by GOAWAY after it.
        poison: In percent of the messages: each call for one fails.
    """

    kinds: tuple[str, ...]
    sends_by_grpc: bool
    window: int | None
    resets: int
    goaways: int
    poison: int

    @property
    def settle_ms(self) -> int:
        return super().settle_ms + _MORE_SETTLE_MS

    def is_poison(self, text: str) -> bool:
        return int(text) * _SPREAD % _PERCENT < self.poison

    def smaller(self) -> Iterator["GrpcPlan"]:
        yield from super().smaller()  # type: ignore[misc]
        for name, plainest in _PLAINEST.items():
            if getattr(self, name) != plainest:
                yield replace(self, **{name: plainest})


def draw_grpc_plan(seed: int, mode: LockMode) -> GrpcPlan:
    """The plan of the FIFO world of this seed, and what gRPC adds."""
    plain, rng = draw_plan(seed, mode), random.Random(f"worlds/grpc/{seed}")
    kinds = tuple(rng.choice(("simple", "push", "push")) for _ in plain.hosts)
    if rng.random() < 0.2:
        kinds = ("remoting", *kinds[1:])
    waits_ms = max(plain.wait_ms, _WAIT_MS_MIN)
    events = tuple(
        event._replace(duration_ms=event.duration_ms + waits_ms - plain.wait_ms)
        if event.fault == LOST_ANSWER and event.duration_ms
        else event
        for event in plain.events
    )
    base = {field.name: getattr(plain, field.name) for field in fields(plain)}
    base |= {"events": events, "wait_ms": waits_ms, "invisible_ms": max(plain.invisible_ms, _INVISIBLE_MS_MIN)}
    return GrpcPlan(
        **base,
        kinds=kinds,
        sends_by_grpc=rng.random() < 0.7,
        window=rng.choice((None, 300, 300)),
        resets=rng.choice((0, 0, 10)),
        goaways=rng.choice((0, 0, 20)),
        # A member of remoting has no dead letters.
        poison=0 if "remoting" in kinds else rng.choice((0, 0, 4)),
    )
