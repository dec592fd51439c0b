"""Resets of a group's offsets on all brokers of a topic at once, within a time: one that is silent stops no other."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import NamedTuple, TypeVar

from lockstep.client.admin.at_once import at_once
from lockstep.client.admin.client import AdminClient
from lockstep.client.admin.offset_moves import Move, Target, planned_move, reset_by_brokers, store_move
from lockstep.client.admin.tolerance import FAILURES, no_answer_within
from lockstep.console.acts.changes import REFUSED, UNKNOWN
from lockstep.protocol.bodies.broker import BrokerData, TopicRouteData
from lockstep.remoting.errors import RequestRefused

__all__ = ["PATIENCE_S", "Done", "ResetPlan", "planned", "reset", "route_of"]

PATIENCE_S: float = 2.0  # for the offsets of all queues of all brokers, and again for the change
NOTIFIED, STORED, UNTOUCHED = "notified", "stored", "untouched"
T = TypeVar("T")
R = TypeVar("R")


class ResetPlan(NamedTuple):
    """What a reset would do at one broker.

    Args:
        left_out: Queues of which the broker did not say the offsets, for the reason `why`.
    """

    broker: BrokerData
    moves: Sequence[Move]
    left_out: int
    why: str

    @property
    def name(self) -> str:
        return self.broker.broker_name


class Done(NamedTuple):
    """What a reset did at one broker.

    Args:
        state: "notified": the broker told the members; "stored"; "refused", for the reason `why`; "unknown": it did
            not answer the request for a change; "untouched": it was not asked for one.
        moves: That were made.
        left_out: Queues whose offsets were not stored, for the reason `why`.
    """

    name: str
    state: str
    moves: Sequence[Move] = ()
    left_out: int = 0
    why: str = ""


async def route_of(admin: AdminClient, topic: str) -> TopicRouteData:
    """Raises TopicNotFoundError, or one of FAILURES when no name server answers."""
    async with asyncio.timeout(PATIENCE_S):
        return await admin.route(topic)


async def planned(admin: AdminClient, target: Target) -> tuple[list[ResetPlan], bool]:
    """What each broker of the topic would do, and whether one of them has members of the group.

    Raises as `route_of` does.
    """
    route = await route_of(admin, target.topic)
    queues = route.readable_queues(target.topic)
    brokers = [data for data in route.broker_datas if data.master_addr is not None]

    async def plan(data: BrokerData) -> ResetPlan:
        own = [queue for queue in queues if queue.broker_name == data.broker_name]
        moves, why = await _in_time(partial(planned_move, admin, target), own)
        return ResetPlan(data, moves, len(own) - len(moves), why)

    async def has_members(data: BrokerData) -> bool:
        found, _ = await _in_time(admin.at(data).members, [target.group])
        return found != [None] and found != []

    plans, online = await asyncio.gather(
        asyncio.gather(*map(plan, brokers)), asyncio.gather(*map(has_members, brokers))
    )
    return sorted(plans, key=lambda plan: plan.name), any(online)


async def reset(admin: AdminClient, target: Target, plans: Iterable[ResetPlan]) -> list[Done]:
    """Let each broker tell its members, or store the offsets where none is online."""
    return await asyncio.gather(*[_reset_at(admin.at(plan.broker), target, plan) for plan in plans])


async def _reset_at(admin: AdminClient, target: Target, plan: ResetPlan) -> Done:
    if not plan.moves:
        return Done(plan.name, UNTOUCHED, left_out=plan.left_out, why=plan.why)
    try:
        async with asyncio.timeout(PATIENCE_S):
            told = await reset_by_brokers(admin, target, plan.moves)
    except RequestRefused as error:
        return Done(plan.name, REFUSED, why=str(error))
    except FAILURES as error:
        return Done(plan.name, UNKNOWN, why=str(error))
    if told is not None:
        return Done(plan.name, NOTIFIED, [move._replace(after=told.get(move.queue, move.after)) for move in plan.moves])
    moves, why = await _in_time(partial(store_move, admin, target.group), plan.moves)
    left_out = plan.left_out + len(plan.moves) - len(moves)
    return Done(plan.name, STORED if moves else REFUSED, moves, left_out, why or plan.why)


async def _in_time(act: Callable[[T], Awaitable[R]], items: Sequence[T]) -> tuple[list[R], str]:
    """What `act` returned within PATIENCE_S, and why it did not return for others."""
    found: dict[int, R] = {}
    why: list[str] = []

    async def one(item: tuple[int, T]) -> None:
        if not why:
            try:
                found[item[0]] = await act(item[1])
            except FAILURES as error:
                why.append(str(error))

    try:
        async with asyncio.timeout(PATIENCE_S):
            await at_once(one, enumerate(items))
    except TimeoutError:
        why.append(no_answer_within(PATIENCE_S))
    return [found[number] for number in sorted(found)], why[0] if why else ""
