"""Claim, renew and release: a client of a group asks for queues, or gives them back."""

from collections.abc import Collection, Sequence
from typing import Final

from lockstep.broker.core.broker import Broker
from lockstep.broker.ownership.answers import FenceAnswer, LockAnswer, Locked, LockOutcome
from lockstep.broker.peer import Peer
from lockstep.protocol.bodies.locks import LockBatchBody
from lockstep.protocol.model import MessageQueue

__all__ = ["claim", "release"]

# Log events of one request and outcome; above that, one event has their count.
_LINES_MAX: Final = 100
_EVENTS: Final = {  # for one queue, and for many
    LockOutcome.GRANTED: ("lock_granted", "locks_granted"),
    LockOutcome.RENEWED: ("lock_renewed", "locks_renewed"),
    LockOutcome.TAKEN_OVER: ("lock_taken_over", "locks_taken_over"),
    LockOutcome.REACQUIRED: ("lock_reacquired_by_owner", "locks_reacquired_by_owner"),
    LockOutcome.REFUSED: ("lock_refused", "locks_refused"),
    LockOutcome.TABLE_FULL: ("lock_table_full", "lock_table_full"),
}


def claim(broker: Broker, peer: Peer, asked: LockBatchBody, now_ms: int) -> Locked:
    """Claim queues, each of which is in the request once. To claim a queue that one owns is to renew it.

    With fenced locks a queue is locked or popped, never both: what is delivered is waited for.
    """
    group, pops = asked.consumer_group, broker.messages.pops
    popped = _popped(broker, asked, now_ms) if pops.fenced and pops.fifo else []
    if popped:
        asked = _without(asked, {answer.queue for answer in popped})
    locked = broker.ownership.lock(asked, peer, now_ms, each=broker.config.log_debug or bool(popped))
    if pops.fenced and pops.fifo:
        for queue, _ in locked.begun:
            # Nothing that was delivered before may move the offset of its owner, or be made invisible again.
            pops.reset(queue.topic, group, queue.queue_id, now_ms)
    if popped:
        broker.ownership.counts.outcomes[LockOutcome.REFUSED] += len(popped)
        locked = locked._replace(answers=[*locked.answers, *popped])
    # Nearly all requests only renew, and need no event.
    if locked.answers:
        _log_answers(broker, asked, locked.answers)
    return locked


def _popped(broker: Broker, asked: LockBatchBody, now_ms: int) -> list[LockAnswer]:
    """Refusals of queues without an owner of which messages are delivered now."""
    group, refused = asked.consumer_group, list[LockAnswer]()
    for queue in asked.mq_set:
        fifo = broker.messages.pops.fifo.find(queue.topic, group, queue.queue_id)
        held = [one for one in fifo.under_way() if one.visible_ms > now_ms] if fifo is not None else ()
        if held and not broker.ownership.is_owned(group, queue.topic, queue.queue_id, now_ms):
            wait_ms = max(one.visible_ms for one in held) - now_ms
            refused.append(LockAnswer(queue, LockOutcome.REFUSED, held[0].client, wait_ms=wait_ms))
    return refused


def _without(asked: LockBatchBody, queues: Collection[MessageQueue]) -> LockBatchBody:
    """The claims of other queues, each with its epoch."""
    kept = [number for number, queue in enumerate(asked.mq_set) if queue not in queues]
    epochs = None if asked.epochs is None else tuple(asked.epochs[number] for number in kept)
    return asked._replace(mq_set=tuple(asked.mq_set[number] for number in kept), epochs=epochs)


def release(broker: Broker, peer: Peer, asked: LockBatchBody, now_ms: int) -> None:
    """Release the queues that the client owns. Only the log says which ones it does not own."""
    refused = broker.ownership.unlock(asked, peer, now_ms)
    facts = {"group": asked.consumer_group, "client_id": asked.client_id}
    if len(asked.mq_set) > _LINES_MAX:
        released_count = len(asked.mq_set) - len(refused)
        broker.log.info("locks_released", **facts, count=released_count, ignored_count=len(refused))
        return
    owners = {answer.queue: answer.other for answer in refused}
    for queue in asked.mq_set:
        if queue in owners:
            broker.log.info("unlock_ignored", **facts, queue=str(queue), owner=owners[queue])
        else:
            broker.log.info("lock_released", **facts, queue=str(queue))


def _log_answers(broker: Broker, asked: LockBatchBody, answers: Sequence[LockAnswer]) -> None:
    by_outcome: dict[LockOutcome, list[LockAnswer]] = {}
    for answer in answers:
        by_outcome.setdefault(answer.outcome, []).append(answer)
    for outcome, alike in by_outcome.items():
        if outcome is not LockOutcome.RENEWED or broker.config.log_debug:
            _log(broker, asked, outcome, alike)


def _log(broker: Broker, asked: LockBatchBody, outcome: LockOutcome, answers: Sequence[LockAnswer]) -> None:
    """One event a queue; one event for all if they are many, or if the table is full."""
    facts = {"group": asked.consumer_group, "client_id": asked.client_id}
    event, event_of_many = _EVENTS[outcome]
    if outcome is LockOutcome.TABLE_FULL:
        broker.log.warning(
            event, **facts, count=len(answers), first=str(answers[0].queue), entries=len(broker.ownership.table)
        )
    elif len(answers) > _LINES_MAX:
        broker.log.info(event_of_many, **facts, count=len(answers), first=str(answers[0].queue))
    else:
        log = broker.log.debug if outcome is LockOutcome.RENEWED else broker.log.info
        for answer in answers:
            log(event, **facts, queue=str(answer.queue), **_about(answer))


def _about(answer: LockAnswer) -> dict[str, object]:
    """The fields of an event about another owner and the age of the lock."""
    if answer.outcome is LockOutcome.GRANTED:
        return {}
    if answer.fence is not FenceAnswer.OK:
        return {"owner": answer.other, "answer": answer.fence.name}
    if answer.outcome in (LockOutcome.RENEWED, LockOutcome.REACQUIRED):
        return {"age_ms": answer.age_ms}
    of_other = "from_client_id" if answer.outcome is LockOutcome.TAKEN_OVER else "owner"
    return {of_other: answer.other, "age_ms": answer.age_ms}
