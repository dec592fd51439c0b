"""Protections of a member as a whole: its rounds, its last commits, and what a period leaves behind."""

from typing import Final

from lockstep.simulation.museum.variant import edited
from tests.mutants.protection import Protection

__all__ = ["MEMBERS"]

# Modules
BASE: Final = "lockstep.client.consumer.dispatch.base"
CONCURRENT: Final = "lockstep.client.consumer.dispatch.concurrent"
ORDERLY: Final = "lockstep.client.consumer.dispatch.orderly"
LITE_MEMBER: Final = "lockstep.client.consumer.lite_member"
MEMBER: Final = "lockstep.client.consumer.member"
FENCED: Final = "lockstep.client.consumer.ownership.fenced_commits"
FENCED_LOCKS: Final = "lockstep.client.consumer.ownership.fenced_locks"
LOCK_REQUESTS: Final = "lockstep.client.consumer.ownership.lock_requests"
LOCKS: Final = "lockstep.client.consumer.ownership.locks"
CLIENT_PERIOD_END: Final = "lockstep.client.consumer.ownership.period_end"
REBALANCE: Final = "lockstep.client.consumer.ownership.rebalance"
RESET: Final = "lockstep.client.consumer.ownership.reset"
PULL_LOOP: Final = "lockstep.client.consumer.pull_loop"
PUSH_MEMBER: Final = "lockstep.client.consumer.push_member"
SEND_BACK: Final = "lockstep.client.consumer.send_back"
DIALER: Final = "lockstep.remoting.connections.dialer"

ROUNDS: Final = ("tests/client/ownership/test_rounds.py",)
RELEASED: Final = ("tests/client/ownership/test_released_locks.py",)
COMMITS: Final = ("tests/client/offsets/test_offsets.py",)
PERIOD_END: Final = ("tests/client/ownership/test_period_end.py",)
UNANSWERED: Final = ("tests/client/ownership/test_unanswered_locks.py",)
OWNERSHIP: Final = ("tests/client/dispatch/test_consume_ownership.py",)
FENCED_COMMITS: Final = ("tests/client/offsets/test_fenced_commits.py",)
UNREADABLE: Final = ("tests/client/dispatch/test_unreadable.py",)

