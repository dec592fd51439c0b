"""Commit: a group stores the offset from which it goes on, if its sender owns the queue."""

from lockstep.broker.catalog.offsets import NO_OFFSET
from lockstep.broker.core.broker import Broker
from lockstep.broker.core.refused import Denied, Reason, Refused
from lockstep.broker.ownership.claim import Claiming
from lockstep.broker.ownership.denial import Denial
from lockstep.broker.peer import Peer
from lockstep.broker.sliced_work import Steps
from lockstep.protocol.bodies.locks import LockGrant
from lockstep.protocol.errors import LocalProtocolError, short_text
from lockstep.protocol.names import REVIVE_LOG_PREFIX, check_group

__all__ = ["begin_at", "check_capacity", "commit", "commit_of_reader", "query_offset", "set_offset"]


def query_offset(broker: Broker, consumer_group: str, topic: str, queue_id: int) -> int | None:
    """The offset of a group; None when it has none. A young queue gives 0 instead, as in RocketMQ (wire.md 8.1)."""
    start = broker.messages.store.min_offset(topic, queue_id)
    return broker.catalog.offsets.query_or_start(consumer_group, topic, queue_id, start)


def commit(broker: Broker, peer: Peer, claim: Claiming, offset: int, now_ms: int, alone: bool = True) -> Denial | None:
    """Commit an offset. An unknown topic or queue is refused, as in RocketMQ 5; 4.9 stores such offsets forever.

    A lower offset than the stored one is logged, because only a reset should commit one.

    Args:
        alone: It does not come with a pull, which has proved that the sender owns the queue.

    Returns:
        Why the sender may not, as it does not own the queue. Many of these come in one frame, so none is raised.

    Raises:
        Refused: The group, the topic, the queue or the offset is invalid, or the table is full.
    """
    before, ownership = _check_commit(broker, peer, claim, offset, now_ms), broker.ownership
    # First the check, then the store: a client that lost the queue must not move the offset of its successor.
    denial = ownership.deny_commit(peer, claim, offset, before, now_ms, alone)
    if denial is not None:
        return denial
    broker.catalog.offsets.commit(claim.consumer_group, claim.topic, claim.queue_id, offset)
    if broker.messages.pops.in_use:
        broker.messages.pops.reset(claim.topic, claim.consumer_group, claim.queue_id, now_ms)
    if offset < before:
        broker.log.warning(
            "offset_committed_backwards",
            group=claim.consumer_group,
            topic=claim.topic,
            queue_id=claim.queue_id,
            before=before,
            committed_offset=offset,
            peer=peer.address,
        )
    ownership.committed(claim, now_ms, alone)
    return None


def set_offset(broker: Broker, peer: Peer, claim: Claiming, offset: int, now_ms: int) -> Denial | None:
    """An administrator sets the offset of a group: the owner of the queue has no say. Else as `commit`."""
    _check_commit(broker, peer, claim, offset, now_ms)
    group, topic, queue_id = claim.consumer_group, claim.topic, claim.queue_id
    if not broker.ownership.reset(group, topic, {queue_id: offset}, now_ms):
        return commit(broker, peer, claim, offset, now_ms)
    broker.catalog.offsets.commit(group, topic, queue_id, offset)
    broker.messages.pops.reset(topic, group, queue_id, now_ms)
    return None


def commit_of_reader(broker: Broker, peer: Peer, claim: Claiming, offset: int, now_ms: int) -> None:
    """Commit the offset that comes with a pull. If it is refused, the pull is answered all the same."""
    try:
        commit(broker, peer, claim, offset, now_ms, alone=False)  # denials are logged
    except Refused as refusal:
        broker.log.info("pull_commit_refused", peer=peer.address, reason=str(refusal))


