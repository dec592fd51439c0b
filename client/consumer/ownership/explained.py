"""Explained rebalances: what each round did with each queue of a topic, and why.

A round that changed something writes one event `rebalanced` to the log and one record to the trace; a round that
changed nothing writes neither. What is known of each queue since its last change is kept for
`lockstep group describe --why` (docs/clients.md).
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, NamedTuple

from lockstep.client.callables import must_propagate
from lockstep.client.consumer.ownership.allocation.average import AllocateMessageQueueStrategy, strategy_name
from lockstep.client.consumer.ownership.lock_port import Refused
from lockstep.client.consumer.ownership.membership import Membership
from lockstep.protocol.model import MessageQueue

__all__ = ["PROPERTY", "Did", "Explanations"]

PROPERTY: Final = "lockstep.rebalance"
"""The property of a member's running info that has its explanations, as JSON. Clients of other makes ignore it."""

# A strategy runs once for each member to name the owner of a queue.
_MEMBERS_MAX: Final = 32
_QUEUES_MAX: Final = 1000  # of each topic, in the running info
_NAMED_MAX: Final = 20  # queues in one field of the log event
_ALL: Final = "all queues: broadcasting"


class Did(StrEnum):
    """What a round did with a queue."""

    KEPT = "kept"
    LOCKED = "locked"  # a new period began; a consumer without locks takes the queue
    REFUSED = "refused"
    DROPPED = "dropped"
    DRAINING = "draining"  # given up; its calls have not ended, or its last offset is not stored
    UNLOCKED_LATER = "unlocked_later"  # dropped with messages that were not handled


_OWNED: Final = frozenset({Did.KEPT, Did.LOCKED, Did.DRAINING})


class _Result(NamedTuple):
    """What a round did with a queue.

    Args:
        epoch: of the fenced lock under which a period began; "" without one.
        owner: the client that holds a refused lock, or gets a queue that was given up; "" if it is not known.
        wait_ms: until the lock of that client ends, if the broker said it. It differs from round to round.
    """

    did: Did
    why: str
    epoch: str = ""
    owner: str = ""
    wait_ms: int = 0
    since_ms: int = 0

    @property
    def change(self) -> tuple[str, ...]:
        """What makes a difference between two rounds."""
        return (self.did, self.why, self.epoch, self.owner) if self.did is not Did.KEPT else ()


_KEPT: Final = _Result(Did.KEPT, "allocated to this member as before")


@dataclass(slots=True)
class _Topic:
    """A topic after its last round, or during a round. `results` are of the last change of each queue."""

    members: tuple[str, ...] | None = None  # None: before the first round
    queues: tuple[MessageQueue, ...] = ()
    share: tuple[MessageQueue, ...] = ()
    joined: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    cause: str = ""
    results: dict[MessageQueue, _Result] = field(default_factory=dict)
    round: dict[MessageQueue, _Result] = field(default_factory=dict)
    ended: dict[MessageQueue, str] = field(default_factory=dict)  # periods that ended since: the reasons
    shares: dict[tuple[str, ...], dict[MessageQueue, list[str]]] = field(default_factory=dict)  # reckoned in this round
    is_told: bool = False  # the trace has its members
    strategy: AllocateMessageQueueStrategy | None = None  # of the last round; None: all queues

    @property
    def last_members(self) -> frozenset[str]:
        """The members of the last round that ended."""
        return frozenset({*(self.members or ()), *self.left}.difference(self.joined))