MEMBERS: Final = (
    # Rounds
    Protection(
        "released-one-round",
        "Released queues are asked for beside a round: a queue gets two periods.",
        edited(MEMBER, "GroupMember.take_released", "self._round", "asyncio.Lock()"),
        ROUNDS,
    ),
    Protection(
        "released-not-while-stopping",
        "A member that stops takes a queue that was released.",
        edited(MEMBER, "GroupMember.take_released", "not self._stopping", "True"),
        ROUNDS,
    ),
    Protection(
        "change-during-round",
        "A change of members during a round is noticed 20 s later.",
        edited(
            MEMBER,
            "GroupMember._rebalance_forever",
            "await self.rebalance_now()",
            "await self.rebalance_now()\nself._wake.clear()",
        ),
        ROUNDS,
    ),
    Protection(
        "released-in-table",
        "A released queue is taken that has a period already: it gets two.",
        edited(REBALANCE, "Rebalance.take_released", "queue not in self._table", "True"),
        RELEASED,
    ),
    Protection(
        "released-own-share",
        "A released queue is asked for that is another member's share by now.",
        edited(REBALANCE, "Rebalance._acquire", ("for queue in before:\n    self._refused.pop(queue, None)"), ""),
        RELEASED,
    ),
    # Commits
    Protection(
        "dropped-not-committed",
        "The commit timer stores the offset of a dropped queue over the reset that waits for its listener.",
        edited(MEMBER, "GroupMember._persist_all", "not pq.life.dropped", "True"),
        COMMITS,
    ),
    Protection(
        "last-commit-under-lock",
        "A shutdown stores the offset of a queue without a fence whose lock has run out.",
        edited(PUSH_MEMBER, "PushMember._persist_last", "self.membership.holds_lock(pq)", "True"),
        COMMITS,
    ),
    Protection(
        "last-commit-answered",
        "A shutdown does not wait for the answers to its last commits.",
        edited(
            FENCED_LOCKS,
            "FencedLocks.commit_last",
            "await asyncio.gather(*[self._commits.store_last(process_queue) for process_queue in fenced])",
            "self._commits.send(fenced)",
        ),
        COMMITS,
    ),
    Protection(
        "unreadable-behind-unhandled",
        "Dead letters of unreadable messages move the offset over messages that wait.",
        edited(PULL_LOOP, "PullLoop._without_unreadable", "process_queue.cache.is_empty", "True"),
        UNREADABLE,
    ),
    Protection(
        "unreadable-of-dropped",
        "An unreadable message of a dropped queue becomes a dead letter, and for the next owner another one.",
        edited(
            PULL_LOOP,
            "PullLoop._without_unreadable",
            (
                "if not process_queue.life.dropped:\n"
                "    await dead_letters.send(process_queue, message, message.reconsume_times)"
            ),
            "await dead_letters.send(process_queue, message, message.reconsume_times)",
        ),
        UNREADABLE,
    ),
    Protection(
        "lock-behind-connection",
        "The lock is looked at before a connection is made that may show that it is lost.",
        edited(
            PULL_LOOP,
            "PullLoop._pull_once",
            (
                "endpoint = await self._calls.endpoint(queue, source)\n"
                "if not self._member.holds_lock(process_queue):\n"
                "    return config.pull_delay_when_exception_ms"
            ),
            (
                "if not self._member.holds_lock(process_queue):\n"
                "    return config.pull_delay_when_exception_ms\n"
                "endpoint = await self._calls.endpoint(queue, source)"
            ),
        ),
        ("tests/client/pulls/test_pull.py",),
    ),
    # What a period leaves behind
    Protection(
        "period-released-on-error",
        "A period whose last commit cannot be recorded stays in the table, and nobody gets its queue.",
        edited(
            CLIENT_PERIOD_END,
            "PeriodEnds._finish",
            "self._release(process_queue, self._ends.pop(process_queue))",
            (
                "if __import__('sys').exc_info()[0] is None:\n"
                "    self._release(process_queue, self._ends.pop(process_queue))"
            ),
        ),
        PERIOD_END,
    ),
    Protection(
        "joined-causes-ask",
        "A second cause that asks for a new round is forgotten.",
        edited(CLIENT_PERIOD_END, "PeriodEnd.joined", "self.asks or other.asks", "self.asks"),
        PERIOD_END,
    ),
    Protection(
        "dropped-not-locked-again",
        "A dropped queue that waited for its lock is locked again, and its next owner waits.",
        edited(BASE, "OrderedService._try_lock", "not process_queue.life.is_over", "True"),
        ("tests/client/dispatch/test_consume_ownership.py",),
    ),
    Protection(
        "reset-gives-back",
        "A queue that was reset under a fenced lock stays locked until its lease ends.",
        edited(RESET, "OffsetReset._reset_fenced", "self._locks.unlock_later(queue)", ""),
        PERIOD_END,
    ),
    Protection(
        "failed-reset-gives-back",
        "A queue whose reset under a fenced lock failed stays locked until its lease ends.",
        edited(RESET, "OffsetReset._reset_fenced", "self._locks.unlock(queue)", ""),
        PERIOD_END,
    ),
    Protection(
        "reset-renews",
        "A lease is not renewed while a reset waits for a listener call, and the reset is refused.",
        edited(FENCED_LOCKS, "FencedLocks._to_renew", "not pq.life.resetting", "True"),
        ("tests/client/ownership/test_fenced_locks.py",),
    ),
    Protection(
        "shutdown-awaits-lock-call",
        "A shutdown does not wait for a lock call under way, and what it grants stays locked.",
        edited(
            LOCKS,
            "QueueLocks.unlock_all",
            "await self._wait_until(lambda: not self._any(leaving, _ASKING), calls_ms)",
            "",
        ),
        ("tests/client/ownership/test_queue_locks.py",),
    ),
    Protection(
        "stop-awaits-round",
        "A member stops during a round, and the queue that it is granted then stays locked.",
        edited(MEMBER, "GroupMember.stop", ("async with self._round:\n    pass"), ""),
        ROUNDS,
    ),
    Protection(
        "reacquired-begins-round",
        "A queue whose lock ran out and was granted again rests until the next round.",
        edited(PUSH_MEMBER, "PushMember.lock_reacquired", "self.rebalance_soon()", ""),
        ROUNDS,
    ),
    Protection(
        "unlock-of-ended-connection",
        "A queue is locked again while an unlock of an ended connection may still free it.",
        edited(
            LOCK_REQUESTS,
            "LockRequests._unlocked",
            "self._settle_later(lambda: self._listener.unlock_failed(queues, lapsed=True))",
            "self._listener.unlock_failed(queues, lapsed=True)",
        ),
        UNANSWERED,
    ),
    Protection(
        "lock-of-ended-connection",
        "A lock request of an ended connection is handled behind the unlock, and the queue stays locked.",
        edited(
            LOCK_REQUESTS,
            "LockRequests._late",
            "self._settle_later(lambda: self._listener.settled(queues, dict.fromkeys(queues, 0)))",
            "self._listener.settled(queues, dict.fromkeys(queues, 0))",
        ),
        UNANSWERED,
    ),
    Protection(
        "lock-asked-after-error",
        "A queue whose lock request failed in this client is never consumed again.",
        edited(BASE, "OrderedService._lock", "granted = {}", "return"),
        OWNERSHIP,
    ),
    Protection(
        "administrator-between-calls",
        "An administrator's message waits until the run of a queue has ended.",
        edited(ORDERLY, "ConsumeMessageOrderlyService._consume_run", "mutex.reserved", "False"),
        OWNERSHIP,
    ),
    Protection(
        "refused-dead-letter-ends",
        "A dead letter that is refused under its epoch does not end the period.",
        edited(BASE, "OrderedService._give_up", "self._locks.refused(process_queue, error)", ""),
        ("tests/client/dispatch/test_fenced_calls.py",),
    ),
    Protection(
        "dead-letter-under-epoch",
        "A member that has lost its queue makes dead letters of messages that the next owner handles.",
        edited(
            SEND_BACK,
            "DeadLetters.send",
            "self._producer.send_to(process_queue.queue.broker_name, outgoing, fence)",
            "self._producer.send_to(process_queue.queue.broker_name, outgoing, fence._replace(epoch=0))",
        ),
        ("tests/client/dispatch/test_dead_letters.py",),
    ),
    Protection(
        "fenced-commit-to-fenced",
        "A broker without fenced locks takes commits of a fenced period, whoever has the queue.",
        edited(FENCED, "FencedCommits.send", "endpoint.agreed", "True"),
        FENCED_COMMITS,
    ),
    Protection(
        "fenced-last-commit-to-fenced",
        "A broker without fenced locks takes the last commit of a fenced period, whoever has the queue.",
        edited(FENCED, "FencedCommits._endpoint", "not endpoint.agreed", "False"),
        FENCED_COMMITS,
    ),
    Protection(
        "commit-recorded-in-its-period",
        "A commit is recorded that is answered after the end of its period.",
        edited(FENCED, "FencedCommits._record", "not (process_queue.life.lost or process_queue.life.dropped)", "True"),
        FENCED_COMMITS,
    ),
    Protection(
        "sent-back-while-dropped",
        "A queue that is dropped while a message is sent back commits over its next owner.",
        edited(CONCURRENT, "ConsumeMessageConcurrentlyService._remove", "not process_queue.life.dropped", "True"),
        ("tests/client/dispatch/test_consume_concurrently.py",),
    ),
    Protection(
        "assigned-again-anew",
        "A queue that is assigned again stores the offset of its earlier assignment.",
        edited(
            LITE_MEMBER,
            "LiteMember.assign",
            ("for process_queue in given_up:\n    self.offsets.forget(process_queue.queue)"),
            "",
        ),
        ("tests/client/pulls/test_lite_pull_consumer.py",),
    ),
    Protection(
        "read-keeps-commit",
        "A look at the stored offset forgets the commit that is on its way.",
        edited(
            LITE_MEMBER, "LiteMember.committed", "lite_queue is not None and lite_queue.committed != NOT_KNOWN", "False"
        ),
        ("tests/client/pulls/test_lite_pull_consumer.py",),
    ),
    Protection(
        "late-end-of-connection",
        "A connection that ends late takes the one that followed it out of use.",
        edited(
            DIALER,
            "Dialer._forget",
            ("if self._open.get(address) is closed:\n    del self._open[address]"),
            "self._open.pop(address, None)",
        ),
        ("tests/remoting/test_dialer.py",),
    ),
)