def begin_at(broker: Broker, peer: Peer, claim: Claiming, offset: int, now_ms: int) -> LockGrant:
    """The owner of a queue sets its offset, also back, but not beyond the end of the queue.

    A new epoch begins, so late commits of the old one are refused. Raises Refused.
    """
    ownership = broker.ownership
    # First all checks: the owner, the form of the offset, the end of the queue. Only then anything is stored.
    _refuse_if(ownership.deny_reset(peer, claim, now_ms))
    stored = _check_commit(broker, peer, claim, offset, now_ms)
    _refuse_if(ownership.deny_reset_to(peer, claim, offset, stored, now_ms))
    broker.catalog.offsets.commit(claim.consumer_group, claim.topic, claim.queue_id, offset)
    broker.messages.pops.reset(claim.topic, claim.consumer_group, claim.queue_id, now_ms)
    # First the offset, then the epoch: a commit that is on its way under the old epoch is refused from now on, so it
    # cannot undo the reset.
    grant = ownership.begin_epoch(peer, claim, now_ms)
    if isinstance(grant, Denial):
        raise Denied(grant)
    return grant


def _refuse_if(denial: Denial | None) -> None:
    if denial is not None:
        raise Denied(denial)


def _check_commit(broker: Broker, peer: Peer, claim: Claiming, offset: int, now_ms: int) -> int:
    """Return the offset that is stored now; -1 for none.

    Raises:
        Refused: an invalid group, an unknown topic or queue, an offset below -1, and a full table.
    """
    group, topic, queue_id = claim.consumer_group, claim.topic, claim.queue_id
    stored = broker.catalog.offsets.stored(group, topic, queue_id)
    if stored is None:  # else it was checked then
        try:
            check_group(group)
        except LocalProtocolError as error:
            raise Refused(Reason.INVALID, str(error)) from None
    config = broker.catalog.topics.get(topic)
    if config is None:
        raise Refused(Reason.NO_TOPIC, f"Topic {short_text(topic)} not exist!")  # RocketMQ 5's words
    # While a topic shrinks it has more read queues, while it grows more write queues. Both may be committed.
    if not (0 <= queue_id < config.read_queue_nums or 0 <= queue_id < config.write_queue_nums):
        queue_nums = max(config.read_queue_nums, config.write_queue_nums)
        raise Refused(Reason.INVALID, f"topic {topic} has queues 0 to {queue_nums - 1}, not {queue_id}")
    if offset < NO_OFFSET:
        # ali-ons writes -1 for no offset (wire.md 8.1).
        raise Refused(Reason.INVALID, f"an offset must be at least 0, or -1 for none, not {offset}")
    if stored is None:
        check_capacity(broker, peer, 1, now_ms)
        return NO_OFFSET
    return stored


def check_capacity(broker: Broker, peer: Peer, count: int, now_ms: int) -> None:
    """Raises Refused when `count` more offsets do not fit into the table.

    Then offsets of deleted topics are removed, in steps, so that a later request may fit.
    """
    offsets = broker.catalog.offsets
    if count <= 0 or len(offsets) + count <= broker.config.offset_entries_max:
        return
    # To look through the table for deleted topics pays only when a topic was deleted since the last look.
    if offsets.deletions_seen != broker.catalog.topics.deletions:
        offsets.deletions_seen = broker.catalog.topics.deletions
        broker.work.start(offsets, _forget_deleted(broker))
    wanted, maximum = len(offsets) + count, broker.config.offset_entries_max
    # A small table is looked through by now.
    if wanted > maximum:
        broker.limits.met("offset_entries_max", maximum, now_ms, peer.address)
        raise Refused(Reason.INVALID, f"{wanted} exceed the broker's setting offset_entries_max: {maximum}")


def _forget_deleted(broker: Broker) -> Steps:
    forgotten_count = yield from broker.catalog.offsets.forget_topics(
        lambda topic: broker.catalog.topics.get(topic) is None and not topic.startswith(REVIVE_LOG_PREFIX)
    )
    if forgotten_count:
        broker.log.info("offsets_of_deleted_topics_forgotten", count=forgotten_count)