class Explanations:
    """The explanations of one member. The parts of a round note here what they do; `end` compares it with the last."""

    def __init__(self, member: Membership, strategy: AllocateMessageQueueStrategy | None) -> None:
        self._member = member
        self._strategy_name = _ALL if strategy is None else strategy_name(strategy)
        self._topics: dict[str, _Topic] = {}

    # A round -------------------------------------------------------------------------------------------------

    def begin(
        self,
        topic: str,
        queues: Sequence[MessageQueue],
        members: Sequence[str],
        strategy: AllocateMessageQueueStrategy | None,
    ) -> None:
        """A round knows the queues of its topic and the members, sorted; () for broadcasting."""
        of = self._topics.setdefault(topic, _Topic())
        of.strategy = strategy
        of.shares.clear()  # of a round that had an error
        # What changed in such a round was not told: it stays until a round ends.
        if of.members == (now := tuple(members)) and of.queues == tuple(queues):
            return
        if of.members is not None:
            was, is_now = of.last_members, frozenset(now)
            of.joined = tuple(one for one in now if one not in was)
            of.left = tuple(sorted(was - is_now))
        of.cause = _cause(of, queues)
        of.members, of.queues = now, tuple(queues)

    def period_ended(self, queue: MessageQueue, why: str) -> None:
        """A period of this member ended, in a round or between two."""
        self._topics.setdefault(queue.topic, _Topic()).ended[queue] = why

    def locked(self, queue: MessageQueue, epoch: str, cause: str = "") -> None:
        of = self._topics.setdefault(queue.topic, _Topic())
        ended, last = of.ended.pop(queue, ""), of.results.get(queue)
        if not cause and ended:
            cause = f"its last period ended: {ended}"
        elif not cause and last is not None and last.did is Did.REFUSED:
            cause = "its lock is free now"
        of.round[queue] = _Result(Did.LOCKED, cause or of.cause or "allocated to this member", epoch)

    def refused(self, queue: MessageQueue, refused: Refused) -> None:
        owner, why = refused.owner, refused.why
        if not owner and refused.is_held:
            owner = self._owner_in_last_share(queue)
            said = f"; {owner} had it in the last allocation" if owner else ""
            why += f", which the broker does not name{said}"
        elif owner and owner not in (self._topics[queue.topic].members or (owner,)):
            why += f", by {owner}, which is no member now: its lease or its lock delay runs"
        elif owner:
            why += f", by {owner}"
        self._note(queue, Did.REFUSED, why, owner=owner, wait_ms=refused.wait_ms)

    def given_up(self, queue: MessageQueue, did: Did, why: str, *, moves: bool) -> None:
        """A queue leaves this member, or will. `moves`: because the strategy gives it to another."""
        of = self._topics.setdefault(queue.topic, _Topic())
        last = of.results.get(queue)
        if moves and last is not None and last.did is Did.DRAINING:
            self._note(queue, did, last.why, owner=last.owner)
            return
        owner = self._allocated_to(queue, of.members or ()) if moves else ""
        if moves:
            why = f"allocated to {owner or 'another member'}" + (f": {of.cause}" if of.cause else "")
        self._note(queue, did, why, owner=owner)

    def _note(self, queue: MessageQueue, did: Did, why: str, **facts: Any) -> None:
        self._topics.setdefault(queue.topic, _Topic()).round[queue] = _Result(did, why, **facts)

    def end(self, topic: str, share: Iterable[MessageQueue] | None = None) -> None:
        """Complete the round, and write it to the log and the trace if it changed something.

        Args:
            share: what the strategy gives this member; None: as in the last round.
        """
        of = self._topics[topic]
        before, of.share = of.share, of.share if share is None else tuple(sorted(set(share)))
        self._complete(of)
        changed, now_ms = bool(of.joined or of.left or before != of.share), self._member.runtime.now_ms()
        for queue, result in of.round.items():
            known = of.results.get(queue)
            if result is _KEPT and known is not None and known.did in _OWNED:
                continue
            is_new = known is None or (result.change != known.change if result.change else known.did not in _OWNED)
            changed |= is_new
            if is_new or known is None:
                of.results[queue] = result._replace(since_ms=now_ms)
            elif result.wait_ms:
                of.results[queue] = result._replace(since_ms=known.since_ms)
        if changed:
            self._write(topic, of, before)
        of.joined, of.left, of.cause = (), (), ""
        of.round.clear()
        of.shares.clear()

    def _complete(self, of: _Topic) -> None:
        """Add the queues that no part of the round noted."""
        table = self._member.table
        for queue in of.share:
            process_queue = table.get(queue)
            if process_queue is not None and process_queue.life.is_over:
                last = of.results.get(queue)
                why = (
                    last.why
                    if last is not None and last.did is Did.DRAINING
                    else of.ended.get(queue, "its period ends")
                )
                of.round.setdefault(queue, _Result(Did.DRAINING, why))
            elif process_queue is not None:
                of.round.setdefault(queue, _KEPT)
        for queue, last in of.results.items():
            if last.did in _OWNED and queue not in of.round and queue not in table:
                why = last.why if last.did is Did.DRAINING else of.ended.get(queue, "its period ended")
                of.round[queue] = _Result(Did.DROPPED, why, owner=last.owner)
        refused = {queue for queue, last in of.results.items() if last.did is Did.REFUSED}
        for queue in refused.difference(of.share, of.round):
            # The queue is not in the share: nothing to explain.
            del of.results[queue]
        of.ended.clear()

    def keep(self, topics: Iterable[str]) -> None:
        """Forget topics that are not subscribed any more, when their last queue has left the table."""
        left = {queue.topic for queue in self._member.table}
        for topic in sorted(set(self._topics) - set(topics)):
            self.end(topic, ())
            if topic not in left:
                del self._topics[topic]

    # Reckoning -----------------------------------------------------------------------------------------------

    def _allocated_to(self, queue: MessageQueue, members: Sequence[str]) -> str:
        """The one member that the strategy gives the queue; "" if it cannot be told."""
        of, key = self._topics[queue.topic], tuple(members)
        if of.strategy is None or len(members) > _MEMBERS_MAX:
            return ""
        if key not in of.shares:
            # Once for all queues of a round: a strategy may take milliseconds.
            of.shares[key] = self._reckon(of.strategy, of.queues, members)
        owners = of.shares[key].get(queue, [])
        return owners[0] if len(owners) == 1 else ""

    def _reckon(
        self, strategy: AllocateMessageQueueStrategy, queues: Sequence[MessageQueue], members: Sequence[str]
    ) -> dict[MessageQueue, list[str]]:
        owners: dict[MessageQueue, list[str]] = {}
        try:
            for client_id in members:
                for queue in dict.fromkeys(strategy(self._member.group, client_id, queues, members)):
                    owners.setdefault(queue, []).append(client_id)
        except BaseException as error:
            # The user's strategy failed. The round itself reports it.
            if must_propagate(error):
                raise
            return {}
        return owners

    def _owner_in_last_share(self, queue: MessageQueue) -> str:
        """Which member had the queue before the members changed, by the strategy; "" if it cannot be told."""
        of = self._topics[queue.topic]
        if not of.joined and not of.left:
            last = of.results.get(queue)
            return last.owner if last is not None and last.did is Did.REFUSED else ""
        owner = self._allocated_to(queue, sorted(of.last_members))
        return "" if owner == self._member.instance.client_id else owner

    # Output --------------------------------------------------------------------------------------------------

    def _write(self, topic: str, of: _Topic, before: Sequence[MessageQueue]) -> None:
        parts = {did: [(queue, one) for queue, one in sorted(of.round.items()) if one.did is did] for did in Did}
        self._member.log.info(
            "rebalanced",
            topic=topic,
            queues=len(of.share),
            of=len(of.queues),
            strategy=self._strategy_name,
            members=" ".join((of.members or ())[:_NAMED_MAX]),
            joined=" ".join(of.joined[:_NAMED_MAX]),
            left=" ".join(of.left[:_NAMED_MAX]),
            share_before=_names(before),
            share_after=_names(of.share),
            kept=_names([queue for queue, _ in parts[Did.KEPT]]),
            locked=_reasons(parts[Did.LOCKED]),
            refused=_reasons(parts[Did.REFUSED]),
            dropped=_reasons(parts[Did.DROPPED]),
            draining=_reasons(parts[Did.DRAINING]),
            unlocked_later=_reasons(parts[Did.UNLOCKED_LATER]),
        )
        if self._member.trace is not None:
            # Members are named once: with all of them in each record, traces would grow with their square.
            members = {} if of.is_told else {"members": list(of.members or ())}
            of.is_told = True
            self._member.trace.rebalanced(
                {
                    "topic": topic,
                    "strategy": self._strategy_name,
                    **members,
                    "joined": list(of.joined),
                    "left": list(of.left),
                    "share_after": _ranges(of.share),
                    "queues": [_row(queue, one) for queue, one in sorted(of.round.items()) if one.did is not Did.KEPT],
                }
            )

    def text(self) -> str:
        """All topics as JSON: what was done with each queue when it last changed, and why."""
        topics = []
        for topic, of in sorted(self._topics.items()):
            if of.members is not None:
                rows = [{**_row(queue, one), "since_ms": one.since_ms} for queue, one in sorted(of.results.items())]
                topics.append(
                    {
                        "topic": topic,
                        "strategy": self._strategy_name,
                        "members": list(of.members),
                        "share_after": list(map(_place, of.share)),
                        "queues": rows[:_QUEUES_MAX],
                    }
                )
        return json.dumps(topics, ensure_ascii=False, separators=(",", ":"))


