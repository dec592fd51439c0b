"""Pull: a member of a group reads a queue, commits with the read, and may wait for messages."""

from collections.abc import Callable
from typing import Final, NamedTuple

from lockstep.broker.core.broker import Broker
from lockstep.broker.core.commit import commit_of_reader
from lockstep.broker.core.read import check_reader, read
from lockstep.broker.core.wanted import expressed, subscribed
from lockstep.broker.messages.filters import Wanted
from lockstep.broker.messages.held_pulls import HeldPull
from lockstep.broker.messages.pull_answers import Nothing, PullAnswer, Why
from lockstep.broker.ownership.denial import Act
from lockstep.broker.peer import Peer
from lockstep.broker.sliced_work import Steps
from lockstep.protocol.tuples import new_tuple

__all__ = ["Pull", "pull", "sweep_held_pulls", "wake_held_pulls"]

_SHORT_POLLING_MS: Final = 1000
_PULLS_A_STEP: Final = 32
# Looked up once: in an enum it costs as much as a call.
_NOTHING_NEW: Final = Why.NOTHING_NEW
_PULL: Final = Act.PULL


class Pull(NamedTuple):
    """
    Args:
        wait_ms: How long it may wait for messages.
        sub_version: Of the subscription that the member has.
        expression: Type and text of a filter; None: what the group's heartbeats registered.
        commit_offset: Stored before the read; None: there is none.
        bulk: The limit in messages does not hold.
        lock_epoch, lock_client_id: As in a Claim.
    """

    consumer_group: str
    topic: str
    queue_id: int
    queue_offset: int
    max_messages: int
    wait_ms: int
    sub_version: int
    expression: tuple[str | None, str | None] | None = None
    commit_offset: int | None = None
    bulk: bool = False
    lock_epoch: int | None = None
    lock_client_id: str | None = None


Then = Callable[[PullAnswer], None]


def pull(broker: Broker, peer: Peer, asked: Pull, now_ms: int, then: Then | None) -> PullAnswer | None:
    """Answer with messages, or hold the pull until a message arrives or its wait time is over.

    Args:
        then: Called later with the answer of a pull that is held; None: it must not wait.

    Returns:
        The answer; None: it is held.

    Raises:
        Refused: The group may not read the queue, or its filter is invalid or not known yet.
    """
    group = check_reader(broker, asked.consumer_group, asked.topic, asked.queue_id, now_ms)
    if asked.expression is None:
        wanted = subscribed(broker, group, asked.topic, asked.sub_version)
    else:
        wanted = expressed(broker, asked.topic, *asked.expression)
    denial = broker.ownership.deny(peer, asked, _PULL, now_ms)
    if denial is not None:
        # A client that knows epochs learns at once that it is no owner. An unmodified one would pull again at once: its
        # pull is held instead, or answered with nothing new.
        if asked.lock_epoch is not None:
            return denial
        refused_pulls = broker.messages.refused_pulls
        if then is None:
            return refused_pulls.answer(asked.topic, asked.queue_id, asked.queue_offset)
        return refused_pulls.refuse(_to_hold(broker, peer, asked, wanted, now_ms, then))
    # First the commit, then the read: a pull that is held has committed too (wire.md 6.4).
    if asked.commit_offset is not None:
        commit_of_reader(broker, peer, asked, asked.commit_offset, now_ms)
    answer = read(broker, asked, wanted, now_ms)
    # Only with nothing new it may wait: every other answer changes what the client does next (wire.md 6.4).
    if then is None or not isinstance(answer, Nothing) or answer.why is not _NOTHING_NEW:
        return answer
    hold = broker.messages.hold
    if hold.park(_to_hold(broker, peer, asked, wanted, now_ms, then)):
        return None
    broker.limits.met(*hold.room.no_room, now_ms, peer.address)
    return hold.room.no_room


def _to_hold(broker: Broker, peer: Peer, asked: Pull, wanted: Wanted, now_ms: int, then: Then) -> HeldPull:
    wait_ms = asked.wait_ms if broker.config.long_polling else _SHORT_POLLING_MS
    return new_tuple(
        HeldPull,
        (
            peer,
            asked.consumer_group,
            asked.topic,
            asked.queue_id,
            asked.queue_offset,
            asked.max_messages,
            wanted,
            now_ms + wait_ms,
            then,
            broker.ownership.claim_to_hold(asked),
            asked.bulk,
        ),
    )


# Held pulls ------------------------------------------------------------------------------------------------------


def wake_held_pulls(broker: Broker, now_ms: int) -> None:
    """Called at the end of a read: answer the held pulls that the stored messages match."""
    arrived = broker.messages.hold.take_arrived(
        lambda topic, queue_id, at: broker.messages.store.get(topic, queue_id, at, 1, None).body
    )
    _run_all(broker, arrived, now_ms)


def sweep_held_pulls(broker: Broker, now_ms: int) -> None:
    """Called every 5 s: answer held pulls with newer messages of any tag, and those whose wait time is over."""
    _run_all(broker, broker.messages.hold.sweep(now_ms, broker.messages.store.max_offset), now_ms)
    broker.messages.refused_pulls.sweep(now_ms)


def _run_all(broker: Broker, pulls: list[HeldPull], now_ms: int) -> None:
    """Answer the first pulls at once and the others in steps: thousands of peers may wait for one message."""
    for held in pulls[:_PULLS_A_STEP]:
        _run_again(broker, held, now_ms)
    if len(pulls) > _PULLS_A_STEP:
        broker.work.start(broker.messages.hold, _run_in_steps(broker, pulls, now_ms))


def _run_in_steps(broker: Broker, pulls: list[HeldPull], now_ms: int) -> Steps:
    for start in range(_PULLS_A_STEP, len(pulls), _PULLS_A_STEP):
        for held in pulls[start : start + _PULLS_A_STEP]:
            # The peer may have gone since an earlier step. A reply to it is dropped anyway; this saves the read.
            if held.peer.is_open:
                _run_again(broker, held, now_ms)
        yield None


def _run_again(broker: Broker, held: HeldPull, now_ms: int) -> None:
    """Answer a held pull, with or without messages: a pull is held once, and its offset is committed already.

    A pull is only held again if its connection stopped reading while this loop answered its other pulls.
    """
    if held.peer.write_paused:
        # The peer does not take the answers that it has. Another one would only wait in memory.
        broker.messages.hold.park(held)
        return
    if broker.messages.refused_pulls.has_ended(held, now_ms):
        return
    held.then(read(broker, held, held.wanted, now_ms))
