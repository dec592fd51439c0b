"""Protections of a member as a whole: its rounds, its last commits, and what a period leaves behind."""

from typing import Final

from tests.mutants.protection import Protection

__all__ = ["MEMBERS"]

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
        "client/consumer/member.py",
        "        async with self._round:\n            if self.balances and not self._stopping:\n"
        "                await self._rebalance.take_released(queues)",
        "        if self.balances and not self._stopping:\n            await self._rebalance.take_released(queues)",
        ROUNDS,
    ),
    Protection(
        "released-not-while-stopping",
        "A member that stops takes a queue that was released.",
        "client/consumer/member.py",
        "            if self.balances and not self._stopping:\n"
        "                await self._rebalance.take_released(queues)",
        "            if self.balances:\n                await self._rebalance.take_released(queues)",
        ROUNDS,
    ),
    Protection(
        "change-during-round",
        "A change of members during a round is noticed 20 s later.",
        "client/consumer/member.py",
        "            self._wake.clear()\n            try:\n                await self.rebalance_now()\n",
        "            try:\n                await self.rebalance_now()\n                self._wake.clear()\n",
        ROUNDS,
    ),
    Protection(
        "released-in-table",
        "A released queue is taken that has a period already: it gets two.",
        "client/consumer/ownership/rebalance.py",
        "if queue in self._refused and queue not in self._table]",
        "if queue in self._refused]",
        RELEASED,
    ),
    Protection(
        "released-own-share",
        "A released queue is asked for that is another member's share by now.",
        "client/consumer/ownership/rebalance.py",
        "        for queue in before:\n            self._refused.pop(queue, None)\n",
        "",
        RELEASED,
    ),
    # Commits
    Protection(
        "dropped-not-committed",
        "The commit timer stores the offset of a dropped queue over the reset that waits for its listener.",
        "client/consumer/member.py",
        "if not pq.dropped and pq.holds_lock(now_ms, live_ms)]",
        "if pq.holds_lock(now_ms, live_ms)]",
        COMMITS,
    ),
    Protection(
        "last-commit-under-lock",
        "A shutdown stores the offset of a queue without a fence whose lock has run out.",
        "client/consumer/push_member.py",
        "if not pq.epoch and self.membership.holds_lock(pq)])",
        "if not pq.epoch])",
        COMMITS,
    ),
    Protection(
        "last-commit-answered",
        "A shutdown does not wait for the answers to its last commits.",
        "client/consumer/push_member.py",
        "        await self._fencing.store_all([pq for pq in owned if pq.epoch])\n",
        "        self._fencing.commit([pq for pq in owned if pq.epoch])\n",
        COMMITS,
    ),
    Protection(
        "unreadable-behind-unhandled",
        "Dead letters of unreadable messages move the offset over messages that wait.",
        "client/consumer/pull_loop.py",
        "not readable and process_queue.is_empty and not process_queue.dropped:",
        "not readable and not process_queue.dropped:",
        UNREADABLE,
    ),
    Protection(
        "unreadable-of-dropped",
        "An unreadable message of a dropped queue becomes a dead letter, and for the next owner another one.",
        "client/consumer/pull_loop.py",
        "            elif not process_queue.dropped:\n",
        "            else:\n",
        UNREADABLE,
    ),
    Protection(
        "lock-behind-connection",
        "The lock is looked at before a connection is made that may show that it is lost.",
        "client/consumer/pull_loop.py",
        "            endpoint = await self._calls.endpoint(queue, source)\n"
        "            if not self._member.holds_lock(process_queue):\n"
        "                return config.pull_delay_when_exception_ms\n",
        "            if not self._member.holds_lock(process_queue):\n"
        "                return config.pull_delay_when_exception_ms\n"
        "            endpoint = await self._calls.endpoint(queue, source)\n",
        ("tests/client/pulls/test_pull.py",),
    ),
    # What a period leaves behind
    Protection(
        "period-released-on-error",
        "A period whose last commit cannot be recorded stays in the table, and nobody gets its queue.",
        "client/consumer/ownership/period_end.py",
        "        finally:  # the trace cannot be written, for example: the queue is released all the same\n",
        "            released = True\n        finally:\n            pass\n        if released:\n",
        PERIOD_END,
    ),
    Protection(
        "joined-causes-ask",
        "A second cause that asks for a new round is forgotten.",
        "client/consumer/ownership/period_end.py",
        "self.asks or other.asks",
        "self.asks",
        PERIOD_END,
    ),
    Protection(
        "dropped-not-locked-again",
        "A dropped queue that waited for its lock is locked again, and its next owner waits.",
        "client/consumer/dispatch/base.py",
        "if not self._starts.stopped and not process_queue.is_over:",
        "if not self._starts.stopped:",
        ("tests/client/dispatch/test_consume_ownership.py",),
    ),
    Protection(
        "reset-gives-back",
        "A queue that was reset under a fenced lock stays locked until its lease ends.",
        "client/consumer/ownership/reset.py",
        "                self._locks.unlock_later(queue)  # unless the next rebalance asks for it\n            else:",
        "                pass\n            else:",
        PERIOD_END,
    ),
    Protection(
        "failed-reset-gives-back",
        "A queue whose reset under a fenced lock failed stays locked until its lease ends.",
        "client/consumer/ownership/reset.py",
        "                self._locks.unlock(queue)\n",
        "                pass\n",
        PERIOD_END,
    ),
    Protection(
        "reset-renews",
        "A lease is not renewed while a reset waits for a listener call, and the reset is refused.",
        "client/consumer/ownership/fenced_locks.py",
        "if not (pq.lost or (pq.dropped and not pq.resetting))]",
        "if not (pq.lost or pq.dropped)]",
        ("tests/client/ownership/test_fenced_locks.py",),
    ),
    Protection(
        "shutdown-awaits-lock-call",
        "A shutdown does not wait for a lock call under way, and what it grants stays locked.",
        "client/consumer/ownership/locks.py",
        "        await self._wait_until(lambda: not self._any(leaving, _ASKING), calls_ms)\n",
        "",
        ("tests/client/ownership/test_queue_locks.py",),
    ),
    Protection(
        "stop-awaits-round",
        "A member stops during a round, and the queue that it is granted then stays locked.",
        "client/consumer/member.py",
        "        async with self._round:  # a round that a new topic began\n            pass\n",
        "",
        ROUNDS,
    ),
    Protection(
        "reacquired-begins-round",
        "A queue whose lock ran out and was granted again rests until the next round.",
        "client/consumer/push_member.py",
        'it begins anew")\n        self.rebalance_soon()',
        'it begins anew")',
        ROUNDS,
    ),
    Protection(
        "unlock-of-ended-connection",
        "A queue is locked again while an unlock of an ended connection may still free it.",
        "client/consumer/ownership/lock_requests.py",
        "            self._settle_later(lambda: self._listener.unlock_failed(queues, lapsed=True))",
        "            self._listener.unlock_failed(queues, lapsed=True)",
        UNANSWERED,
    ),
    Protection(
        "lock-of-ended-connection",
        "A lock request of an ended connection is handled behind the unlock, and the queue stays locked.",
        "client/consumer/ownership/lock_requests.py",
        "            self._settle_later(lambda: self._listener.settled(queues, dict.fromkeys(queues, 0)))",
        "            self._listener.settled(queues, dict.fromkeys(queues, 0))",
        UNANSWERED,
    ),
    Protection(
        "lock-asked-after-error",
        "A queue whose lock request failed in this client is never consumed again.",
        "client/consumer/dispatch/base.py",
        "            granted = {}\n        delay_ms",
        "            return\n        delay_ms",
        OWNERSHIP,
    ),
    Protection(
        "administrator-between-calls",
        "An administrator's message waits until the run of a queue has ended.",
        "client/consumer/dispatch/orderly.py",
        "            if mutex.reserved:\n",
        "            if False:\n",
        OWNERSHIP,
    ),
    Protection(
        "refused-dead-letter-ends",
        "A dead letter that is refused under its epoch does not end the period.",
        "client/consumer/dispatch/base.py",
        "                        self._locks.refused(process_queue, error)\n",
        "                        pass\n",
        ("tests/client/dispatch/test_fenced_calls.py",),
    ),
    Protection(
        "dead-letter-under-epoch",
        "A member that has lost its queue makes dead letters of messages that the next owner handles.",
        "client/consumer/send_back.py",
        "        await self._producer.send_to(process_queue.queue.broker_name, outgoing, fence)",
        "        await self._producer.send_to(process_queue.queue.broker_name, outgoing, None)",
        ("tests/client/dispatch/test_dead_letters.py",),
    ),
    Protection(
        "fenced-commit-to-fenced",
        "A broker without fenced locks takes commits of a fenced period, whoever has the queue.",
        "client/consumer/offsets/fenced.py",
        "if offset >= 0 and endpoint is not None and endpoint.agreed:",
        "if offset >= 0 and endpoint is not None:",
        FENCED_COMMITS,
    ),
    Protection(
        "fenced-last-commit-to-fenced",
        "A broker without fenced locks takes the last commit of a fenced period, whoever has the queue.",
        "client/consumer/offsets/fenced.py",
        "        if not endpoint.agreed:",
        "        if False:",
        FENCED_COMMITS,
    ),
    Protection(
        "commit-recorded-in-its-period",
        "A commit is recorded that is answered after the end of its period.",
        "client/consumer/offsets/fenced.py",
        "        if not (process_queue.lost or process_queue.dropped):",
        "        if True:",
        FENCED_COMMITS,
    ),
    Protection(
        "sent-back-while-dropped",
        "A queue that is dropped while a message is sent back commits over its next owner.",
        "client/consumer/dispatch/concurrent.py",
        "        if offset >= 0 and not process_queue.dropped:",
        "        if offset >= 0:",
        ("tests/client/dispatch/test_consume_concurrently.py",),
    ),
    Protection(
        "assigned-again-anew",
        "A queue that is assigned again stores the offset of its earlier assignment.",
        "client/consumer/lite_member.py",
        "        for process_queue in given_up:\n            self.offsets.forget(process_queue.queue)\n",
        "",
        ("tests/client/pulls/test_lite_pull_consumer.py",),
    ),
    Protection(
        "read-keeps-commit",
        "A look at the stored offset forgets the commit that is on its way.",
        "client/consumer/lite_member.py",
        "        if lite_queue is not None and lite_queue.committed != NOT_KNOWN:",
        "        if False:",
        ("tests/client/pulls/test_lite_pull_consumer.py",),
    ),
    Protection(
        "late-end-of-connection",
        "A connection that ends late takes the one that followed it out of use.",
        "remoting/connections/dialer.py",
        "        if self._open.get(address) is closed:\n            del self._open[address]",
        "        self._open.pop(address, None)",
        ("tests/remoting/test_dialer.py",),
    ),
)