def _cause(of: _Topic, queues: Sequence[MessageQueue]) -> str:
    """What changed since the last round, as text; empty: nothing that a member sees."""
    if of.members is None:
        return "the first rebalance of this member"
    causes = [f"{one} joined" for one in of.joined[:_NAMED_MAX]] + [f"{one} left" for one in of.left[:_NAMED_MAX]]
    if of.queues != tuple(queues):
        causes.append(f"the route changed: the topic has {len(queues)} queues, had {len(of.queues)}")
    return ", ".join(causes)


def _row(queue: MessageQueue, result: _Result) -> dict[str, Any]:
    row: dict[str, Any] = {"broker": queue.broker_name, "queue_id": queue.queue_id, "did": str(result.did)}
    facts = {"why": result.why, "epoch": result.epoch, "owner": result.owner, "wait_ms": result.wait_ms}
    return row | {name: value for name, value in facts.items() if value}


def _place(queue: MessageQueue) -> str:
    return f"{queue.broker_name}:{queue.queue_id}"


def _ranges(queues: Sequence[MessageQueue]) -> list[str]:
    """Sorted queues, those in a row together: `broker:0-3`."""
    ranges: list[tuple[str, int, int]] = []
    for queue in queues:
        broker, first, last = ranges[-1] if ranges else ("", 0, 0)
        if broker == queue.broker_name and last + 1 == queue.queue_id:
            ranges[-1] = broker, first, queue.queue_id
        else:
            ranges.append((queue.broker_name, queue.queue_id, queue.queue_id))
    return [f"{broker}:{first}-{last}" if first < last else f"{broker}:{first}" for broker, first, last in ranges]


def _names(queues: Sequence[MessageQueue]) -> str:
    return _listed([_place(queue) for queue in queues])


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _NAMED_MAX
    return " ".join(names[:_NAMED_MAX]) + (f" and {more} more" if more > 0 else "")


def _reasons(results: Sequence[tuple[MessageQueue, _Result]]) -> str:
    """The queues of each reason together, with the epochs of fenced grants: `b:0=1-7 b:1=1-8 (c2 left); b:3 (...)`."""
    by_why: dict[str, list[str]] = {}
    for queue, one in results:
        wait = f", {one.wait_ms} ms at most" if one.wait_ms > 0 else ""
        epoch = f"={one.epoch}" if one.epoch else ""
        by_why.setdefault(one.why + wait, []).append(_place(queue) + epoch)
    return "; ".join(f"{_listed(names)} ({why})" for why, names in list(by_why.items())[:_NAMED_MAX])
